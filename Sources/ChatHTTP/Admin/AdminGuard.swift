import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Lets only the operator call the admin API.
///
/// With configured tokens: callers that send one of them. Without one: in development this machine's own programs, and in
/// production nobody, because a proxy on the same machine makes every caller look like loopback.
/// It stands before each handler, not before paths: no other spelling of an address avoids it.
struct AdminGuard: Sendable {
    let settings: @Sendable () -> ChatHTTPSettings
    let limiter: RequestLimiter
    let logger: Logger

    func guarding(_ handler: @escaping Routes.Handler) -> Routes.Handler {
        { request, context in
            // The router takes `//v1` for `/v1`; a rule of a proxy does not.
            guard !request.uri.path.contains("//") else { throw ErrorAnswer.notFound }
            let settings = settings()
            if settings.adminTokens.isEmpty {
                try Self.checkOrigin(request, context, settings)
            } else {
                try checkToken(request, context, settings)
            }
            log(request, context, settings)
            return try await handler(request, context)
        }
    }

    /// Who called, in case that a token was stolen. Monitoring, which comes every few seconds, is a detail.
    private func log(_ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings) {
        let route = context.endpointPath ?? ""
        let client = ClientAddress.find(request, context, trusted: settings.trustedProxies)
        logger.log(
            level: ["/metrics", "/readyz", "/v1/stats", "/v1/queue"].contains(route) ? .debug : .info,
            "administrator's call",
            metadata: [
                LogKeys.requestID: "\(context.requestID)", LogKeys.address: "\(client?.description ?? "unknown")",
                "method": "\(request.method.rawValue)", LogKeys.route: "\(route)",
            ])
    }

    private func checkToken(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings
    ) throws(ChatError) {
        guard let given = request.headers.bearerToken else {
            throw .unauthorized("Send Authorization: Bearer with the relay's admin.token")
        }
        let client = ClientAddress.find(request, context, trusted: settings.trustedProxies)
        let isRight = try limiter.compareToken(client) {
            // All of them, so that the time does not tell which one was nearly right.
            settings.adminTokens.reduce(false) { Self.isSame(given, $1) || $0 }
        }
        guard isRight else {
            throw .unauthorized("The bearer token is not the relay's admin.token")
        }
    }

    /// Without a token: only from this machine, not through a proxy, and not for a page of another site.
    private static func checkOrigin(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings
    ) throws(ChatError) {
        guard settings.isDevelopment else {
            throw ChatError(.forbidden, "Nobody may call this: set admin.token in the relay's configuration")
        }
        let isForwarded = HTTPField.Name.ofProxies.contains { request.headers.contains($0) }
        guard context.peerAddress?.isLoopback == true, !isForwarded else {
            throw ChatError(
                .forbidden, "Only this machine may call without a token: set admin.token in the relay's configuration")
        }
        try ForeignPageGuard.check(request)
    }

    /// Compares in a time that depends only on the length of `given`. False for an empty `wanted`.
    static func isSame(_ given: String, _ wanted: String) -> Bool {
        let (given, wanted) = (Array(given.utf8), Array(wanted.utf8))
        guard !wanted.isEmpty else { return false }
        var difference = UInt64(given.count ^ wanted.count)
        for (index, byte) in given.enumerated() { difference |= UInt64(byte ^ wanted[index % wanted.count]) }
        return difference == 0
    }
}
