import HTTPTypes
import Hummingbird

/// Serves the paths of other servers at the root, for clients whose server address has no path. Such a request is
/// handled as if its path had the prefix of that server. The relay's own paths win.
enum RootPaths {
    /// Returns the request that the router handles.
    ///
    /// - Parameter ownNames: The first names of the relay's own paths.
    static func resolved(_ request: Request, _ settings: ChatHTTPSettings, ownNames: Set<Substring>) -> Request {
        guard let prefix = prefix(of: request, settings, ownNames), let path = request.head.path, path.hasPrefix("/")
        else { return request }
        var head = request.head
        head.path = prefix + path
        return Request(head: head, body: request.body)
    }

    /// Returns the prefix under which the relay serves a path. `nil` for any other path.
    private static func prefix(
        of request: Request, _ settings: ChatHTTPSettings, _ ownNames: Set<Substring>
    ) -> String? {
        // Servers of Matrix replace the whole path of an endpoint.
        if settings.ntfy.unifiedPush, request.uri.path == UnifiedPushAPI.matrixPath { return Route.ntfyPrefix }
        guard settings.gotifyAtRoot || settings.ntfyAtRoot else { return nil }
        let first = request.uri.path.drop { $0 == "/" }.prefix { $0 != "/" }
        if settings.gotifyAtRoot, GotifyAPI.rootNames.contains(String(first)) { return Route.gotifyPrefix }
        return settings.ntfyAtRoot && NtfyAPI.servesAtRoot(request, ownNames: ownNames) ? Route.ntfyPrefix : nil
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
