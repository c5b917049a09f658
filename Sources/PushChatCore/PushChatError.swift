/// The error of a call.
///
/// Later versions may add cases: a `switch` needs a `default`.
public enum PushChatError: Error, Sendable, Hashable {
    /// The relay rejected the call.
    case rejected(RelayRejection)
    /// No server listens at the relay's address.
    case unreachable
    /// The connection could not be made, or has ended, for this reason. The call may have had its effect.
    case connectionLost(String)
    /// The response is not one that a relay sends: the address may be wrong. The text begins the response.
    case unexpectedResponse(String)
    /// The member is no longer in the room. `wasRemoved` is `false` if the member has left, or if the reason is unknown.
    case left(wasRemoved: Bool)
    /// The app's storage failed, for this reason.
    case storage(String)
    /// The task was cancelled.
    case cancelled

    /// Whether a later attempt of the same call may succeed.
    public var isTemporary: Bool {
        switch self {
        case .rejected(let rejection): rejection.isTemporary
        case .unreachable, .connectionLost: true
        case .unexpectedResponse, .left, .storage, .cancelled: false
        }
    }
}

extension PushChatError {
    /// Whether the response may be another server's, such as a proxy's or that of a network that asks for a login. Once
    /// the relay has been reached, a later attempt may reach it again.
    package var isFromElsewhere: Bool {
        switch self {
        case .rejected(let rejection): rejection.code == nil
        case .unexpectedResponse: true
        case .unreachable, .connectionLost, .left, .storage, .cancelled: false
        }
    }
}

/// The relay's error response.
public struct RelayRejection: Sendable, Hashable {
    /// The HTTP status.
    public let status: Int
    /// The error code for programs. `nil` if another server, such as a proxy, responded.
    public let code: String?
    /// The form field that is wrong. `nil` if the error concerns none.
    public let field: String?
    /// The error message for people, in English.
    public let message: String
    /// The time to wait before the next attempt. `nil` if the relay names none.
    public let retryAfter: Duration?

    public init(
        status: Int, code: String? = nil, field: String? = nil, message: String, retryAfter: Duration? = nil
    ) {
        self.status = status
        self.code = code
        self.field = field
        self.message = message
        self.retryAfter = retryAfter
    }

    /// Whether a later attempt may succeed.
    public var isTemporary: Bool { status == 408 || status == 429 || status >= 500 }

    /// Whether the text of a message was the reason, so that no attempt with the same text succeeds.
    var concernsContent: Bool { [400, 413, 415, 422].contains(status) }
}

extension PushChatError: CustomStringConvertible {
    /// A sentence for people, in English.
    public var description: String {
        switch self {
        case .rejected(let rejection): rejection.message
        case .unreachable: "No server listens at the relay's address"
        case .connectionLost(let reason): "The connection is lost: \(reason)"
        case .unexpectedResponse(let text): "The server does not respond like a PushChat relay: \(text)"
        case .left(let wasRemoved):
            wasRemoved ? "You were removed from the room" : "You are no longer in the room"
        case .storage(let reason): "The chat's state cannot be stored: \(reason)"
        case .cancelled: "The call was cancelled"
        }
    }
}
