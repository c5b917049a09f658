/// An app whose pushes an operator holds back.
package struct QueuePause: Sendable, Hashable {
    package let app: AppName
    package let reason: String?
    /// The name of the operator's token, as in ``Moderator/name``.
    package let actor: String
    package let since: Timestamp

    /// The maximum number of bytes of a reason.
    package static let longestReason = 255

    package init(app: AppName, reason: String?, actor: String, since: Timestamp) {
        self.app = app
        self.reason = reason
        self.actor = actor
        self.since = since
    }

    package static func reason(_ text: String, field: String) throws(ChatError) -> String {
        try FieldText.checked(text, field: field, limit: longestReason)
    }
}
