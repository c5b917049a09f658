import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import Synchronization

/// Authenticates and authorizes calls of the admin API.
///
/// A caller with a token of the configuration may call everything. A program with a token of the database may call what
/// its scopes allow. If the configuration has no token, programs of this machine may call everything in development. In
/// production they may not, because a proxy on the same machine makes every caller look like loopback.
///
/// The guard wraps each handler rather than checking paths, so that no other spelling of an address avoids it.
struct AdminGuard: Sendable {
    let environment: ChatEnvironment
    let calls: TokenCalls
    let limiter: RequestLimiter
    /// The servers for whose clients the relay has APIs.
    let servers: [RouteGroup.OtherServer]

    private static let unknownToken = "Unknown token: it was revoked, has expired, or never existed"
    private static let isForHooks = "This token is for a webhook: it is only valid in the webhook's address"
    /// The maximum length of a token to look up, in characters.
    private static let maxTokenLength = 128

    /// Wraps a handler so that it runs only for callers whom its route admits.
    func guarding(_ handler: @escaping ChatContext.Handler, _ route: Route) -> ChatContext.Handler {
        let (scope, admitsCredentials): (Scope?, Bool) =
            switch route.access {
            case .scope(let scope): (scope, false)
            case .client(let scope): (scope, true)
            case .holder: (nil, true)
            case .anyone, .development, .hook: (.admin, false)
            }
        return { request, context in
            // The router treats `//v1` as `/v1`, but a proxy's rule does not. No rule concerns other servers' clients.
            guard route.admitsDoubleSlashes || !request.uri.path.utf8.contains("//".utf8) else {
                throw ErrorResponse.notFound
            }
            let settings = environment.settings
            let client = ClientAddress.find(request, context, trusted: settings.trustedProxies)
            // Some clients also post with GET.
            let changes = scope == .post || ![.get, .head].contains(request.method)
            let caller = try await caller(
                route.group.credential(request), client, request, context, settings, changes: changes,
                isForApps: admitsCredentials)
            if case .credential = caller, !admitsCredentials {
                let names = servers.map { $0.name + "'s" }.joined(separator: " and ")
                throw ChatError(.forbidden, "This credential is only for the calls of \(names) clients")
            }
            if let scope { try caller.require(scope) }
            log(caller, client, request, context)
            return try await handler(request, context.called(by: caller))
        }
    }

    /// Wraps a handler so that it runs only for a token of the path that is for webhooks. Other tokens count as unknown,
    /// so that an address in a log does not show whether a token is valid elsewhere.
    func guardingHook(_ handler: @escaping ChatContext.Handler) -> ChatContext.Handler {
        { request, context in
            guard !request.uri.path.utf8.contains("//".utf8) else { throw ErrorResponse.notFound }
            let client = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
            let secret = context.parameters.get("token") ?? ""
            guard Self.isSecret(secret), let token = try await environment.stores.tokens.token(of: secret),
                token.grant.hook != nil
            else {
                try limiter.countWrongToken(client)
                throw ChatError.notFound("webhook")
            }
            return try await handler(request, context.called(by: used(token, client)))
        }
    }

    /// Whether a credential may be a token of the database.
    private static func isSecret(_ credential: String) -> Bool {
        AccessToken.isSecret(credential) && credential.utf8.count <= maxTokenLength
    }

    /// Counts the use of a token, and returns its caller.
    private func used(_ token: AccessToken, _ client: IPAddress?) -> Caller {
        environment.stores.tokens.used(token.id, from: client?.description)
        calls.count(token.name.text)
        return .token(token)
    }

    /// Counts a rejected call against the limits of its address.
    private func caller(
        _ credential: String?, _ client: IPAddress?, _ request: Request, _ context: ChatContext,
        _ settings: ChatHTTPSettings, changes: Bool, isForApps: Bool
    ) async throws(ChatError) -> Caller {
        do throws(ChatError) {
            return try await known(
                credential, client, request, context, settings, changes: changes, isForApps: isForApps)
        } catch {
            if error.code == .unauthorized || error.code == .forbidden {
                if credential?.isEmpty ?? true {
                    try limiter.countMissingToken(client)
                } else {
                    try limiter.countWrongToken(client)
                }
            }
            throw error
        }
    }

