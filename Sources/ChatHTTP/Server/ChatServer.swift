package import ChatDomain
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
package import Logging
import NIOCore
import ServiceLifecycle
import Synchronization
import WebAssets

/// Where the server listens.
package struct ChatServerConfiguration: Sendable {
    package var host: String
    /// 0 for any that is free.
    package var port: Int
    /// Nil for plain HTTP.
    package var certificate: ServerCertificate?
    /// Connections above this wait to be accepted until another one ends. A file descriptor each.
    package var maximumConnections: Int

    package init(host: String, port: Int, certificate: ServerCertificate? = nil, maximumConnections: Int = 4096) {
        self.host = host
        self.port = port
        self.certificate = certificate
        self.maximumConnections = maximumConnections
    }
}

/// What can be changed while the server runs; read for every request.
package struct ChatHTTPSettings: Sendable {
    /// Serves the tutorial's test pages.
    package var isDevelopment: Bool
    /// Only this machine is meant to reach the server, so that web pages of other sites are refused.
    package var refusesForeignPages: Bool
    /// Bytes of a message's text.
    package var textLimit: Int
    /// The proxies whose `Forwarded` and `X-Forwarded-For` headers are trusted.
    package var trustedProxies: [AddressRange]
    /// Requests to the chat API from one address (for IPv6, one /64 network); nil for any number.
    package var addressRate: RateLimit?
    /// Requests to the chat API in the name of one member; nil for any number.
    package var memberRate: RateLimit?
    /// Joins from one address to codes that nobody uses; nil for any number.
    package var joinRate: RateLimit?
    /// Where browsers reach the relay over HTTPS, without a path; nil if that is not known.
    package var publicURL: String?
    /// The bearer tokens of the admin API, each as good as the other; empty if none is configured.
    package var adminTokens: [String]

    package init(
        isDevelopment: Bool = false, refusesForeignPages: Bool = false, textLimit: Int = MessageText.defaultLimit,
        trustedProxies: [AddressRange] = [],
        addressRate: RateLimit? = nil, memberRate: RateLimit? = nil, joinRate: RateLimit? = nil,
        publicURL: String? = nil, adminTokens: [String] = []
    ) {
        self.isDevelopment = isDevelopment
        self.refusesForeignPages = refusesForeignPages
        self.textLimit = textLimit
        self.trustedProxies = trustedProxies
        self.addressRate = addressRate
        self.memberRate = memberRate
        self.joinRate = joinRate
        self.publicURL = publicURL
        self.adminTokens = adminTokens
    }
}

