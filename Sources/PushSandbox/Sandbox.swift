import Crypto
import Foundation
import Hummingbird
import HummingbirdCore
package import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle

/// A local simulation of push services: Apple's HTTP/2 provider API, its legacy binary gateway, its feedback service,
/// FCM, and a push service for browsers. It shows the notifications that arrive.
///
/// ``start()`` listens on all ports, so a port that is taken fails the start before anything else runs. ``run()``
/// serves until a graceful shutdown. A sandbox that was stopped cannot be started again.
package actor Sandbox: Service {
    private let configuration: SandboxConfiguration
    private let logger: Logger
    let state: SharedState
    private var listeners: [SocketListener] = []
    /// The control API, the push service for browsers, and FCM. Empty while the sandbox does not listen.
    private var servers: [HTTPListener] = []
    private var addresses: SandboxAddresses
    private var simulator: SimulatorFiles?
    private var hasStarted = false

    package init(configuration: SandboxConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        state = SharedState(configuration)
        addresses = SandboxAddresses(host: configuration.host, ports: configuration.ports)
    }

    /// Creates or renews the credentials if needed, and listens on all ports.
    /// - Throws: ``SandboxError``, which says what to do. After an error, the sandbox listens on no port.
    package func start() async throws -> SandboxAddresses {
        guard !hasStarted else { throw SandboxError.alreadyStarted }
        hasStarted = true
        do {
            return try await listen()
        } catch {
            await stop()
            throw error
        }
    }

    /// Serves until a graceful shutdown or cancellation, then closes everything. Calls ``start()`` first if needed.
    package func run() async throws {
        if !hasStarted { _ = try await start() }
        guard !servers.isEmpty else { return }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                do { try await gracefulShutdown() } catch is CancellationError {}
            }
            for listener in listeners { group.addTask { await listener.waitUntilEnded() } }
            for server in servers { group.addTask { try await server.waitUntilEnded() } }
            if let simulator { group.addTask { [state] in try await simulator.follow(state) } }
            let first = await group.nextResult()
            await stop()
            group.cancelAll()
            // After `stop()`, the end of the other tasks is not a failure.
            while await group.nextResult() != nil {}
            try first?.get()
        }
        logger.info("Sandbox stopped")
    }

    /// Closes all listeners and connections, in two seconds at most. Only callers that use ``start()`` without
    /// ``run()`` need to call this.
    package func stop() async {
        let listeners = self.listeners
        let servers = self.servers
        self.listeners = []
        self.servers = []
        await withDiscardingTaskGroup { group in
            for listener in listeners { group.addTask { await listener.close() } }
            for server in servers { group.addTask { await server.stop() } }
        }
    }

    private func listen() async throws -> SandboxAddresses {
        let credentials = try await configuration.credentials(logger: logger)
        let keys = try credentials.keyring()
        let group = MultiThreadedEventLoopGroup.singleton
        let (configuration, state, logger) = (configuration, state, logger)
        if let folder = configuration.simulatorFolder {
            simulator = try SimulatorFiles(folder: folder, logger: logger)
        }
        func bind(
            _ kind: ListenerKind, at port: SandboxPort, hasTLS: Bool = true,
            makeHandler: @escaping @Sendable (_ connection: Int, Logger) -> any ChannelHandler
        ) async throws {
            let listener = try await SocketListener.bind(
                kind, port: addresses[port].port, tls: hasTLS ? credentials.serverTLS(for: kind) : nil,
                configuration: configuration, state: state, group: group, logger: logger, makeHandler: makeHandler)
            listeners.append(listener)
            addresses.ports[port] = listener.address.port
        }
        func bindHTTP2(_ kind: ListenerKind, at port: SandboxPort) async throws {
            try await bind(kind, at: port) { number, logger in
                SandboxHTTP2Handshake(
                    kind, connection: number, keys: keys, configuration: configuration, state: state, logger: logger)
            }
        }
        try await bind(.binary, at: .binary) { number, logger in
            BinaryGatewayHandler(connection: number, configuration: configuration, state: state, logger: logger)
        }
        try await bind(.feedback, at: .feedback) { _, logger in
            FeedbackHandler(state: state, logger: logger)
        }
        try await bindHTTP2(.http2, at: .http2)
        try await bindHTTP2(.channels, at: .channels)
        func serve<Context: RequestContext>(
            _ router: sending Router<Context>, _ server: HTTPServerBuilder, at port: SandboxPort
        ) async throws where Context.Source == ApplicationRequestContextSource {
            let listener = try await HTTPListener.start(
                router, server: server, port: addresses[port].port, flag: "--\(port.rawValue)-port",
                configuration: configuration, group: group, logger: logger)
            servers.append(listener)
            addresses.ports[port] = listener.address.port
        }
        let sockets = PushSockets()
        try await serve(
            PushService(host: configuration.host, state: state, sockets: sockets, logger: logger).router(),
            PushService.server(tls: credentials.serverTLS()), at: .webPush)
        try await serve(
            FCMService(state: state, randomBytes: SymmetricKey.randomBytes, logger: logger).router(),
            PushService.server(tls: credentials.serverTLS()), at: .fcm)
        let account = try await credentials.serviceAccount(fcm: addresses[.fcm])
        try state.withLock { $0.accessTokens = try AccessTokens(account) }
        let api = ControlAPI(
            state: state, configuration: configuration, credentials: credentials,
            pushOrigin: addresses[.webPush].pushOrigin, randomBytes: SymmetricKey.randomBytes)
        let pushes = PushSocket(
            state: state, sockets: sockets, origin: addresses[.webPush].pushOrigin,
            helloTimeout: configuration.handshakeTimeout, logger: logger)
        let hosts = ControlGuard(host: configuration.host, allowed: configuration.allowedHosts)
        let server = HTTPServerBuilder { responder in
            ControlChannel(http: HTTP1Channel(responder: responder), hosts: hosts, pushes: pushes)
        }
        try await serve(api.router(), server, at: .control)
        let routes = ProxyRoutes(addresses)
        try await bind(.proxy, at: .proxy, hasTLS: false) { number, logger in
            ConnectHandler(
                connection: number, routes: routes, configuration: configuration, state: state, logger: logger)
        }
        var metadata: Logger.Metadata = ["topic": "\(credentials.topic)", "directory": "\(credentials.directory)"]
        for port in SandboxPort.allCases { metadata[port.rawValue] = "\(addresses[port])" }
        logger.info("Sandbox started", metadata: metadata)
        return addresses
    }
}

extension SandboxConfiguration {
    /// Returns the credentials. Creates or renews them first if needed.
    package func credentials(logger: Logger) async throws -> SandboxCredentials {
        try await SandboxCredentials.prepare(directory: directory, topic: topic, host: host, logger: logger, now: now())
    }
}

extension SandboxCredentials {
    /// Writes the service account of an FCM listener at this address, unless there is one already.
    package func prepareServiceAccount(fcm: SandboxAddress) async throws {
        _ = try await serviceAccount(fcm: fcm, keepsFound: true)
    }

    fileprivate func serviceAccount(
        fcm: SandboxAddress, keepsFound: Bool = false
    ) async throws -> ServiceAccount {
        try await serviceAccount(tokenURL: fcm.pushOrigin + FCMService.tokenPath, keepsFound: keepsFound)
    }
}

extension SymmetricKey {
    /// Returns `count` random bytes from the system's generator.
    static func randomBytes(_ count: Int) -> [UInt8] {
        SymmetricKey(size: SymmetricKeySize(bitCount: count * 8)).withUnsafeBytes { Array($0) }
    }
}
