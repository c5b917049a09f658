import ChatDomain
import HTTPTypes
import Hummingbird

/// All routes of the server.
struct Routes {
    private let router = Router(context: ChatContext.self)

    static func build(
        chat: ChatAPI, events: EventsAPI, admin: AdminAPI, metrics: AdminMetrics, pages: Pages, health: Health,
        posting: PostingAPI, gotify: GotifyAPI, ntfy: NtfyAPI, tokens: TokensAPI,
        moderation: ModerationAPI, responses: ResponseMiddleware,
        foreignPages: ForeignPageGuard, administrators: AdminGuard
    ) -> RouterResponder<ChatContext> {
        let routes = Routes()
        routes.router.add(middleware: responses)
        routes.router.add(middleware: foreignPages)

        routes.add("/api.php", [.post: chat.execute])
        routes.add("/api", [.post: chat.execute])
        routes.add("/push_chat_service.php", [.post: chat.register])
        routes.add("/admin/apns_devices.json", [.post: chat.registerAsJSON])
        let programStream = administrators.guarding(events.programStream, .read)
        let stream: ChatContext.Handler = { request, context in
            EventsAPI.isOfProgram(request)
                ? try await programStream(request, context) : try await events.stream(request, context)
        }
        // HEAD would open no stream but use up a ticket.
        routes.add(Self.events, [.get: stream], servesHead: false)
        routes.add("/events/ticket", [.post: events.ticket])

        /// Adds a path of the admin API, which requires a token.
        ///
        /// - Parameter scopes: The scope that a token needs, by method. Methods not listed need `admin`.
        func addAdmin(
            _ path: String, _ handlers: [HTTPRequest.Method: ChatContext.Handler],
            _ scopes: [HTTPRequest.Method: Scope] = [:]
        ) {
            routes.add(path, handlers) { method, handler in
                administrators.guarding(handler, scopes[method == .head ? .get : method] ?? .admin)
            }
        }
        addAdmin(
            "/v1/devices/{token}",
            [.put: admin.register, .get: admin.device, .patch: admin.edit, .delete: admin.unregister])
        addAdmin("/v1/devices", [.get: admin.devices, .post: admin.subscribe])
        addAdmin("/v1/notifications", [.get: admin.notifications, .post: admin.send], [.get: .send, .post: .send])
        addAdmin("/v1/notifications:batch", [.post: admin.sendBatch], [.post: .send])
        addAdmin(
            "/v1/notifications/{id}", [.get: admin.notification, .delete: admin.cancel], [.get: .send, .delete: .send])
        addAdmin("/v1/rooms", [.get: admin.rooms, .patch: admin.editRoom])
        addAdmin("/v1/rooms:recode", [.post: moderation.recode])
        addAdmin("/v1/members", [.get: admin.members])
        addAdmin("/v1/members/{id}", [.delete: moderation.remove])
        addAdmin("/v1/messages", [.get: admin.messages, .post: posting.post], [.get: .read, .post: .post])
        addAdmin("/v1/messages/{id}", [.get: admin.message, .delete: moderation.deleteMessage])
        addAdmin("/v1/bans", [.get: moderation.bans, .post: moderation.ban])
        addAdmin("/v1/bans/{id}", [.delete: moderation.endBan])
        addAdmin("/v1/moderation", [.get: moderation.records])
        addAdmin("/v1/failures", [.get: admin.failures])
        addAdmin("/v1/warnings", [.get: admin.warnings])
        addAdmin("/v1/probes", [.post: events.probe])
        addAdmin("/v1/tokens", [.get: tokens.list, .post: tokens.create])
        addAdmin("/v1/tokens/{id}", [.delete: tokens.revoke])
        addAdmin("/v1/openapi.json", [.get: admin.description])
        addAdmin("/v1/queue", [.get: metrics.queue], [.get: .figures])
        addAdmin("/v1/stats", [.get: metrics.stats], [.get: .figures])
        addAdmin("/metrics", [.get: metrics.metrics], [.get: .figures])

        // The APIs of other servers, whose clients send tokens in their own ways.
        routes.add("/gotify/message", [.post: gotify.message]) { _, handler in
            administrators.guarding(handler, .post, credential: GotifyAPI.credential)
        }
        routes.add("/gotify/version", [.get: gotify.version])
        routes.add("/gotify/health", [.get: gotify.health])
        func addNtfy(_ path: String, _ handlers: [HTTPRequest.Method: ChatContext.Handler]) {
            routes.add(path, handlers) { _, handler in
                administrators.guarding(handler, .post, credential: NtfyAPI.credential)
            }
        }
        addNtfy("/ntfy", [.post: ntfy.publishJSON, .put: ntfy.publishJSON])
        addNtfy("/ntfy/{topic}", [.post: ntfy.publish, .put: ntfy.publish])
        for verb in ["publish", "send", "trigger"] { addNtfy("/ntfy/{topic}/\(verb)", [.get: ntfy.publish]) }
        routes.add("/ntfy/v1/health", [.get: ntfy.health])

        // Some ntfy clients support only a server without a path.
        let publishing = administrators.guarding(ntfy.publishJSON, .post, credential: NtfyAPI.credential)
        routes.add("/", [.get: pages.chat, .post: publishing]) { $1 }
        routes.add("/webpush/key", [.get: pages.pushKey])
        for file in WebFiles.all { routes.add(file.path, [.get: { request, _ in file.response(to: request) }]) }
        // The tutorial's pages, served in development only.
        routes.add("/test/database.php", [.get: pages.testDatabase])
        for (path, page) in TestPages.all { routes.add(path, [.get: pages.test(page)]) }

        routes.add("/healthz", [.get: health.alive])
        // Only callers with the scope `figures` may read the causes.
        let details = administrators.guarding(health.details, .figures)
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

    /// Adds a path with its handlers. The router matches path and method together, so every other method gets a handler
    /// that responds with 405.
    ///
    /// - Parameters:
    ///   - servesHead: Whether the GET handler also serves HEAD.
    ///   - guarding: Wraps the handler of each method, known or not. By default, pages of other sites may only read.
    private func add(
        _ path: String, _ handlers: [HTTPRequest.Method: ChatContext.Handler], servesHead: Bool = true,
        guarding: (_ method: HTTPRequest.Method, _ handler: @escaping ChatContext.Handler) -> ChatContext.Handler = {
            [.get, .head, .options].contains($0) ? $1 : ForeignPageGuard.refusingForeignPages($1)
        }
    ) {
        var handlers = handlers
        if servesHead, handlers[.head] == nil { handlers[.head] = handlers[.get] }
        let allow = Self.methods.filter { handlers[$0] != nil }.map(\.rawValue).joined(separator: ", ")
        for method in Self.methods {
            let handler: ChatContext.Handler =
                handlers[method] ?? { _, _ in throw ErrorResponse.methodNotAllowed(allow: allow) }
            router.on(RouterPath(path), method: method, use: guarding(method, handler))
        }
    }

    private static let methods: [HTTPRequest.Method] = [
        .get, .head, .post, .put, .delete, .patch, .options, .trace, .connect, HTTPRequest.Method("QUERY")!,
    ]
}
