import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import WebAssets

/// The admin API for the operator's programs: devices, notifications, rooms. ``AdminGuard`` authenticates the caller.
struct AdminAPI: Sendable {
    let environment: ChatEnvironment

    private var stores: Stores { environment.stores }
    private var logger: Logger { environment.logger }

    var routes: [Route] {
        [
            Route(.put, "/v1/devices/{token}", .scope(.admin), register),
            Route(.get, "/v1/devices/{token}", .scope(.admin), device),
            Route(.patch, "/v1/devices/{token}", .scope(.admin), edit),
            Route(.delete, "/v1/devices/{token}", .scope(.admin), unregister),
            Route(.get, "/v1/devices", .scope(.admin), devices),
            Route(.post, "/v1/devices", .scope(.admin), subscribe),
            Route(.get, "/v1/notifications", .scope(.send), notifications),
            Route(.post, "/v1/notifications", .scope(.send), send),
            Route(.post, "/v1/notifications:batch", .scope(.send), sendBatch),
            Route(.get, "/v1/notifications/{id}", .scope(.send), notification),
            Route(.delete, "/v1/notifications/{id}", .scope(.send), cancel),
            Route(.get, "/v1/rooms", .scope(.admin), rooms),
            Route(.patch, "/v1/rooms", .scope(.admin), editRoom),
            Route(.get, "/v1/members", .scope(.admin), members),
            Route(.get, "/v1/messages", .scope(.read), messages),
            Route(.get, "/v1/messages/{id}", .scope(.admin), message),
            Route(.get, "/v1/failures", .scope(.admin), failures),
            Route(.get, "/v1/warnings", .scope(.admin), warnings),
            Route(.get, "/v1/openapi.json", .scope(.admin), description),
        ]
    }

    // MARK: - Devices

    /// `PUT /v1/devices/{token}`
    func register(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        let body = try await AdminBody.read(
            request, members: Self.registration.union(["environment", "start_tokens"]), isOptional: true)
        return try await register(token, app: app(query.text("app")), body, context)
    }

    /// Registers a phone.
    ///
    /// - Parameter asked: The app in the query. `nil` if the query names none.
    private func register(
        _ token: DeviceToken, app asked: AppName?, _ body: AdminBody, _ context: ChatContext
    ) async throws -> Response {
        let named = try app(body.text("app"))
        guard named == nil || asked == nil || named == asked else {
            throw ChatError.invalid("app", "differs from the one in the query")
        }
        let configuration = environment.configuration
        var app = try named ?? asked ?? configuration.app(named: nil, of: token)
        let place = try body.value("environment") { text, field throws(ChatError) in
            guard let environment = AppEnvironment(text) else { throw .invalid(field, AppEnvironment.rule) }
            return environment
        }
        if let place { app = try configuration.app(like: app, in: place) }
        if app != .web { try configuration.format(of: app).check(token, field: "token") }
        let edit = try Self.edit(body)
        let starts = try body.startTokens()
        guard starts.isEmpty || token.kind == .bytes && app != .web else {
            throw ChatError.invalid("start_tokens", "are for iPhones only")
        }
        let response = try await register(token, app: app, edit, context)
        // A request that fails in between is repeated by the caller.
        for (type, start) in starts {
            try await stores.activities.report(
                ActivityTokenReport(token: start, use: .start(type: type), system: edit.client.systemVersion),
                of: token, app: app)
        }
        return response
    }

    /// `POST /v1/devices`: registers a phone by its token, or a browser by its subscription.
    func subscribe(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let body = try await AdminBody.read(
            request, members: Self.registration.union(["subscription", "token", "environment", "start_tokens"]))
        if let token = try body.value("token", DeviceToken.init(parsing:field:)) {
            guard body.object["subscription"] ?? .null == .null else {
                throw ChatError.invalid("token", "must be left out with subscription")
            }
            return try await register(token, app: nil, body, context)
        }
        guard let value = body.object["subscription"], value != .null else {
            throw ChatError(
                .missingField, "Missing subscription of a browser, or token of a phone", field: "subscription")
        }
        for field in ["environment", "start_tokens"] where body.object[field] ?? .null != .null {
            throw ChatError.invalid(field, "is for phones only")
        }
        guard let browsers = environment.relay.browsers else { throw ChatError.noPushesToBrowsers }
        guard try body.text("app").map({ $0 == AppName.web.text }) ?? true else {
            throw ChatError.invalid("app", "must be \(AppName.web) for a browser")
        }
        // The subscription is JavaScript's object, or the text from `JSON.stringify`.
        let subscription = try browsers.subscription(value.text ?? "\(value)")
        let edit = try Self.edit(body)
        try await stores.subscriptions.keep(subscription)
        return try await register(subscription.address, app: .web, edit, context)
    }

