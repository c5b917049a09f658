package import ChatDomain
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
package import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

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

/// The relay's HTTP side, as a service.
///
/// On a graceful shutdown it takes no new connections, answers the requests that are being read or worked on, and closes
/// each connection after that.
package struct ChatServer: Service {
    /// The address cannot be listened on.
    package struct CannotListen: Error, Sendable, CustomStringConvertible {
        package let description: String
    }

    private let configuration: ChatServerConfiguration
    private let responder: RouterResponder<ChatContext>
    private let census: ConnectionCensus
    private let hub: EventHub
    private let onListening: @Sendable (Int) -> Void
    private let logger: Logger

    /// - Parameters:
    ///   - settings: asked once per request.
    ///   - resolveApp: which app an `appid` names; nil if the request has none.
    ///   - apps: the apps that are configured, with the state of their gateways.
    ///   - format: what an app's gateway requires of pushes.
    ///   - recentWarnings: the log's last warnings and errors, oldest first.
    ///   - sessions: tells whose session it is, where registration needs one; nil where anyone may register.
    ///   - readiness: what must work besides the database.
    ///   - clock: for rates.
    ///   - time: for what callers and the database are told.
    ///   - onListening: told the port once requests are taken.
    package init(
        configuration: ChatServerConfiguration,
        stores: Stores,
        settings: @escaping @Sendable () -> ChatHTTPSettings,
        resolveApp: @escaping @Sendable (String?) throws(ChatError) -> AppName,
        apps: @escaping @Sendable () -> [AppStatus] = { [] },
        format: @escaping @Sendable (AppName) -> any PushFormat,
        recentWarnings: @escaping @Sendable () -> [JSONValue] = { [] },
        sessions: @escaping @Sendable () -> (any SessionVerifier)? = { nil },
        readiness: @escaping @Sendable () async -> [ReadinessCheck] = { [] },
        clock: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        time: @escaping TimeSource = Timestamp.now, version: String = "",
        logger: Logger,
        onListening: @escaping @Sendable (_ port: Int) -> Void = { _ in }
    ) {
        self.configuration = configuration
        self.onListening = onListening
        census = ConnectionCensus(trustedProxies: { settings().trustedProxies })
        self.logger = logger
        let health = Health(store: stores.rooms, furtherChecks: readiness, logger: logger)
        let chat = ChatAPI(
            rooms: stores.rooms, devices: stores.devices, settings: settings, resolveApp: resolveApp,
            sessions: sessions,
            rates: RateGate(now: clock), logger: logger)
        // What is left is for those who post.
        hub = EventHub(feed: stores.feed, most: configuration.maximumConnections / 8 * 7, logger: logger)
        responder = Routes.build(
            api: chat, events: EventsAPI(feed: stores.feed, hub: hub, chat: chat, logger: logger),
            admin: AdminAPI(
                stores: stores, resolveApp: resolveApp, apps: apps, format: format, recentWarnings: recentWarnings,
                clock: time, version: version, started: time(),
                logger: logger),
            pages: Pages(settings: settings, health: health), health: health,
            answers: AnswerMiddleware(logger: logger),
            guarding: ForeignPageGuard(settings: settings),
            administrators: AdminGuard(settings: settings, logger: logger))
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

    /// What Hummingbird runs; its test client takes the same.
    func application(onListening: @escaping @Sendable (Int) -> Void = { _ in }) throws -> Application<
        RouterResponder<ChatContext>
    > {
        // Where it listens, the relay says itself.
        var quiet = logger
        quiet.logLevel = max(logger.logLevel, .notice)
        let census = census
        var http = HTTP1Channel.Configuration(
            additionalChannelHandlers: [ReadGuard(census: census)], idleTimeout: TimeAmount(HTTPLimits.idleTime))
        http.httpDecoder.maxHeaderFieldSize = HTTPLimits.headerField
        http.httpDecoder.maxHeaderListSize = HTTPLimits.headers
        http.httpDecoder.maxHeaderFieldCount = HTTPLimits.headerFields
        var server = HTTPServerBuilder.http1(configuration: http)
        if let certificate = configuration.certificate {
            server = try .tls(server, tlsConfiguration: certificate.configuration())
        }
        return Application(
            responder: responder, server: server,
            configuration: ApplicationConfiguration(
                address: .hostname(configuration.host, port: configuration.port), backlog: HTTPLimits.backlog,
                reuseAddress: true,
                availableConnectionsDelegate: MaximumAvailableConnections(
                    configuration.maximumConnections, logger: logger)),
            services: [hub], onServerRunning: { channel in onListening(channel.localAddress?.port ?? 0) },
            logger: quiet)
    }
}
