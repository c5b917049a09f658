package import ChatDomain
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
package import Logging
import NIOCore
import ServiceLifecycle
import Synchronization
import WebAssets

/// The server's address, certificate and connection limit.
package struct ChatServerConfiguration: Sendable {
    package var host: String
    /// The port. 0 selects any free port.
    package var port: Int
    /// The certificate for HTTPS. `nil` for plain HTTP.
    package var certificate: ServerCertificate?
    /// The maximum number of open connections. Further connections wait until an open one closes. Each connection needs
    /// a file descriptor.
    package var maximumConnections: Int

    package init(host: String, port: Int, certificate: ServerCertificate? = nil, maximumConnections: Int = 4096) {
        self.host = host
        self.port = port
        self.certificate = certificate
        self.maximumConnections = maximumConnections
    }
}

/// The relay's HTTP server, as a service.
///
/// On graceful shutdown it accepts no new connections or requests, finishes the requests that it is reading or
/// processing, and then closes each connection. The rest of a request must arrive within ``HTTPLimits/stopTime``.
package struct ChatServer: Service {
    /// The server cannot listen on its address.
    package struct CannotListen: Error, Sendable, CustomStringConvertible {
        package let description: String
    }

    private let configuration: ChatServerConfiguration
    private let responder: RouterResponder<ChatContext>
    private let connections: ConnectionCounter
    private let shortage: ConnectionShortage
    private let hub: EventHub
    /// Records metrics once a minute. `nil` if no history is kept.
    private let recorder: MetricsRecorder?
    private let onListening: @Sendable (Int) -> Void
    private let logger: Logger

    /// Creates the server. It listens once ``run()`` is called.
    ///
    /// - Parameters:
    ///   - settings: Returns the settings. Called once per request.
    ///   - resolveApp: Returns the app that an `appid` names. Its argument is `nil` if the request has no `appid`.
    ///   - apps: Returns the configured apps, with the state of their gateways.
    ///   - format: Returns the requirements of an app's gateway on pushes.
    ///   - recentWarnings: Returns the log's latest warnings and errors, oldest first.
    ///   - sessions: Returns the verifier of sessions, if registration requires one. `nil` if anyone may register.
    ///   - browsers: Returns the reader of browsers' subscriptions. `nil` if pushes to browsers are off.
    ///   - readiness: Checks the parts of the relay that must work, except the database.
    ///   - clock: The monotonic clock, for rates and event streams.
    ///   - now: The wall clock, for times in responses and in the database.
    ///   - history: The file that keeps a day of metrics. `nil` to keep none.
    ///   - onListening: Called with the port once the server accepts requests.
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
        // One eighth of the connections is reserved for requests.
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
            responses: ResponseMiddleware(
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

    /// The application that Hummingbird runs and that its test client calls. The event hub is one of its services.
    func application(onListening: @escaping @Sendable (Int) -> Void = { _ in }) throws -> Application<ChatResponder> {
        // Hummingbird logs its address at `info`, and the relay already logs it.
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

/// Records the metrics once a minute, for the history of one day.
private struct MetricsRecorder: Service {
    let metrics: AdminMetrics
    let sleep: @Sendable (Duration) async throws -> Void

    func run() async throws {
        await cancelWhenGracefulShutdown {
            // The time until the next full minute of the wall clock, which may be set at any time.
            func timeToMinute() -> Int64 { 60_000 - metrics.now().milliseconds % 60_000 }
            while (try? await sleep(.milliseconds(timeToMinute()))) != nil {
                // The two clocks drift apart, so the wait may end just before the full minute.
                if timeToMinute() < 1000 { continue }
                await metrics.recordMinute()
            }
        }
    }
}

/// Passes each request to the router.
struct ChatResponder: HTTPResponder {
    let router: RouterResponder<ChatContext>

    func respond(to request: Request, context: ChatContext) async throws -> Response {
        guard request.uri.path == Routes.events else { return try await router.respond(to: request, context: context) }
        // Use a separate task. A task keeps the memory of all calls made in it, and a stream's connection would hold
        // some ten kilobytes for hours.
        async let response = router.respond(to: request, context: context)
        return try await response
    }
}
