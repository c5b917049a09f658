/// How `push_queue` marks the pushes of a message that its writer or the operator deleted: they have no payload any more.
///
/// The deletion empties the payload of every push of the message, also of those that were sent. So the text is gone, and nothing
/// sends or retries such a push, whoever makes it pending again. A message that retention removes leaves no mark: its pushes
/// keep their payloads. Both databases run these conditions.
package enum DeletedMessage {
    /// Whether row `q` of `push_queue` has nothing to send. Another program may have inserted it so.
    package static let hasNoContent = "(q.payload = '' AND q.notification IS NULL)"
    /// Whether row `q` is a push of a deleted message. `member` says that it is the chat's: SQLite sets `chat_message` to NULL
    /// with the end of the message.
    package static let isOfOne = "(\(hasNoContent) AND (q.member IS NOT NULL OR q.chat_message IS NOT NULL))"
}
