/// Reads values separated by commas (RFC 4180) in UTF-8, record by record, and writes them.
struct CSVReader {
    /// The maximum size of a record in bytes, including quotes. A device with all its texts at their limits is shorter.
    static let maxRecord = 1 << 16

    struct Record: Equatable {
        /// The line on which the record starts.
        let line: Int
        /// `nil` if the record is not UTF-8.
        let fields: [String]?
    }

    private var bytes: ByteReader

    init(_ bytes: ByteReader) {
        self.bytes = bytes
    }

    /// Returns the next record. Skips empty lines. `nil` at the end.
    ///
    /// - Throws: ``UnreadableFile``.
    mutating func next() throws -> Record? {
        while let first = try bytes.peek() {
            let line = bytes.line
            if first == UInt8(ascii: "\n") || first == UInt8(ascii: "\r") {
                _ = try bytes.next()
                continue
            }
            return Record(line: line, fields: try record(from: line))
        }
        return nil
    }

    private mutating func record(from line: Int) throws -> [String]? {
        var (fields, size): ([String?], Int) = ([], 0)
        repeat {
            // Count the comma as well.
            size += 1
            guard size <= Self.maxRecord else { throw Self.tooLong(line) }
            var field: [UInt8] = []
            let isQuoted = try bytes.skip(UInt8(ascii: "\""))
            var isOpen = isQuoted
            while let byte = try bytes.peek(), isQuoted || !Self.endsField(byte) {
                _ = try bytes.next()
                size += 1
                guard size <= Self.maxRecord else { throw Self.tooLong(line) }
                if isQuoted, byte == UInt8(ascii: "\""), try !bytes.skip(UInt8(ascii: "\"")) {
                    isOpen = false
                    break
                }
                field.append(byte)
            }
            if isOpen { throw UnreadableFile(line: line, text: "a quoted value has no closing quote") }
            if let byte = try bytes.peek(), !Self.endsField(byte) {
                throw UnreadableFile(
                    line: bytes.line, text: "a closing quote must be followed by a comma or the end of the line")
            }
            fields.append(String(validating: field, as: UTF8.self))
        } while try bytes.skip(UInt8(ascii: ","))
        _ = try bytes.skip(UInt8(ascii: "\r"))
        _ = try bytes.skip(UInt8(ascii: "\n"))
        return fields.contains(nil) ? nil : fields.compactMap(\.self)
    }

    private static func tooLong(_ line: Int) -> UnreadableFile {
        UnreadableFile(line: line, text: "a record must have at most \(maxRecord) bytes; is a quote missing?")
    }

    private static func endsField(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: ",") || byte == UInt8(ascii: "\n") || byte == UInt8(ascii: "\r")
    }

    /// Returns the line of a record, including its line feed.
    static func line(_ fields: [String]) -> String {
        fields.map { field in
            let isPlain = field.utf8.allSatisfy { !endsField($0) && $0 != UInt8(ascii: "\"") }
            return isPlain ? field : "\"\(text(field, putting: "\"", before: ["\""]))\""
        }.joined(separator: ",") + "\n"
    }

    /// Inserts `mark` before each of the `marked` characters. Works on scalars, because a quote with an accent behind
    /// it is another `Character`.
    static func text(_ text: String, putting mark: Unicode.Scalar, before marked: [Unicode.Scalar]) -> String {
        text.unicodeScalars.reduce(into: "") { text, scalar in
            if marked.contains(scalar) { text.unicodeScalars.append(mark) }
            text.unicodeScalars.append(scalar)
        }
    }
}
