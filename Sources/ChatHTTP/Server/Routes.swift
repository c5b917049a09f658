import HTTPTypes
import Hummingbird

/// Every address that this server answers to.
struct Routes {
    private let router = Router(context: ChatContext.self)

    static func build(
        chat: ChatAPI, events: EventsAPI, admin: AdminAPI, figures: AdminFigures, pages: Pages, health: Health,
        answers: AnswerMiddleware, foreignPages: ForeignPageGuard, administrators: AdminGuard
    ) -> RouterResponder<ChatContext> {
        let routes = Routes()
        routes.router.add(middleware: answers)
        routes.router.add(middleware: foreignPages)

        routes.add("/api.php", [.post: chat.answer])
        routes.add("/api", [.post: chat.answer])
        routes.add("/push_chat_service.php", [.post: chat.register])
        routes.add("/admin/apns_devices.json", [.post: chat.registerAsJSON])
        // HEAD has no stream, and would use up a ticket.
        routes.add(Self.events, [.get: events.stream], answersHead: false)
        routes.add("/events/ticket", [.post: events.ticket])

        func addAdmin(_ path: String, _ handlers: [HTTPRequest.Method: Handler]) {
            routes.add(path, handlers, for: administrators)
        }
        addAdmin(
            "/v1/devices/{token}",
            [.put: admin.register, .get: admin.device, .patch: admin.edit, .delete: admin.unregister])
        addAdmin("/v1/devices", [.get: admin.devices, .post: admin.subscribe])
        addAdmin("/v1/notifications", [.post: admin.send])
        addAdmin("/v1/notifications/{id}", [.get: admin.notification, .delete: admin.cancel])
        addAdmin("/v1/rooms", [.get: admin.rooms])
        addAdmin("/v1/members", [.get: admin.members])
        addAdmin("/v1/messages", [.get: admin.messages])
        addAdmin("/v1/messages/{id}", [.get: admin.message])
        addAdmin("/v1/failures", [.get: admin.failures])
        addAdmin("/v1/warnings", [.get: admin.warnings])
        addAdmin("/v1/openapi.json", [.get: admin.description])
        addAdmin("/v1/queue", [.get: figures.queue])
        addAdmin("/v1/stats", [.get: figures.stats])
        addAdmin("/metrics", [.get: figures.metrics])

        routes.add("/", [.get: pages.chat])
        routes.add("/webpush/key", [.get: pages.pushKey])
        for file in WebFiles.all { routes.add(file.path, [.get: { request, _ in file.answer(request) }]) }
        // The tutorial's pages, in development only.
        routes.add("/test/database.php", [.get: pages.testDatabase])
        for (path, page) in TestPages.all { routes.add(path, [.get: pages.test(page)]) }

        routes.add("/healthz", [.get: health.alive])
        // What was found is the administrator's to read.
        let details = administrators.guarding(health.details)
        routes.add(
            "/readyz",
            [
                .get: { request, context in
                    request.headers.contains(.authorization)
                        ? try await details(request, context) : await health.ready(request, context)
                }
            ])
        return routes.router.buildResponder()
    }

    /// The path of event streams.
    static let events = "/events"

    typealias Handler = @Sendable (Request, ChatContext) async throws -> Response

    /// The router knows paths and methods as one; a known path with another method has its own answer, 405.
    /// - Parameter answersHead: whether what answers GET answers HEAD, too.
    private func add(
        _ path: String, _ handlers: [HTTPRequest.Method: Handler], for administrators: AdminGuard? = nil,
        answersHead: Bool = true
    ) {
        var handlers = handlers
        if answersHead, handlers[.head] == nil { handlers[.head] = handlers[.get] }
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
