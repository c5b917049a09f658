/// The ids of messages in ntfy's protocol. ntfy reads an id with digits only as a time, so the ids begin with a letter.
package enum NtfyMessageID {
    static let length = 12

    /// Returns a message's id: 12 characters.
    package static func text(_ message: MessageID) -> String {
        let digits = String(message)
        return "m" + String(repeating: "0", count: max(0, length - 1 - digits.utf8.count)) + digits
    }

    /// Returns the message of an id. `nil` if the id has another form.
    package static func message(_ text: String) -> MessageID? {
        let digits = text.utf8.dropFirst()
        guard text.utf8.first == UInt8(ascii: "m"), digits.count >= length - 1,
            digits.allSatisfy({ $0.isASCIIDigit })
        else { return nil }
        return MessageID(text.dropFirst())
    }

    /// Whether ntfy reads a text as an id.
    package static func isID(_ text: String) -> Bool {
        text.utf8.count == length && text.utf8.allSatisfy { $0.isASCIIDigit || $0.isASCIILetter }
    }

    /// An id for an event other than a message.
    package static func random() -> String {
        let characters = Array("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return String((0..<length).map { _ in characters[Int.random(in: 0..<characters.count)] })
    }
}
