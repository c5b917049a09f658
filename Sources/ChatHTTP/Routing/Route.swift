import ChatDomain
import HTTPTypes
import Hummingbird

/// One line of an API's table of routes.
struct Route: Sendable {
    /// The callers that a route admits.
    enum Access: Sendable, Hashable {
        /// Anyone. Pages of other sites may only read.
        case anyone
        /// Anyone, in development only.
        case development
        /// Callers whose token has the scope.
        case scope(Scope)
        /// Callers whose token has the scope, and other apps with a credential: a member's has `post` and `read`.
        case client(Scope)
        /// Callers with any token, and other apps with any credential.
        case holder
        /// Programs with a token for webhooks, which is in the path.
        case hook
    }

    let method: HTTPRequest.Method
    let path: String
    let access: Access
    let group: RouteGroup
    /// Whether a request is for this route, or for the next one with the same method and path. `nil` if always.
    let condition: (@Sendable (Request) -> Bool)?
    /// Whether a GET route also serves HEAD.
    let servesHead: Bool
    let handler: ChatContext.Handler

    init(
        _ method: HTTPRequest.Method, _ path: String, _ access: Access, in group: RouteGroup,
        when condition: (@Sendable (Request) -> Bool)? = nil, servesHead: Bool = true,
        _ handler: @escaping ChatContext.Handler
    ) {
        self.method = method
        self.path = path
        self.access = access
        self.group = group
        self.condition = condition
        self.servesHead = servesHead
        self.handler = handler
    }

    /// Creates a route of the relay's own APIs: of the admin API if it needs a scope, otherwise of the chat API.
    init(
        _ method: HTTPRequest.Method, _ path: String, _ access: Access,
        when condition: (@Sendable (Request) -> Bool)? = nil, servesHead: Bool = true,
        _ handler: @escaping ChatContext.Handler
    ) {
        let group = if case .scope = access { RouteGroup.admin } else { RouteGroup.chat }
        self.init(method, path, access, in: group, when: condition, servesHead: servesHead, handler)
    }

    /// Whether the path may have `//`. Users of another server's clients type its address, often with a slash at the
    /// end, and the clients append their path.
    var admitsDoubleSlashes: Bool { group.server != nil && path != "/" }
}
