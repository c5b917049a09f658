import Crypto
import Foundation
import Hummingbird
import HummingbirdCore
package import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle

/// The local gateway: plays Apple's HTTP/2 provider API, its legacy binary service and its feedback service, and a push
/// service of browsers, and shows what came.
///
/// ``start()`` listens on all ports, so that a taken one is an error before anything else runs; ``run()`` serves until
/// it is told to stop. Once stopped it cannot be started again.
package actor Sandbox: Service {
    private let configuration: SandboxConfiguration
    private let logger: Logger
    let state: SharedState
    private var listeners: [TLSListener] = []
    private var control: HTTPListener?
    private var webPush: HTTPListener?
    private var hasStarted = false

    package init(configuration: SandboxConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        state = SharedState(configuration)
    }

    /// Makes the credentials if need be and listens on all ports.
    /// - Throws: ``SandboxError``, which says what to do; nothing listens then.
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

    /// Serves until a graceful shutdown or cancellation, then closes everything. Starts first if nothing has.
    package func run() async throws {
        if !hasStarted { _ = try await start() }
        guard let control, let webPush else { return }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                do { try await gracefulShutdown() } catch is CancellationError {}
            }
            group.addTask { try await control.waitUntilEnded() }
            group.addTask { try await webPush.waitUntilEnded() }
            let first = await group.nextResult()
            await stop()
            group.cancelAll()
            // After the order to stop an end is no failure.
            while await group.nextResult() != nil {}
            try first?.get()
        }
        logger.info("Sandbox stopped")
    }

    /// Closes all listeners and connections; takes two seconds at most. For those who start without ``run()``.
    package func stop() async {
        let listeners = self.listeners
        let servers = [control, webPush].compactMap(\.self)
        self.listeners = []
        control = nil
        webPush = nil
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
        func bind(_ kind: ListenerKind, port: Int) async throws -> SandboxAddress {
            let listener = try await TLSListener.bind(
                kind, port: port, tls: credentials.serverTLS(for: kind), configuration: configuration, state: state,
                group: group, logger: logger
            ) { number, logger in
                switch kind {
                case .binary:
                    BinaryGatewayHandler(
                        connection: number, configuration: configuration, state: state, logger: logger)
                case .feedback:
                    FeedbackHandler(state: state, logger: logger)
                case .http2:
                    SandboxHTTP2Handshake(
                        connection: number, keys: keys, configuration: configuration, state: state, logger: logger)
                }
            }
            listeners.append(listener)
            return listener.address
        }
        let binary = try await bind(.binary, port: configuration.binaryPort)
        let feedback = try await bind(.feedback, port: configuration.feedbackPort)
        let http2 = try await bind(.http2, port: configuration.http2Port)
        func serve<Context: RequestContext>(
            _ router: sending Router<Context>, _ server: HTTPServerBuilder, port: Int, flag: String
        ) async throws -> HTTPListener where Context.Source == ApplicationRequestContextSource {
            try await HTTPListener.start(
                router, server: server, host: configuration.host, port: port, flag: flag,
                connectionLimit: configuration.connectionLimit, group: group, logger: logger)
        }
        let sockets = PushSockets()
        let webPush = try await serve(
            PushService(host: configuration.host, state: state, sockets: sockets, logger: logger).router(),
            PushService.server(tls: credentials.serverTLS()), port: configuration.webPushPort, flag: "--webpush-port")
        self.webPush = webPush
        let api = ControlAPI(
            state: state, configuration: configuration, pushOrigin: webPush.address.pushOrigin,
            randomBytes: SymmetricKey.randomBytes)
        let pushes = PushSocket(
            state: state, sockets: sockets, origin: webPush.address.pushOrigin,
            helloTimeout: configuration.handshakeTimeout, logger: logger)
        let hosts = ControlGuard(host: configuration.host, allowed: configuration.allowedHosts)
        let server = HTTPServerBuilder { responder in
            ControlChannel(http: HTTP1Channel(responder: responder), hosts: hosts, pushes: pushes)
        }
        let control = try await serve(api.router(), server, port: configuration.controlPort, flag: "--control-port")
        self.control = control
        logger.info(
            "Sandbox started",
            metadata: [
                "binary": "\(binary)", "feedback": "\(feedback)", "http2": "\(http2)",
                "control": "\(control.address)", "webpush": "\(webPush.address)", "topic": "\(credentials.topic)",
                "directory": "\(credentials.directory)",
            ])
        return SandboxAddresses(
            binary: binary, feedback: feedback, http2: http2, control: control.address, webPush: webPush.address)
    }
}

extension SandboxConfiguration {
    /// Makes sure that the credentials exist, and says where they are.
    package func credentials(logger: Logger) async throws -> SandboxCredentials {
        try await SandboxCredentials.prepare(directory: directory, topic: topic, host: host, logger: logger, now: now())
    }
}

extension SymmetricKey {
    /// So many random bytes of the system.
    static func randomBytes(_ count: Int) -> [UInt8] {
        SymmetricKey(size: SymmetricKeySize(bitCount: count * 8)).withUnsafeBytes { Array($0) }
    }
}

/// Why the sandbox does not start; the text says what to do about it.
package enum SandboxError: Error, Sendable, CustomStringConvertible {
    /// Somebody else listens on the port; `flag` chooses another.
    case portTaken(host: String, port: Int, flag: String)
    /// The port or the address is not to be had; `reason` is the system's.
    case cannotListen(host: String, port: Int, flag: String, reason: String)
    /// A file or folder of the credentials cannot be read or written.
    case directory(path: String, reason: String)
    /// Another process has been making the credentials for too long.
    case directoryBusy(path: String)
    case alreadyStarted

    package var description: String {
        switch self {
        case .portTaken(let host, let port, let flag):
            "port \(port) on \(host) is taken by another process; choose another with \(flag) (0 takes any free one)"
        case .cannotListen(let host, let port, let flag, let reason):
            "cannot listen on \(host) port \(port): \(reason); the port is chosen with \(flag), the address with --host"
        case .directory(let path, let reason):
            "the sandbox's directory cannot be used: \(path): \(reason); choose another with --directory"
        case .directoryBusy(let path):
            "another process holds the lock on the sandbox's directory \(path); end it, or choose another with --directory"
        case .alreadyStarted:
            "the sandbox has been started before; make a new one"
        }
    }
}
