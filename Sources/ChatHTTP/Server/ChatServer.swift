import ChatDomain
import Foundation
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import Logging
import NIOCore
package import ServiceLifecycle
import Synchronization
import WebAssets

/// The server's address, certificate, connection limit and file of metrics.
package struct ChatServerConfiguration: Sendable {
    package var host: String
    /// The port. 0 selects any free port.
    package var port: Int
    /// The certificate for HTTPS. `nil` for plain HTTP.
    package var certificate: ServerCertificate?
    /// The maximum number of open connections. Further connections wait until an open one closes. Each connection needs
    /// a file descriptor.
    package var maxConnections: Int
    /// The file that keeps a day of metrics. `nil` to keep none.
    package var history: String?

    package init(
        host: String, port: Int, certificate: ServerCertificate? = nil, maxConnections: Int = 4096,
        history: String? = nil
    ) {
        self.host = host
        self.port = port
        self.certificate = certificate
        self.maxConnections = maxConnections
        self.history = history
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

        package init(description: String) {
            self.description = description
        }
    }

    private let configuration: ChatServerConfiguration
    private let environment: ChatEnvironment
    /// The routes of all APIs.
    let routes: [Route]
    private let groups: RouteGroups
    private let responder: RouterResponder<ChatContext>
    private let connections: ConnectionCounter
    private let shortage: ConnectionShortage
    private let hub: EventHub
    /// Records metrics once a minute. `nil` if no history is kept.
    private let recorder: MetricsRecorder?
    private let supervised: @Sendable (any Service) -> any Service
    private let onListening: @Sendable (Int) -> Void
    private let logger: Logger

    /// Creates the server. It listens once ``run()`` is called.
    ///
    /// - Parameters:
    ///   - supervised: Returns a background service of the server as one whose failure the caller notices. Without this,
    ///     the failure cancels all requests.
    ///   - onListening: Called with the port once the server accepts requests.
    package init(
        _ configuration: ChatServerConfiguration, _ environment: ChatEnvironment,
        supervised: @escaping @Sendable (any Service) -> any Service = { $0 },
        onListening: @escaping @Sendable (_ port: Int) -> Void = { _ in }
    ) {
        self.configuration = configuration
        self.environment = environment
        self.supervised = supervised
        self.onListening = onListening
        logger = environment.logger
        let clock = environment.clocks.monotonic
        let metrics = HTTPMetrics(clock: clock)
        connections = ConnectionCounter(
            metrics: metrics.limits, trustedProxies: { environment.settings.trustedProxies })
        shortage = ConnectionShortage(metrics: metrics.limits, clock: clock, logger: logger)
        // One eighth of the connections is reserved for requests.
        let hub = EventHub(
            stores: environment.stores, maxStreams: configuration.maxConnections / 8 * 7,
            clocks: environment.clocks, metrics: metrics.limits, logger: logger)
        self.hub = hub
        let health = Health(environment)
        let limiter = RequestLimiter(metrics: metrics.limits, clock: clock)
        let calls = TokenCalls()
        let posting = PostingAPI(environment: environment, limiter: limiter, metrics: metrics)
        let admin = AdminMetrics(
            environment: environment, calls: calls, http: metrics,
            history: MetricsHistory(file: configuration.history, now: environment.now, logger: logger),
            streams: { hub.count }, certificateExpiresAt: { configuration.certificate?.expiresAt })
        recorder = configuration.history == nil ? nil : MetricsRecorder(metrics: admin, clocks: environment.clocks)
        let streams = StreamOpener(hub: hub, logger: logger)
        // The APIs for clients of other servers. If one serves every name at the root, others come after it.
        let clients =
            NtfyAPI(posting: posting, streams: streams).routes + GotifyAPI(posting: posting, streams: streams).routes
        let servers = RouteGroups(clients).others
        let chat = ChatAPI(environment: environment, limiter: limiter, metrics: metrics, servers: servers)
        let events = EventsAPI(
            environment: environment, streams: streams, chat: chat, tickets: EventTickets(clock: clock))
        let pages = Pages(environment: environment, health: health, servers: servers)
        routes =
            chat.routes + events.routes + ChangesAPI(posting: posting).routes
            + AdminAPI(environment: environment, metrics: admin).routes + posting.routes
            + HooksAPI(posting: posting).routes
            + clients + health.routes + pages.routes
        groups = RouteGroups(routes)
        let router = Router(context: ChatContext.self)
        router.add(
            middleware: ResponseMiddleware(
                environment: environment, unavailable: RepeatedRejections(clock: clock), limiter: limiter,
                metrics: metrics, groups: groups))
        router.add(middleware: ForeignPageGuard(environment: environment))
        let administrators = AdminGuard(
            environment: environment, calls: calls, limiter: limiter, servers: servers.compactMap(\.server))
        Routes(environment: environment, administrators: administrators).add(routes, to: router)
        responder = router.buildResponder()
    }

    package func run() async throws {
        let isListening = Atomic(false)
        do {
            try await application { port in
                isListening.store(true, ordering: .relaxed)
                onListening(port)
            }.run()
        } catch  where !isListening.load(ordering: .relaxed) {
            let address = "\(configuration.host):\(configuration.port)"
            guard (error as? IOError)?.errnoCode == EADDRINUSE else {
                throw CannotListen(description: "http.host, http.port: cannot listen on \(address): \(error)")
            }
            throw CannotListen(
                description:
                    "cannot listen on \(address): another program uses this port; stop it, or choose another port with "
                    + "--port or http.port")
        }
    }

    /// The application that Hummingbird runs and that its test client calls. The event hub is one of its services.
    func application(onListening: @escaping @Sendable (Int) -> Void = { _ in }) throws -> Application<ChatResponder> {
        // Hummingbird logs its address at `info`, and the relay already logs it.
        var quiet = logger
        quiet.logLevel = max(logger.logLevel, .notice)
        let (connections, shortage) = (connections, shortage)
        var http = HTTP1Channel.Configuration(
            additionalChannelHandlers: [ConnectionGuard(connections: connections), WebSocketGate()],
            idleTimeout: TimeAmount(HTTPLimits.idleTime))
        http.httpDecoder.maxHeaderFieldSize = HTTPLimits.headerField
        http.httpDecoder.maxHeaderListSize = HTTPLimits.headers
        http.httpDecoder.maxHeaderFieldCount = HTTPLimits.headerFields
        var server = HTTPServerBuilder.http1(configuration: http)
        if let certificate = configuration.certificate {
            server = try .tls(server, tlsConfiguration: certificate.configuration())
        }
        return Application(
            responder: ChatResponder(
                router: responder, environment: environment, others: groups.others,
                // The paths of webhooks differ from those of a topic that is called hooks.
                ownNames: Set(
                    routes.filter { $0.access != .hook }.compactMap { $0.path.split(separator: "/").first })),
            server: server,
            configuration: ApplicationConfiguration(
                address: .hostname(configuration.host, port: configuration.port), backlog: HTTPLimits.backlog,
                reuseAddress: true,
                availableConnectionsDelegate: ConnectionSlots(
                    limit: configuration.maxConnections, shortage: shortage)),
            services: ([hub] + (recorder.map { [$0] } ?? [])).map(supervised),
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
    let clocks: Clocks

    func run() async throws {
        await cancelWhenGracefulShutdown {
            // The time until the next full minute of the wall clock, which may be set at any time.
            func timeToMinute() -> Int64 { 60_000 - clocks.now().milliseconds % 60_000 }
            while (try? await clocks.monotonic.sleep(.milliseconds(timeToMinute()))) != nil {
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
    let environment: ChatEnvironment
    /// The groups for clients of other servers.
    let others: [RouteGroup]
    /// The first names of the paths.
    let ownNames: Set<Substring>

    func respond(to request: Request, context: ChatContext) async throws -> Response {
        var context = context
        context.method = request.method
        let request = RootPaths.resolved(request, environment.settings, others, ownNames: ownNames)
            .with(method: Routes.anyMethod)
        guard StreamOpener.mayServe(request.uri.path) else {
            return try await router.respond(to: request, context: context)
        }
        // Use a separate task. A task keeps the memory of all calls made in it, and a stream's connection would hold
        // some ten kilobytes for hours.
        async let response = router.respond(to: request, context: context)
        return try await response
    }
}