    /// The permitted members of a registration.
    private static let registration: Set = [
        "app", "user_reference", "client_info", "app_version", "os_version", "device_model", "tags",
    ]

    private static func edit(_ body: AdminBody) throws(ChatError) -> DeviceEdit {
        DeviceEdit(
            user: try body.change("user_reference", UserReference.init(parsing:field:)),
            clientInfo: try body.change("client_info", DeviceNote.text(_:field:)),
            client: ClientInfo(
                appVersion: try body.clientInfo("app_version"), osVersion: try body.clientInfo("os_version"),
                deviceModel: try body.clientInfo("device_model")),
            tags: try body.tags())
    }

    private func register(
        _ token: DeviceToken, app: AppName, _ edit: DeviceEdit, _ context: ChatContext
    ) async throws -> Response {
        let result = try await stores.devices.register(RegistrationRequest(token: token, app: app, edit: edit))
        logger.info(
            "device registered",
            metadata: context.ids.metadata([
                LogKeys.token: "\(token.shortened)",
                LogKeys.app: "\(app)", LogKeys.result: "\(result.rawValue)",
            ]))
        return Responses.json(
            ["token": .string(token.description), "app": .string(app.text), "result": .string(result.rawValue)],
            status: result == .created ? .created : .ok)
    }

    /// `GET /v1/devices`
    func devices(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(
            request, names: ["app", "user_reference", "tag", "active", "limit", "cursor"])
        let filter = DeviceFilter(
            app: try app(query.text("app")),
            user: try query.value("user_reference", UserReference.init(parsing:field:)),
            tag: try query.value("tag", Tag.init(parsing:field:)), isActive: try query.flag("active"))
        let page = try await stores.devices.devices(filter, after: query.cursor(), limit: query.limit())
        return Responses.page("devices", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/devices/{token}`
    func device(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let (app, limit, cursor) = (try app(query.text("app")), try query.limit(), try query.cursor())
        let device = try await stores.devices.device(token, app: app)
        let page = try await stores.devices.deliveries(to: device.id, before: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: device.json)
    }

    /// `PATCH /v1/devices/{token}`
    func edit(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        let body = try await AdminBody.read(request, members: ["server_info", "tags"])
        guard !body.object.isEmpty else {
            throw ChatError(.missingField, "Missing server_info or tags", field: "server_info")
        }
        let edit = DeviceEdit(
            serverInfo: try body.change("server_info", DeviceNote.text(_:field:)), tags: try body.tags())
        return Responses.json(try await stores.devices.edit(token, app: app(query.text("app")), edit).json)
    }

    /// `DELETE /v1/devices/{token}`
    func unregister(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        guard try await stores.devices.unregister(token, app: app(query.text("app"))) else {
            throw ChatError.notFound("device")
        }
        logger.info(
            "device unregistered",
            metadata: context.ids.metadata([LogKeys.token: "\(token.shortened)"]))
        return Responses.noContent
    }

    // MARK: - Notifications

    private static let sending = NotificationContent.fields.union(["to", "app", "skip_unchanged"])

    /// `POST /v1/notifications`
    func send(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let body = try await AdminBody.read(request, members: Self.sending)
        let caller = try context.caller()
        let notification = try await notification(body, key: caller.key(request.headers.idempotencyKey()), caller)
        let receipt =
            if let earlier = try await earlier(notification) { earlier } else {
                try await stores.notifications.send(notification)
            }
        note(receipt, caller, context)
        var headers = Responses.location("/v1/notifications/\(receipt.id)", for: request)
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Responses.json(summary(of: receipt, for: notification), status: .accepted, headers: headers)
    }

    /// `POST /v1/notifications:batch`: sends up to ``HTTPLimits/batch`` notifications, each with its own audience and
    /// content, in one transaction. Each has its own result, so an error in one does not affect the others.
    func sendBatch(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
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
        var sent = requests.isEmpty ? [] : try await stores.notifications.send(requests)
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
        let audience = try await Audience(body, stores.records)
        if let grant = caller.token?.grant, !grant.allows(audience) {
            throw ChatError(.forbidden, "This token may not send to this audience", field: "to")
        }
        let app = try app(body.text("app"))
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
        guard let earlier = try await stores.notifications.earlier(notification) else {
            throw ChatError.invalid("expiration", NotificationContent.isPast)
        }
        return earlier
    }

    private func note(_ receipt: NotificationReceipt, _ caller: Caller, _ context: ChatContext) {
        logger.info(
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
        let page = try await stores.notifications.notifications(
            sentWith: Self.ownToken(context), before: query.cursor(), limit: limit)
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
        let status = try await stores.notifications.notification(id)
        let page = try await stores.notifications.deliveries(of: id, in: state, after: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: status.json)
    }

    /// `DELETE /v1/notifications/{id}`
    func cancel(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        try await requireOwn(id, context)
        let status = try await stores.notifications.cancel(id)
        logger.info(
            "notification cancelled",
            metadata: context.ids.metadata([LogKeys.notification: "\(id)"]))
        return Responses.json(status.json)
    }

    /// Throws unless the caller may see the notification. A token without the scope `admin` sees only notifications
    /// sent with it.
    private func requireOwn(_ id: NotificationID, _ context: ChatContext) async throws {
        guard let token = try Self.ownToken(context) else { return }
        guard try await stores.notifications.notification(id).request.token == token else {
            throw ChatError.notFound("notification")
        }
    }

    /// Returns the token to which the caller's view is limited. `nil` for administrators.
    private static func ownToken(_ context: ChatContext) throws -> Int64? {
        guard let token = try context.caller().token, !token.grant.scopes.contains(.admin) else { return nil }
        return token.id
    }

    // MARK: - Rooms

    /// `GET /v1/rooms`
    func rooms(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["prefix", "limit", "cursor"])
        let page = try await stores.records.rooms(
            startingWith: FieldText.composed(try query.code("prefix")?.text ?? ""), after: query.code("cursor"),
            limit: query.limit())
        return Responses.page("rooms", page.rooms.map(\.json), next: .optional(page.next?.text))
    }

    /// `PATCH /v1/rooms`: changes the operator's settings for a room.
    func editRoom(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        let body = try await AdminBody.read(request, members: ["room", "history", "title"])
        guard let room = try await body.room(environment.stores.records) else { throw ChatError.missing("room") }
        let edit = RoomEdit(
            history: try body.change("history", RoomHistory.init(parsing:field:)),
            title: try body.change("title", RoomTitle.init(parsing:field:)))
        guard edit != RoomEdit() else {
            throw ChatError(.missingField, "Missing history or title", field: "history")
        }
        let choices = try await stores.records.edit(room, edit)
        let caller = try context.caller().name
        logger.info("room changed", metadata: context.ids.metadata([LogKeys.caller: "\(caller)"]))
        return Responses.json([
            "room": .string(room.text), "history": .optional(choices.history?.rawValue),
            "title": .optional(choices.title?.text),
        ])
    }

    /// `GET /v1/members`
    func members(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await stores.records.members(
            of: context.caller().room(await query.room(stores.records)), after: query.cursor(), limit: query.limit())
        return Responses.page("members", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/messages`: newest first, or oldest first after the message in `since`.
    func messages(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "since", "search", "text", "reach", "limit", "cursor"])
        let room = try context.caller().room(await query.room(stores.records))
        let (since, cursor) = (try query.since(), try query.cursor())
        guard since == nil || cursor == nil else {
            throw ChatError.invalid("since", "cannot go together with cursor: give the last message's id")
        }
        let search = try query.value("search", SearchText.init(parsing:field:))
        guard search == nil || since == nil else { throw ChatError.invalid("since", "cannot go together with search") }
        let withText = try query.flag("text") ?? false
        let withReach = try query.flag("reach") ?? false
        guard try !withReach || query.limit() <= HTTPLimits.reachPage else {
            throw ChatError.invalid("limit", "must be at most \(HTTPLimits.reachPage) with reach")
        }
        let page =
            if let search {
                try await stores.records.search(
                    MessageSearch(search, in: .room(room), before: cursor), limit: query.limit())
            } else {
                try await stores.records.messages(
                    of: room, since.map { .oldestFirst(after: $0) } ?? .newestFirst(before: cursor),
                    limit: query.limit())
            }
        var items = page.items.map { $0.json(withText: withText) }
        if withReach {
            for (index, reach) in try await stores.records.reach(of: page.items).enumerated() {
                items[index]["sent"] = .number(reach.sent)
                items[index]["readers"] = .number(reach.readers)
                items[index]["fetched"] = .number(reach.fetched)
            }
        }
        return Responses.page("messages", items, next: .optional(page.next))
    }

