import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

extension AdminAPI {
    /// `POST /v1/notifications`
    func send(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let body = try await AdminBody.read(
            request, members: NotificationContent.fields.union(["to", "app", "skip_unchanged"]))
        let audience = try Audience(json: body.object["to"])
        let app = try app(body.text("app"))
        let key = try IdempotencyKey.text(request.headers)
        let content = try NotificationContent(body.object, now: clock(), isRepeat: key != nil)
        let composed = try compose(content, for: app)
        let notification = NotificationRequest(
            audience: audience, app: app, payload: composed.payload, pushType: composed.pushType,
            expiration: content.expiration, priority: composed.priority, collapseID: content.collapseID,
            notBefore: content.notBefore, skipsUnchanged: try body.flag("skip_unchanged"), idempotencyKey: key)
        let receipt: NotificationReceipt
        if let end = content.expiration, end > 0, end <= clock().seconds {
            // As a repeat it has its answer; as a new one it comes too late.
            guard let earlier = try await stores.notifications.earlier(notification) else {
                throw ChatError.invalid("expiration", NotificationContent.isPast)
            }
            receipt = earlier
        } else {
            receipt = try await stores.notifications.send(notification)
        }
        logger.info(
            "notification accepted",
            metadata: [
                LogKeys.requestID: "\(context.requestID)", LogKeys.notification: "\(receipt.id)",
                LogKeys.devices: "\(receipt.devices)", LogKeys.isRepeat: "\(receipt.isRepeat)",
            ])
        var headers: HTTPFields = [.location: "/v1/notifications/\(receipt.id)"]
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Answers.json(
            .object(["id": .number(receipt.id), "devices": .number(receipt.devices)]), status: .accepted,
            headers: headers)
    }

    /// As the gateway of the app wants it, or those of all: it has to fit each of them.
    private func compose(_ content: NotificationContent, for app: AppName?) throws(ChatError) -> ComposedNotification {
        var composed: ComposedNotification?
        for app in app.map({ [$0] }) ?? apps().map(\.app) {
            let next = try format(app).compose(content, for: app)
            composed = composed ?? next
        }
        if let composed { return composed }
        return try format(.default).compose(content, for: .default)
    }

    /// `GET /v1/notifications/{id}`
    func notification(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try Self.id(context)
        let query = try AdminQuery(request, names: ["state", "limit", "cursor"])
        let (limit, cursor) = (try query.limit(), try query.cursor())
        let state = try query.text("state").map { text throws(ChatError) in
            guard let state = PushState(rawValue: text) else {
                let known = PushState.allCases.map(\.rawValue).joined(separator: ", ")
                throw ChatError.invalid("state", "must be one of \(known)")
            }
            return state
        }
        var json = try await stores.notifications.notification(id).json
        let page = try await stores.notifications.deliveries(of: id, in: state, after: cursor, limit: limit)
        json["deliveries"] = .array(page.items.map { .object($0.json) })
        json["next"] = .optional(page.next)
        return Answers.json(.object(json))
    }

    /// `DELETE /v1/notifications/{id}`
    func cancel(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try Self.id(context)
        _ = try AdminQuery(request, names: [])
        let status = try await stores.notifications.cancel(id)
        logger.info(
            "notification cancelled",
            metadata: [LogKeys.requestID: "\(context.requestID)", LogKeys.notification: "\(id)"])
        return Answers.json(.object(status.json))
    }
}

extension Audience {
    /// Reads what ``json`` writes, as a request brings it.
    fileprivate init(json: JSONValue?) throws(ChatError) {
        guard let json, json != .null else { throw .missing("to") }
        let kinds: Set<String> = ["tokens", "users", "tags", "room", "all"]
        guard let object = json.object else { throw .invalid("to", "must be an object, is \(json.kind)") }
        try AdminBody.requireKnown(object, kinds, in: "to.")
        guard object.members.count == 1, let (name, value) = object.members.first else {
            throw .invalid("to", "must have exactly one of " + kinds.sorted().joined(separator: ", "))
        }
        switch name {
        case "tokens":
            self = .tokens(
                try Self.names(value, "to.tokens", most: Self.mostNames) { text, field throws(ChatError) in
                    try DeviceToken(parsing: text, field: field)
                })
        case "users":
            self = .users(
                try Self.names(value, "to.users", most: Self.mostNames) { text, field throws(ChatError) in
                    try UserReference(parsing: text, field: field)
                })
        case "tags":
            self = .tags(
                try Self.names(value, "to.tags", most: Self.mostTags) { text, field throws(ChatError) in
                    try Tag(parsing: text, field: field)
                })
        case "room":
            guard let code = value.text else { throw .invalid("to.room", "must be a string, is \(value.kind)") }
            self = .room(try SecretCode(parsing: code, field: "to.room"))
        default:
            guard value == .bool(true) else { throw .invalid("to.all", "must be true") }
            self = .all
        }
    }

    private static func names<Item>(
        _ value: JSONValue, _ name: String, most: Int,
        _ parse: (_ text: String, _ field: String) throws(ChatError) -> Item
    ) throws(ChatError) -> [Item] {
        let items = try AdminBody.list(value, name, most: most, parse)
        guard !items.isEmpty else { throw .invalid(name, "must not be empty") }
        return items
    }
}

extension NotificationStatus {
    /// Without its deliveries.
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
    /// Each state, also those of which there is none.
    init(counts: [PushState: Int]) {
        self.init()
        for state in PushState.allCases { self[state.rawValue] = .number(counts[state] ?? 0) }
    }
}
