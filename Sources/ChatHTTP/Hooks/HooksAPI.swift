import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird

/// The addresses in which other programs post in their own formats: `/hooks/TOKEN/FORMAT`. ``AdminGuard`` finds the
/// token. Log lines, errors and metrics have the route's pattern, never the path.
struct HooksAPI: Sendable {
    let posting: PostingAPI

    static let path = "/hooks/{token}/{format}"
    static let group = RouteGroup(
        name: "hooks", errors: HookErrors(), rejection: "delivery to a webhook refused")

    private var environment: ChatEnvironment { posting.environment }

    var routes: [Route] {
        [
            Route(.post, Self.path, .hook, in: Self.group, deliver),
            Route(.put, Self.path, .hook, in: Self.group, deliver),
            Route(.get, Self.path, .hook, in: Self.group, servesHead: false, look),
        ]
    }

    /// `GET /hooks/{token}/{format}`: describes the webhook, or posts the query, as the sender's own service does.
    func look(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (token, format, _) = try hook(context)
        if format.postsByGET, !(request.uri.query ?? "").isEmpty { return try await deliver(request, context) }
        guard let answer = format.described(token.name.text) else {
            throw ErrorResponse.methodNotAllowed(allow: "POST, PUT")
        }
        return Response(answer)
    }

    /// `POST` or `PUT /hooks/{token}/{format}`
    func deliver(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (token, format, settings) = try hook(context)
        guard let room = token.grant.room else { throw ChatError.notFound("webhook") }
        func admit() throws {
            do throws(ChatError) {
                try posting.admit(.token(token))
            } catch {
                throw ErrorResponse(rate: error, status: format.rateStatus)
            }
        }
        if settings.secret == nil { try admit() }
        var read: HookRequest
        do {
            read = try await HookRequest(request)
        } catch let error as ChatError where error.code == .tooLarge && settings.secret == nil {
            // Few senders show that they failed.
            let reason = "the body has more than \(HookRequest.bodyLimit) bytes"
            let delivery = HookDelivery(
                posting: posting, token: token, room: room, format: format, idempotencyKey: nil)
            _ = try await report(HookRequest(body: []), reason, delivery, request, context)
            throw error
        }
        if let secret = settings.secret {
            guard format.verify(read, secret: secret, now: environment.now()) else {
                let client = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
                try posting.limiter.countWrongToken(client)
                throw ChatError(
                    .unauthorized, "The signature is missing or wrong: give the sender the token's secret",
                    cause: token.name.text)
            }
            // A signature does not cover the query.
            read.query = [:]
            // A program that knows only the address must not use up the rate of the sender.
            try admit()
        }
        let delivery = HookDelivery(
            posting: posting, token: token, room: room, format: format,
            idempotencyKey: HookDelivery.idempotencyKey(format, read))
        let message = try await post(read, settings, delivery, request, context)
        return Response(format.accepted(read, message: message))
    }

    /// Returns the token, and the format in the path. Only the token's own format is valid.
    private func hook(
        _ context: ChatContext
    ) throws -> (AccessToken, any HookFormat.Type, HookSettings) {
        guard let token = try context.caller().token, let grant = token.grant.hook,
            let format = HookFormats.named(context.parameters.get("format") ?? ""), format.name == grant.format
        else { throw ChatError.notFound("webhook") }
        return (token, format, try HookFormats.settings(stored: grant.stored))
    }

    /// Posts the message of a delivery.
    ///
    /// - Returns: The id of the message. `nil` if there is none.
    private func post(
        _ read: HookRequest, _ settings: HookSettings, _ delivery: HookDelivery, _ request: Request,
        _ context: ChatContext
    ) async throws(ChatError) -> MessageID? {
        switch delivery.format.read(read, settings) {
        case .ignored(let reason):
            delivery.ignored(reason, context)
            return nil
        case .unreadable(let reason):
            return try await report(read, reason, delivery, request, context)
        case .draft(let draft):
            return try await delivery.post(draft, as: draft.key, draft.content(), request, context)?.message
        }
    }

    /// Posts a message about a delivery that could not be read. The same problem again changes the message silently.
    private func report(
        _ read: HookRequest, _ reason: String, _ delivery: HookDelivery, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> MessageID? {
        let report = delivery.format.report(of: read, reason)
        let receipt = try await delivery.post(report, as: report.key, report.content(), request, context)
        await delivery.unreadable(reason, context)
        return receipt?.message
    }
}
