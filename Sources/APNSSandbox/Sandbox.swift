import Crypto
import Foundation
package import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle

/// The local gateway: plays Apple's HTTP/2 provider API, its legacy binary service and its feedback service, and shows
/// what came.
///
/// ``start()`` listens on all ports, so that a taken one is an error before anything else runs; ``run()`` serves until
/// it is told to stop. Once stopped it cannot be started again.
package actor Sandbox: Service {
    private let configuration: SandboxConfiguration
    private let logger: Logger
    let world: SandboxWorld
    private var listeners: [TLSListener] = []
    private var control: ControlServer?
    private var hasStarted = false

    package init(configuration: SandboxConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        let inbox = Inbox(limit: configuration.inboxLimit, byteLimit: configuration.inboxByteLimit)
        world = SandboxWorld(
            SandboxState(policy: configuration.policy, inbox: inbox), now: configuration.now)
    }

    /// How long TLS may take to say farewell when the sandbox stops or closes a connection.
    private static let farewell = Duration.seconds(1)

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

    /// Serves until a graceful shutdown or cancellation, then closes everything. Starts first if nobody has.
    package func run() async throws {
        if !hasStarted { _ = try await start() }
        guard let control else { return }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                do { try await gracefulShutdown() } catch is CancellationError {}
            }
            group.addTask { try await control.waitUntilEnded() }
            let first = await group.nextResult()
            await stop()
            group.cancelAll()
            // What ends after the order to stop is no failure any more.
            while await group.nextResult() != nil {}
            try first?.get()
        }
        logger.info("Sandbox stopped")
    }

    /// Closes all listeners and connections; takes two seconds at most. For those who start without ``run()``.
    package func stop() async {
        let listeners = self.listeners
        let control = self.control
        self.listeners = []
        self.control = nil
        await withDiscardingTaskGroup { group in
            for listener in listeners { group.addTask { await listener.close() } }
            if let control { group.addTask { await control.stop() } }
        }
    }

    private func listen() async throws -> SandboxAddresses {
        let credentials = try await configuration.credentials(logger: logger)
        let tls = try credentials.serverTLS(for: .binary, shutdownTimeout: Self.farewell)
        let group = MultiThreadedEventLoopGroup.singleton
        let world = self.world
        let limits = configuration.parserLimits
        let linger = TimeAmount(configuration.linger)
        let binary = try await TLSListener.bind(
            .binary, host: configuration.host, port: configuration.binaryPort, flag: "--binary-port", tls: tls,
            configuration: configuration, world: world, group: group, logger: logger
        ) { number, logger in
            BinaryGatewayHandler(connection: number, limits: limits, linger: linger, world: world, logger: logger)
        }
        listeners.append(binary)
        let feedback = try await TLSListener.bind(
            .feedback, host: configuration.host, port: configuration.feedbackPort, flag: "--feedback-port", tls: tls,
            configuration: configuration, world: world, group: group, logger: logger
        ) { _, logger in
            FeedbackHandler(world: world, logger: logger)
        }
        listeners.append(feedback)
        let policy = try configuration.providerPolicy(credentials)
        let http2 = try await TLSListener.bind(
            .http2, host: configuration.host, port: configuration.http2Port, flag: "--http2-port",
            tls: try credentials.serverTLS(for: .http2, shutdownTimeout: Self.farewell),
            configuration: configuration, world: world, group: group, logger: logger
        ) { number, logger in
            ProviderHandshake(connection: number, policy: policy, world: world, logger: logger)
        }
        listeners.append(http2)
        let api = ControlAPI(world: world, configuration: configuration) { count in
            SymmetricKey(size: SymmetricKeySize(bitCount: count * 8)).withUnsafeBytes { Array($0) }
        }
        let control = try await ControlServer.start(
            api, host: configuration.host, port: configuration.controlPort, group: group, logger: logger)
        self.control = control
        logger.info(
            "Sandbox started",
            metadata: [
                "binary": "\(binary.address)", "feedback": "\(feedback.address)", "http2": "\(http2.address)",
                "control": "\(control.address)", "topic": "\(credentials.topic)",
                "directory": "\(credentials.directory)",
            ])
        return SandboxAddresses(
            binary: binary.address, feedback: feedback.address, http2: http2.address, control: control.address)
    }
}

extension SandboxConfiguration {
    /// Makes sure that the credentials exist, and says where they are.
    package func credentials(logger: Logger) async throws -> SandboxCredentials {
        try await SandboxCredentials.prepare(directory: directory, topic: topic, host: host, logger: logger, now: now())
    }
}