    /// `GET /v1/messages/{id}`
    func message(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let (limit, cursor) = (try query.limit(), try query.cursor())
        let progress = try await stores.records.progress(of: id)
        let page = try await stores.records.deliveries(ofMessage: id, after: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: progress.json)
    }

    /// `GET /v1/failures`
    func failures(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let page = try await stores.records.failures(
            of: app(query.text("app")), before: query.cursor(), limit: query.limit())
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next))
    }

    // MARK: - Diagnostics

    /// `GET /v1/warnings`
    func warnings(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Responses.json(["warnings": .array(environment.relay.recentWarnings)])
    }

    private static let openAPI = WebFile("/v1/openapi.json", "application/json", WebFile.embedded("openapi.json"))

    /// `GET /v1/openapi.json`: the OpenAPI document of the admin API.
    func description(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Self.openAPI.response(to: request)
    }

    /// Returns the app that a request names. `nil` if it names none.
    private func app(_ name: String?) throws(ChatError) -> AppName? {
        guard let name else { return nil }
        guard !name.isEmpty else { throw .invalid("app", "must not be empty") }
        do throws(ChatError) {
            return try environment.configuration.app(named: name)
        } catch {
            throw .invalid("app", "names no app of this relay")
        }
    }

    /// Returns the device token in the path, in any form in which tokens are printed.
    private static func token(_ context: ChatContext) throws -> DeviceToken {
        let text = Array(try context.parameters.require("token").utf8)
        return try DeviceToken(
            parsing: String(decoding: URLEncodedForm.unescaped(text[...], plusIsBlank: false), as: UTF8.self))
    }
}

