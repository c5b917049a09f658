import ChatDomain
import Hummingbird
import Logging

/// The rules that the routes of one API share.
struct RouteGroup: Sendable {
    /// The first name of the API's paths. Unknown paths with this name also belong to the group. `nil` if the paths have
    /// different names.
    var name: String?
    /// The form of the API's errors.
    let errors: any ErrorForm
    /// Returns a request's token. Empty if the request has a credential of another form.
    var credential: @Sendable (Request) -> String? = { $0.headers.credential }
    /// Whether pages of other sites may call with a credential. They must send it themselves: browsers add none
    /// (Fetch §3.2).
    var admitsOtherSites = false
    /// The log line about a caller whose credential is missing, wrong or insufficient.
    var rejection: Logger.Message = "call of the admin API refused"
    /// The server for whose clients the API is. `nil` for the relay's own APIs.
    var server: OtherServer?

    static let chat = RouteGroup(errors: ChatErrors())
    static let admin = RouteGroup(name: "v1", errors: ProblemErrors())

    /// A server whose clients may use the relay instead.
    struct OtherServer: Sendable {
        let name: String
        /// The relay's address as users type it into clients. `nil` if users type none, or if it is unknown.
        var address: (@Sendable (ChatHTTPSettings) -> String?)?
        /// Whether the relay serves a request as if its path had the group's name in front, for clients whose server
        /// address has no path. `names` are the first names of the relay's own paths, which win.
        var isAtRoot: @Sendable (Request, ChatHTTPSettings, _ names: Set<Substring>) -> Bool = { _, _, _ in false }
    }
}

extension [RouteGroup] {
    /// The addresses that users of other servers' clients type, by the groups' names.
    func addresses(_ settings: ChatHTTPSettings) -> [(name: String, address: String?)] {
        compactMap { group in
            guard let name = group.name, let address = group.server?.address else { return nil }
            return (name, address(settings))
        }
    }
}

/// Finds the group of any request, also of one to an unknown address.
struct RouteGroups: Sendable {
    private let routes: [String: [Route]]
    private let named: [Substring: RouteGroup]
    /// The groups for clients of other servers, in the order of their routes.
    let others: [RouteGroup]

    init(_ all: [Route]) {
        var (named, others): ([Substring: RouteGroup], [RouteGroup]) = ([:], [])
        for group in all.map(\.group) {
            guard let name = group.name, named.updateValue(group, forKey: name[...]) == nil else { continue }
            if group.server != nil { others.append(group) }
        }
        routes = Dictionary(grouping: all, by: \.path)
        (self.named, self.others) = (named, others)
    }

    /// - Parameter path: The path of the request's route. `nil` if there is none.
    func group(of request: Request, at path: String?) -> RouteGroup {
        guard let path, let routes = routes[path] else {
            return request.uri.path.split(separator: "/", maxSplits: 1).first.flatMap { named[$0] } ?? .chat
        }
        // At an address of two groups, the last one rejects the methods without a route.
        return routes[routes.firstIndex { $0.method == request.method } ?? routes.count - 1].group
    }
}
