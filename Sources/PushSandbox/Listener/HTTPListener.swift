import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import ServiceLifecycle

/// A listener whose requests a router handles. The control API and the push service for browsers each have one.
struct HTTPListener: Sendable {
    let address: SandboxAddress
    /// The task that serves. It ends on ``stop()``, or because the server failed.
    private let serving: Task<Void, any Error>
    private let group: ServiceGroup

    /// Listens, and serves until ``stop()``.
    /// - Parameter flag: The option that chooses the port.
    static func start<Context: RequestContext>(
        _ router: sending Router<Context>, server: HTTPServerBuilder, port: Int, flag: String,
        configuration: SandboxConfiguration, group: any EventLoopGroup, logger: Logger
    ) async throws -> HTTPListener where Context.Source == ApplicationRequestContextSource {
        let host = configuration.host
        var quiet = logger
        // The sandbox logs its addresses itself.
        quiet.logLevel = max(logger.logLevel, .warning)
        let (ports, bound) = AsyncThrowingStream<Int, any Error>.makeStream()
        let application = Application(
            router: router, server: server,
            configuration: ApplicationConfiguration(
                address: .hostname(host, port: port), serverName: "pushchat-sandbox",
                availableConnectionsDelegate: MaximumAvailableConnections(
                    configuration.connectionLimit, logger: quiet)),
            onServerRunning: { channel in bound.yield(channel.localAddress?.port ?? port) },
            eventLoopGroupProvider: .shared(group),
            logger: quiet)
        // Hummingbird listens and serves in one call. A separate task makes the port known before serving ends.
        var services = ServiceGroupConfiguration(services: [application], logger: quiet)
        services.maximumGracefulShutdownDuration = configuration.shutdownLimit
        let stoppable = ServiceGroup(configuration: services)
        let serving = Task {
            do {
                try await stoppable.run()
                bound.finish()
            } catch {
                bound.finish(throwing: error)
                throw error
            }
        }
        let boundPort = try await SocketListener.bind(host: host, port: port, flag: flag) {
            try await ports.first { _ in true }
        }
        guard let boundPort else {
            serving.cancel()
            throw CancellationError()
        }
        return HTTPListener(address: SandboxAddress(host: host, port: boundPort), serving: serving, group: stoppable)
    }

    func waitUntilEnded() async throws {
        try await serving.value
    }

    func stop() async {
        await group.triggerGracefulShutdown()
        _ = await serving.result
    }
}
