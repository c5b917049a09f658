import ChatDomain
import HTTPTypes
import Hummingbird

/// Builds the router from the APIs' tables of routes.
struct Routes {
    let environment: ChatEnvironment
    let administrators: AdminGuard

    private static let methods: [HTTPRequest.Method] = [
        .get, .head, .post, .put, .delete, .patch, .options, .trace, .connect, HTTPRequest.Method("QUERY")!,
    ]

    func add(_ routes: [Route], to router: Router<ChatContext>) {
        var paths: [String] = []
        for route in routes where !paths.contains(route.path) { paths.append(route.path) }
        for path in paths { add(path, routes.filter { $0.path == path }, to: router) }
    }

    /// The method of every request that the router gets. The router matches path and method together. The relay lets it
    /// match the path alone, because each path responds to every method, most often with 405.
    static let anyMethod = HTTPRequest.Method("ANY")!

    /// Adds the routes of one path. Other methods get a response with 405.
    private func add(_ path: String, _ routes: [Route], to router: Router<ChatContext>) {
        var handlers: [HTTPRequest.Method: ChatContext.Handler] = [:]
        for route in routes.reversed() {
            let handler = guarded(route)
            guard let condition = route.condition, let otherwise = handlers[route.method] else {
                handlers[route.method] = handler
                continue
            }
            handlers[route.method] = { request, context in
                try await condition(request) ? handler(request, context) : otherwise(request, context)
            }
        }
        let admitsOtherSites = routes.allSatisfy(\.group.admitsOtherSites)
        if handlers[.head] == nil, routes.allSatisfy(\.servesHead) { handlers[.head] = handlers[.get] }
        let allow = Self.methods.filter { handlers[$0] != nil || ($0 == .options && admitsOtherSites) }.map(\.rawValue)
            .joined(separator: ", ")
        if admitsOtherSites { handlers[.options] = { _, _ in Responses.preflight(allow: allow) } }
        let (isOpen, group) = (routes.contains { $0.access.isOpen }, routes[0].group)
        let isOfAdmin = group.server == nil && routes[0].access != .hook
        let access = isOpen ? .anyone : isOfAdmin ? .scope(.admin) : routes[0].access
        router.on(RouterPath(path), method: Self.anyMethod) { [handlers] request, context in
            if let handler = handlers[request.method] { return try await handler(request, context) }
            guard Self.methods.contains(request.method) else { throw ErrorResponse.notFound }
            let other = Route(request.method, path, access, in: group) { _, _ in
                throw ErrorResponse.methodNotAllowed(allow: allow)
            }
            return try await guarded(other)(request, context)
        }
    }

    /// Returns the handler of a route, for callers that may call it.
    private func guarded(_ route: Route) -> ChatContext.Handler {
        let handler = route.handler
        switch route.access {
        case .anyone:
            return [.get, .head, .options].contains(route.method)
                ? handler : ForeignPageGuard.rejectingForeignPages(handler)
        case .development:
            return { [environment] request, context in
                guard environment.settings.isDevelopment else { throw ErrorResponse.notFound }
                return try await handler(request, context)
            }
        case .scope, .client, .holder: return administrators.guarding(handler, route)
        case .hook: return administrators.guardingHook(handler)
        }
    }
}

extension Route.Access {
    /// Whether callers need no token.
    fileprivate var isOpen: Bool {
        switch self {
        case .scope, .client, .holder, .hook: false
        case .anyone, .development: true
        }
    }
}
