import APNSWire

/// Reads and writes device tokens as text.
enum TokenText {
    /// Bytes of a token: Apple never named more.
    static let longest = BinaryNotification.longestToken

    /// The bytes of a token in any form that Apple's documents print: spaces, angle brackets, either case.
    /// - Returns: nil for anything else than 1 to ``longest`` bytes in hexadecimal digits.
    static func bytes(of text: String) -> [UInt8]? {
        // Three characters a byte with spaces, and some room.
        guard text.utf8.count <= 4 * longest else { return nil }
        var digits: [UInt8] = []
        for character in text.utf8 where ![0x20, 0x3C, 0x3E].contains(character) {
            guard let digit = character.hexDigit else { return nil }
            digits.append(digit)
        }
        guard digits.count % 2 == 0, (1...longest).contains(digits.count / 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

extension UInt8 {
    /// The value of an ASCII hexadecimal digit of either case.
    var hexDigit: UInt8? {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

extension Sequence<UInt8> {
    /// Lower-case hexadecimal digits.
    var hex: String {
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        for byte in self {
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 0x0F)])
        }
        return String(decoding: text, as: UTF8.self)
    }
}
