import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird
import Logging

/// A delivery of a program that posts in a format of ``HookFormats``: to a webhook's address, or to a topic of another
/// server's API. Its messages have the life of the things that they are about.
struct HookDelivery: Sendable {
    let posting: PostingAPI
    /// The token whose messages they are.
    let token: AccessToken
    let room: SecretCode
    let format: any HookFormat.Type
    /// The key under which a second attempt posts nothing. `nil` if the sender does not name its deliveries.
    let idempotencyKey: String?

    private var environment: ChatEnvironment { posting.environment }

    /// Returns the key of the delivery that a request names.
    static func idempotencyKey(_ format: any HookFormat.Type, _ request: HookRequest) -> String? {
        format.deliveryID(request).map { "hook:\($0)" }
    }

    /// Posts a draft, changes the message of an earlier one, or resolves it.
    ///
    /// - Parameters:
    ///   - key: The key of the message. `nil` for a message that never changes.
    ///   - content: The draft's content, with the changes that the request asks for.
    /// - Returns: `nil` if nothing was posted: no person has seen the start of what ended, or the delivery is a repetition
    ///   with another content.
    func post(
        _ draft: HookDraft, as key: MessageKey?, _ content: MessageContent, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt? {
        let hooks = environment.stores.hooks
        guard let key else { return try await posted(nil, content, request, context) }
        switch draft.state {
        case .event:
            return try await posted(key, content, request, context)
        case .firing:
            let (memory, now) = (try await hooks.memory(of: token.id, key), environment.now())
            let rings = memory?.rings(for: draft.firing, at: now) ?? true
            let receipt = try await posted(key, renotify: rings, content, request, context)
            if let receipt, !receipt.isRepeat {
                // If this fails, the next change rings once more.
                await remember("alerts", context) { () throws(ChatError) in
                    let latest = HookMemory(firing: draft.firing, time: rings ? now : memory?.time ?? now)
                    try await hooks.remember(latest, of: token.id, key)
                }
            }
            return receipt
        case .resolved:
            let memory = try await hooks.memory(of: token.id, key)
            // Before the change: a kill in between costs a ring, and never posts the end twice.
            if draft.standsAlone {
                try await hooks.remember(HookMemory(firing: [:], time: environment.now()), of: token.id, key)
            } else {
                try await hooks.forget(key, of: token.id)
            }
            let end: ChangeReceipt?
            do throws(ChatError) {
                end = try await resolved(key, content, request, context)
            } catch  where error.code == .notFound {
                // Senders without ids of deliveries send the same end twice, if they did not get the first response.
                guard draft.standsAlone, memory?.firing.isEmpty != true else { return nil }
                end = try await posted(nil, content, request, context)
            }
            // A repeated delivery says nothing about the present.
            if end?.isRepeat ?? true, let memory {
                await remember("alerts", context) { () throws(ChatError) in
                    try await hooks.remember(memory, of: token.id, key)
                }
            }
            return end
        }
    }

    /// Logs a delivery that becomes no message.
    func ignored(_ reason: String, _ context: ChatContext) {
        log("delivery to a webhook ignored", reason, .debug, context)
    }

    /// Logs a delivery that could not be read, and counts it for the operator.
    func unreadable(_ reason: String, _ context: ChatContext) async {
        log("delivery to a webhook could not be read", reason, .notice, context)
        await remember("the unreadable delivery", context) { () throws(ChatError) in
            try await environment.stores.hooks.countUnreadable(token.id, reason: reason)
        }
    }

    /// Resolves the open message with the key. `nil` if an earlier delivery with the same id had another content.
    private func resolved(
        _ key: MessageKey, _ content: MessageContent, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt? {
        do throws(ChatError) {
            return try await posting.accept(
                MessageChangeRequest(
                    .key(key), by: ChangeAuthor(writer: .program(token: token.id), room: room), .resolve(content),
                    idempotencyKey: idempotencyKey), context)
        } catch  where error.code == .idempotencyConflict {
            return nil
        }
    }

    /// Posts a message, or changes the open one with the key.
    ///
    /// - Returns: `nil` if an earlier delivery with the same id was posted with another content.
    private func posted(
        _ key: MessageKey?, renotify: Bool = false, _ content: MessageContent, _ request: Request,
        _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt? {
        let draft = PostingAPI.Draft(room: room, content: content, key: key, renotify: renotify)
        do throws(ChatError) {
            return try await posting.accept(draft, idempotencyKey: idempotencyKey, request, context)
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

    private func log(_ message: Logger.Message, _ reason: String, _ level: Logger.Level, _ context: ChatContext) {
        environment.logger.log(
            level: level, message,
            metadata: context.ids.metadata([
                LogKeys.caller: "\(token.name.text)", "format": "\(format.name)", LogKeys.reason: "\(reason)",
            ]))
    }
}

extension ErrorResponse {
    /// Creates the response to a sender that exceeds its rate, with the status after which it sends again.
    init(rate error: ChatError, status: Int) {
        self.init(error)
        guard error.code == .tooManyRequests else { return }
        let whole = self
        self.init(HTTPResponse.Status(code: status), code: code, message: message)
        retryAfter = whole.retryAfter
        cause = whole.cause
        countedStatus = whole.status.code
    }
}
