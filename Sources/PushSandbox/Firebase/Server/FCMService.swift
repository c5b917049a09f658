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
            return try await state.respond(on: context.channel, logger) { state, now, faults in
                state.decide(form, at: now, faults: faults, randomBytes: randomBytes)
            } accepted: { grant in
                try Response.json(grant)
            } refused: { failure in
                try failure.response
            }
        }
        router.post("/v1/projects/:project/:call") { request, context in
            // Some clients encode the colon.
            guard try context.parameters.require("call").removingPercentEncoding == "messages:send" else {
                throw HTTPError(.notFound)
            }
            let message = FCMRequest(
                project: try context.parameters.require("project"), authorization: request.headers[.authorization],
                body: try await Self.body(request, limit: FCMMessage.maxBody))
            return try await state.respond(on: context.channel, logger) { state, now, faults in
                state.decide(message, at: now, faults: faults, randomBytes: randomBytes)
            } accepted: { name in
                try Response.json(["name": name])
            } refused: { failure in
                try failure.response
            }
        }
        addTopics(to: router)
        return router
    }

    private func addTopics(to router: Router<PushContext>) {
        let path = "/v1/projects/:project/registrations/:registration/topicSubscriptions"
        @Sendable func topic(_ context: PushContext) throws -> String {
            let text = try context.parameters.require("topic")
            return text.removingPercentEncoding ?? text
        }
        router.post(RouterPath(path)) { request, context in
            try await answer(request, context) { .subscribe(topic: $0("topic_name", "topicName") ?? "") }
        }
        router.delete(RouterPath(path + "/:topic")) { request, context in
            let topic = try topic(context)
            return try await answer(request, context) {
                .unsubscribe(topic: topic, allowsMissing: $0("allow_missing", "allowMissing") == "true")
            }
        }
        router.get(RouterPath(path + "/:topic")) { request, context in
            let topic = try topic(context)
            return try await answer(request, context) { _ in .get(topic: topic) }
        }
        router.get(RouterPath(path)) { request, context in
            try await answer(request, context) { parameter in
                let size = parameter("page_size", "pageSize").flatMap { Int($0) } ?? FCMTopicRequest.defaultPageSize
                return .list(
                    limit: min(max(size, 1), FCMTopicRequest.maxPageSize), after: parameter("page_token", "pageToken"))
            }
        }
    }

    /// Responds to a request about topics.
    /// - Parameter call: Returns the call. Its argument returns a parameter of the address, which has two spellings.
    private func answer(
        _ request: Request, _ context: PushContext, call: ((String, String) -> String?) -> FCMTopicRequest.Call
    ) async throws -> Response {
        _ = try await Self.body(request, limit: FCMMessage.maxBody)
        let parameters = request.uri.queryParameters
        let registration = try context.parameters.require("registration")
        let topics = FCMTopicRequest(
            project: try context.parameters.require("project"),
            target: registration.removingPercentEncoding ?? registration,
            authorization: request.headers[.authorization],
            call: call { snake, camel in (parameters[Substring(snake)] ?? parameters[Substring(camel)]).map(String.init)
            }
        )
        let now = state.now()
        do {
            let answer = try state.withLock { (state) throws(FCMRefusal) in try state.decide(topics, at: now) }
            return try Response.json(answer)
        } catch let refusal as FCMRefusal {
            return try Response.json(refusal, status: .init(code: refusal.status))
        }
    }

    /// Reads the whole body.
    private static func body(_ request: Request, limit: Int) async throws -> [UInt8] {
        do {
            return Array(try await request.body.collect(upTo: limit).readableBytesView)
        } catch is NIOTooManyBytesError {
            throw HTTPError(.contentTooLarge, message: "The body must have at most \(limit) bytes")
        }
    }

    /// Reads a form.
    private static func form(_ request: Request) async throws -> [String: String] {
        let body = String(decoding: try await body(request, limit: AccessTokens.maxBody), as: UTF8.self)
        func text(_ part: Substring) -> String {
            // In a form, a blank may be a plus.
            part.replacing("+", with: "%20").removingPercentEncoding ?? ""
        }
        var fields: [String: String] = [:]
        for field in body.split(separator: "&") {
            let parts = field.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            fields[text(parts[0])] = parts.count == 2 ? text(parts[1]) : ""
        }
        return fields
    }
}

extension FCMFailure {
    fileprivate var response: Response {
        get throws {
            var response: Response
            switch self {
            case .message(let refusal):
                response = try .json(refusal, status: .init(code: refusal.status))
                response.headers[.retryAfter] = refusal.retryAfter
            case .grant(let refusal): response = try .json(refusal, status: .badRequest)
            case .page(let status, let retryAfter):
                response = Response(
                    status: .init(code: status), headers: [.contentType: "text/html; charset=UTF-8"],
                    body: .init(byteBuffer: ByteBuffer(string: "<!DOCTYPE html><title>Error \(status)</title>\n")))
                response.headers[.retryAfter] = retryAfter
            }
            return response
        }
    }
}
