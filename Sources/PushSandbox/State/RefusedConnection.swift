import Foundation

/// A connection that the sandbox did not let in, as `GET /stats` shows it.
struct RefusedConnection: Sendable, Hashable, Encodable {
    enum Reason: String, Sendable, Encodable {
        /// Too many connections were open.
        case tooMany = "too_many"
        /// TLS did not come up: no certificate, a foreign one, no TLS at all, too slow.
        case handshakeFailed = "handshake_failed"
        /// Strict: the client did not offer HTTP/2 by ALPN.
        case noALPN = "no_alpn"
        /// The client neither negotiated HTTP/2 nor began with its preface.
        case noPreface = "no_preface"
    }

    let listener: ListenerKind
    /// The connection's number. `nil` if too many connections were open.
    let connection: Int?
    let reason: Reason
    /// The cause, as a sentence for the developer of the client.
    let message: String
    let refusedAt: Date

    private enum CodingKeys: String, CodingKey {
        case listener, connection, reason, message
        case refusedAt = "refused_at"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(listener, forKey: .listener)
        try fields.encodeIfPresent(connection, forKey: .connection)
        try fields.encode(reason, forKey: .reason)
        try fields.encode(message, forKey: .message)
        try fields.encode(refusedAt.rfc3339, forKey: .refusedAt)
    }
}
