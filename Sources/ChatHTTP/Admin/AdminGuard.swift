import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Lets only the operator call the provider API.
///
/// With a configured token, who brings it. Without one, in development the machine's own programs, and in production
/// nobody: a proxy on the same machine makes every caller look like loopback.
/// It stands before each handler, not before paths: there is no other spelling of an address that leads round it.
struct AdminGuard: Sendable {
    let settings: @Sendable () -> ChatHTTPSettings
    let logger: Logger

    func guarding(_ handler: @escaping Routes.Handler) -> Routes.Handler {
        { request, context in
            try check(request, context)
            return try await handler(request, context)
        }
    }

    private func check(_ request: Request, _ context: ChatContext) throws(ChatError) {
        let settings = settings()
        do throws(ChatError) {
            if let token = settings.adminToken {
                try Self.check(request.headers, against: token)
            } else {
                try Self.checkOrigin(request, context, settings)
            }
        } catch {
            logger.notice(
                "call of the provider API refused",
                metadata: [
                    LogKeys.requestID: "\(context.requestID)", LogKeys.reason: "\(error.message)",
                    LogKeys.address: "\(context.peer.flatMap { IPAddress($0) }?.description ?? "unknown")",
                ])
            throw error
        }
    }

    static func check(_ headers: HTTPFields, against token: String) throws(ChatError) {
        guard let given = BearerToken.text(headers) else {
            throw .unauthorized("Send Authorization: Bearer with the relay's admin.token")
        }
        guard BearerToken.isSame(given, token) else {
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
        let isLocal = context.peer.flatMap { IPAddress($0) }?.isLoopback ?? false
        guard isLocal, !isForwarded else {
            throw ChatError(
                .forbidden, "Only this machine may call without a token: set admin.token in the relay's configuration")
        }
        try ForeignPageGuard.check(request)
    }
}

/// The token of an `Authorization: Bearer` header (RFC 6750 §2.1).
enum BearerToken {
    /// Nil if there is none. The scheme's case does not matter.
    static func text(_ headers: HTTPFields) -> String? {
        guard let value = headers.first(.authorization) else { return nil }
        let parts = value.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: true)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        let token = HeaderText.trimmed(parts[1])
        return token.isEmpty ? nil : String(token)
    }

    /// Takes as long for a token that is nearly right as for one that is all wrong.
    static func isSame(_ given: String, _ wanted: String) -> Bool {
        let (given, wanted) = (Array(given.utf8), Array(wanted.utf8))
        guard !wanted.isEmpty else { return false }
        var difference = UInt64(given.count ^ wanted.count)
        for (index, byte) in given.enumerated() { difference |= UInt64(byte ^ wanted[index % wanted.count]) }
        return difference == 0
    }
}
