import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Registers, lists, changes and unregisters devices. ``AdminGuard`` authenticates the caller.
struct DevicesAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any DeviceStore { environment.stores.devices }

    var routes: [Route] {
        [
            Route(.put, "/v1/devices/{token}", .scope(.admin), register),
            Route(.get, "/v1/devices/{token}", .scope(.admin), device),
            Route(.patch, "/v1/devices/{token}", .scope(.admin), edit),
            Route(.delete, "/v1/devices/{token}", .scope(.admin), unregister),
            Route(.get, "/v1/devices", .scope(.admin), devices),
            Route(.post, "/v1/devices", .scope(.admin), subscribe),
        ]
    }

    /// `PUT /v1/devices/{token}`
    func register(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        let body = try await AdminBody.read(
            request, members: Self.registration.union(["environment", "start_tokens"]), isOptional: true,
            hasQuery: true)
        return try await register(token, app: environment.app(query.text("app")), body, context)
    }

    /// Registers a phone.
    ///
    /// - Parameter asked: The app in the query. `nil` if the query names none.
    private func register(
        _ token: DeviceToken, app asked: AppName?, _ body: AdminBody, _ context: ChatContext
    ) async throws -> Response {
        let named = try environment.app(body.text("app"))
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
            try await environment.stores.activities.report(
                ActivityTokenReport(token: start, use: .start(type: type), system: edit.client.systemVersion),
                of: token, app: app)
        }
        return response
    }

    /// `POST /v1/devices`: registers a phone by its token, or a browser by its subscription.
    func subscribe(_ request: Request, _ context: ChatContext) async throws -> Response {
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
        try await environment.stores.subscriptions.keep(subscription)
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
        let result = try await store.register(RegistrationRequest(token: token, app: app, edit: edit))
        environment.logger.info(
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
            app: try environment.app(query.text("app")),
            user: try query.value("user_reference", UserReference.init(parsing:field:)),
            tag: try query.value("tag", Tag.init(parsing:field:)), isActive: try query.flag("active"))
        let page = try await store.devices(filter, after: query.cursor(), limit: query.limit())
        return Responses.page("devices", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/devices/{token}`
    func device(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let (app, limit, cursor) = (try environment.app(query.text("app")), try query.limit(), try query.cursor())
        let device = try await store.device(token, app: app)
        let page = try await store.deliveries(to: device.id, before: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: device.json)
    }

    /// `PATCH /v1/devices/{token}`
    func edit(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        let body = try await AdminBody.read(request, members: ["server_info", "tags"], hasQuery: true)
        guard !body.object.isEmpty else {
            throw ChatError(.missingField, "Missing server_info or tags", field: "server_info")
        }
        let edit = DeviceEdit(
            serverInfo: try body.change("server_info", DeviceNote.text(_:field:)), tags: try body.tags())
        return Responses.json(try await store.edit(token, app: environment.app(query.text("app")), edit).json)
    }

    /// `DELETE /v1/devices/{token}`
    func unregister(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        guard try await store.unregister(token, app: environment.app(query.text("app"))) else {
            throw ChatError.notFound("device")
        }
        environment.logger.info(
            "device unregistered",
            metadata: context.ids.metadata([LogKeys.token: "\(token.shortened)"]))
        return Responses.noContent
    }

    /// Returns the device token in the path, in any form in which tokens are printed.
    private static func token(_ context: ChatContext) throws -> DeviceToken {
        let text = Array(try context.parameters.require("token").utf8)
        return try DeviceToken(
            parsing: String(decoding: URLEncodedForm.unescaped(text[...], plusIsBlank: false), as: UTF8.self))
    }
}

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
