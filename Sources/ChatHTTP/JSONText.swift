import NIOCore

/// A JSON document that is written from front to back (RFC 8259).
struct JSONText: Sendable {
    private(set) var buffer = ByteBuffer()

    /// Punctuation, numbers, literals, known keys: anything that needs no escaping.
    mutating func raw(_ text: String) {
        buffer.writeString(text)
    }

    /// A string with its quotes.
    mutating func string(_ text: String) {
        buffer.writeInteger(UInt8(ascii: "\""))
        var text = text
        text.withUTF8 { bytes in
            var start = 0
            for (index, byte) in bytes.enumerated() where Self.needsEscape(byte) {
                buffer.writeBytes(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(bytes)[start..<index]))
                escape(byte)
                start = index + 1
            }
            buffer.writeBytes(UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(bytes)[start...]))
        }
        buffer.writeInteger(UInt8(ascii: "\""))
    }

    private static func needsEscape(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
    }

    private mutating func escape(_ byte: UInt8) {
        switch byte {
        case UInt8(ascii: "\""): buffer.writeString(#"\""#)
        case UInt8(ascii: "\\"): buffer.writeString(#"\\"#)
        case 0x0A: buffer.writeString(#"\n"#)
        case 0x0D: buffer.writeString(#"\r"#)
        default:
            buffer.writeString("\\u00")
            buffer.writeString(String(byte >> 4, radix: 16))
            buffer.writeString(String(byte & 15, radix: 16))
        }
    }
}
