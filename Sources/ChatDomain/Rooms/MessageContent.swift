/// The content of a message, apart from its writer, its room and its time. Requests, alerts, the history and earlier posts
/// embed it, so that this is the only list of these fields. Two messages with the same content are equal.
package struct MessageContent: Sendable, Hashable {
    /// The maximum number of bytes of a title.
    package static let longestTitle = 255
    /// The maximum number of bytes of a sound's name.
    package static let longestSound = 64

    /// Addresses that a message may open beside a page: a call, a letter, a place.
    private static let otherLinks = ["tel:", "mailto:", "geo:"]

    /// Whether a click on a message can open the text.
    package static func isLink(_ text: String) -> Bool {
        NotificationContent.isLink(text)
            || NotificationContent.isLinkText(text)
                && otherLinks.contains { text.hasPrefix($0) && text.utf8.count > $0.utf8.count }
    }

    package let text: MessageText
    /// The heading above the text. Only programs add this field and those below.
    package let title: String?
    /// The target of a click.
    package let link: String?
    /// The priority of the pushes, as in ``NotificationContent``. `nil` for the usual one.
    package let priority: UInt8?
    /// The name of the pushes' sound. Empty for no sound. `nil` for the relay's usual one.
    package let sound: String?
    /// Whether devices show the message at once, even while the user wants few interruptions. Its priority is then 10.
    package let isUrgent: Bool
    package let extras: MessageExtras

    /// Checks the fields of a request.
    ///
    /// - Parameter memberLimit: The limit of the text if a member writes the message. The title then becomes the first
    ///   line, because a member's message shows the member's name there, and the other fields are left out. `nil` for a
    ///   program.
    package init(
        parsing text: String, title: String? = nil, link: String? = nil, priority: UInt8? = nil, sound: String? = nil,
        isUrgent: Bool = false, extras: MessageExtras = MessageExtras(), memberLimit: Int? = nil
    ) throws(ChatError) {
        let whole = memberLimit == nil ? text : [title, text].compactMap(\.self).joined(separator: "\n")
        let text = try MessageText(parsing: whole, limit: memberLimit ?? MessageText.highestLimit)
        let title = try title.map { text throws(ChatError) in
            try FieldText.checked(text, field: "title", limit: Self.longestTitle)
        }
        if let link, !Self.isLink(link) { throw NotificationContent.invalidLink("link", or: Self.otherLinks) }
        let priority = try NotificationContent.priority(priority, isUrgent: isUrgent)
        let sound = try sound.map { text throws(ChatError) in
            text.isEmpty ? text : try FieldText.checked(text, field: "sound", limit: Self.longestSound)
        }
        self =
            memberLimit == nil
            ? MessageContent(
                stored: text.text, title: title, link: link, priority: priority, sound: sound, isUrgent: isUrgent,
                extras: extras)
            : MessageContent(text)
    }

    /// The content with other displayed fields.
    package func with(_ extras: MessageExtras) -> MessageContent {
        MessageContent(
            stored: text.text, title: title, link: link, priority: priority, sound: sound, isUrgent: isUrgent,
            extras: extras)
    }

    /// The content without the fields that follow from the message's key and its changes.
    package var ofCaller: MessageContent { with(extras.ofCaller) }

    /// The content with a text that has no marks of Markdown.
    package var withoutMarkdown: MessageContent {
        MessageContent(
            stored: MarkdownText.plain(text.text), title: title, link: link, priority: priority, sound: sound,
            isUrgent: isUrgent, extras: extras)
    }

    /// The content of a member's message.
    package init(_ text: MessageText) {
        self.init(stored: text.text)
    }

    /// Wraps values that were checked before they were stored.
    package init(
        stored text: String, title: String? = nil, link: String? = nil, priority: UInt8? = nil, sound: String? = nil,
        isUrgent: Bool = false, extras: MessageExtras = MessageExtras()
    ) {
        self.text = MessageText(stored: text)
        self.title = title
        self.link = link
        self.priority = priority
        self.sound = sound
        self.isUrgent = isUrgent
        self.extras = extras
    }
}
