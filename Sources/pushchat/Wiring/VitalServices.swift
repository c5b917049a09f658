import ChatHTTP
import Logging
import ServiceLifecycle
import Synchronization
import UnixSignals

/// The services of the relay. If one fails, or ends before anything stops it, all others stop gracefully.
///
/// A relay that lacks a part would look alive, and no supervisor would restart it.
final class VitalServices: Sendable {
    /// The time in which services may finish their work before they are cancelled.
    private static let shutdownLimit = Duration.seconds(20)
    /// The time that cancelled services have before the process ends anyway. The queue is on disk. TLS may need five
    /// seconds to close a connection to a gateway that does not respond.
    private static let cancellationLimit = Duration.seconds(8)

    private let group: ServiceGroup
    private let logger: Logger
    private let firstFailure = Mutex<Failure?>(nil)

    /// - Parameter signals: The signals that stop the services.
    init(signals: [UnixSignal] = [.sigterm, .sigint], logger: Logger) {
        var configuration = ServiceGroupConfiguration(
            services: [any Service](), gracefulShutdownSignals: signals, logger: logger)
        configuration.maximumGracefulShutdownDuration = Self.shutdownLimit
        configuration.maximumCancellationDuration = Self.cancellationLimit
        group = ServiceGroup(configuration: configuration)
        self.logger = logger
    }

    /// Runs the services until they are stopped. They start in this order and stop in reverse. Must be called once.
    ///
    /// - Throws: ``Failure`` with the first failure of a service, once all services have ended.
    func run(_ services: [any Service]) async throws {
        for service in services { await group.addServiceUnlessShutdown(vital(service)) }
        do {
            try await group.run()
        } catch {
            throw firstFailure.withLock { $0 } ?? error
        }
        if let failure = firstFailure.withLock({ $0 }) { throw failure }
    }

    /// Returns the service as one whose failure stops all others.
    ///
    /// - Parameter app: The app that the service works for. `nil` for all apps.
    func vital(_ service: any Service, app: String? = nil) -> VitalService {
        VitalService(
            service: service, description: "\(type(of: service))" + (app.map { " of app \($0)" } ?? ""),
            failed: { await self.failed($0, $1) })
    }

    private func failed(_ service: String, _ error: any Error) async {
        var failure = Failure("the relay has stopped, because \(service) failed")
        if error is ChatServer.CannotListen {
            failure = Failure("\(error)")
        } else {
            // The others may need a while to stop, or may not end at all. So the cause is logged now.
            logger.critical(
                "a service failed, the relay stops", metadata: ["service": "\(service)", "error": "\(error)"])
        }
        firstFailure.withLock { $0 = $0 ?? failure }
        await group.triggerGracefulShutdown()
    }
}

/// A service of ``VitalServices``. The log shows it by its type and app.
struct VitalService: Service, CustomStringConvertible {
    fileprivate let service: any Service
    let description: String
    fileprivate let failed: @Sendable (_ service: String, any Error) async -> Void

    /// Runs the service. Never throws, and ends only when the services stop, so that its failure cancels nothing.
    func run() async {
        do {
            try await service.run()
            if Task.isShuttingDownGracefully || Task.isCancelled { return }
            throw Failure("it has ended unexpectedly")
        } catch is CancellationError where Task.isCancelled {
        } catch {
            await failed(description, error)
            try? await gracefulShutdown()
        }
    }
}

/// Services that stop at the same moment, without waiting for each other. For example, no more pushes are leased while
/// requests still get their responses.
struct ConcurrentServices: Service {
    let services: [VitalService]

    func run() async {
        await withDiscardingTaskGroup { group in
            for service in services { group.addTask { await service.run() } }
        }
    }
}
