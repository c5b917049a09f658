import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird
import Logging

/// The addresses in which other programs post in their own formats: `/hooks/TOKEN/FORMAT`. ``AdminGuard`` finds the
/// token. Log lines, errors and metrics have the route's pattern, never the path.
struct HooksAPI: Sendable {
    let posting: PostingAPI

    static let path = "/hooks/{token}/{format}"
    static let group = RouteGroup(name: "hooks", errors: HookErrors())

    private var environment: ChatEnvironment { posting.environment }

    var routes: [Route] {
        [
            Route(.post, Self.path, .hook, in: Self.group, deliver),
            Route(.put, Self.path, .hook, in: Self.group, deliver),
            Route(.get, Self.path, .hook, in: Self.group, servesHead: false, look),
        ]
    }

    /// A delivery whose token and format are known.
    private struct Delivery {
        let token: AccessToken
        let room: SecretCode
        let format: any HookFormat.Type
        let settings: HookSettings
        let request: HookRequest
        /// The idempotency key. `nil` if the sender has no ids.
        let id: String?
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
            let delivery = Delivery(
                token: token, room: room, format: format, settings: settings, request: HookRequest(body: []), id: nil)
            _ = try await report("the body has more than \(HookRequest.bodyLimit) bytes", delivery, request, context)
            throw error
        }
        if let secret = settings.secret {
            guard format.verify(read, secret: secret, now: environment.now()) else {
                let client = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
                try posting.limiter.countWrongToken(client)
                throw ChatError.unauthorized("The signature is missing or wrong: give the sender the token's secret")
            }
            // A signature does not cover the query.
            read.query = [:]
            // A program that knows only the address must not use up the rate of the sender.
            try admit()
        }
        let id = format.deliveryID(read).map { "hook:\($0)" }
        let delivery = Delivery(
            token: token, room: room, format: format, settings: settings, request: read, id: id)
        return Response(format.accepted(read, message: try await post(delivery, request, context)))
    }

    /// Returns the token, and the format in the path. Only the token's own format is valid.
    private func hook(
        _ context: ChatContext
    ) throws -> (AccessToken, any HookFormat.Type, HookSettings) {
        guard let token = try context.caller().token, let grant = token.grant.hook,
            let format = HookFormats.named(context.parameters.get("format") ?? ""), format.name == grant.format
        else { throw ChatError.notFound("webhook") }
        return (token, format, try HookSettings(stored: grant.stored))
    }

    // MARK: - Posting

    /// Posts the message of a delivery.
    ///
    /// - Returns: The message's id. `nil` if there is none.
    private func post(
        _ delivery: Delivery, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> MessageID? {
        switch delivery.format.read(delivery.request, delivery.settings) {
        case .ignored(let reason):
            log("delivery to a webhook ignored", reason, delivery, .debug, context)
            return nil
        case .unreadable(let reason):
            return try await report(reason, delivery, request, context)
        case .draft(let draft):
            return try await post(draft, delivery, request, context)
        }
    }

    /// Posts a message about a delivery that could not be read, and counts it. The same problem again changes the
    /// message silently.
    private func report(
        _ reason: String, _ delivery: Delivery, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> MessageID? {
        log("delivery to a webhook could not be read", reason, delivery, .notice, context)
        let report = delivery.format.report(of: delivery.request, reason)
        let receipt = try await posted(report.key, report.content(), delivery, request, context)
        await remember("the unreadable delivery", context) { () throws(ChatError) in
            try await environment.stores.hooks.countUnreadable(delivery.token.id, reason: reason)
        }
        return receipt?.message
    }

    private func post(
        _ draft: HookDraft, _ delivery: Delivery, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> MessageID? {
        let content = try draft.content()
        let (hooks, token) = (environment.stores.hooks, delivery.token.id)
        guard let key = draft.key else {
            return try await posted(nil, content, delivery, request, context)?.message
        }
        switch draft.state {
        case .event:
            return try await posted(key, content, delivery, request, context)?.message
        case .firing:
            let (memory, now) = (try await hooks.memory(of: token, key), environment.now())
            let rings = memory?.rings(for: draft.firing, at: now) ?? true
            let receipt = try await posted(key, renotify: rings, content, delivery, request, context)
            if let receipt, !receipt.isRepeat {
                // If this fails, the next change rings once more.
                await remember("alerts", context) { () throws(ChatError) in
                    let latest = HookMemory(firing: draft.firing, time: rings ? now : memory?.time ?? now)
                    try await hooks.remember(latest, of: token, key)
                }
            }
            return receipt?.message
        case .resolved:
            let memory = try await hooks.memory(of: token, key)
            // Before the change: a kill in between costs a ring, and never posts the end twice.
            if draft.standsAlone {
                try await hooks.remember(HookMemory(firing: [:], time: environment.now()), of: token, key)
            } else {
                try await hooks.forget(key, of: token)
            }
            do throws(ChatError) {
                return try await posting.accept(
                    MessageChangeRequest(
                        .key(key), by: ChangeAuthor(writer: .program(token: token), room: delivery.room),
                        .resolve(content), idempotencyKey: delivery.id), context
                ).message
            } catch  where error.code == .notFound {
                // Senders without ids of deliveries send the same end twice, if they did not get the first response.
                guard draft.standsAlone, memory?.firing.isEmpty != true else { return nil }
                return try await posted(nil, content, delivery, request, context)?.message
            } catch  where error.code == .idempotencyConflict {
                return nil
            }
        }
    }

    /// Posts a message, or changes the open one with the key.
    ///
    /// - Returns: `nil` if an earlier delivery with the same id was posted with another content.
    private func posted(
        _ key: MessageKey?, renotify: Bool = false, _ content: MessageContent, _ delivery: Delivery,
        _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt? {
        let draft = PostingAPI.Draft(room: delivery.room, content: content, key: key, renotify: renotify)
        do throws(ChatError) {
            return try await posting.accept(draft, idempotencyKey: delivery.id, request, context)
        } catch  where error.code == .idempotencyConflict {
            return nil
        }
    }

    /// Writes what follows from a message that is posted. A failure must not make the sender repeat the delivery.
    private func remember(
        _ what: String, _ context: ChatContext, _ write: () async throws(ChatError) -> Void
    ) async {
        do throws(ChatError) {
            try await write()
        } catch {
            environment.logger.warning(
                "a webhook's state could not be stored",
                metadata: context.ids.metadata([LogKeys.result: "\(what)", LogKeys.cause: "\(error)"]))
        }
    }

    private func log(
        _ message: Logger.Message, _ reason: String, _ delivery: Delivery, _ level: Logger.Level,
        _ context: ChatContext
    ) {
        environment.logger.log(
            level: level, message,
            metadata: context.ids.metadata([
                LogKeys.caller: "\(delivery.token.name.text)", "format": "\(delivery.format.name)",
                LogKeys.reason: "\(reason)",
            ]))
    }
}