    private func known(
        _ credential: String?, _ client: IPAddress?, _ request: Request, _ context: ChatContext,
        _ settings: ChatHTTPSettings, changes: Bool, isForApps: Bool
    ) async throws(ChatError) -> Caller {
        // Check the configuration's tokens first, because one of them may look like a token of the database.
        if let credential, Self.isRight(credential, settings) { return .administrator }
        if let credential, Self.isSecret(credential) {
            // The lookup is one indexed read by the token's hash, and each connection waits for one lookup at a time. A
            // lookup costs less than a chat request.
            if let token = try await environment.stores.tokens.token(of: credential) {
                guard token.grant.hook == nil else { throw ChatError(.forbidden, Self.isForHooks) }
                return used(token, client)
            }
            throw .unauthorized(Self.unknownToken)
        }
        if let credential, credential.hasPrefix(Credential.prefix), credential.utf8.count <= Self.maxTokenLength {
            if let found = try await environment.stores.clients.credential(of: credential) {
                environment.stores.clients.usedCredential(found.id, from: client?.description)
                if case .token(let token) = found.owner { calls.count(token.name.text) }
                return .credential(found)
            }
            throw .unauthorized(Self.unknownToken)
        }
        if settings.adminTokens.isEmpty {
            // A caller that sends a credential does not rely on being on this machine.
            guard credential == nil else { throw .unauthorized(Self.unknownToken) }
            try Self.checkOrigin(request, context, settings, changes: changes)
        } else {
            throw Self.rejection(of: credential, isForApps: isForApps)
        }
        return .administrator
    }

    /// Logs the caller, in case a token was stolen. Monitoring calls, which come every few seconds, and calls that
    /// leave their own record are logged at `debug`.
    private func log(_ caller: Caller, _ client: IPAddress?, _ request: Request, _ context: ChatContext) {
        let route = context.endpointPath ?? ""
        let isDetail =
            ["/metrics", "/readyz", "/v1/stats", "/v1/queue"].contains(route)
            || (caller != .administrator && request.method == .post)
        environment.logger.log(
            level: isDetail ? .debug : .info, caller == .administrator ? "administrator's call" : "call with a token",
            metadata: context.ids.metadata([
                LogKeys.address: "\(client?.description ?? "unknown")",
                "method": "\(request.method.rawValue)", LogKeys.route: "\(route)", LogKeys.caller: "\(caller.name)",
            ]))
    }

    /// Whether `given` is a token of the configuration. Compares all tokens, so that the time does not reveal which one
    /// nearly matched.
    private static func isRight(_ given: String, _ settings: ChatHTTPSettings) -> Bool {
        settings.adminTokens.reduce(false) { isSame(given, $1) || $0 }
    }

    /// The rejection of a caller whose credential is missing or has no form that the relay knows.
    ///
    /// - Parameter isForApps: Whether users of other apps make this call. They do not know the operator's settings.
    private static func rejection(of given: String?, isForApps: Bool) -> ChatError {
        switch (given?.isEmpty ?? true, isForApps) {
        case (true, true): .unauthorized("Send a password of a room or a token of the relay")
        case (true, false):
            .unauthorized("Send Authorization: Bearer with the relay's admin.token, or a token of the relay")
        case (false, true):
            .unauthorized(
                "Wrong password or token: copy it again, or make another one in the chat, under \"Use another app\"")
        case (false, false): .unauthorized("The bearer token is not the relay's admin.token")
        }
    }

    /// Requires that a call without a token comes from this machine, not through a proxy, and not from a page of
    /// another site.
    private static func checkOrigin(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings, changes: Bool
    ) throws(ChatError) {
        guard settings.isDevelopment else {
            throw ChatError(.forbidden, "This call is disabled: set admin.token in the relay's configuration")
        }
        let isForwarded = HTTPField.Name.ofProxies.contains { request.headers.contains($0) }
        guard context.peerAddress?.isLoopback == true, !isForwarded else {
            throw ChatError(
                .forbidden, "Only this machine may call without a token: set admin.token in the relay's configuration")
        }
        try ForeignPageGuard.check(request)
        if changes { try ForeignPageGuard.checkSite(request) }
    }

    /// Compares in a time that depends only on the length of `given`. `false` if `wanted` is empty.
    static func isSame(_ given: String, _ wanted: String) -> Bool {
        let (given, wanted) = (Array(given.utf8), Array(wanted.utf8))
        guard !wanted.isEmpty else { return false }
        var difference = UInt64(given.count ^ wanted.count)
        for (index, byte) in given.enumerated() { difference |= UInt64(byte ^ wanted[index % wanted.count]) }
        return difference == 0
    }
}

/// Counts requests with tokens, by token name.
final class TokenCalls: Sendable {
    /// The maximum number of names to count, because tokens are created and revoked without limit.
    private static let maxNames = 1000

    private let counts = Mutex<[String: Int64]>([:])

    func count(_ name: String) {
        counts.withLock { counts in
            if counts[name] != nil || counts.count < Self.maxNames { counts[name, default: 0] += 1 }
        }
    }

    /// The counters, ordered by name.
    var all: [(name: String, count: Int64)] {
        counts.withLock { $0.map { (name: $0.key, count: $0.value) } }.sorted { $0.name < $1.name }
    }
}
