/// Reads the rows of some tables from the output of `mysqldump`, statement by statement. Skips everything else.
///
/// Understands INSERT and REPLACE with one row or many, with or without columns, and CREATE TABLE for the columns of
/// statements that name none.
struct MySQLDump {
    /// The maximum size of a value in bytes. No column of the tables accepts more.
    static let maxValue = 1 << 20
    private static let maxValues = 256

    struct Row: Equatable {
        let table: String
        /// The line on which the row starts, and its index within the statement, from 1. A line may contain thousands
        /// of rows.
        let line: Int
        let number: Int
        /// The values by lower-case column. `nil` for NULL.
        let values: [String: [UInt8]?]
    }

    private struct Insert {
        let table: String
        let columns: [String]
        var rows = 0
    }

    private var bytes: ByteReader
    /// The columns of the wanted tables, as the file has defined them up to here.
    private var columns: [String: [String]]
    private var insert: Insert?

    /// Creates a reader of a dump.
    /// - Parameter tables: The wanted tables, with their columns unless the file defines others.
    init(_ bytes: ByteReader, tables: [String: [String]]) {
        self.bytes = bytes
        columns = tables
    }

    /// The next row. `nil` at the end.
    ///
    /// - Throws: ``UnreadableFile``.
    mutating func next() throws -> Row? {
        while true {
            if let row = try nextOfInsert() { return row }
            try skipBlanks()
            guard try bytes.peek() != nil else { return nil }
            if try bytes.skip(UInt8(ascii: ";")) { continue }
            switch try word().uppercased() {
            case "INSERT", "REPLACE": try beginInsert()
            case "CREATE": try readCreate()
            default: try skipStatement()
            }
        }
    }

    // MARK: - Statements

    private mutating func beginInsert() throws {
        var name = try word()
        while ["INTO", "IGNORE", "LOW_PRIORITY", "DELAYED"].contains(name.uppercased()) { name = try word() }
        guard let known = columns[name] else { return try skipStatement() }
        var named: [String] = []
        if try token() == UInt8(ascii: "(") {
            _ = try bytes.next()
            repeat {
                named.append(try word().lowercased())
                guard named.count <= Self.maxValues else { throw unreadable("more columns than a table can have") }
            } while try skip(",")
            try require(")")
        }
        guard try ["VALUES", "VALUE"].contains(word().uppercased()) else {
            throw unreadable("INSERT INTO \(name) must be followed by VALUES")
        }
        insert = Insert(table: name, columns: named.isEmpty ? known : named)
    }

    private mutating func nextOfInsert() throws -> Row? {
        guard var current = insert else { return nil }
        if current.rows > 0, try !skip(",") {
            insert = nil
            // Skips for example ON DUPLICATE KEY UPDATE.
            try skipStatement()
            return nil
        }
        try skipBlanks()
        let line = bytes.line
        try require("(")
        var values: [[UInt8]?] = []
        repeat {
            values.append(try value())
            guard values.count <= Self.maxValues else {
                throw unreadable("a row has more values than a table can have columns")
            }
        } while try skip(",")
        try require(")")
        current.rows += 1
        insert = current
        guard values.count == current.columns.count else {
            throw unreadable(
                "row \(current.rows) of \(current.table) has \(values.count) values for \(current.columns.count) "
                    + "columns (\(current.columns.joined(separator: ", ")))")
        }
        return Row(
            table: current.table, line: line, number: current.rows,
            values: Dictionary(zip(current.columns, values)) { $1 })
    }

