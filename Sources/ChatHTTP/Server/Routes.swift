import HTTPTypes
import Hummingbird

/// Every address that this server answers to.
struct Routes {
    private let router = Router(context: ChatContext.self)

    static func build(
        api: ChatAPI, events: EventsAPI, admin: AdminAPI, pages: Pages, health: Health, answers: AnswerMiddleware,
        guarding: ForeignPageGuard, administrators: AdminGuard
    ) -> RouterResponder<ChatContext> {
        let routes = Routes()
        routes.router.add(middleware: answers)
        routes.router.add(middleware: guarding)

        routes.post("/api.php", api.answer)
        routes.post("/api", api.answer)
        routes.post("/push_chat_service.php", api.register)
        routes.post("/admin/apns_devices.json", api.registerAsJSON)

        routes.add(
            "/v1/devices/{token}",
            [
                .put: admin.register, .get: admin.device, .patch: admin.edit,
                .delete: admin.unregister,
            ], by: administrators)
        routes.add("/v1/devices", [.get: admin.devices], by: administrators)
        routes.add("/v1/notifications", [.post: admin.send], by: administrators)
        routes.add(
            "/v1/notifications/{id}", [.get: admin.notification, .delete: admin.cancel], by: administrators)
        routes.add("/v1/rooms", [.get: admin.rooms], by: administrators)
        routes.add("/v1/members", [.get: admin.members], by: administrators)
        routes.add("/v1/messages", [.get: admin.messages], by: administrators)
        routes.add("/v1/messages/{id}", [.get: admin.message], by: administrators)
        routes.add("/v1/failures", [.get: admin.failures], by: administrators)
        routes.add("/v1/warnings", [.get: admin.warnings], by: administrators)
        routes.add("/v1/queue", [.get: admin.queue], by: administrators)
        routes.add("/v1/stats", [.get: admin.stats], by: administrators)
        routes.add("/v1/openapi.json", [.get: admin.description], by: administrators)
        routes.add("/metrics", [.get: admin.metrics], by: administrators)

        routes.get("/events", events.stream)

        routes.get("/", pages.chat)
        for file in WebFiles.all { routes.get(file.path) { request, _ in file.answer(request) } }
        // The tutorial's pages, in development only.
        routes.get("/test", pages.testIndex)
        routes.get("/test/database.php", pages.database)
        for form in TestForm.all {
            for name in form.names { routes.get("/test/\(name)", pages.handler(of: form)) }
        }

        routes.get("/healthz", health.alive)
        routes.get("/readyz", health.ready)
        return routes.router.buildResponder()
    }

    typealias Handler = @Sendable (Request, ChatContext) async throws -> Response

    private func get(_ path: String, _ handler: @escaping Handler) {
        add(path, [.get: handler])
    }

    private func post(_ path: String, _ handler: @escaping Handler) {
        add(path, [.post: handler])
    }

    /// The router knows paths and methods as one; a known path with another method has its own answer, 405. What answers GET
    /// answers HEAD.
    private func add(
        _ path: String, _ handlers: [HTTPRequest.Method: Handler], by administrators: AdminGuard? = nil
    ) {
        let handlers = handlers.merging(handlers[.get].map { [.head: $0] } ?? [:]) { own, _ in own }
        let allow = Self.methods.filter { handlers[$0] != nil }.map(\.rawValue).joined(separator: ", ")
        for method in Self.methods {
            let handler: Handler = handlers[method] ?? { _, _ in throw ErrorAnswer.methodNotAllowed(allow: allow) }
            router.on(RouterPath(path), method: method, use: administrators?.guarding(handler) ?? handler)
        }
    }

    private static let methods: [HTTPRequest.Method] = [
        .get, .head, .post, .put, .delete, .patch, .options, .trace, .connect, HTTPRequest.Method("QUERY")!,
    ]
}
