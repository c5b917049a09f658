import HTTPTypes
import Hummingbird

/// Serves the paths of other servers at the root, for clients whose server address has no path. Such a request is
/// handled as if its path had the prefix of that server. The relay's own paths win.
enum RootPaths {
    /// Returns the request that the router handles.
    ///
    /// - Parameters:
    ///   - groups: The groups for clients of other servers. The last one that serves the path wins.
    ///   - ownNames: The first names of the relay's own paths.
    static func resolved(
        _ request: Request, _ settings: ChatHTTPSettings, _ groups: [RouteGroup], ownNames: Set<Substring>
    ) -> Request {
        let group = groups.last { $0.server?.isAtRoot(request, settings, ownNames) ?? false }
        guard let prefix = group?.name, let path = request.head.path, path.hasPrefix("/")
        else { return request }
        var head = request.head
        head.path = "/\(prefix)\(path)"
        return Request(head: head, body: request.body)
    }
}

extension Request {
    /// Returns the request with another method.
    func with(method: HTTPRequest.Method) -> Request {
        var head = head
        head.method = method
        return Request(head: head, body: body)
    }
}
