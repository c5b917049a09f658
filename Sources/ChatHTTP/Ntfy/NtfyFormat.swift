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

    init(form: Form, topics: NtfyTopics, filter: NtfyFilter, now: @escaping TimeSource) {
        self.form = form
        self.topics = topics
        self.filter = filter
        self.now = now
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

    func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool { entry.message.map(filter.includes) ?? true }

    func message(_ message: Message, in source: StreamSource, isOwn: Bool = false) -> String {
        let (push, extras) = (message.pushBody, message.content.extras)
        let text = push?.text ?? message.text
        if form == .raw { return String(text.map { $0.isNewline ? " " : $0 }) + "\n" }
        var json = Self.head(
            id: NtfyMessageID.text(message.id), time: message.sentAt, event: "message",
            topic: topics.name(of: source))
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

    /// ntfy's clients know neither members nor receipts, and show deleted messages until they are removed there.
    func event(_ event: StreamEvent) -> String? { nil }

    private func event(_ name: String) -> String {
        if form == .raw { return "\n" }
        return framed(Self.head(id: NtfyMessageID.random(), time: now(), event: name, topic: topics.text) + "}", name)
    }

    private static func head(id: String, time: Timestamp, event: String, topic: String) -> String {
        // A topic has only letters, digits, dashes and commas.
        #"{"id":"\#(id)","time":\#(time.seconds),"event":"\#(event)","topic":"\#(topic)""#
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
