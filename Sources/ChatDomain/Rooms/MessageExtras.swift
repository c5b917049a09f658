/// The fields of a message that are only displayed. The databases store them as JSON in one column, which is NULL if
/// there are none, so that a further field needs no statement.
package struct MessageExtras: Sendable, Hashable {
    /// The names of the fields: in requests, in the column, in lists and in streams.
    package static let names = ofWriter + ofState

    /// The fields that the writer chooses.
    private static let ofWriter = ["tags", "markdown", "icon"]
    /// The fields that follow from the message's key and its changes.
    private static let ofState = ["key", "revision", "edited_at", "cleared_at", "resolved_at"]
    /// Marks a message whose key another author's message had first. It is not displayed.
    private static let apart = "apart"
    /// Marks a message whose last change removes its notification. It is not displayed.
    private static let removed = "removed"

    /// The maximum number of tags.
    package static let tagCount = 20
    /// The maximum number of bytes of a tag.
    package static let tagLimit = 64

    /// Also has the members that a newer relay wrote, under other names.
    private let members: JSONObject

    package init() {
        members = JSONObject()
    }

    private init(members: JSONObject) {
        self.members = members
    }

    /// Checks the fields of a request.
    ///
    /// - Parameter icon: The address of a picture.
    package init(tags: [String], markdown: Bool = false, icon: String? = nil) throws(ChatError) {
        guard tags.count <= Self.tagCount else { throw .invalid("tags", "must be at most \(Self.tagCount)") }
        var (members, checked) = (JSONObject(), [String]())
        for tag in tags { checked.append(try FieldText.checked(tag, field: "tags", limit: Self.tagLimit)) }
        if !checked.isEmpty { members["tags"] = .texts(checked) }
        if markdown { members["markdown"] = .bool(true) }
        if let icon {
            guard NotificationContent.isLink(icon) else { throw NotificationContent.invalidLink("icon") }
            members["icon"] = .string(icon)
        }
        self.members = members
    }

    /// - Parameter text: The value of the column. `nil` for NULL. A text that is not a JSON object has no fields.
    package init(stored text: String?) {
        members = text.flatMap { try? JSONValue(parsing: $0).object } ?? JSONObject()
    }

    /// The value of the column. `nil` for NULL.
    package var stored: String? { members.isEmpty ? nil : JSONValue.object(members).description }

    /// The fields that lists and streams show.
    package var shown: [(name: String, value: JSONValue)] {
        members.isEmpty ? [] : Self.names.compactMap { name in members[name].map { (name, $0) } }
    }

    // MARK: - The writer's fields

    package var tags: [String] { members["tags"]?.array?.compactMap(\.text) ?? [] }
    package var isMarkdown: Bool { members["markdown"] == .bool(true) }
    package var icon: String? { members["icon"]?.text }

    /// The fields without those that follow from the message's key and its changes.
    package var ofCaller: MessageExtras {
        var members = members
        for name in Self.ofState + [Self.apart, Self.removed] { members[name] = nil }
        return MessageExtras(members: members)
    }

    // MARK: - The key and the changes

    package var key: MessageKey? { members["key"]?.text.map(MessageKey.init(stored:)) }
    /// The message's revision. `nil` for the first one.
    package var revision: Int? { members["revision"]?.integer.flatMap(Int.init(exactly:)) }
    package var isApart: Bool { members[Self.apart] == .bool(true) }
    /// Whether the last change removes the notification: `cleared`, or `resolved` without a new text.
    package var isRemoved: Bool { members[Self.removed] == .bool(true) }
    /// The kind of the message's last change. `nil` if it was not changed.
    package var change: MessageChange.Kind? {
        MessageChange.Kind.allCases.first { kind in Self.timeName(of: kind).map { members[$0] != nil } ?? false }
    }

    private static func timeName(of kind: MessageChange.Kind) -> String? {
        switch kind {
        case .edited: "edited_at"
        case .cleared: "cleared_at"
        case .resolved: "resolved_at"
        case .deleted: nil
        }
    }

    /// Returns the writer's fields, with those that follow from the key and the last change.
    ///
    /// - Parameters:
    ///   - change: The last change. `nil` if the message was not changed.
    ///   - removes: Whether the last change removes the notification.
    package func with(
        key: MessageKey?, revision: Int = 1, change: MessageChange.Kind? = nil, at time: Timestamp, isApart: Bool,
        removes: Bool = false
    ) -> MessageExtras {
        var members = ofCaller.members
        members["key"] = key.map { .string($0.text) }
        if revision > 1 { members["revision"] = .number(revision) }
        if let name = change.flatMap(Self.timeName) { members[name] = .string(time.rfc3339) }
        if isApart { members[Self.apart] = .bool(true) }
        if removes { members[Self.removed] = .bool(true) }
        return MessageExtras(members: members)
    }
}
