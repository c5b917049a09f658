/// The ids of messages in ntfy's protocol. ntfy reads an id with digits only as a time, so the ids begin with a letter.
package enum NtfyMessageID {
    /// Returns a message's id: 12 characters.
    package static func text(_ message: MessageID) -> String {
        let digits = String(message)
        return "m" + String(repeating: "0", count: max(0, 11 - digits.utf8.count)) + digits
    }
}