/// The relay's HTTP side, as a service.
///
/// On a graceful shutdown it accepts no new connections and no new requests, answers those that are being read or processed, and
/// closes each connection after that. The rest of a request has ``HTTPLimits/stopTime`` to come.
package struct ChatServer: Service {
    /// The address cannot be listened on.
    package struct CannotListen: Error, Sendable, CustomStringConvertible {
        package let description: String
    }

    private let configuration: ChatServerConfiguration
    private let responder: RouterResponder<ChatContext>
    private let connections: ConnectionCounter
    private let shortage: ConnectionShortage
    private let hub: EventHub
    /// Nil where no history is kept.
    private let recorder: MetricsRecorder?
    private let onListening: @Sendable (Int) -> Void
    private let logger: Logger

    /// - Parameters:
    ///   - settings: read once per request.
    ///   - resolveApp: which app an `appid` names; nil if the request has none.
    ///   - apps: the apps that are configured, with the state of their gateways.
    ///   - format: what an app's gateway requires of pushes.
    ///   - recentWarnings: the log's last warnings and errors, oldest first.
    ///   - sessions: tells whose session it is, where registration needs one; nil where anyone may register.
    ///   - browsers: reads browsers' subscriptions; nil where there are no pushes to browsers.
    ///   - readiness: what must work besides the database.
    ///   - clock: for rates and event streams.
    ///   - time: the time of day, for what callers and the database are told.
    ///   - history: the file in which a day of metrics is kept; nil: it is kept nowhere.
    ///   - onListening: called with the port once requests are accepted.
    package init(
        configuration: ChatServerConfiguration,
        stores: Stores,
        settings: @escaping @Sendable () -> ChatHTTPSettings,
        resolveApp: @escaping @Sendable (String?) throws(ChatError) -> AppName,
        apps: @escaping @Sendable () -> [AppStatus] = { [] },
        format: @escaping @Sendable (AppName) -> any PushFormat,
        recentWarnings: @escaping @Sendable () -> [JSONValue] = { [] },
        sessions: @escaping @Sendable () -> (any SessionVerifier)? = { nil },
        browsers: @escaping @Sendable () -> (any SubscriptionReader)? = { nil },
        readiness: @escaping @Sendable () async -> [ReadinessCheck] = { [] },
        clock: any Clock<Duration> = ContinuousClock(),
        now: @escaping TimeSource = Timestamp.now, version: String = "", commit: String = "", history: String? = nil,
        logger: Logger,
        onListening: @escaping @Sendable (_ port: Int) -> Void = { _ in }
    ) {
        self.configuration = configuration
        self.onListening = onListening
        self.logger = logger
        let elapsed = MonotonicTime(clock)
        let metrics = HTTPMetrics(clock: elapsed)
        connections = ConnectionCounter(metrics: metrics.limits, trustedProxies: { settings().trustedProxies })
        shortage = ConnectionShortage(metrics: metrics.limits, clock: elapsed, logger: logger)
        // An eighth of the connections is left for requests.
        let hub = EventHub(
            feed: stores.feed, tokens: stores.tokens, maxStreams: configuration.maximumConnections / 8 * 7,
            clock: elapsed, now: now, metrics: metrics.limits, logger: logger)
        self.hub = hub
        let health = Health(store: stores.rooms, readiness: readiness, clock: elapsed, logger: logger)
        let limiter = RequestLimiter(metrics: metrics.limits, clock: elapsed)
        let chat = ChatAPI(
            rooms: stores.rooms, feed: stores.feed, devices: stores.devices, subscriptions: stores.subscriptions,
            browsers: browsers, settings: settings, resolveApp: resolveApp, sessions: sessions, limiter: limiter,
            metrics: metrics, logger: logger)
        let calls = TokenCalls()
        let posting = PostingAPI(
            rooms: stores.rooms, settings: settings, limiter: limiter, metrics: metrics, logger: logger)
        let day = MetricsHistory(file: history, now: now, logger: logger)
        let admin = AdminMetrics(
            store: stores.metrics, apps: apps, calls: calls, http: metrics, history: day,
            process: AdminMetrics.RelayStatus(
                version: version, commit: commit, started: now(), streams: { hub.count }, readiness: readiness,
                certificateExpiresAt: { configuration.certificate?.expiresAt }),
            now: now)
        recorder = history == nil ? nil : MetricsRecorder(metrics: admin, sleep: elapsed.sleep)
        responder = Routes.build(
            chat: chat,
            events: EventsAPI(
                feed: stores.feed, records: stores.records, hub: hub, chat: chat,
                tickets: EventTickets(clock: elapsed),
                sleep: elapsed.sleep, logger: logger),
            admin: AdminAPI(
                stores: stores, browsers: browsers, resolveApp: resolveApp, apps: apps, format: format,
                recentWarnings: recentWarnings,
                now: now, logger: logger),
            metrics: admin,
            pages: Pages(settings: settings, health: health, browsers: browsers), health: health,
            posting: posting, gotify: GotifyAPI(posting: posting, version: version, now: now),
            ntfy: NtfyAPI(posting: posting, now: now),
            tokens: TokensAPI(store: stores.tokens, now: now, logger: logger),
            moderation: ModerationAPI(store: stores.moderation, settings: settings, now: now, logger: logger),
            answers: ResponseMiddleware(
                settings: settings, unavailable: RepeatedRefusals(clock: elapsed), metrics: metrics, logger: logger),
            foreignPages: ForeignPageGuard(settings: settings),
            administrators: AdminGuard(
                settings: settings, tokens: stores.tokens, calls: calls, limiter: limiter, logger: logger))
    }

    package func run() async throws {
        let isListening = Atomic(false)
        do {
            try await application { port in
                isListening.store(true, ordering: .relaxed)
                onListening(port)
            }.run()
        } catch  where !isListening.load(ordering: .relaxed) {
            throw CannotListen(
                description:
                    "http.host, http.port: cannot listen on \(configuration.host):\(configuration.port): \(error)")
        }
    }

    /// What Hummingbird runs, and what its test client calls. The event hub is one of its services.
    func application(onListening: @escaping @Sendable (Int) -> Void = { _ in }) throws -> Application<ChatResponder> {
        // Hummingbird logs at `info` where it listens, which the relay does itself.
        var quiet = logger
        quiet.logLevel = max(logger.logLevel, .notice)
        let (connections, shortage) = (connections, shortage)
        var http = HTTP1Channel.Configuration(
            additionalChannelHandlers: [ConnectionGuard(connections: connections), UpgradeRefusal()],
            idleTimeout: TimeAmount(HTTPLimits.idleTime))
        http.httpDecoder.maxHeaderFieldSize = HTTPLimits.headerField
        http.httpDecoder.maxHeaderListSize = HTTPLimits.headers
        http.httpDecoder.maxHeaderFieldCount = HTTPLimits.headerFields
        var server = HTTPServerBuilder.http1(configuration: http)
        if let certificate = configuration.certificate {
            server = try .tls(server, tlsConfiguration: certificate.configuration())
        }
        return Application(
            responder: ChatResponder(router: responder), server: server,
            configuration: ApplicationConfiguration(
                address: .hostname(configuration.host, port: configuration.port), backlog: HTTPLimits.backlog,
                reuseAddress: true,
                availableConnectionsDelegate: ConnectionSlots(
                    limit: configuration.maximumConnections, shortage: shortage)),
            services: [hub] + (recorder.map { [$0] } ?? []),
            onServerRunning: { channel in
                try? await channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(AcceptGuard(shortage: shortage), position: .first)
                }.get()
                onListening(channel.localAddress?.port ?? 0)
            },
            logger: quiet)
    }
}

