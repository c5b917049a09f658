import Foundation
import Hummingbird
import Logging
import NIOCore

/// The action of a service over HTTP for a request.
enum ServiceDecision<Accepted: Sendable, Refusal: Sendable>: Sendable {
    case accept(Accepted)
    /// Respond with this error after the delay in milliseconds.
    case refuse(Refusal, delay: Int = 0)
    /// Decide on the request again after this time, without faults.
    case postpone(milliseconds: Int)
    /// Never respond.
    case ignore
    /// End the connection without a response.
    case end(Disconnection)
}

extension ServiceDecision: Equatable where Accepted: Equatable, Refusal: Equatable {}

extension SharedState {
    /// Decides on a request, and performs the decision.
    /// - Parameter decide: Returns the decision. The last argument says whether faults apply.
    func respond<Accepted, Refusal>(
        on channel: any Channel, _ logger: Logger,
        decide: @Sendable (inout SandboxState, Date, Bool) -> ServiceDecision<Accepted, Refusal>,
        accepted: (Accepted) throws -> Response, refused: (Refusal) throws -> Response
    ) async throws -> Response {
        var decision = self.decide(logger) { decide(&$0, $1, true) }
        if case .postpone(let milliseconds) = decision {
            try await Task.sleep(for: .milliseconds(milliseconds))
            decision = self.decide(logger) { decide(&$0, $1, false) }
        }
        switch decision {
        case .accept(let value): return try accepted(value)
        case .refuse(let refusal, let delay):
            if delay > 0 { try await Task.sleep(for: .milliseconds(delay)) }
            return try refused(refusal)
        case .ignore, .postpone:
            await channel.untilClosed()
            try? await channel.endConnection(.close)
        case .end(let end): try? await channel.endConnection(end)
        }
        // The connection or the stream has ended, so no client receives this.
        return Response(status: .noContent)
    }
}
