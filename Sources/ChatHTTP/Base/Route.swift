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
    }

    let method: HTTPRequest.Method
    let path: String
    let access: Access
    /// Returns a request's token. Empty if the request has a credential of another form. `nil` for a route that reads
    /// the token from `Authorization`.
    let credential: (@Sendable (Request) -> String?)?
    /// Whether a request is for this route, or for the next one with the same method and path. `nil` if always.
    let condition: (@Sendable (Request) -> Bool)?
    /// Whether a GET route also serves HEAD.
    let servesHead: Bool
    let handler: ChatContext.Handler

    init(
        _ method: HTTPRequest.Method, _ path: String, _ access: Access,
        credential: (@Sendable (Request) -> String?)? = nil, when condition: (@Sendable (Request) -> Bool)? = nil,
        servesHead: Bool = true, _ handler: @escaping ChatContext.Handler
    ) {
        self.method = method
        self.path = path
        self.access = access
        self.credential = credential
        self.condition = condition
        self.servesHead = servesHead
        self.handler = handler
    }

    /// The prefixes of the paths for ntfy's and Gotify's clients.
    static let ntfyPrefix = "/ntfy"
    static let gotifyPrefix = "/gotify"

    /// Whether the route is for ntfy's clients. Pages of other sites may call it with a credential.
    var isOfNtfy: Bool { path == Self.ntfyPrefix || path.hasPrefix(Self.ntfyPrefix + "/") }

    /// Whether the route is for clients of another server. Their users type the server's address, often with a slash at
    /// the end, and the clients then send `//`.
    var isOfForeignClients: Bool { isOfNtfy || path.hasPrefix(Self.gotifyPrefix + "/") }
}
