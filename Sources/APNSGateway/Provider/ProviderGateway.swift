import APNSWire
package import ChatDomain
package import Logging
import NIOCore
import NIOPosix
import Synchronization

/// An app's connections to Apple's HTTP/2 provider API (apns-http2.md).
///
/// One is always kept; others are opened while the peer's limit of streams holds pushes up, and closed when they have had
/// nothing to do.
package final class ProviderGateway: PushGateway {
    package struct Options: Sendable {
        /// The most connections.
        package var connections: Int
        /// How long a stream may stay unanswered.
        package var answerLimit: Duration
        /// After how long without a push a further connection is closed.
        package var idleLimit: Duration
        var limits = ProviderLimits()
        var growthInterval = TimeAmount.seconds(1)

        package init(
            connections: Int = 4, answerLimit: Duration = .seconds(30),
            idleLimit: Duration = .seconds(300)
        ) {
            self.connections = connections
            self.answerLimit = answerLimit
            self.idleLimit = idleLimit
        }
    }

    /// Where pushes go, and as whom.
    package struct Target: PoolTarget {
        package let endpoint: GatewayEndpoint
        /// The app's bundle id, from which topics are made; nil: the certificate's own topic.
        package let bundleID: String?
        /// Nil where the endpoint's certificate says who we are.
        package let tokens: TokenSource?
        /// The provider token that the gateway did not take.
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
    private let clock: TimeSource
    private let mailbox = VerdictMailbox()
    private let temper = ServiceTemper()
    private let pool: ConnectionPool<Target, ProviderConnection>

    /// - Parameter target: nil while the app has no credentials; everything waits in the queue then.
    package init(
        target: Target?, format: APNSFormat = APNSFormat(.http2, payloadLimit: PushType.alert.payloadLimit),
        options: Options, epochs: ConnectionEpochs, clock: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.format = format
        self.options = options
        self.clock = clock
        self.pool = ConnectionPool(
            target: target,
            size: .init(
                permanent: 1, further: max(0, options.connections - 1), spare: 1,
                growthInterval: options.growthInterval),
            epochs: epochs, mailbox: mailbox, clock: clock,
            hasProgressed: { [temper] in temper.hasProgressed(now: .now()) }, logger: logger)
    }

    /// Connections that are open now.
    package var openConnections: Int { pool.openConnections }

    /// Connections from now on have another target; the open ones finish what is in flight, then close.
    package func reconfigure(target: Target?) async {
        await pool.reconfigure(target: target)
    }

    package func run() async {
        let changed: @Sendable () -> Void = { [weak pool] in pool?.wake() }
        await pool.run { [options, mailbox, temper, clock] opening in
            try await Self.open(
                opening, options: options, mailbox: mailbox, temper: temper, clock: clock, changed: changed)
        }
    }

    package func slot(fresh: Bool) async -> ConnectionSlot? {
        await pool.slot(fresh: fresh) { [temper] in
            switch temper.permission(now: .now()) {
            case .all: .open
            case .one: .ajar
            case .none: .closed
            }
        }
    }

    package func write(_ lease: Lease) {
        pool.write(lease)
    }

    package func verdicts() async -> [Verdict]? {
        await mailbox.take()
    }

    package func drain() async {
        await pool.drain()
    }

    package func finish() async {
        await pool.flush()
        mailbox.close()
    }

    private static func open(
        _ opening: Opening<Target>, options: Options, mailbox: VerdictMailbox, temper: ServiceTemper,
        clock: @escaping TimeSource, changed: @escaping @Sendable () -> Void
    ) async throws -> ProviderConnection {
        let target = opening.target
        let token = try await target.token()
        let template = ProviderRequestTemplate(
            host: target.endpoint.host, bundleID: target.bundleID, token: token?.text)
        let judge = AnswerJudge(host: target.endpoint.host, bundleID: target.bundleID)
        var limits = options.limits
        limits.answer = TimeAmount(options.answerLimit)
        let idleLimit = opening.isPermanent ? nil : TimeAmount(options.idleLimit)
        let (_, connection) = try await target.endpoint.connect(on: MultiThreadedEventLoopGroup.singleton) {
            [limits] channel in
            let now = channel.eventLoop.now
            let tokenEnd = token.map { now + TimeAmount($0.lifeLeft(at: clock())) }
            let state = ProviderConnectionState(
                limits: limits, judge: judge,
                clock: ProviderConnectionClock(now: now, tokenEnd: tokenEnd, idleLimit: idleLimit))
            let handler = ProviderConnectionHandler(
                epoch: opening.epoch, state: state, retirement: channel.eventLoop.makePromise(), mailbox: mailbox,
                temper: temper, clock: clock,
                listeners: .init(changed: changed, credentialsRefused: { target.note($0, token: token) }),
                logger: opening.logger)
            try channel.pipeline.syncOperations.addHandler(handler)
            return ProviderConnection(
                epoch: opening.epoch, channel: channel, handler: handler, template: template, temper: temper)
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
    /// Whether another token, of the same key, may be taken. Too many updates are not mended by yet another.
    fileprivate var blamesToken: Bool {
        switch known {
        case .expiredProviderToken, .invalidProviderToken: true
        case nil: status == 403
        default: false
        }
    }
}
