package import ChatDomain
import HTTP2Wire
package import Logging
import NIOCore
import NIOPosix
package import PushWire
import Synchronization

/// An app's connections to Apple's HTTP/2 provider API. See `docs/http2-gateway.md`, and Apple, "Sending notification
/// requests to APNs" and "Establishing a connection to APNs".
///
/// One connection is always kept. Others are opened while the peer's limit of streams delays pushes, and are closed
/// when they have been idle.
package final class HTTP2Gateway: PushGateway {
    package struct Options: Sendable {
        /// The maximum number of connections, without the spare one.
        package var connections: Int
        /// The time in which a stream must get its response.
        package var answerLimit: Duration
        /// The time without a push after which an additional connection is closed.
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

    /// The gateway that receives the pushes, and the credentials for it.
    package struct Target: PoolTarget {
        package let endpoint: GatewayEndpoint
        /// The app's bundle id, from which topics are made. `nil` if the certificate's own topic is used.
        package let bundleID: String?
        /// The source of provider tokens. `nil` if the endpoint's certificate is the credential.
        package let tokens: TokenSource?
        /// The last provider token that the gateway rejected.
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

    /// Creates a gateway without connections. ``run()`` opens them.
    /// - Parameter target: `nil` while the app has no credentials. Its pushes then wait in the queue.
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

    /// Uses another target for new connections. The open ones finish the pushes in flight and then close.
    package func reconfigure(target: Target?) { pool.reconfigure(target: target) }

    // ``BinaryGateway`` has the same members. A shared extension would have to make the pool `package`.
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
        limits.response = TimeAmount(options.answerLimit)
        let idleLimit = attempt.isPermanent ? nil : TimeAmount(options.idleLimit)
        let listeners = HTTP2Pushes.Listeners(
            changed: { [weak pool] in pool?.changed() }, credentialsRefused: { target.note($0, token: token) })
        let (_, connection) = try await target.endpoint.connect(on: MultiThreadedEventLoopGroup.singleton) {
            [limits, wallClock = now, breaker, clock = options.clock, reports = pool.reports] channel in
            let now = channel.eventLoop.now
            let state = HTTP2ConnectionState(
                limits: limits, mapping: OutcomeMapping(host: target.endpoint.host, bundleID: target.bundleID),
                tokenEnd: token.map { now + TimeAmount($0.lifeLeft(at: wallClock())) }, idleLimit: idleLimit, now: now)
            let pushes = HTTP2Pushes(
                connectionID: connectionID, state: state, retirement: channel.eventLoop.makePromise(), reports: reports,
                breaker: breaker, now: wallClock, clock: clock, listeners: listeners, logger: logger)
            let handler = HTTP2ClientHandler(pushes)
            try channel.pipeline.syncOperations.addHandler(handler)
            return HTTP2Connection(
                id: connectionID, channel: channel, handler: handler, template: template, breaker: breaker)
        }
        return connection
    }
}

extension IssuedToken {
    /// Returns the time for which the token remains valid for the service.
    fileprivate func lifeLeft(at now: Timestamp) -> Duration {
        let end = issuedAt + Self.lifetime
        return .milliseconds(max(0, end.milliseconds - now.milliseconds))
    }
}

extension ProviderRefusal {
    /// Whether the service may accept another token of the same key. After too many token updates, another token would
    /// not help.
    fileprivate var blamesToken: Bool {
        switch known {
        case .expiredProviderToken, .invalidProviderToken: true
        case nil: status == 403
        default: false
        }
    }
}

/// The source of an app's provider tokens: a key signs them, and a store keeps them for as long as they must be reused.
package struct TokenSource: Sendable {
    private let key: ProviderKey
    private let name: ProviderKeyName
    private let store: any ProviderTokenStore

    package init(key: ProviderKey, store: any ProviderTokenStore) {
        self.key = key
        self.name = ProviderKeyName(teamID: key.teamID, keyID: key.keyID, fingerprint: key.fingerprint)
        self.store = store
    }

    /// Returns the current token.
    /// - Parameter refused: The token that the service rejected. The store returns another one if the rejected token
    ///   may be replaced already.
    package func token(refused: String?) async throws -> IssuedToken {
        let key = key
        return try await store.providerToken(for: name, refused: refused) { try key.token(issuedAt: $0.seconds) }
    }
}
