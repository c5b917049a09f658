import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore

/// The sandbox's FCM: Google's token endpoint and the call that sends a message, on one port over HTTP/1.1 and HTTP/2.
struct FCMService: Sendable {
    /// The path of the token endpoint.
    static let tokenPath = "/token"

    let state: SharedState
    let randomBytes: @Sendable (Int) -> [UInt8]
    let logger: Logger

    func router() -> Router<PushContext> {
        let router = Router(context: PushContext.self)
        router.post("\(Self.tokenPath)") { request, context in
            let form = try await Self.form(request)
            return try await respond(on: context.channel) { state, now, faults in
                state.decide(form, at: now, faults: faults, randomBytes: randomBytes)
            } accepted: { grant in
                try Response.json(grant)
            }
        }
        router.post("/v1/projects/:project/:call") { request, context in
            // Some clients encode the colon.
            guard try context.parameters.require("call").removingPercentEncoding == "messages:send" else {
                throw HTTPError(.notFound)
            }
            let message = FCMRequest(
                project: try context.parameters.require("project"), authorization: request.headers[.authorization],
                body: Array(try await request.body.collect(upTo: FCMMessage.maxBody).readableBytesView))
            return try await respond(on: context.channel) { state, now, faults in
                state.decide(message, at: now, faults: faults, randomBytes: randomBytes)
            } accepted: { name in
                try Response.json(["name": name])
            }
        }
        return router
    }

    /// Reads a form.
    private static func form(_ request: Request) async throws -> [String: String] {
        let body = try await request.body.collect(upTo: AccessTokens.maxBody)
        var components = URLComponents()
        // In a form, a blank may be a plus.
        components.percentEncodedQuery = String(buffer: body).replacingOccurrences(of: "+", with: "%20")
        return Dictionary(
            (components.queryItems ?? []).map { ($0.name, $0.value ?? "") }, uniquingKeysWith: { $1 })
    }

    /// Performs a decision.
    private func respond<Accepted: Sendable>(
        on channel: any Channel, decide: @Sendable (inout SandboxState, Date, Bool) -> FCMDecision<Accepted>,
        accepted: (Accepted) throws -> Response
    ) async throws -> Response {
        var decision = state.decide(logger) { decide(&$0, $1, true) }
        if case .postpone(let milliseconds) = decision {
            try await Task.sleep(for: .milliseconds(milliseconds))
            decision = state.decide(logger) { decide(&$0, $1, false) }
        }
        switch decision {
        case .accept(let value): return try accepted(value)
        case .refuse(let refusal, let delay):
            try await Task.sleep(for: .milliseconds(delay))
            var response = try Response.json(refusal, status: .init(code: refusal.status))
            response.headers[.retryAfter] = refusal.retryAfter
            return response
        case .refuseGrant(let refusal, let delay):
            try await Task.sleep(for: .milliseconds(delay))
            return try Response.json(refusal, status: .badRequest)
        case .fail(let status, let retryAfter, let delay):
            try await Task.sleep(for: .milliseconds(delay))
            var response = Response(
                status: .init(code: status), headers: [.contentType: "text/html; charset=UTF-8"],
                body: .init(byteBuffer: ByteBuffer(string: "<!DOCTYPE html><title>Error \(status)</title>\n")))
            response.headers[.retryAfter] = retryAfter
            return response
        case .ignore, .postpone: await channel.untilClosed()
        case .close: break
        }
        try? await channel.closeConnection()
        // The connection is closed, so no client receives this.
        return Response(status: .noContent)
    }
}
