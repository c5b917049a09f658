import ChatDomain

/// The events of `GET /events`, as Server-Sent Events or as the messages of a WebSocket.
struct RoomEvents: EventFormat {
    let isWebSocket: Bool

    /// The client's delay before it reconnects, in milliseconds.
    private static let retry = 2000

    var key: String { isWebSocket ? "frames" : "events" }
    var heartbeatInterval: Duration { .seconds(15) }
    var contentType: String { "text/event-stream" }
    var dropsConnection: Bool { false }

    /// A comment. Proxies close a connection after a minute of silence.
    func heartbeat() -> String? { ":\n\n" }

    func message(_ message: Message, in source: StreamSource, isOwn: Bool) -> String {
        text("message", message.id) { message.writeJSON(isOwn: isOwn, to: &$0) }
    }

    /// A change has its own number as id, so that a client that resumes gets the newest state.
    func change(_ change: MessageChange, _ message: Message?, in source: StreamSource, isOwn: Bool) -> String? {
        guard change.isReadable(with: message) else { return nil }
        return text(change.kind.rawValue, change.id) { change.writeJSON(message, isOwn: isOwn, to: &$0) }
    }

    private func text(_ event: String, _ id: MessageID, data: (inout String) -> Void) -> String {
        var text =
            isWebSocket
            ? "{\"event\":\"\(event)\",\"id\":\(id),\"data\":" : "event: \(event)\nid: \(id)\ndata: "
        data(&text)
        return text + (isWebSocket ? "}" : "\n\n")
    }

    /// The id is for a client that loses the connection before the first message.
    func opening(from start: MessageID) -> String? {
        isWebSocket ? "{\"event\":\"open\",\"id\":\(start)}" : "retry: \(Self.retry)\nid: \(start)\n\n"
    }

    /// These events have no id, because they do not change the stream's position.
    func event(_ event: StreamEvent) -> String? {
        switch event {
        case .room(let summary): text("room", summary.json)
        case .receipt(let receipt): text("receipt", receipt.json)
        case .ended(.left): text("left", [:])
        case .ended(.removed): text("left", ["reason": .string("removed")])
        case .ended(.moved(let code)): text("code", ["code": .string(code.text)])
        case .ended(.reconnect), .ended(.disconnected): nil
        }
    }

    private func text(_ event: String, _ data: JSONObject) -> String {
        let json = JSONValue.object(data)
        return isWebSocket ? "{\"event\":\"\(event)\",\"data\":\(json)}" : "event: \(event)\ndata: \(json)\n\n"
    }
}

extension RoomSummary {
    fileprivate var json: JSONObject {
        var json: JSONObject = ["members": .number(members)]
        json["title"] = title.map { .string($0.text) }
        return json
    }
}
