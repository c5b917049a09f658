package import ChatDomain
package import NIOCore
package import NIOHPACK

/// A push service with an HTTP/2 API that takes one push per request, and the relay's credentials for it.
package protocol HTTP2Service: PoolTarget {
    associatedtype Client: HTTP2PushClient

    /// Obtains the credentials for a new connection.
    ///
    /// - Throws: The reason why the service cannot be used now. The pool tries again after a delay.
    func client() async throws -> Client
}

/// Composes the requests of one connection to a push service, and interprets the responses.
package protocol HTTP2PushClient: Sendable {
    /// Returns the time after which the connection must be replaced, because its credentials expire. `nil` if they do
    /// not expire.
    func lifeLeft(at now: Timestamp) -> Duration?
    func request(for push: Push) -> HTTP2Request
    /// Interprets a response with another status than 200. The answer has an outcome.
    func answer(to response: HTTP2Response) -> HTTP2Answer
    /// Returns the reason in the debug data of a GOAWAY. `nil` if there is none.
    func goAwayReason(_ debugData: [UInt8]) -> String?
    /// Whether the relay knows a type of pushes. If not, it logs a warning once per connection.
    func knows(type: String) -> Bool
    /// Records that the service has accepted pushes.
    func accepted()
    /// Records that the service did not accept the credentials.
    func refused(_ problem: CredentialsProblem)
}

extension HTTP2PushClient {
    package func goAwayReason(_ debugData: [UInt8]) -> String? { nil }
    package func knows(type: String) -> Bool { true }
    package func accepted() {}
}

/// One push as an HTTP/2 request: the headers and body of a stream, and the values that determine the outcome of its
/// response.
package struct HTTP2Request: Sendable {
    package let identifier: UInt32
    package let address: Address
    /// The push's type.
    package let type: String
    package let headers: HPACKHeaders
    package let body: [UInt8]
    /// The time by which the response must have arrived, even if the request waits for a stream until then.
    package let deadline: NIODeadline

    package init(_ push: Push, headers: HPACKHeaders, body: [UInt8], deadline: NIODeadline = .distantFuture) {
        identifier = push.identifier
        address = push.address
        type = push.type
        self.headers = headers
        self.body = body
        self.deadline = deadline
    }
}

/// A response with another status than ``HTTP2Limits/acceptedStatus``.
package struct HTTP2Response: Sendable {
    /// The maximum number of bytes of a body that are read. Bodies of push services have a few hundred.
    package static let bodyLimit = 4096

    package let status: Int
    /// The header `retry-after`.
    package let retryAfter: String?
    package let body: [UInt8]
    package let address: Address
    package let type: String
    /// The time at which the push was written.
    package let writtenAt: Timestamp

    package init(
        status: Int, retryAfter: String? = nil, body: [UInt8], address: Address, type: String = Push.alert,
        writtenAt: Timestamp
    ) {
        self.status = status
        self.retryAfter = retryAfter
        self.body = body
        self.address = address
        self.type = type
        self.writtenAt = writtenAt
    }
}

/// The meaning of a response, for its push and for the connection.
package struct HTTP2Answer: Sendable, Hashable {
    /// The part that the response concerns.
    package enum Subject: Sendable, Hashable {
        /// The push itself is at fault.
        case push
        /// The device is gone, or receives nothing now.
        case device
        /// The service has a problem.
        case service
        /// The service wants no pushes for a time, of the device or of the whole app.
        case quota(pause: Duration)
        /// The service asks for another connection.
        case connection(reason: String)
        case credentials(CredentialsProblem)
    }

    /// The push's outcome. `nil` if the gateway takes the response itself (``HTTP2ConnectionState/takeResponses()``).
    package let outcome: Outcome?
    package let subject: Subject
    /// Whether the response shows that the service accepts the credentials.
    package let provesCredentials: Bool

    package init(_ outcome: Outcome?, _ subject: Subject, provesCredentials: Bool = true) {
        self.outcome = outcome
        self.subject = subject
        self.provesCredentials = provesCredentials
    }
}

/// The reason why a service does not accept the credentials.
package struct CredentialsProblem: Sendable, Hashable {
    /// The service's reason.
    package let reason: String
    /// The steps that an operator can take. `nil` if none are known.
    package let advice: String?
    /// Whether another token may be accepted.
    package let blamesToken: Bool
    /// Whether the connection is replaced at once. If not, and the connection has accepted pushes, the problem may
    /// concern a single push.
    package let endsConnection: Bool

    package init(reason: String, advice: String?, blamesToken: Bool, endsConnection: Bool) {
        self.reason = reason
        self.advice = advice
        self.blamesToken = blamesToken
        self.endsConnection = endsConnection
    }
}
