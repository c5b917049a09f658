import ChatDomain
import HTTPTypes
import Hummingbird

/// Rejects calls by web pages of other sites. Such a page can make its visitor's browser call any address that the
/// visitor can reach.
///
/// As middleware it protects a relay that only its own machine should reach. The `Origin` check rejects pages of other
/// sites. The `Host` check rejects public names that resolve to loopback (DNS rebinding). Addresses and names that no
/// public name server resolves are allowed, so that the tutorial's `pushchat.local` works.
///
/// Some browsers send no `Origin` for an image or a form with some methods. Calls that change something therefore also
/// check `Sec-Fetch-Site`, which browsers send with every request to loopback and over HTTPS. ``AdminGuard`` calls
/// ``checkSite(_:)`` when it accepts a call without a credential. ``rejectingForeignPages(_:)`` wraps the calls that
/// need no credential.
struct ForeignPageGuard: RouterMiddleware {
    typealias Context = ChatContext

    /// Suffixes of names that belong to a machine or a local network (RFC 6761, RFC 6762, RFC 8375).
    private static let localEndings = [".localhost", ".local", ".test", ".home.arpa", ".internal", ".lan"]

    let environment: ChatEnvironment

    func handle(
        _ request: Request, context: ChatContext, next: (Request, ChatContext) async throws -> Response
    ) async throws -> Response {
        if environment.settings.rejectsForeignPages { try Self.check(request) }
        return try await next(request, context)
    }

    static func check(_ request: Request) throws(ChatError) {
        let host = request.head.authority ?? ""
        guard isLocal(host) else {
            throw ChatError(.forbidden, "Host: this relay accepts only local names and addresses", field: "Host")
        }
        for origin in request.headers[values: .origin] {
            let scheme = ["http://", "https://"].first(where: origin.hasPrefix)
            guard let scheme, origin.dropFirst(scheme.count).lowercased() == host.lowercased() else {
                throw ChatError(.forbidden, "Origin: pages of other sites may not call this relay", field: "Origin")
            }
        }
    }

    /// Checks a call that is accepted because it comes from this machine. Another port of `localhost` serves another
    /// program's page, although browsers consider it the same site.
    static func checkSite(_ request: Request) throws(ChatError) {
        guard let site = request.headers.first(.secFetchSite) else {
            // For an image at `http://0.0.0.0` or `http://pushchat.local`, browsers send neither the site nor an
            // origin.
            guard [.get, .head].contains(request.method), !isTrustworthy(request.head.authority ?? "") else { return }
            throw ChatError(
                .forbidden, "Host: a GET that posts without a token must call localhost or 127.0.0.1; or use POST",
                field: "Host")
        }
        guard site != "same-origin", site != "none" else { return }
        throw foreignPage("may not change anything here without a token")
    }

    /// Whether browsers send `Sec-Fetch-Site` to a host without TLS (Secure Contexts §3.1): `localhost`, 127.0.0.0/8
    /// and ::1. They do not for 0.0.0.0 and ::ffff:127.0.0.1, which also reach this machine. A missing host is allowed,
    /// because browsers always send one.
    static func isTrustworthy(_ authority: String) -> Bool {
        let host = authority.lowercased()
        if host.hasPrefix("[") { return host.hasPrefix("[::1]") }
        let name = host.prefix { $0 != ":" }
        return name.isEmpty || name == "localhost" || name.hasSuffix(".localhost")
            || (name.hasPrefix("127.") && IPAddress(String(name)) != nil)
    }

    /// Wraps a call that changes something and needs no credential.
    ///
    /// A page of another site can send `Authorization` only if the relay, or a proxy in front of it, allows that site
    /// by CORS. The header therefore shows that the call is intended.
    static func rejectingForeignPages(_ handler: @escaping ChatContext.Handler) -> ChatContext.Handler {
        { request, context in
            if request.headers.first(.secFetchSite) == "cross-site", !request.headers.contains(.authorization),
                !isOfApp(request.headers.first(.origin) ?? "")
            {
                throw foreignPage("must send Authorization with calls that change something here")
            }
            return try await handler(request, context)
        }
    }

    private static func foreignPage(_ rule: String) -> ChatError {
        ChatError(.forbidden, "Sec-Fetch-Site: pages of other sites \(rule)", field: "Sec-Fetch-Site")
    }

    /// Whether an origin belongs to an app's own page in a WebView, which no website can have: `localhost`, or a scheme
    /// of the app (`capacitor://localhost`). Sandboxed frames of any site have the origin `null`.
    static func isOfApp(_ origin: String) -> Bool {
        guard let mark = origin.firstRange(of: "://") else { return false }
        guard ["http", "https"].contains(origin[..<mark.lowerBound].lowercased()) else { return true }
        return origin[mark.upperBound...].split(separator: ":", maxSplits: 1).first?.lowercased() == "localhost"
    }

    /// Whether a `Host` header names this machine or a local network. A missing one is allowed, because browsers always
    /// send one.
    static func isLocal(_ authority: String) -> Bool {
        var name = authority.lowercased()
        if name.hasPrefix("[") {
            return name.dropFirst().split(separator: "]").first.map { IPAddress($0) != nil } ?? false
        }
        if let colon = name.lastIndex(of: ":") { name = String(name[..<colon]) }
        return !name.contains(".") || IPAddress(name) != nil || localEndings.contains { name.hasSuffix($0) }
    }
}
