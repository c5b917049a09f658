import HTTPTypes
import Hummingbird

/// Serves the paths of other servers at the root, for clients whose server address has no path. Such a request is
/// handled as if its path had the prefix of that server. The relay's own paths win.
enum RootPaths {
    /// Returns the request that the router handles.
    static func resolved(_ request: Request, _ settings: ChatHTTPSettings) -> Request {
        guard let prefix = prefix(of: request.uri.path, settings), let path = request.head.path, path.hasPrefix("/")
        else { return request }
        var head = request.head
        head.path = prefix + path
        return Request(head: head, body: request.body)
    }

    /// Returns the prefix under which the relay serves a path. `nil` for any other path.
    private static func prefix(of path: String, _ settings: ChatHTTPSettings) -> String? {
        guard settings.gotifyAtRoot else { return nil }
        let first = path.dropFirst().prefix { $0 != "/" }
        return GotifyAPI.rootNames.contains(String(first)) ? GotifyAPI.prefix : nil
    }
}
