import ChatDomain
import HTTPTypes
import Hummingbird

/// Refuses calls by web pages of other sites, for a relay that only its own machine is meant to reach.
///
/// A page can make its visitor's browser call any address, also one on loopback. The `Origin` check refuses calls from
/// pages of other sites, the `Host` check refuses public names that resolve to loopback (DNS rebinding). Addresses, and names
/// that no public name server answers, pass, so that the tutorial's `pushchat.local` works.
struct ForeignPageGuard: RouterMiddleware {
    typealias Context = ChatContext

    /// Endings of names that belong to a machine or a local network (RFC 6761, RFC 6762, RFC 8375).
    private static let localEndings = [".localhost", ".local", ".test", ".home.arpa", ".internal", ".lan"]

    let settings: @Sendable () -> ChatHTTPSettings

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        if settings().refusesForeignPages { try Self.check(request) }
        return try await next(request, context)
    }

    static func check(_ request: Request) throws(ChatError) {
        let host = request.head.authority ?? ""
        guard isLocal(host) else {
            throw ChatError(.forbidden, "Host: this relay answers only to local names and addresses", field: "Host")
        }
        for origin in request.headers[values: .origin] {
            let scheme = ["http://", "https://"].first(where: origin.hasPrefix)
            guard let scheme, origin.dropFirst(scheme.count).lowercased() == host.lowercased() else {
                throw ChatError(.forbidden, "Origin: pages of other sites may not call this relay", field: "Origin")
            }
        }
    }

    /// Whether a `Host` header names this machine or a local network. A missing one passes: browsers always send one.
    static func isLocal(_ authority: String) -> Bool {
        var name = authority.lowercased()
        if name.hasPrefix("[") {
            return name.dropFirst().split(separator: "]").first.map { IPAddress($0) != nil } ?? false
        }
        if let colon = name.lastIndex(of: ":") { name = String(name[..<colon]) }
        return !name.contains(".") || IPAddress(name) != nil || localEndings.contains { name.hasSuffix($0) }
    }
}