    /// Reads the columns of a wanted table. The definition of a column begins with a quoted name, and the definition of
    /// a key with a word.
    private mutating func readCreate() throws {
        guard try word().uppercased() == "TABLE" else { return try skipStatement() }
        var name = try word()
        while ["IF", "NOT", "EXISTS"].contains(name.uppercased()) { name = try word() }
        guard columns[name] != nil, try skip("(") else { return try skipStatement() }
        var found: [String] = []
        repeat {
            let isName = try token() == UInt8(ascii: "`")
            let first = try word()
            let isKey = ["PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "FOREIGN", "CHECK"]
                .contains(first.uppercased())
            if isName || !isKey { found.append(first.lowercased()) }
            guard found.count <= Self.maxValues else { throw unreadable("more columns than a table can have") }
            try skipStatement(inside: true)
        } while try skip(",")
        columns[name] = found
        try skipStatement()
    }

    /// Skips to the end of the statement, including the `;`. With `inside`, skips up to the comma or bracket that ends
    /// a part.
    private mutating func skipStatement(inside: Bool = false) throws {
        var depth = 0
        while let byte = try token() {
            switch byte {
            case UInt8(ascii: ";") where !inside || depth == 0:
                if !inside { _ = try bytes.next() }
                return
            case UInt8(ascii: "'"), UInt8(ascii: "\""), UInt8(ascii: "`"):
                _ = try quoted(keeps: false)
                continue
            case UInt8(ascii: "("): depth += 1
            case UInt8(ascii: ")"):
                if inside, depth == 0 { return }
                depth -= 1
            case UInt8(ascii: ",") where inside && depth == 0: return
            default: break
            }
            _ = try bytes.next()
        }
    }

    // MARK: - Values

    /// Reads NULL, a number, a text in quotes, or bytes as `0x…`, `x'…'` or `_binary '…'`.
    private mutating func value() throws -> [UInt8]? {
        guard let first = try token() else { throw unreadable("the file ends inside a row") }
        if first == UInt8(ascii: "'") || first == UInt8(ascii: "\"") { return try quoted(keeps: true) }
        let word = try word()
        if word.uppercased() == "NULL" { return nil }
        if word.hasPrefix("_"), try token() == UInt8(ascii: "'") { return try quoted(keeps: true) }
        if word.lowercased() == "x", try bytes.peek() == UInt8(ascii: "'") {
            return try hex(try quoted(keeps: true)[...])
        }
        if word.hasPrefix("0x") || word.hasPrefix("0X") { return try hex(Array(word.utf8).dropFirst(2)) }
        return Array(word.utf8)
    }

    private func hex(_ digits: ArraySlice<UInt8>) throws -> [UInt8] {
        let digits = digits.count.isMultiple(of: 2) ? Array(digits) : [UInt8(ascii: "0")] + digits
        func nibble(_ digit: UInt8) -> UInt8? { Character(Unicode.Scalar(digit)).hexDigitValue.map { UInt8($0) } }
        return try stride(from: 0, to: digits.count, by: 2).map { index in
            guard let high = nibble(digits[index]), let low = nibble(digits[index + 1]) else {
                throw unreadable("bytes must be hexadecimal digits")
            }
            return high << 4 | low
        }
    }

    /// Reads a text in quotes of any kind, with backslashes (not in names) and doubled quotes.
    private mutating func quoted(keeps: Bool) throws -> [UInt8] {
        let line = bytes.line
        guard let quote = try bytes.next() else { return [] }
        var (text, size): ([UInt8], Int) = ([], 0)
        while let byte = try bytes.next() {
            var value = byte
            if byte == quote {
                guard try bytes.skip(quote) else { return text }
            } else if byte == UInt8(ascii: "\\"), quote != UInt8(ascii: "`") {
                guard let escaped = try bytes.next() else { break }
                value = Self.escapes[escaped] ?? escaped
            }
            guard keeps else { continue }
            size += 1
            guard size <= Self.maxValue else {
                throw UnreadableFile(line: line, text: "a value must have at most \(Self.maxValue) bytes")
            }
            text.append(value)
        }
        throw UnreadableFile(line: line, text: "the text that starts here has no end")
    }

    private static let escapes: [UInt8: UInt8] = [
        UInt8(ascii: "0"): 0, UInt8(ascii: "b"): 8, UInt8(ascii: "n"): 10, UInt8(ascii: "r"): 13, UInt8(ascii: "t"): 9,
        UInt8(ascii: "Z"): 26,
    ]

    // MARK: - Words

    /// Reads a name in quotes, or the text up to a blank or a mark. Empty if the next character is a mark.
    private mutating func word() throws -> String {
        guard let first = try token() else { return "" }
        if first == UInt8(ascii: "`") || first == UInt8(ascii: "\"") {
            return String(decoding: try quoted(keeps: true), as: UTF8.self)
        }
        var text: [UInt8] = []
        while let byte = try bytes.peek(), !Self.isBlank(byte), !Self.marks.contains(byte) {
            _ = try bytes.next()
            text.append(byte)
            // A blob in hexadecimal digits counts as a word, and has two digits per byte.
            guard text.count <= 2 * Self.maxValue else { throw unreadable("a word has no end") }
        }
        if text.isEmpty, first != UInt8(ascii: "("), first != UInt8(ascii: ")"), first != UInt8(ascii: ";") {
            _ = try bytes.next()
        }
        return String(decoding: text, as: UTF8.self)
    }

    private static let marks = Set("(),;'\"`".utf8)

    private static func isBlank(_ byte: UInt8) -> Bool { byte <= 32 }

    /// The next byte outside blanks and comments, without consuming it.
    private mutating func token() throws -> UInt8? {
        try skipBlanks()
        return try bytes.peek()
    }

    /// Skips blanks and comments: `-- …`, `# …`, `/* … */`. MySQL's commands in `/*! … */` set variables and keys, and
    /// never contain rows.
    private mutating func skipBlanks() throws {
        while let byte = try bytes.peek() {
            if Self.isBlank(byte) {
                _ = try bytes.next()
            } else if byte == UInt8(ascii: "#") {
                try skipLine()
            } else if byte == UInt8(ascii: "-") {
                // Keep a minus that begins a number.
                guard try bytes.peekSecond() == byte else { return }
                try skipLine()
            } else if byte == UInt8(ascii: "/") {
                guard try bytes.peekSecond() == UInt8(ascii: "*") else { return }
                try skipComment()
            } else {
                return
            }
        }
    }

    private mutating func skipLine() throws {
        while let byte = try bytes.next(), byte != UInt8(ascii: "\n") {}
    }

    private mutating func skipComment() throws {
        let line = bytes.line
        _ = (try bytes.next(), try bytes.next())
        while let byte = try bytes.next() {
            if byte == UInt8(ascii: "*"), try bytes.skip(UInt8(ascii: "/")) { return }
        }
        throw UnreadableFile(line: line, text: "the comment that starts here has no end")
    }

    private mutating func skip(_ mark: Unicode.Scalar) throws -> Bool {
        guard try token() == UInt8(ascii: mark) else { return false }
        _ = try bytes.next()
        return true
    }

    private mutating func require(_ mark: Unicode.Scalar) throws {
        guard try skip(mark) else {
            throw unreadable(
                "is not in the format of mysqldump: expected \(mark)\(insert.map { " in a row of \($0.table)" } ?? "")")
        }
    }

    private func unreadable(_ text: String) -> UnreadableFile { UnreadableFile(line: bytes.line, text: text) }
}
