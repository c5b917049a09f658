import Foundation

extension Sequence<UInt8> {
    /// The bytes as lower-case hexadecimal digits.
    package var hex: String {
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        for byte in self {
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 0x0F)])
        }
        return String(decoding: text, as: UTF8.self)
    }
}

extension UInt8 {
    /// The value of an ASCII hexadecimal digit of either case. `nil` for any other byte.
    package var hexDigit: UInt8? {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// Whether the byte belongs to the alphabet of base64url.
    package var isURLSafe: Bool {
        switch self {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}

/// Base64 with `-` and `_`, and without padding (RFC 4648 §5, RFC 7515 §2).
package enum Base64URL {
    package static func text(_ bytes: [UInt8]) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }

    /// Returns `nil` for any other text, including padded text.
    package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
        guard text.utf8.allSatisfy({ $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "=") })
        else { return nil }
        let standard = text.replacingOccurrences(of: "-", with: "+").replacingOccurrences(of: "_", with: "/")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return Data(base64Encoded: standard + padding).map(Array.init)
    }

    /// Reads base64 as people paste it: in either alphabet, with or without padding, and with blanks and line ends. For
    /// keys and subscriptions. Signed texts have one valid form only.
    package static func bytesOfAny(_ text: some StringProtocol) -> [UInt8]? {
        let digits = String(text.filter { !$0.isWhitespace })
        let padding = digits.reversed().prefix { $0 == "=" }.count
        return padding > 2
            ? nil : bytes(digits.dropLast(padding).replacing("+", with: "-").replacing("/", with: "_"))
    }
}
