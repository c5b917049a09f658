package import APNSWire
package import Foundation

/// One notification as the sandbox took or refused it.
package struct InboxEntry: Sendable, Hashable {
    /// What became of a notification.
    package enum Answer: Sendable, Hashable {
        /// Taken; on the binary protocol the client hears nothing.
        case accepted
        /// A fault swallowed it: the client believes that it was taken.
        case dropped
        /// A fault closed the connection at it, without an answer.
        case closed
        /// A fault reset the connection at it.
        case reset
        /// A fault ended its stream unprocessed, by GOAWAY or a reset of the stream: the client may send it again.
        case unprocessed
        /// Refused with the status, or closed for that reason where no packet can say so (command 0).
        case refused(BinaryStatus)
        /// Refused over HTTP/2, or by a fault answered so.
        case rejected(ProviderRefusal)

        /// As records, counts and logs show it.
        package var name: String {
            switch self {
            case .accepted: "accepted"
            case .dropped: "dropped"
            case .closed: "closed"
            case .reset: "reset"
            case .unprocessed: "unprocessed"
            case .refused(let status): status.name
            case .rejected(let refusal): refusal.reason
            }
        }
    }

    /// What only a notification over HTTP/2 has.
    package struct Request: Sendable, Hashable {
        package let stream: Int
        /// The one that was sent, else the one that was made for it.
        package let apnsID: String
        package let pushType: String?
        /// All `apns-…` headers that were sent; never the provider token.
        package let headers: [String: String]
        /// `token` and the key's id, or `certificate`; nil where the notification was refused before that was known.
        package let authentication: String?
    }

    /// From 1, without gaps, in the order of arrival; never used twice while the process runs.
    package let id: Int
    /// The connection's number, from 1.
    package let connection: Int
    /// The topic that was asked for, else the certificate's; nil where neither names one.
    package let topic: String?
    /// Empty where the notification could not be read that far.
    package let token: [UInt8]
    package let payload: [UInt8]
    /// Nil over HTTP/2, and where the first byte was no command.
    package let command: BinaryCommand?
    package let identifier: UInt32?
    /// UNIX seconds.
    package let expiration: UInt32?
    package let priority: UInt8?
    package let receivedAt: Date
    package let answer: Answer
    /// Nil on the binary protocol.
    package var request: Request?

    package var gateway: GatewayProtocol { request == nil ? .binary : .http2 }

    /// Bytes that the inbox counts for it: payload and headers.
    var size: Int {
        guard let request else { return payload.count }
        return request.headers.reduce(payload.count) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }
}
