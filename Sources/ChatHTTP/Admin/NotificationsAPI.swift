import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Sends, lists and cancels notifications. ``AdminGuard`` authenticates the caller.
struct NotificationsAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any NotificationStore { environment.stores.notifications }

    var routes: [Route] {
        [
            Route(.get, "/v1/notifications", .scope(.send), notifications),
            Route(.post, "/v1/notifications", .scope(.send), send),
            Route(.post, "/v1/notifications:batch", .scope(.send), sendBatch),
            Route(.get, "/v1/notifications/{id}", .scope(.send), notification),
            Route(.delete, "/v1/notifications/{id}", .scope(.send), cancel),
        ]
    }

    private static let sending = NotificationContent.fields.union(["to", "app", "skip_unchanged"])

    /// `POST /v1/notifications`
    func send(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: Self.sending)
        let caller = try context.caller()
        let notification = try await notification(body, key: caller.key(request.headers.idempotencyKey()), caller)
        let receipt =
            if let earlier = try await earlier(notification) { earlier } else {
                try await store.send(notification)
            }
        note(receipt, caller, context)
        var headers = Responses.location("/v1/notifications/\(receipt.id)", for: request)
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Responses.json(summary(of: receipt, for: notification), status: .accepted, headers: headers)
    }

    /// `POST /v1/notifications:batch`: sends up to ``HTTPLimits/batch`` notifications, each with its own audience and
    /// content, in one transaction. Each has its own result, so an error in one does not affect the others.
    func sendBatch(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["notifications"], limit: HTTPLimits.batchBody)
        guard let items = body.object["notifications"]?.array else {
            throw ChatError.invalid("notifications", "must be an array of notifications")
        }
        guard (1...HTTPLimits.batch).contains(items.count) else {
            throw ChatError.invalid("notifications", "must have 1 to \(HTTPLimits.batch) items, has \(items.count)")
        }
        let caller = try context.caller()
        // The results in the order of the request. Without a `result`, the store's result for that notification
        // follows.
        var results: [(asked: NotificationRequest?, result: Result<NotificationReceipt, ChatError>?)] = []
        var requests: [NotificationRequest] = []
        for item in items {
            do throws(ChatError) {
                guard let object = item.object else { throw .invalid("notifications", "each must be an object") }
                try AdminBody.requireKnown(object, Self.sending.union(["idempotency_key"]))
                let one = AdminBody(object: object)
                let key = try one.text("idempotency_key").map { key throws(ChatError) in
                    try HTTPFields.checkedIdempotencyKey(key, field: "idempotency_key")
                }
                let notification = try await notification(one, key: caller.key(key), caller)
                if let earlier = try await earlier(notification) {
                    results.append((notification, .success(earlier)))
                } else {
                    requests.append(notification)
                    results.append((notification, nil))
                }
            } catch {
                results.append((nil, .failure(error)))
            }
        }
        var sent = requests.isEmpty ? [] : try await store.send(requests)
        sent.reverse()
        let list = results.map { asked, result -> JSONValue in
            switch result ?? sent.removeLast() {
            case .success(let receipt):
                note(receipt, caller, context)
                return .object(summary(of: receipt, for: asked))
            case .failure(let error): return .object(["error": .object(ErrorResponse(error).problem)])
            }
        }
        return Responses.json(["results": .array(list)])
    }

    private func summary(of receipt: NotificationReceipt, for request: NotificationRequest?) -> JSONObject {
        var json = receipt.json
        if let request,
            let warning = environment.configuration.format(of: request.app ?? .default).warning(
                pushType: request.pushType)
        {
            json["warning"] = .string(warning)
        }
        return json
    }

    /// Returns the notification that a request describes.
    private func notification(
        _ body: AdminBody, key: String?, _ caller: Caller
    ) async throws(ChatError) -> NotificationRequest {
        let audience = try await Audience(body, environment.stores.records)
        if let grant = caller.token?.grant, !grant.allows(audience) {
            throw ChatError(.forbidden, "This token may not send to this audience", field: "to")
        }
        let app = try environment.app(body.text("app"))
        if let app, app != .web, case .tokens(let tokens) = audience {
            let format = environment.configuration.format(of: app)
            for token in tokens { try format.check(token, field: "to.tokens") }
        }
        let content = try NotificationContent(body.object, now: environment.now(), isRepeat: key != nil)
        let composed = try compose(content, for: app)
        return NotificationRequest(
            audience: audience, app: app, payload: composed.payload, pushType: composed.pushType,
            expiration: content.expiration, priority: composed.priority, collapseID: content.collapseID,
            notBefore: content.notBefore, skipsUnchanged: try body.flag("skip_unchanged"), idempotencyKey: key,
            token: caller.token?.id)
    }

    /// Returns the receipt of the original request, if this notification has expired and repeats one that was accepted
    /// earlier. `nil` if the notification has not expired. Throws an error if the notification has expired and is new.
    private func earlier(_ notification: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        guard let end = notification.expiration, end > 0, end <= environment.now().seconds else { return nil }
        guard let earlier = try await store.earlier(notification) else {
            throw ChatError.invalid("expiration", NotificationContent.isPast)
        }
        return earlier
    }

    private func note(_ receipt: NotificationReceipt, _ caller: Caller, _ context: ChatContext) {
        environment.logger.info(
            "notification accepted",
            metadata: context.ids.metadata([
                LogKeys.notification: "\(receipt.id)",
                LogKeys.devices: "\(receipt.devices)", LogKeys.isRepeat: "\(receipt.isRepeat)",
                LogKeys.caller: "\(caller.name)",
            ]))
    }

    /// Composes the payload in the format of the app's gateway. Without an app it must fit the gateway of every
    /// configured app except browsers. A payload that cannot be translated for browsers fails for browsers only.
    private func compose(_ content: NotificationContent, for app: AppName?) throws(ChatError) -> ComposedNotification {
        var composed: ComposedNotification?
        for app in app.map({ [$0] }) ?? environment.relay.apps.map(\.app).filter({ $0 != .web }) {
            let next = try environment.configuration.format(of: app).compose(content, for: app)
            composed = composed ?? next
        }
        if let composed { return composed }
        return try environment.configuration.format(of: .default).compose(content, for: .default)
    }

    /// `GET /v1/notifications`: newest first. A token without the scope `admin` sees only notifications that were sent
    /// with it.
    func notifications(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let limit = try query.limit()
        // A page costs a count of the pushes of each of its notifications.
        guard limit <= HTTPLimits.reachPage else {
            throw ChatError.invalid("limit", "must be at most \(HTTPLimits.reachPage)")
        }
        let page = try await store.notifications(
            sentWith: context.caller().ownToken, before: query.cursor(), limit: limit)
        return Responses.page("notifications", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/notifications/{id}`
    func notification(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        let query = try AdminQuery(request, names: ["state", "limit", "cursor"])
        let (limit, cursor) = (try query.limit(), try query.cursor())
        let state = try query.value("state") { text, field throws(ChatError) in
            guard let state = PushState(rawValue: text) else {
                throw .invalid(field, "must be one of " + PushState.allCases.map(\.rawValue).joined(separator: ", "))
            }
            return state
        }
        try await requireOwn(id, context)
        let status = try await store.notification(id)
        let page = try await store.deliveries(of: id, in: state, after: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: status.json)
    }

    /// `DELETE /v1/notifications/{id}`
    func cancel(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        try await requireOwn(id, context)
        let status = try await store.cancel(id)
        environment.logger.info(
            "notification cancelled",
            metadata: context.ids.metadata([LogKeys.notification: "\(id)"]))
        return Responses.json(status.json)
    }

    /// Throws unless the caller may see the notification. A token without the scope `admin` sees only notifications
    /// sent with it.
    private func requireOwn(_ id: NotificationID, _ context: ChatContext) async throws {
        guard let token = try context.caller().ownToken else { return }
        guard try await store.notification(id).request.token == token else {
            throw ChatError.notFound("notification")
        }
    }
}

extension NotificationReceipt {
    fileprivate var json: JSONObject { ["id": .number(id), "devices": .number(devices)] }
}

extension NotificationStatus {
    /// The notification without its deliveries.
    fileprivate var json: JSONObject {
        var counts = JSONObject(counts: self.counts)
        counts["skipped"] = .number(skipped)
        return [
            "id": .number(id), "state": .string(state.rawValue), "created_at": .time(createdAt),
            "cancelled_at": .optional(cancelledAt), "to": request.audience.json, "app": .optional(request.app?.text),
            "payload": (try? JSONValue(parsing: request.payload)) ?? .null, "push_type": .string(request.pushType),
            "expiration": request.expiration == 0
                ? .number(0) : .optional(request.expiration.map(Timestamp.init(seconds:))),
            "priority": .optional(request.priority), "collapse_id": .optional(request.collapseID),
            "not_before": .optional(request.notBefore), "skip_unchanged": .bool(request.skipsUnchanged),
            "devices": .number(devices), "counts": .object(counts),
        ]
    }
}

extension JSONObject {
    /// Counts every state, including those with no push.
    init(counts: [PushState: Int]) {
        self.init()
        for state in PushState.allCases { self[state.rawValue] = .number(counts[state] ?? 0) }
    }
}
