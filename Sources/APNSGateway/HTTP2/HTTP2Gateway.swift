package import APNSWire
package import ChatDomain
package import Logging
import NIOCore
import NIOPosix
import Synchronization

/// An app's connections to Apple's HTTP/2 provider API (apns-http2.md).
///
/// One is always kept; others are opened while the peer's limit of streams holds pushes up, and closed when they have had
/// nothing to do.
package final class HTTP2Gateway: PushGateway {
    package struct Options: Sendable {
        /// The most connections.
        package var connections: Int
        /// How long a stream may stay unanswered.
        package var answerLimit: Duration
        /// After how long without a push a further connection is closed.
        package var idleLimit: Duration
        var limits = HTTP2Limits()
        var growthInterval = TimeAmount.seconds(1)
        var clock = MonotonicClock()

        package init(
            connections: Int = 4, answerLimit: Duration = .seconds(30),
            idleLimit: Duration = .seconds(300)
        ) {
            self.connections = connections
            self.answerLimit = answerLimit
            self.idleLimit = idleLimit
        }
    }

    /// Where pushes go, and with which credentials.
    package struct Target: PoolTarget {
        package let endpoint: GatewayEndpoint
        /// The app's bundle id, from which topics are made; nil: the certificate's own topic.
        package let bundleID: String?
        /// Nil where the endpoint's certificate is the credential.
        package let tokens: TokenSource?
        /// The provider token that the gateway did not accept.
        private let refused = RefusedToken()

        package init(endpoint: GatewayEndpoint, bundleID: String?, tokens: TokenSource?) {
            self.endpoint = endpoint
            self.bundleID = bundleID
            self.tokens = tokens
        }

        fileprivate func token() async throws -> IssuedToken? {
            try await tokens?.token(refused: refused.text.withLock { $0 })
        }

        fileprivate func note(_ refusal: ProviderRefusal, token: IssuedToken?) {
            guard let token, refusal.blamesToken else { return }
            refused.text.withLock { $0 = token.text }
        }
    }

    private final class RefusedToken: Sendable {
        let text = Mutex<String?>(nil)
    }

    package let format: any PushFormat
    private let options: Options
    private let now: TimeSource
    private let breaker = CircuitBreaker()
    private let pool: ConnectionPool<Target, HTTP2Connection>

    /// - Parameter target: nil while the app has no credentials; everything waits in the queue then.
    package init(
        target: Target?, format: APNSFormat = APNSFormat(.http2, payloadLimit: PushType.alert.payloadLimit),
        options: Options, connectionIDs: ConnectionIDs, now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.format = format
        self.options = options
        self.now = now
        self.pool = ConnectionPool(
            target: target,
            size: PoolSize(
                permanent: 1, additional: max(0, options.connections - 1), spare: 1,
                growthInterval: options.growthInterval),
            breaker: breaker, connectionIDs: connectionIDs, now: now, clock: options.clock, logger: logger)
    }

    package func run() async { await pool.run(open: open) }

    /// Connections from now on have another target; the open ones finish what is in flight, then close.
    package func reconfigure(target: Target?) { pool.reconfigure(target: target) }

    // As in ``BinaryGateway``: an extension for both would have to make the pool `package`.
    package var openConnections: Int { pool.openConnections }
    package func slot(fresh: Bool) async -> ConnectionSlot? { await pool.slot(fresh: fresh) }
    package func write(_ lease: Lease) { pool.write(lease) }
    package func reports() async -> [DeliveryReport]? { await pool.reports.take() }
    package func drain() async { await pool.drain() }
    package func finish() async { await pool.finish() }

    private func open(
        _ attempt: ConnectionAttempt<Target>, _ connectionID: ConnectionID, _ logger: Logger
    ) async throws -> HTTP2Connection {
        let target = attempt.target
        let token = try await target.token()
        let template = HTTP2RequestTemplate(
            host: target.endpoint.host, bundleID: target.bundleID, token: token?.text)
        var limits = options.limits
        limits.answer = TimeAmount(options.answerLimit)
        let idleLimit = attempt.isPermanent ? nil : TimeAmount(options.idleLimit)
        let listeners = HTTP2ConnectionHandler.Listeners(
            changed: { [weak pool] in pool?.changed() }, credentialsRefused: { target.note($0, token: token) })
        let (_, connection) = try await target.endpoint.connect(on: MultiThreadedEventLoopGroup.singleton) {
            [limits, wallClock = now, breaker, clock = options.clock, reports = pool.reports] channel in
            let now = channel.eventLoop.now
            let state = HTTP2ConnectionState(
                limits: limits, mapping: OutcomeMapping(host: target.endpoint.host, bundleID: target.bundleID),
                tokenEnd: token.map { now + TimeAmount($0.lifeLeft(at: wallClock())) }, idleLimit: idleLimit, now: now)
            let handler = HTTP2ConnectionHandler(
                connectionID: connectionID, state: state, retirement: channel.eventLoop.makePromise(), reports: reports,
                breaker: breaker, now: wallClock, clock: clock, listeners: listeners, logger: logger)
            try channel.pipeline.syncOperations.addHandler(handler)
            return HTTP2Connection(
                id: connectionID, channel: channel, handler: handler, template: template, breaker: breaker)
        }
        return connection
    }
}

extension IssuedToken {
    /// How long it can still be shown to the service.
    fileprivate func lifeLeft(at now: Timestamp) -> Duration {
        let end = issuedAt + Self.lifetime
        return .milliseconds(max(0, end.milliseconds - now.milliseconds))
    }
}

extension ProviderRefusal {
    /// Whether another token of the same key may be accepted. Yet another does not help against too many.
    fileprivate var blamesToken: Bool {
        switch known {
        case .expiredProviderToken, .invalidProviderToken: true
        case nil: status == 403
        default: false
        }
    }
}

/// Where an app's provider tokens come from: a key signs them, a store keeps them as long as they must be reused.
package struct TokenSource: Sendable {
    private let key: ProviderKey
    private let name: ProviderKeyName
    private let store: any ProviderTokenStore

    package init(key: ProviderKey, store: any ProviderTokenStore) {
        self.key = key
        self.name = ProviderKeyName(teamID: key.teamID, keyID: key.keyID, fingerprint: key.fingerprint)
        self.store = store
    }

    /// The token in force; another than `refused`, the one that the service did not take, if it may be replaced already.
    package func token(refused: String?) async throws -> IssuedToken {
        let key = key
        return try await store.providerToken(for: name, refused: refused) { try key.token(issuedAt: $0.seconds) }
    }
}
