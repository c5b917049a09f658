import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

extension AdminAPI {
    /// `PUT /v1/devices/{token}`
    func register(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app"])
        let body = try await AdminBody.read(
            request, members: ["app", "user_reference", "client_info", "tags"], isOptional: true)
        let named = try app(body.text("app"))
        let asked = try app(query.text("app"))
        guard named == nil || asked == nil || named == asked else {
            throw ChatError.invalid("app", "is another one in the query")
        }
        let app = try named ?? asked ?? resolveApp(nil)
        let edit = DeviceEdit(
            user: try body.change("user_reference") { text throws(ChatError) in try UserReference(parsing: text) },
            clientInfo: try body.change("client_info") { text throws(ChatError) in
                try DeviceNote.text(text, field: "client_info")
            },
            tags: try body.tags())
        let result = try await stores.devices.register(RegistrationRequest(token: token, app: app, edit: edit))
        logger.info(
            "device registered",
            metadata: [
                LogKeys.requestID: "\(context.requestID)", LogKeys.token: "\(token.shortened)",
                LogKeys.app: "\(app)", LogKeys.result: "\(result.rawValue)",
            ])
        return Answers.json(
            .object([
                "token": .string(token.description), "app": .string(app.text), "result": .string(result.rawValue),
            ]), status: result == .created ? .created : .ok)
    }

    /// `GET /v1/devices`
    func devices(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(
            request, names: ["app", "user_reference", "tag", "active", "limit", "cursor"])
        let filter = DeviceFilter(
            app: try app(query.text("app")),
            user: try query.text("user_reference").map { text throws(ChatError) in try UserReference(parsing: text) },
            tag: try query.text("tag").map { text throws(ChatError) in try Tag(parsing: text, field: "tag") },
            isActive: try query.flag("active"))
        let page = try await stores.devices.devices(filter, after: query.cursor(), limit: query.limit())
        return Self.page("devices", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/devices/{token}`
    func device(_ request: Request, _ context: ChatContext) async throws -> Response {
        let token = try Self.token(context)
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let (app, limit, cursor) = (try app(query.text("app")), try query.limit(), try query.cursor())
        let device = try await stores.devices.device(token, app: app)
        let page = try await stores.devices.deliveries(to: device.id, before: cursor, limit: limit)
        var json = device.json
        json["deliveries"] = .array(page.items.map { .object($0.json) })
        json["next"] = .optional(page.next)
        return Answers.json(.object(json))
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
            serverInfo: try body.change("server_info") { text throws(ChatError) in
                try DeviceNote.text(text, field: "server_info")
            },
            tags: try body.tags())
        return Answers.json(.object(try await stores.devices.edit(token, app: app(query.text("app")), edit).json))
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
            metadata: [LogKeys.requestID: "\(context.requestID)", LogKeys.token: "\(token.shortened)"])
        return Response(status: .noContent, headers: [.cacheControl: "no-store"])
    }
}

extension Device {
    var json: JSONObject {
        [
            "token": .string(token.description), "app": .string(app.text), "active": .bool(deactivatedAt == nil),
            "user_reference": .optional(user?.text), "client_info": .optional(clientInfo),
            "server_info": .optional(serverInfo), "tags": .array(tags.map { .string($0.text) }),
            "created_at": .time(createdAt), "registered_at": .time(registeredAt),
            "deactivated_at": .optional(deactivatedAt), "deactivated_reason": .optional(deactivatedReason),
        ]
    }
}
