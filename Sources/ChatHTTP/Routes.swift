import HTTPTypes
import Hummingbird

/// Every address that this server answers to.
struct Routes {
    private let router = Router(context: ChatContext.self)

    static func build(api: ChatAPI, pages: Pages, health: Health, answers: AnswerMiddleware, guarding: ForeignPageGuard)
        -> RouterResponder<ChatContext>
    {
        let routes = Routes()
        routes.router.add(middleware: answers)
        routes.router.add(middleware: guarding)

        routes.post("/api.php", api.answer)
        routes.post("/api", api.answer)
        routes.post("/push_chat_service.php", api.register)
        routes.post("/admin/apns_devices.json", api.registerAsJSON)

        routes.get("/", pages.start)
        routes.get("/style.css", pages.stylesheet)
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

    private typealias Handler = @Sendable (Request, ChatContext) async throws -> Response

    private func get(_ path: String, _ handler: @escaping Handler) {
        add(path, allow: "GET, HEAD", [.get, .head], handler)
    }

    private func post(_ path: String, _ handler: @escaping Handler) {
        add(path, allow: "POST", [.post], handler)
    }

    /// The router knows paths and methods as one; a known path with another method has its own answer, 405.
    private func add(_ path: String, allow: String, _ methods: [HTTPRequest.Method], _ handler: @escaping Handler) {
        let all: [HTTPRequest.Method] = [.get, .head, .post, .put, .delete, .patch, .options, .trace, .connect]
        for method in all {
            if methods.contains(method) {
                router.on(RouterPath(path), method: method, use: handler)
            } else {
                router.on(RouterPath(path), method: method) { _, _ -> Response in
                    throw ErrorAnswer.methodNotAllowed(allow: allow)
                }
            }
        }
    }
}
