import ChatDomain

extension NtfyMessageID {
    private static let length = 12

    /// Returns the message of an id. `nil` if the id has another form.
    static func message(_ text: String) -> MessageID? {
        let digits = text.utf8.dropFirst()
        guard text.utf8.first == UInt8(ascii: "m"), digits.count >= length - 1,
            digits.allSatisfy({ $0.isASCIIDigit })
        else { return nil }
        return MessageID(text.dropFirst())
    }

    /// Whether ntfy reads a text as an id.
    static func isID(_ text: String) -> Bool {
        text.utf8.count == length && text.utf8.allSatisfy { $0.isASCIIDigit || $0.isASCIILetter }
    }

    /// An id for an event other than a message.
    static func random() -> String {
        let characters = Array("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return String((0..<length).map { _ in characters[Int.random(in: 0..<characters.count)] })
    }
}
