import ChatDomain
import Foundation
import HTTPTypes
import Hummingbird

/// ntfy's API, for its apps and for programs that send to an ntfy server. It is available under `/ntfy`, and with
/// `http.ntfy_at_root` also at the root. A topic is a room's code or its alias (https://docs.ntfy.sh).
struct NtfyAPI: Sendable {
    let posting: PostingAPI
    let streams: StreamOpener

    var environment: ChatEnvironment { posting.environment }
    var limiter: RequestLimiter { posting.limiter }

    static let group = RouteGroup(
        name: "ntfy", errors: NtfyErrors(), credential: credential, admitsOtherSites: true,
        server: RouteGroup.OtherServer(name: "ntfy", address: { $0.ntfy.baseURL }, isAtRoot: servesAtRoot))

    var routes: [Route] {
        UnifiedPushAPI(environment: environment, limiter: limiter).routes + subscribing + [
            Self.route(.post, "/ntfy", .client(.post), publishJSON),
            Self.route(.put, "/ntfy", .client(.post), publishJSON),
            Self.route(.post, "/ntfy/{topic}", .client(.post), publish),
            Self.route(.put, "/ntfy/{topic}", .client(.post), publish),
            // These calls post, so programs that only look at an address must not reach them with HEAD.
            Self.route(.get, "/ntfy/{topic}/publish", .client(.post), servesHead: false, publish),
            Self.route(.get, "/ntfy/{topic}/send", .client(.post), servesHead: false, publish),
            Self.route(.get, "/ntfy/{topic}/trigger", .client(.post), servesHead: false, publish),
            // The name of a message, which may be none of ``ofTopics``.
            Self.route(.post, "/ntfy/{topic}/{sequence}", .client(.post), publish),
            Self.route(.put, "/ntfy/{topic}/{sequence}", .client(.post), publish),
            Self.route(.delete, "/ntfy/{topic}/{sequence}", .client(.post), delete),
            // Clients of ntfy look for calls that the relay does not have.
            Self.route(.get, "/ntfy/{topic}/{sequence}", .anyone) { _, _ in throw ErrorResponse.notFound },
            Self.route(.put, "/ntfy/{topic}/{sequence}/clear", .client(.post), clear),
            Self.route(.put, "/ntfy/{topic}/{sequence}/read", .client(.post), clear),
            Self.route(.get, "/ntfy/v1/health", .anyone, health),
            Self.route(.get, "/ntfy/v1/account", .anyone, when: Self.isAnonymous, anonymousAccount),
            Self.route(.get, "/ntfy/v1/account", .holder, account),
            Self.route(.post, "/ntfy/v1/account/token", .holder, makeToken),
            // Some ntfy clients support only a server without a path.
            Self.route(.post, "/", .client(.post), publishJSON),
        ]
    }

    static func route(
        _ method: HTTPRequest.Method, _ path: String, _ access: Route.Access,
        when condition: (@Sendable (Request) -> Bool)? = nil, servesHead: Bool = true,
        _ handler: @escaping ChatContext.Handler
    ) -> Route {
        Route(method, path, access, in: group, when: condition, servesHead: servesHead, handler)
    }

    // MARK: - Paths at the root

    /// The paths of ntfy below which no topic is.
    private static let rootPaths: Set = ["v1/health", "v1/account", "v1/account/token", "v1/version"]
    private static let ofTopics: Set<Substring> = ["json", "sse", "raw", "ws", "auth", "publish", "send", "trigger"]

    /// Whether an ntfy server serves a request at its root. The relay's own paths, with these first names, are not
    /// ntfy's.
    @Sendable static func servesAtRoot(
        _ request: Request, _ settings: ChatHTTPSettings, _ ownNames: Set<Substring>
    ) -> Bool {
        // Servers of Matrix replace the whole path of an endpoint.
        if settings.ntfy.unifiedPush, request.uri.path == UnifiedPushAPI.matrixPath { return true }
        guard settings.ntfyAtRoot else { return false }
        let path = request.uri.path.drop { $0 == "/" }
        if rootPaths.contains(String(path)) { return true }
        let parts = path.split(separator: "/", omittingEmptySubsequences: false)
        guard let topics = parts.first, !ownNames.contains(topics), NtfyTopics.areNames(topics) else { return false }
        let mayChange = [.put, .post, .delete, .options].contains(request.method)
        switch parts.count {
        case 1:
            return [.put, .post, .options].contains(request.method)
                || (request.method == .get && UnifiedPushAPI.asksForUnifiedPush(request))
        case 2: return ofTopics.contains(parts[1]) || (mayChange && isSequence(parts[1]))
        case 3: return mayChange && isSequence(parts[1]) && ["clear", "read"].contains(parts[2])
        default: return false
        }
    }

    /// Whether a text names a message in a path.
    static func isSequence(_ text: Substring) -> Bool {
        NtfyTopics.isName(text) && !ofTopics.contains(text)
    }

    // MARK: - Credentials

    /// Returns the token from `Authorization` with Bearer, from the password of Basic, or from `?auth=`, which contains
    /// the whole header in base64. Empty if the credential has another form.
    @Sendable static func credential(_ request: Request) -> String? {
        let headers = credentialHeaders(request)
        if let token = headers.bearerToken { return token }
        guard headers.contains(.authorization) else { return nil }
        return BasicCredential(headers, decode: NtfyParameters.base64)?.secret ?? ""
    }

    /// The headers with the credential. `?auth=` replaces them.
    private static func credentialHeaders(_ request: Request) -> HTTPFields {
        guard let auth = request.uri.queryParameters["auth"] ?? request.uri.queryParameters["authorization"] else {
            return request.headers
        }
        return [.authorization: NtfyParameters.base64(String(auth)) ?? ""]
    }

    /// The user's name as the client sent it with a password. `nil` if there is none.
    static func userName(_ request: Request) -> String? {
        let basic = BasicCredential(credentialHeaders(request), decode: NtfyParameters.base64)
        guard let basic, !basic.password.isEmpty, !basic.user.isEmpty else { return nil }
        return basic.user
    }

    /// Whether the request has no credential that an ntfy server knows. Other schemes count as none.
    @Sendable static func isAnonymous(_ request: Request) -> Bool {
        let value = credentialHeaders(request).first(.authorization)?.lowercased() ?? ""
        return !value.hasPrefix("basic ") && !value.hasPrefix("bearer ")
    }

    /// `GET /ntfy/v1/health`
    func health(_ request: Request, _ context: ChatContext) async -> Response {
        do throws(ChatError) {
            try await environment.stores.rooms.ping()
            return Responses.json(["healthy": .bool(true)])
        } catch {
            return Responses.json(["healthy": .bool(false)], status: .serviceUnavailable)
        }
    }
}
