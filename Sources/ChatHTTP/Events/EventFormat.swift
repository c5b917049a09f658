import ChatDomain
import NIOCore

/// The form in which a stream writes its events.
protocol EventFormat: Sendable {
    /// Streams whose formats have equal keys share the bytes of a message or change.
    var key: String { get }
    /// Whether a message or change goes to this stream. By default all do.
    func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool
    /// - Parameter isOwn: Whether the stream's reader has written the message.
    func message(_ message: Message, in source: StreamSource, isOwn: Bool) -> String
    /// A change of a message. `nil` if the format has no such event, which is the default.
    ///
    /// - Parameters:
    ///   - message: The message in its newest form. `nil` if it is gone.
    ///   - isOwn: Whether the stream's reader has written the message.
    func change(_ change: MessageChange, _ message: Message?, in source: StreamSource, isOwn: Bool) -> String?
    /// The first event. `nil` for none.
    ///
    /// - Parameter start: The message after which the stream begins. For several sources, the earliest.
    func opening(from start: MessageID) -> String?
    /// An event other than a message or a change. `nil` if the format has no such event.
    func event(_ event: StreamEvent) -> String?
    /// The time of silence before a heartbeat of an HTTP stream.
    var heartbeatInterval: Duration { get }
    /// The payload of an HTTP stream after silence. `nil` for nothing. A WebSocket sends a ping instead.
    func heartbeat() -> String?
    /// The content type of an HTTP stream.
    var contentType: String { get }
    /// Whether the connection is closed at the end without a last chunk, so that the client reconnects. A WebSocket
    /// always closes without a Close frame.
    var dropsConnection: Bool { get }
}

extension EventFormat {
    func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool { true }

    func change(_ change: MessageChange, _ message: Message?, in source: StreamSource, isOwn: Bool) -> String? { nil }
}

/// An event other than a message or a change.
enum StreamEvent: Sendable {
    /// The room's members and title. A stream of several sources has no such event.
    case room(RoomSummary)
    /// The delivery state of the reader's last message.
    case receipt(Receipt)
    /// The stream ends for this reason.
    case ended(EventStream.End)
}

/// A source of a stream, and the place where the stream begins in it.
struct StreamStart: Sendable {
    let source: StreamSource
    /// The newest message or change when the stream was opened. Later ones of the source have higher ids.
    let last: MessageID
    /// The message or change after which the stream begins.
    let start: MessageID
    /// The reader may read only messages after this one, and their changes.
    let historyFrom: MessageID

    init(_ source: StreamSource, last: MessageID, start: MessageID, historyFrom: MessageID = 0) {
        self.source = source
        self.last = last
        self.start = start
        self.historyFrom = historyFrom
    }

    /// - Parameter start: The message or change after which the stream begins. `nil` for the newest.
    init(_ position: RoomPosition, start: MessageID? = nil) {
        self.init(
            .room(position.code), last: position.last, start: start ?? position.last,
            historyFrom: position.historyFrom)
    }
}

/// The form of one stream: a format, over HTTP or a WebSocket.
struct StreamForm: Sendable {
    let format: any EventFormat
    let isWebSocket: Bool
    /// Streams with equal keys write the same bytes.
    let key: String

    init(_ format: any EventFormat, isWebSocket: Bool = false) {
        self.format = format
        self.isWebSocket = isWebSocket
        key = isWebSocket ? "ws \(format.key)" : format.key
    }

    var heartbeatInterval: Duration { isWebSocket ? WebSocket.pingInterval : format.heartbeatInterval }

    /// A payload as the stream writes it.
    func bytes(_ payload: String) -> ByteBuffer {
        isWebSocket ? WebSocket.text(payload) : ByteBuffer(string: payload)
    }

    /// The bytes of the stream after silence. `nil` for nothing.
    func heartbeat() -> ByteBuffer? { isWebSocket ? WebSocket.ping : format.heartbeat().map(bytes) }

    /// Whether the stream ends without a last chunk.
    var dropsConnection: Bool { isWebSocket || format.dropsConnection }
}
