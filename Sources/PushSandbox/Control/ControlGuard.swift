import Foundation
import Hummingbird

/// The context of a control request: Hummingbird's storage, and the port on which the client arrived.
struct ControlContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let port: Int?

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        port = source.channel.localAddress?.port
    }
}

/// Keeps web pages away from the control API, which needs no token (`docs/sandbox-control.md`).
///
/// A page can make its visitor's browser call any address. The `Host` check stops names that were pointed at loopback
/// (DNS rebinding). The `Origin` check stops calls from other sites. The content type check stops form posts, which
/// browsers send without a CORS preflight.
struct ControlGuard: RouterMiddleware {
    typealias Context = ControlContext

    /// The names of this machine, in lower case.
    private let names: Set<String>
    /// The names that the configuration allows. A name with a port matches only that port. A name without a port
    /// matches any port.
    private let allowed: Set<String>

    init(host: String, allowed: Set<String>) {
        let host = host.contains(":") ? "[\(host)]" : host
        names = ["localhost", "127.0.0.1", "[::1]", host.lowercased()]
        self.allowed = Set(allowed.map { $0.lowercased() })
    }

    func handle(
        _ request: Request, context: ControlContext, next: (Request, ControlContext) async throws -> Response
    ) async throws -> Response {
        try check(
            host: request.head.authority ?? "", origins: request.headers[values: .origin],
            schemes: ["http://", "https://"], port: context.port)
        if [.post, .put, .patch].contains(request.method) {
            let type = request.headers[.contentType]?.split(separator: ";").first ?? ""
            guard type.trimmingCharacters(in: .whitespaces).lowercased() == "application/json" else {
                throw ControlError(.unsupportedMediaType, "Content-Type: only application/json")
            }
        }
        return try await next(request, context)
    }

    /// Checks that `Host` and each `Origin` name this listener, or a name that is allowed.
    /// - Parameters:
    ///   - schemes: The schemes that an origin may have.
    ///   - port: The port on which the client arrived.
    func check(host: String, origins: [String], schemes: [String], port: Int?) throws(ControlError) {
        guard namesThisListener(host, port: port) else {
            throw ControlError(
                .forbidden, "Host: only localhost, 127.0.0.1 and [::1] with this port, and the address of --host")
        }
        for origin in origins {
            let scheme = schemes.first(where: origin.lowercased().hasPrefix)
            guard let scheme, namesThisListener(String(origin.dropFirst(scheme.count)), port: port) else {
                throw ControlError(.forbidden, "Origin: only pages of this address may call the control API")
            }
        }
    }

    /// Whether a `Host` header, or an `Origin` without its scheme, names this listener.
    private func namesThisListener(_ authority: String, port: Int?) -> Bool {
        let authority = authority.lowercased()
        var name = authority[...]
        var named: Int? = 80
        // An IPv6 address in brackets contains colons.
        if let colon = authority.lastIndex(of: ":"), authority[colon...].contains("]") == false {
            name = authority[..<colon]
            named = Int(authority[authority.index(after: colon)...])
        }
        if allowed.contains(authority) || allowed.contains(String(name)) { return true }
        return names.contains(String(name)) && named == port
    }
}
