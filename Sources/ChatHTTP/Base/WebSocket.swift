import Hummingbird
import NIOCore

/// WebSockets, as the relay speaks them (RFC 6455): it writes, and the client only answers pings.
enum WebSocket {
    /// The time without an event after which the relay sends a ping.
    static let pingInterval = Duration.seconds(45)
}

extension Request {
    /// Whether the client asks for a WebSocket. The connection has checked that it may become one.
    var asksForWebSocket: Bool { false }
}
