package import ChatDomain
import ServiceLifecycle
import Synchronization

/// Notices dispatchers that do not move though something is due and their gateway is connected.
///
/// A gateway that is down stops no dispatcher: pushes wait for it, and requests are served meanwhile.
package final class DispatchWatch: Service {
    /// A dispatcher that is watched.
    package struct App: Sendable {
        let name: AppName
        let progress: DispatchProgress
        let openConnections: @Sendable () -> Int
        let limit: Duration

        /// - Parameter answerLimit: how long the gateway may take for an answer, or for its silence to count as one.
        package init(
            name: AppName, progress: DispatchProgress, openConnections: @escaping @Sendable () -> Int,
            answerLimit: Duration
        ) {
            self.name = name
            self.progress = progress
            self.openConnections = openConnections
            // Above the longest pause of a circuit breaker, too.
            limit = answerLimit + .seconds(60)
        }
    }

    private static let interval = Duration.seconds(10)

    /// Those that run now.
    private let apps: @Sendable () -> [App]
    private let figures: any RelayFigures
    private let stalls = Mutex<[AppName: Stall]>([:])

    package init(apps: @escaping @Sendable () -> [App], figures: any RelayFigures) {
        self.apps = apps
        self.figures = figures
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            let start = ContinuousClock.now
            while (try? await Task.sleep(for: Self.interval)) != nil {
                await self.look(at: ContinuousClock.now - start)
            }
        }
    }

    /// One look, at a time since any fixed moment. If the queue cannot be read, nothing is learnt.
    func look(at now: Duration) async {
        guard let depths = try? await figures.queueDepths() else { return }
        for app in apps() {
            let isDue = depths.contains { $0.app == app.name && $0.due > 0 }
            let mustMove = isDue && app.openConnections() > 0
            stalls.withLock { $0[app.name, default: Stall()].saw(app.progress.count, mustMove: mustMove, at: now) }
        }
    }

    /// For how long each dispatcher has not moved, where that is too long.
    package var stalled: [(app: AppName, time: Duration)] {
        let apps = apps()
        return stalls.withLock { stalls in
            apps.compactMap { app in
                guard let time = stalls[app.name]?.time, time >= app.limit else { return nil }
                return (app.name, time)
            }
        }
    }
}

/// How long something has not moved that had to.
struct Stall: Sendable {
    private var count: UInt64?
    private var since = Duration.zero
    private(set) var time = Duration.zero

    mutating func saw(_ count: UInt64, mustMove: Bool, at now: Duration) {
        if !mustMove || count != self.count { since = now }
        self.count = count
        time = now - since
    }
}
