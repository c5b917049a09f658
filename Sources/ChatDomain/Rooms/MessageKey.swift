/// A program's name for a message that it may change: 1 to 64 bytes of A-Z, a-z, 0-9, _ and -. Unique per room and author
/// while the message is open.
package struct MessageKey: Sendable, Hashable, CustomStringConvertible {
    /// The maximum number of bytes.
    package static let limit = 64

    package let text: String

    package init(parsing text: String, field: String = "key") throws(ChatError) {
        guard Self.areAllowed(text.utf8) else {
            throw .invalid(field, "must have 1 to \(Self.limit) of A-Z, a-z, 0-9, _ and -")
        }
        guard !MessageReference.isID(text) else {
            throw .invalid(field, "must not be digits only, or m with 11 digits: those are ids")
        }
        self.text = text
    }

    /// Whether a text has the length and the characters of a key. It may also be an id.
    package static func areAllowed(_ bytes: some Collection<UInt8>) -> Bool {
        (1...limit).contains(bytes.count)
            && bytes.allSatisfy {
                $0.isASCIIDigit || $0.isASCIILetter || $0 == UInt8(ascii: "_") || $0 == UInt8(ascii: "-")
            }
    }

    /// Wraps a key that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }
}

/// A message as a caller names it: by its id, by the number of its schedule, or by its author's key.
package enum MessageReference: Sendable, Hashable {
    case id(MessageID)
    case key(MessageKey)

    /// Reads the name of a message. Digits are an id, and so are `m` and 11 digits or more: the form of ntfy's ids. All
    /// other texts are keys.
    ///
    /// - Throws: ``ChatError/Code/notFound`` for an id that no message can have.
    package init(parsing text: String, field: String = "key") throws(ChatError) {
        guard Self.isID(text) else {
            self = .key(try MessageKey(parsing: text, field: field))
            return
        }
        guard let id = NtfyMessageID.message(text) ?? MessageID(text) else { throw .notFound("message") }
        self = .id(id)
    }

    /// Whether a text has the form of an id.
    fileprivate static func isID(_ text: String) -> Bool {
        func areDigits(_ bytes: some Collection<UInt8>) -> Bool { bytes.allSatisfy { $0.isASCIIDigit } }
        let bytes = text.utf8
        return !bytes.isEmpty && areDigits(bytes)
            || bytes.first == UInt8(ascii: "m") && bytes.count >= NtfyMessageID.length && areDigits(bytes.dropFirst())
    }
}
