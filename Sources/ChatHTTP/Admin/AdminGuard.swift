import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import Synchronization

/// Who calls what is not for everybody.
enum Caller: Sendable, Hashable {
    /// With the configuration's token, or from this machine in development.
    case administrator
    case token(AccessToken)

    /// For records, and for lines of the log.
    var name: String {
        switch self {
        case .administrator: "admin"
        case .token(let token): token.name.text
        }
    }

    /// By which the store tells writers apart.
    var writer: MemberID {
        switch self {
        case .administrator: .administrator
        case .token(let token): .program(token: token.id)
        }
    }

    var token: AccessToken? {
        switch self {
        case .administrator: nil
        case .token(let token): token
        }
    }

    func require(_ scope: Scope) throws(ChatError) {
        guard let grant = token?.grant, !grant.includes(scope) else { return }
        let scopes = Scope.allCases.filter(grant.scopes.contains).map(\.rawValue).joined(separator: ", ")
        throw ChatError(.forbidden, "This call needs a token with the scope \(scope.rawValue); this one has \(scopes)")
    }

    /// The room that a call is about. A token for one room need not name it.
    func room(_ named: SecretCode?) throws(ChatError) -> SecretCode {
        guard let own = token?.grant.room else {
            guard let named else { throw .missing("room") }
            return named
        }
        guard named == nil || named == own else {
            throw ChatError(.forbidden, "This token is for another room", field: "room")
        }
        return own
    }

    /// An `Idempotency-Key` as the store keeps a notification's: no caller meets another one's.
    func key(_ key: String?) -> String? { key.map { token == nil ? $0 : "\(writer):\($0)" } }
}

/// Lets only those call the admin API who may.
///
/// Programs with a token of the database may call what its scopes open. Everything is open to callers with a token of the
/// configuration. Where that has none: in development to this machine's own programs, and in production to nobody, because a
/// proxy on the same machine makes every caller look like loopback.
/// It stands before each handler, not before paths: no other spelling of an address avoids it.
struct AdminGuard: Sendable {
    let settings: @Sendable () -> ChatHTTPSettings
    let tokens: any TokenStore
    let calls: TokenCalls
    let limiter: RequestLimiter
    let logger: Logger

    private static let unknownToken = "The token is not known here: it was revoked, has expired, or never was one"
    /// Characters of a token that is looked up.
    private static let longestToken = 128

    /// - Parameters:
    ///   - scope: what a token must have.
    ///   - credential: the token of a request; empty if it presents a credential of another form, `nil` if it presents none.
    func guarding(
        _ handler: @escaping Routes.Handler, _ scope: Scope = .admin,
        credential: @escaping @Sendable (Request) -> String? = { $0.headers.credential }
    ) -> Routes.Handler {
        { request, context in
            // The router takes `//v1` for `/v1`; a rule of a proxy does not.
            guard !request.uri.path.utf8.contains("//".utf8) else { throw ErrorResponse.notFound }
            let settings = settings()
            let client = ClientAddress.find(request, context, trusted: settings.trustedProxies)
            // ntfy's clients also post by GET.
            let changes = scope == .post || ![.get, .head].contains(request.method)
            let caller = try await caller(credential(request), client, request, context, settings, changes: changes)
            try caller.require(scope)
            log(caller, client, request, context)
            return try await handler(request, context.called(by: caller))
        }
    }

    private func caller(
        _ credential: String?, _ client: IPAddress?, _ request: Request, _ context: ChatContext,
        _ settings: ChatHTTPSettings, changes: Bool
    ) async throws(ChatError) -> Caller {
        // First, because a token of the configuration may look like one of the database.
        if let credential, Self.isRight(credential, settings) { return .administrator }
        if let credential, credential.hasPrefix(AccessToken.prefix), credential.utf8.count <= Self.longestToken {
            // One read by the token's hash, which has an index: less work than a request of the chat, and one at a time for each
            // connection.
            if let token = try await tokens.token(of: credential) {
                tokens.used(token.id, from: client?.description)
                calls.count(token.name.text)
                return .token(token)
            }
            try limiter.countWrongToken(client)
            throw .unauthorized(Self.unknownToken)
        }
        if settings.adminTokens.isEmpty {
            // Whoever presents a credential does not count on being on this machine.
            guard credential == nil else { throw .unauthorized(Self.unknownToken) }
            try Self.checkOrigin(request, context, settings, changes: changes)
        } else {
            try refuse(credential, client)
        }
        return .administrator
    }

    /// Who called, in case that a token was stolen. Monitoring, which comes every few seconds, is a detail, and so is what
    /// leaves a record of its own.
    private func log(_ caller: Caller, _ client: IPAddress?, _ request: Request, _ context: ChatContext) {
        let route = context.endpointPath ?? ""
        let isDetail =
            ["/metrics", "/readyz", "/v1/stats", "/v1/queue"].contains(route)
            || (caller.token != nil && request.method == .post)
        logger.log(
            level: isDetail ? .debug : .info, caller == .administrator ? "administrator's call" : "call with a token",
            metadata: context.ids.metadata([
                LogKeys.address: "\(client?.description ?? "unknown")",
                "method": "\(request.method.rawValue)", LogKeys.route: "\(route)", LogKeys.caller: "\(caller.name)",
            ]))
    }

    /// Whether it is a token of the configuration. Compares all of them, so that the time does not tell which one was nearly
    /// right.
    private static func isRight(_ given: String, _ settings: ChatHTTPSettings) -> Bool {
        settings.adminTokens.reduce(false) { isSame(given, $1) || $0 }
    }

    private func refuse(_ given: String?, _ client: IPAddress?) throws(ChatError) -> Never {
        guard let given, !given.isEmpty else {
            throw .unauthorized("Send Authorization: Bearer with the relay's admin.token, or a token of the relay")
        }
        try limiter.countWrongToken(client)
        throw .unauthorized("The bearer token is not the relay's admin.token")
    }

    /// Without a token: only from this machine, not through a proxy, and not for a page of another site.
    private static func checkOrigin(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings, changes: Bool
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
        if changes { try ForeignPageGuard.checkSite(request) }
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

/// Requests with tokens, by their names.
final class TokenCalls: Sendable {
    /// Names that are told apart; tokens come and go.
    private static let most = 1000

    private let counts = Mutex<[String: Int64]>([:])

    func count(_ name: String) {
        counts.withLock { counts in
            if counts[name] != nil || counts.count < Self.most { counts[name, default: 0] += 1 }
        }
    }

    /// In the order of the names.
    var all: [(name: String, count: Int64)] {
        counts.withLock { $0.map { (name: $0.key, count: $0.value) } }.sorted { $0.name < $1.name }
    }
}
