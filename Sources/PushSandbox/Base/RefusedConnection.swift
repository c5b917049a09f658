import Foundation

/// A connection that the sandbox refused, encoded as in the response to `GET /stats`.
struct RefusedConnection: Sendable, Hashable, JSONRecord {
    enum Reason: String, Sendable, CaseIterable, Encodable {
        /// Too many connections were open.
        case tooMany = "too_many"
        /// The TLS handshake failed: no certificate, a certificate of another authority, no TLS, or a timeout.
        case handshakeFailed = "handshake_failed"
        /// The sandbox is strict, and the client did not choose HTTP/2 by ALPN.
        case noALPN = "no_alpn"
        /// The client neither chose HTTP/2 by ALPN nor began with HTTP/2's preface.
        case noPreface = "no_preface"
        /// The proxy refused the request for a tunnel.
        case noTunnel = "no_tunnel"
    }

    let listener: ListenerKind
    /// The connection's number. `nil` if too many connections were open.
    let connection: Int?
    let reason: Reason
    /// The cause, as a sentence for the client's developer.
    let message: String
    let refusedAt: Date

    var json: JSONMembers {
        [
            "listener": listener, "connection": connection, "reason": reason, "message": message,
            "refused_at": refusedAt,
        ]
    }
}
