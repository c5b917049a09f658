import APNSGateway
import ChatDispatch
import ChatDomain
import Logging
import ServiceLifecycle
import Synchronization

/// The configured apps at run time. A reload adds, changes and removes them.
///
/// An app that is removed, or that needs another gateway, leases no more pushes, waits for its outcomes, and closes. No
/// caller waits for that. Another app of the same name may run at the same time, because each push is leased to only
/// one of the two.
final class RunningApps: Service {
    private struct Running: Sendable {
        let app: AppRuntime
        let services: ServiceGroup
    }

    private let stores: Stores
    private let connectionIDs: ConnectionIDs
    private let services: VitalServices
    private let showsTokens: Bool
    private let logger: Logger
    private let running = Mutex<[Running]>([])
    /// Apps that have not started yet and may have pushes in doubt from an earlier process.
    private let inDoubt: Mutex<Set<AppName>>
    private let started = AsyncStream.makeStream(of: Running.self)

    /// - Parameters:
    ///   - services: The relay's services, of which the apps' become a part.
    ///   - inDoubt: Apps that may have pushes in doubt from an earlier process.
    ///   - showsTokens: Whether the log may contain whole device tokens.
    init(
        stores: Stores, connectionIDs: ConnectionIDs, services: VitalServices, inDoubt: Set<AppName>,
        showsTokens: Bool, logger: Logger
    ) {
        self.stores = stores
        self.connectionIDs = connectionIDs
        self.services = services
        self.inDoubt = Mutex(inDoubt)
        self.showsTokens = showsTokens
        self.logger = logger
    }

    /// The apps in the order of the configuration.
    var all: [AppRuntime] { running.withLock { $0.map(\.app) } }

    /// The topics in the apps' certificates.
    var topics: [AppName: String] {
        all.reduce(into: [:]) { topics, app in topics[app.name] = app.certificateTopic }
    }

    /// Replaces the running apps with these. If ``run()`` has not been called yet, they start when it is called. Must
    /// not be called twice at the same time.
    func update(_ apps: [(configuration: AppConfiguration, credentials: AppCredentials)]) async {
        var earlier = running.withLock { $0 }
        let kept = apps.map { app in
            earlier.firstIndex { $0.app.canBecome(app.configuration) }.map { earlier.remove(at: $0) }
        }
        let all = zip(kept, apps).map { kept, app -> Running in
            kept?.app.reconfigure(app.configuration, credentials: app.credentials)
            return kept ?? start(app.configuration, app.credentials)
        }
        running.withLock { $0 = all }
        // Stop the other apps only now, so that their end counts as a removal.
        for running in earlier { await running.services.triggerGracefulShutdown() }
    }

    private func start(_ configuration: AppConfiguration, _ credentials: AppCredentials) -> Running {
        let app = AppRuntime(
            configuration, credentials: credentials, stores: stores, connectionIDs: connectionIDs, logger: logger)
        let startsInDoubt = inDoubt.withLock { $0.remove(app.name) != nil }
        let services = app.services(startsInDoubt: startsInDoubt, showsTokens: showsTokens)
            .map { self.services.vital($0, app: app.name.text) }
        let silent = Logger(label: "app") { _ in SwiftLogNoOpLogHandler() }
        let running = Running(
            app: app, services: ServiceGroup(services: [ConcurrentServices(services: services)], logger: silent))
        started.continuation.yield(running)
        return running
    }

    func run() async throws {
        try await withThrowingDiscardingTaskGroup { group in
            // Finish the stream also if an app's services have failed, which cancels this task.
            group.addTask {
                try? await gracefulShutdown()
                self.started.continuation.finish()
            }
            for await running in started.stream {
                group.addTask {
                    // The shutdown of the process ends these services as well.
                    try await running.services.run()
                    await self.ended(running.app.name)
                }
            }
        }
    }

    private func ended(_ app: AppName) async {
        guard !Task.isShuttingDownGracefully, !Task.isCancelled, !all.contains(where: { $0.name == app }) else {
            return
        }
        let depth = try? await stores.metrics.queueDepths().first { $0.app == app }
        logger.notice(
            "app removed: its connections are closed; its pushes wait until it is configured again",
            metadata: ["app": "\(app)", "waiting": "\((depth?.due ?? 0) + (depth?.delayed ?? 0))"])
    }
}
