import ChatDomain

/// The form in which ntfy's clients receive a topic's messages.
struct NtfyFormat: EventFormat {
    enum Form: String, Sendable, CaseIterable {
        case json, sse, raw
        case webSocket = "ws"
    }

    let form: Form
    let topics: NtfyTopics
    let filter: NtfyFilter
    let now: TimeSource
    let key: String
    /// Whether the client gets `message_clear` and `message_delete`.
    private let hasRemovals: Bool

    /// - Parameter isPhone: Whether the client is ntfy's app for iPhones, which stores every event as a message.
    init(form: Form, topics: NtfyTopics, filter: NtfyFilter, isPhone: Bool = false, now: @escaping TimeSource) {
        self.form = form
        self.topics = topics
        self.filter = filter
        self.now = now
        hasRemovals = form != .raw && !isPhone
        // The bytes depend on the name of the message's source.
        key =
            "ntfy \(form.rawValue) "
            + topics.all.map { "\($0.source.room?.text ?? "")\n\($0.name)" }.joined(separator: "\n")
    }

    let heartbeatInterval = Duration.seconds(45)
    /// ntfy's app reconnects without a pause to a stream that ends properly.
    let dropsConnection = true

    var contentType: String {
        switch form {
        case .json, .webSocket: "application/x-ndjson; charset=utf-8"
        case .sse: "text/event-stream; charset=utf-8"
        case .raw: "text/plain; charset=utf-8"
        }
    }

    /// The title that clients show. They have no other place for the writer's name.
    static func title(of message: Message) -> String? {
        message.sender.isProgram ? message.content.title : message.nickname
    }

    /// Each message comes once: a changed one with the id of its change, because clients continue after the last id. A
    /// message whose notification was removed comes with its own id, and the removal follows.
    func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool {
        switch entry {
        case .message(let message):
            // A client that asks for one id knows it from an announcement, which came before the change.
            (filter.id != nil || !Self.isInChange(message))
                && filter.includes(message, id: message.id, at: message.sentAt)
        case .change(let change, let message):
            switch Self.event(of: change, message) {
            case .message?: message.map { filter.includes($0, id: change.id, at: change.time) } ?? false
            case .clear?, .delete?: hasRemovals && filter.includes(id: change.id, at: change.time)
            case nil: false
            }
        }
    }

    /// Whether the last change of a message has its text.
    private static func isInChange(_ message: Message) -> Bool {
        message.content.extras.change != nil && !message.content.extras.isRemoved
    }

    private enum Event: String {
        case message
        case clear = "message_clear"
        case delete = "message_delete"
    }

    /// Returns the event of a change. `nil` if retention has deleted the message.
    private static func event(of change: MessageChange, _ message: Message?) -> Event? {
        switch change.kind {
        case .deleted: .delete
        case .cleared: .clear
        case .edited, .resolved: message.map { $0.content.extras.isRemoved ? .clear : .message }
        }
    }

    func message(_ message: Message, in source: StreamSource, isOwn: Bool = false) -> String {
        event(of: message, id: message.id, at: message.sentAt, in: source)
    }

    func change(_ change: MessageChange, _ message: Message?, in source: StreamSource, isOwn: Bool = false) -> String? {
        guard let event = Self.event(of: change, message) else { return nil }
        if event == .message, let message { return self.event(of: message, id: change.id, at: change.time, in: source) }
        return framed(
            Self.head(
                id: change.id, sequence: Self.sequence(change.message, change.key, isApart: change.isApart),
                time: change.time, event: event.rawValue, topic: topics.name(of: source)) + "}", nil)
    }

    func text(of entry: RoomEntry, in source: StreamSource) -> String {
        switch entry {
        case .message(let message): self.message(message, in: source)
        case .change(let change, let message): self.change(change, message, in: source) ?? ""
        }
    }

