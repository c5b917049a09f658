import Foundation

/// Writes rows in the text form of PostgreSQL's `COPY`, so that the same row has the same bytes in both stores. Tabs
/// separate the fields, and a line feed ends the row. NULL is `\N`, a flag `t` or `f`, bytes are `\\x` and hex digits,
/// and a time is ``Timestamp/sqlText``.
package struct RowWriter {
    /// The reason why a value cannot be copied. It follows the name of the value's column.
    package struct Problem: Error, CustomStringConvertible {
        package let description: String
    }

    /// The bytes written since ``begin()``.
    package private(set) var bytes: [UInt8] = []
    private var isFirst = true

    package init() {}

    package mutating func begin() {
        bytes.removeAll(keepingCapacity: true)
        isFirst = true
    }

    package mutating func end() { bytes.append(UInt8(ascii: "\n")) }

    private mutating func beginField() {
        if !isFirst { bytes.append(UInt8(ascii: "\t")) }
        isFirst = false
    }

    package mutating func addNull() {
        beginField()
        bytes.append(contentsOf: "\\N".utf8)
    }

    package mutating func add(number: Int64) {
        beginField()
        bytes.append(contentsOf: String(number).utf8)
    }

    package mutating func add(flag: Bool) {
        beginField()
        bytes.append(UInt8(ascii: flag ? "t" : "f"))
    }

    package mutating func add(bytes value: UnsafeRawBufferPointer) {
        beginField()
        bytes.append(contentsOf: "\\\\x".utf8)
        bytes.append(contentsOf: Hex.text(Array(value)).utf8)
    }

    /// Adds a text.
    ///
    /// - Throws: ``Problem`` if PostgreSQL cannot store the text, because it is not UTF-8 or contains a zero byte.
    package mutating func add(text: UnsafeRawBufferPointer) throws(Problem) {
        beginField()
        var isASCII = true
        for byte in text {
            switch byte {
            case 0: throw Problem(description: "has a zero byte, which PostgreSQL cannot store")
            case 0x20..<0x5C, 0x5D..<0x80: bytes.append(byte)
            case 0x80...:
                isASCII = false
                bytes.append(byte)
            default:
                if let letter = Self.escape(byte) {
                    bytes.append(UInt8(ascii: "\\"))
                    bytes.append(letter)
                } else {
                    bytes.append(byte)
                }
            }
        }
        guard isASCII || String(validating: text, as: UTF8.self) != nil else {
            throw Problem(description: "is not UTF-8")
        }
    }

    /// The first moment that both databases can store, 0001-01-01.
    private static let earliest = Timestamp(seconds: -62_135_596_800)

    /// Adds a time.
    ///
    /// - Parameter text: A time that ``Timestamp/init(sqlText:)`` can read, with any number of decimals. It is written
    ///   with three.
    package mutating func add(time text: UnsafeRawBufferPointer) throws(Problem) {
        let time =
            Timestamp(sqlText: text) ?? String(validating: text, as: UTF8.self).flatMap { Timestamp(sqlText: $0) }
        guard let time, time >= Self.earliest, time.seconds <= Timestamp.latestSeconds else {
            throw Problem(description: "is not a time like 2026-05-07 21:57:29.123")
        }
        beginField()
        bytes.append(contentsOf: time.sqlText.utf8)
    }

    /// The letter that represents a byte after a backslash. `nil` if the byte represents itself.
    private static func escape(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "\\"): byte
        case 0x08: UInt8(ascii: "b")
        case 0x09: UInt8(ascii: "t")
        case 0x0A: UInt8(ascii: "n")
        case 0x0B: UInt8(ascii: "v")
        case 0x0C: UInt8(ascii: "f")
        case 0x0D: UInt8(ascii: "r")
        default: nil
        }
    }
}

/// Splits rows that ``RowWriter`` or PostgreSQL has written into their fields.
package struct RowReader {
    private var unescaped: [UInt8] = []

    package init() {}

    /// Calls `field` with each field in order. The bytes are `nil` for NULL, and valid only until `field` returns.
    package mutating func read(
        _ row: UnsafeRawBufferPointer, _ field: (_ index: Int, _ bytes: UnsafeRawBufferPointer?) throws -> Void
    ) throws {
        let end = row.last == UInt8(ascii: "\n") ? row.count - 1 : row.count
        var (start, index) = (0, 0)
        while true {
            let rest = UnsafeRawBufferPointer(rebasing: row[start..<end])
            let length = Self.position(of: UInt8(ascii: "\t"), in: rest) ?? rest.count
            let bytes = UnsafeRawBufferPointer(rebasing: rest[..<length])
            if Self.position(of: UInt8(ascii: "\\"), in: bytes) == nil {
                try field(index, bytes)
            } else if bytes.elementsEqual("\\N".utf8) {
                try field(index, nil)
            } else {
                unescape(bytes)
                try unescaped.withUnsafeBytes { try field(index, $0) }
            }
            if length == rest.count { return }
            (start, index) = (start + length + 1, index + 1)
        }
    }

    private static func position(of byte: UInt8, in bytes: UnsafeRawBufferPointer) -> Int? {
        guard let start = bytes.baseAddress, let found = memchr(start, Int32(byte), bytes.count) else { return nil }
        return UnsafeRawPointer(found) - start
    }

    private mutating func unescape(_ bytes: UnsafeRawBufferPointer) {
        unescaped.removeAll(keepingCapacity: true)
        var isEscaped = false
        for byte in bytes {
            if isEscaped {
                unescaped.append(Self.meaning(of: byte))
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else {
                unescaped.append(byte)
            }
        }
    }

    private static func meaning(of letter: UInt8) -> UInt8 {
        switch letter {
        case UInt8(ascii: "b"): 0x08
        case UInt8(ascii: "t"): 0x09
        case UInt8(ascii: "n"): 0x0A
        case UInt8(ascii: "v"): 0x0B
        case UInt8(ascii: "f"): 0x0C
        case UInt8(ascii: "r"): 0x0D
        default: letter
        }
    }
}
