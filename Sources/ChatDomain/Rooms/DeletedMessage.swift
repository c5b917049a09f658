/// The mark in `push_queue` of pushes whose message was deleted by its writer or the operator: they have no payload any
/// more.
///
/// The deletion empties the payload of every push of the message, including pushes that were sent. So the text is gone,
/// and no dispatcher sends or retries such a push, even if another program makes it pending again. A message that
/// retention removes leaves no mark: its pushes keep their payloads. Both databases run these conditions.
package enum DeletedMessage {
    /// Whether row `q` of `push_queue` has nothing to send. Another program may have inserted such a row.
    package static let hasNoContent = "(q.payload = '' AND q.notification IS NULL)"
    /// Whether row `q` is a push of a deleted message. `member` marks a push of the chat, because SQLite sets
    /// `chat_message` to NULL when the message is deleted.
    package static let isOfOne = "(\(hasNoContent) AND (q.member IS NOT NULL OR q.chat_message IS NOT NULL))"
}