// MARK: - Records as JSON

extension Device {
    fileprivate var json: JSONObject {
        [
            "token": .string(token.description), "app": .string(app.text), "active": .bool(deactivatedAt == nil),
            "user_reference": .optional(user?.text), "client_info": .optional(clientInfo),
            "server_info": .optional(serverInfo), "app_version": .optional(client.appVersion),
            "os_version": .optional(client.osVersion), "device_model": .optional(client.deviceModel),
            "tags": .array(tags.map { .string($0.text) }),
            "created_at": .time(createdAt), "registered_at": .time(registeredAt),
            "seen_at": .optional(seenAt),
            "deactivated_at": .optional(deactivatedAt), "deactivated_reason": .optional(deactivatedReason),
        ]
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
    fileprivate init(counts: [PushState: Int]) {
        self.init()
        for state in PushState.allCases { self[state.rawValue] = .number(counts[state] ?? 0) }
    }
}

extension RoomRecord {
    fileprivate var json: JSONObject {
        [
            "code": .string(code.text), "members": .number(members), "last_message": .optional(lastMessage),
            "last_message_at": .optional(lastMessageAt), "history": .optional(choices.history?.rawValue),
            "title": .optional(choices.title?.text),
        ]
    }
}

extension MemberRecord {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "name": .string(nickname), "token": .optional(token), "app": .string(app.text),
            "joined_at": .time(joinedAt), "last_message_at": .optional(lastMessageAt),
            "fetched_to": .optional(fetchedTo), "fetched_at": .optional(fetchedAt),
            "shown_to": .optional(shownTo),
        ]
    }
}

extension MessageProgress {
    fileprivate var json: JSONObject {
        var json = message.json(withText: false)
        json["queueing"] = .bool(isQueueing)
        json["counts"] = .object(JSONObject(counts: counts))
        json["readers"] = .number(readers)
        json["shown"] = .number(shown)
        json["fetched"] = .number(fetched)
        json["fetched_by"] = .array(fetchedBy.map { .string($0) })
        return json
    }
}

extension MessageDelivery {
    fileprivate var json: JSONObject {
        var json = delivery.json
        json["fetched"] = .bool(isFetched)
        return json
    }
}
