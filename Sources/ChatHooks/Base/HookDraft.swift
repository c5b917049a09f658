package import ChatDomain

/// A message that a request asks for. Every text fits the relay's limits.
package struct HookDraft: Sendable, Hashable {
    package enum Urgency: String, Sendable, Hashable, CaseIterable {
        /// No sound, and the push may wait until the device wakes up.
        case quiet
        case usual
        /// Devices show the message at once, even while the user wants few interruptions.
        case urgent
    }

    package enum State: String, Sendable, Hashable, CaseIterable {
        /// Something is wrong. The message stays open until it is resolved.
        case firing
        case resolved
        /// Something happened, and nothing will end it.
        case event
    }

    /// The name under which later requests change the message. `nil` for a message that never changes.
    package let key: MessageKey?
    package let title: String?
    package let text: String
    package let link: String?
    package let tags: [String]
    package let isMarkdown: Bool
    package let urgency: Urgency
    package let state: State
    /// The severity, from 0 to 4, of each alert that is firing, by a short id. An update of the message rings if an id
    /// is new or a severity rose, and if nothing changed, because then the sender repeats the alarm.
    package let firing: [String: Int]
    /// Whether a resolved draft becomes a message if none with its key is open. A success after a success is not worth
    /// one.
    package let standsAlone: Bool

    /// Fits all values into the limits. A link that browsers cannot open is left out.
    ///
    /// - Parameters:
    ///   - rank: The severity, as ``HookSeverity`` has it.
    ///   - firing: The ranks of the alerts that are firing, by their ids. `nil` for one alert, which the key names.
    init(
        key: MessageKey? = nil, title: String? = nil, text: String, link: String? = nil, tags: [String] = [],
        isMarkdown: Bool = false, rank: Int = HookSeverity.usual, state: State = .event, firing: [String: Int]? = nil,
        standsAlone: Bool = true
    ) {
        let title = title.flatMap { Self.fitting($0, limit: MessageContent.longestTitle, keepsLines: false) }
        let text = Self.fitting(text, limit: MessageText.highestLimit)
        self.key = key
        self.title = text == nil ? nil : title
        self.text = text ?? title ?? "(no text)"
        self.link = link.flatMap { MessageContent.isLink($0) ? $0 : nil }
        let fitting = tags.compactMap { Self.fitting($0, limit: MessageExtras.tagLimit, keepsLines: false) }
        self.tags = Array(fitting.prefix(MessageExtras.tagCount))
        self.isMarkdown = isMarkdown
        self.urgency = state == .resolved ? .quiet : HookSeverity.urgency(rank)
        // Without a key, nothing can end the message.
        self.state = key == nil ? .event : state
        self.firing = state == .firing ? Self.fitting(firing ?? key.map { [$0.text: rank] } ?? [:]) : [:]
        self.standsAlone = standsAlone
    }

    /// Returns the text without blanks at its ends. `nil` if people see nothing of it.
    private static func fitting(_ text: String, limit: Int, keepsLines: Bool = true) -> String? {
        let text = FieldText.trimmed(FieldText.fitting(text, limit: limit, keepsLines: keepsLines))
        return FieldText.isBlank(text) ? nil : text
    }

    /// Replaces too many alerts with the highest rank and the number of them. So an update rings if one of both rises,
    /// and is silent if alerts only end. It rings once more when all alerts fit again.
    private static func fitting(_ firing: [String: Int]) -> [String: Int] {
        guard firing.count > HookMemory.alertLimit else { return firing }
        return ["rank": firing.values.max() ?? 0, "count": firing.count]
    }

    /// The content of the message.
    package func content() throws(ChatError) -> MessageContent {
        try MessageContent(
            parsing: text, title: title, link: link, priority: urgency == .quiet ? 5 : nil,
            sound: urgency == .quiet ? "" : nil, isUrgent: urgency == .urgent,
            extras: MessageExtras(tags: tags, markdown: isMarkdown))
    }
}
