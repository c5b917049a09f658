import Foundation
import PushWire

/// Parses device tokens.
enum TokenText {
    /// The size in bytes of a token that the sandbox creates.
    static let usualSize = 32
    /// The maximum size of a token in bytes. Apple never named a larger one.
    static let maxSize = BinaryNotification.longestToken

    /// Parses a token in any form that Apple's documents print: with spaces, angle brackets, and digits in either case.
    /// - Returns: The token. `nil` unless the text is 1 to ``maxSize`` bytes in hexadecimal digits.
    static func bytes(of text: some StringProtocol) -> [UInt8]? {
        // A byte takes three characters if spaces separate the bytes. Allow four.
        guard text.utf8.count <= 4 * maxSize else { return nil }
        var digits: [UInt8] = []
        for character in text.utf8 where !" <>".utf8.contains(character) {
            guard let digit = character.hexDigit else { return nil }
            digits.append(digit)
        }
        guard digits.count % 2 == 0, (1...maxSize).contains(digits.count / 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}

extension Date {
    /// Parses a time in the form of RFC 3339, with or without fractions of a second.
    init?(rfc3339 text: String) {
        let date = [true, false].lazy.compactMap { fractions in
            try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: fractions))
        }.first
        guard let date else { return nil }
        self = date
    }

    /// The time in the form of HTTP's headers (RFC 9110 §5.6.7), in whole seconds.
    var httpDate: String {
        var (time, parts) = (time_t(timeIntervalSince1970), tm())
        gmtime_r(&time, &parts)
        let text = [CChar](unsafeUninitializedCapacity: 32) { buffer, count in
            count = strftime(buffer.baseAddress, buffer.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
        }
        return String(decoding: text.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    /// The time in the form of RFC 3339, in UTC and with milliseconds.
    var rfc3339: String { formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true)) }
}
