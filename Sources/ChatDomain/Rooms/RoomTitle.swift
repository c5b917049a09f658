/// The name of a room that people see instead of its secret code. Rooms may share a title.
package struct RoomTitle: Sendable, Hashable {
    package let text: String

    package init(parsing text: String, field: String = "title") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: MessageContent.longestTitle)
    }

    /// Wraps a title that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }
}
