import ChatDomain
import HTTPTypes
import Hummingbird
import WebAssets

/// Gotify's API, for its apps and for programs that send to a Gotify server (https://gotify.net/api-docs). It is
/// available under `/gotify`, and with `http.gotify_at_root` also at the root. An application is a room, and a client is
/// a credential.
struct GotifyAPI: Sendable {
    let posting: PostingAPI
    let streams: StreamOpener

    /// The first names of the paths below `/gotify`. With `http.gotify_at_root`, they also exist at the root.
    static let rootNames: Set = [
        "version", "gotifyinfo", "health", "current", "client", "application", "message", "stream", "static",
    ]
    static let group = RouteGroup(
        name: "gotify", errors: GotifyErrors(), credential: credential,
        server: RouteGroup.OtherServer(
            name: "Gotify", address: { $0.publicURL.map { $0 + "/gotify" } },
            isAtRoot: { request, settings, _ in
                guard settings.gotifyAtRoot else { return false }
                return rootNames.contains(String(request.uri.path.drop { $0 == "/" }.prefix { $0 != "/" }))
            }))

    /// The priority of messages whose sender named none. Gotify's app announces them with a sound.
    static let usualPriority: Int64 = 5
    /// Gotify's app makes no sound up to this priority. The highest is 10.
    static let quietPriority: Int64 = 3
    /// From this priority on, Gotify's app shows a message over other apps.
    static let urgentPriority: Int64 = 8

    /// Returns the priority of a message whose pushes have another one. `nil` for the usual priority of pushes. The
    /// pushes of an urgent message have the priority 10.
    static func priority(ofPushes priority: UInt8?) -> Int64 {
        switch priority {
        case 1: 1
        case 5: quietPriority
        case 10: urgentPriority
        default: usualPriority
        }
    }

    var environment: ChatEnvironment { posting.environment }
    var clients: any ClientStore { environment.stores.clients }

    var routes: [Route] {
        func route(
            _ method: HTTPRequest.Method, _ path: String, scope: Scope = .read, servesHead: Bool = true,
            _ handler: @escaping ChatContext.Handler
        ) -> Route {
            Route(method, "/gotify" + path, .client(scope), in: Self.group, servesHead: servesHead, handler)
        }
        func open(_ path: String, _ handler: @escaping ChatContext.Handler) -> Route {
            Route(.get, "/gotify" + path, .anyone, in: Self.group, handler)
        }
        return [
            open("/version", version),
            open("/gotifyinfo", information),
            open("/health", health),
            open("/" + Self.image) { request, _ in Self.imageFile.response(to: request) },
            route(.get, "/current/user", user),
            route(.get, "/client", credentials),
            route(.post, "/client", createCredential),
            route(.delete, "/client/{id}", revokeCredential),
            route(.get, "/application", rooms),
            route(.post, "/application", rejectChange),
            route(.put, "/application/{id}", rejectChange),
            route(.delete, "/application/{id}", rejectChange),
            route(.get, "/message", messages),
            route(.post, "/message", scope: .post, post),
            route(.delete, "/message", hideAll),
            route(.delete, "/message/{id}", hide),
            route(.get, "/stream", servesHead: false, stream),
            route(.get, "/application/{id}/message", messagesOfRoom),
            route(.delete, "/application/{id}/message", hideAllOfRoom),
        ]
    }

    // MARK: - Callers

    /// Returns the token from `?token=`, `X-Gotify-Key`, `Authorization: Bearer`, or the password of Basic. The first
    /// one that is not empty counts, as in Gotify. Empty if all are empty or have another form.
    @Sendable static func credential(_ request: Request) -> String? {
        let given = [
            request.uri.queryParameters["token"].map { String($0) }, request.headers.first(.gotifyKey),
            request.headers.bearerToken ?? BasicCredential(request.headers)?.secret ?? request.headers.credential,
        ].compactMap(\.self)
        return given.first { !$0.isEmpty } ?? given.first
    }

    /// Returns the caller, and counts the call against the limits of its address and its member or token.
    func admitted(_ request: Request, _ context: ChatContext) throws(ChatError) -> Caller {
        let (caller, settings) = (try context.caller(), environment.settings)
        try posting.limiter.admit(request, context, settings)
        if caller != .administrator { try posting.limiter.admit(caller.reader, limit: settings.memberRate) }
        return caller
    }

    // MARK: - The server

    /// `GET /gotify/version`. Clients call it to check whether a server exists.
    func version(_ request: Request, _ context: ChatContext) -> Response {
        Responses.json([
            "version": .string(environment.build.version), "commit": .string(""), "buildDate": .string(""),
        ])
    }

    /// `GET /gotify/gotifyinfo`. Clients call it to learn how users log in.
    func information(_ request: Request, _ context: ChatContext) -> Response {
        Responses.json([
            "version": .string(environment.build.version), "register": .bool(false), "oidc": .bool(false),
        ])
    }

    /// `GET /gotify/health`
    func health(_ request: Request, _ context: ChatContext) async -> Response {
        do throws(ChatError) {
            try await environment.stores.rooms.ping()
            return Responses.json(["health": .string("green"), "database": .string("green")])
        } catch {
            return Responses.json(
                ["health": .string("orange"), "database": .string("red")], status: .internalServerError)
        }
    }
}

extension HTTPField.Name {
    static let gotifyKey = HTTPField.Name("X-Gotify-Key")!
}
