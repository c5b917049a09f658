import Hummingbird

/// Refuses names that a call does not know, because they may be misspelled (`?wiat=10s`), and names that appear twice.
///
/// Pages and their files ignore the query, as do the calls of a push service and the addresses for monitors.
struct ControlQuery: RouterMiddleware {
    typealias Context = ControlContext

    private static let page: Set<String> = ["since", "limit"]
    private static let screen: Set<String> = ["token"]
    private static let search = page.union(["token", "protocol", "answer", "text", "wait", "count"])

    /// The paths of the lists that are read in pages.
    let lists: Set<String>
    /// The paths that ignore the query.
    let free: Set<String>

    func handle(
        _ request: Request, context: ControlContext, next: (Request, ControlContext) async throws -> Response
    ) async throws -> Response {
        // If there is no such call, Hummingbird names no path here.
        if let path = context.endpointPath, path.hasPrefix("/"), !free.contains(path) {
            let names =
                switch path {
                case "/notifications": Self.search
                case "/screen": Self.screen
                default: lists.contains(path) ? Self.page : []
                }
            try Self.check(request, names: request.method == .get ? names : [])
        }
        return try await next(request, context)
    }

    private static func check(_ request: Request, names: Set<String>) throws(ControlError) {
        var seen: Set<Substring> = []
        for (name, _) in request.uri.queryParameters {
            guard names.contains(String(name)) else {
                let known = names.sorted().joined(separator: ", ")
                let shown = name.prefix(60)
                throw ControlError(
                    names.isEmpty
                        ? "\(shown): unknown name; this call has no query"
                        : "\(shown): unknown name; must be one of \(known)")
            }
            guard seen.insert(name).inserted else { throw ControlError("\(name): must not appear twice") }
        }
    }
}