/// Keeps a day of metrics, minute by minute.
private struct MetricsRecorder: Service {
    let metrics: AdminMetrics
    let sleep: @Sendable (Duration) async throws -> Void

    func run() async throws {
        await cancelWhenGracefulShutdown {
            // At the full minute, whenever that is by a clock that may be set.
            func rest() -> Int64 { 60_000 - metrics.now().milliseconds % 60_000 }
            while (try? await sleep(.milliseconds(rest()))) != nil {
                // The two clocks differ a little: it is not quite over.
                if rest() < 1000 { continue }
                await metrics.recordMinute()
            }
        }
    }
}

/// Finds the answer to a request.
struct ChatResponder: HTTPResponder {
    let router: RouterResponder<ChatContext>

    func respond(to request: Request, context: ChatContext) async throws -> Response {
        guard request.uri.path == Routes.events else { return try await router.respond(to: request, context: context) }
        // In a task of its own: a task keeps the memory of all calls that it ever was in, and a connection with a stream would
        // keep it for hours, some ten kilobytes.
        async let answer = router.respond(to: request, context: context)
        return try await answer
    }
}

/// The time since a server was made, and a way to wait: of any clock, so that tests can move it.
struct MonotonicTime: Sendable {
    let now: @Sendable () -> Duration
    let sleep: @Sendable (Duration) async throws -> Void

    init(_ clock: some Clock<Duration>) {
        let start = clock.now
        now = { start.duration(to: clock.now) }
        sleep = { try await clock.sleep(for: $0) }
    }
}

/// What belongs to one request.
struct ChatContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// The other end of the connection; a proxy's, if there is one.
    let peer: SocketAddress?
    let channel: any Channel
    var ids = RequestIDs()
    /// When its head was read, in ``MonotonicTime``.
    var received = Duration.zero
    /// Who calls, where ``AdminGuard`` has asked.
    private var knownCaller: Caller?

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
        peer = source.channel.remoteAddress
        channel = source.channel
    }

    /// Who calls: known behind ``AdminGuard`` only.
    func caller() throws(ChatError) -> Caller {
        guard let knownCaller else { throw ChatError(.internalError, "the route has no guard") }
        return knownCaller
    }

    func called(by caller: Caller) -> ChatContext {
        var context = self
        context.knownCaller = caller
        return context
    }

    /// The address of ``peer``; nil for a Unix socket.
    var peerAddress: IPAddress? { peer.flatMap { IPAddress($0) } }
}
