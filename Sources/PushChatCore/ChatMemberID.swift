public import Foundation

/// The id of a member, which the API calls `udid`: 32 or 40 hexadecimal digits. It proves the member's identity, so an
/// app keeps it secret.
public struct ChatMemberID: Sendable, Hashable, Codable, CustomStringConvertible {
    /// The digits, in lower case.
    public let text: String

    /// Uses an id that exists, such as one that an earlier version of the app stored.
    ///
    /// Returns `nil` unless the text has 32 or 40 hexadecimal digits. Dashes are ignored.
    public init?(_ text: String) {
        let digits = text.lowercased().filter { $0 != "-" }
        guard [32, 40].contains(digits.utf8.count), digits.utf8.allSatisfy({ Self.digits.contains($0) }) else {
            return nil
        }
        self.text = digits
    }

    /// Uses a UUID, such as the one of `UIDevice.identifierForVendor`.
    public init(_ uuid: UUID) {
        text = uuid.uuidString.lowercased().filter { $0 != "-" }
    }

    /// A new id that cannot be guessed.
    public static func random() -> ChatMemberID {
        var generator = SystemRandomNumberGenerator()
        let digits = Array(digits)
        let bytes = (0..<40).map { _ in digits[Int.random(in: 0..<16, using: &generator)] }
        return ChatMemberID(unchecked: String(decoding: bytes, as: UTF8.self))
    }

    private init(unchecked text: String) {
        self.text = text
    }

    private static let digits = "0123456789abcdef".utf8

    public var description: String { "\(text.prefix(8))…" }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let id = ChatMemberID(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not the id of a member")
        }
        self = id
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}
