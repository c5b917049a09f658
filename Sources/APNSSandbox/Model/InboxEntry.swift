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
        /// Refused with the status, or closed for that reason where no packet can say so (command 0).
        case refused(BinaryStatus)

        /// As records, counts and logs show it.
        package var name: String {
            switch self {
            case .accepted: "accepted"
            case .dropped: "dropped"
            case .closed: "closed"
            case .reset: "reset"
            case .refused(let status): status.name
            }
        }
    }

    /// From 1, without gaps, in the order of arrival; never used twice while the process runs.
    package let id: Int
    /// The connection's number, from 1.
    package let connection: Int
    /// Nil where the client's certificate names none.
    package let topic: String?
    /// Empty where the notification could not be read that far.
    package let token: [UInt8]
    package let payload: [UInt8]
    /// Nil where the first byte was no command.
    package let command: BinaryCommand?
    package let identifier: UInt32?
    /// UNIX seconds.
    package let expiration: UInt32?
    package let priority: UInt8?
    package let receivedAt: Date
    package let answer: Answer
}