    /// Returns the name under which clients replace a message: its key; or its own id if it has none, or if another
    /// author's message had the key first.
    static func sequence(_ message: MessageID, _ key: MessageKey?, isApart: Bool) -> String {
        isApart
            ? NtfyMessageID.text(message) : key.map { NtfyParameters.sequence(of: $0) } ?? NtfyMessageID.text(message)
    }

    private func event(of message: Message, id: MessageID, at time: Timestamp, in source: StreamSource) -> String {
        let (push, extras) = (message.pushBody, message.content.extras)
        let text = push?.text ?? message.text
        if form == .raw { return String(text.map { $0.isNewline ? " " : $0 }) + "\n" }
        var json = Self.head(
            id: id, sequence: Self.sequence(message.id, extras.key, isApart: extras.isApart), time: time,
            event: Event.message.rawValue, topic: topics.name(of: source))
        for (name, value) in [
            ("title", Self.title(of: message)), ("message", text), ("click", message.content.link),
            ("encoding", push?.isEncoded == true ? "base64" : nil), ("icon", extras.icon),
            ("content_type", extras.isMarkdown ? "text/markdown" : nil),
        ] {
            guard let value, !value.isEmpty || name == "message" else { continue }
            json += ",\"\(name)\":"
            Self.write(value, to: &json)
        }
        if let priority = NtfyPriority(of: message) { json += ",\"priority\":\(priority.rawValue)" }
        for (number, tag) in extras.tags.enumerated() {
            json += number == 0 ? ",\"tags\":[" : ","
            Self.write(tag, to: &json)
        }
        return framed(json + (extras.tags.isEmpty ? "}" : "]}"), nil)
    }

    private static func write(_ text: String, to json: inout String) {
        json += "\""
        escape(text, into: &json)
        json += "\""
    }

    /// Escapes a text for JSON on one line. A JSON string may contain U+2028 and U+2029, where some clients end a line:
    /// ntfy's app on iPhones then reads no message of the poll, and Python's `splitlines` cuts the message.
    private static func escape(_ text: String, into json: inout String) {
        guard text.unicodeScalars.contains(where: { separators.contains($0) }) else {
            return JSONString.escape(text, into: &json)
        }
        for scalar in text.unicodeScalars {
            if separators.contains(scalar) {
                json += "\\u" + String(scalar.value, radix: 16)
            } else {
                JSONString.escape(String(scalar), into: &json)
            }
        }
    }

    private static let separators: [Unicode.Scalar] = ["\u{2028}", "\u{2029}"]

    func opening(from start: MessageID) -> String? { event("open") }

    func heartbeat() -> String? { event("keepalive") }

    /// ntfy's clients know neither members nor receipts.
    func event(_ event: StreamEvent) -> String? { nil }

    private func event(_ name: String) -> String {
        if form == .raw { return "\n" }
        return framed(Self.head(id: NtfyMessageID.random(), time: now(), event: name, topic: topics.text) + "}", name)
    }

    private static func head(
        id: MessageID, sequence: String, time: Timestamp, event: String, topic: String
    ) -> String {
        let id = NtfyMessageID.text(id)
        return head(id: id, sequence: sequence == id ? nil : sequence, time: time, event: event, topic: topic)
    }

    private static func head(
        id: String, sequence: String? = nil, time: Timestamp, event: String, topic: String
    ) -> String {
        // Topics and keys have only letters, digits, dashes, underscores and commas.
        let sequence = sequence.map { #","sequence_id":"\#($0)""# } ?? ""
        return #"{"id":"\#(id)"\#(sequence),"time":\#(time.seconds),"event":"\#(event)","topic":"\#(topic)""#
    }

    /// - Parameter event: The name for an event stream. `nil` for a message.
    private func framed(_ json: String, _ event: String?) -> String {
        switch form {
        case .json: json + "\n"
        case .sse: (event.map { "event: \($0)\n" } ?? "") + "data: \(json)\n\n"
        case .webSocket, .raw: json
        }
    }
}
