package import ChatDomain
import ServiceLifecycle
import Synchronization

/// Detects dispatchers that make no progress although pushes are due and their gateway is connected.
///
/// A gateway that is down does not count as a stall: its pushes wait, and the relay keeps serving requests. The same is
/// true of an app that an operator has paused.
package final class DispatchWatch: Service {
    package struct App: Sendable {
        let name: AppName
        let progress: DispatchProgress
        let openConnections: @Sendable () -> Int
        let limit: Duration

        /// Describes an app to watch.
        /// - Parameter answerLimit: The longest time until the gateway responds, or until its silence counts as a
        ///   response.
        package init(
            name: AppName, progress: DispatchProgress, openConnections: @escaping @Sendable () -> Int,
            answerLimit: Duration
        ) {
            self.name = name
            self.progress = progress
            self.openConnections = openConnections
            // Longer than the longest pause of a circuit breaker.
            limit = answerLimit + .seconds(60)
        }
    }

    private static let interval = Duration.seconds(10)

    /// The apps that are running now.
    private let apps: @Sendable () -> [App]
    private let metrics: any RelayMetrics
    private let stalls = Mutex<[AppName: Stall]>([:])

    package init(apps: @escaping @Sendable () -> [App], metrics: any RelayMetrics) {
        self.apps = apps
        self.metrics = metrics
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            let start = ContinuousClock.now
            while (try? await Task.sleep(for: Self.interval)) != nil {
                await self.check(at: ContinuousClock.now - start)
            }
        }
    }

    /// Checks all dispatchers once. Does nothing if the queue cannot be read.
    /// - Parameter now: The time since any fixed moment.
    func check(at now: Duration) async {
        guard let depths = try? await metrics.queueDepths() else { return }
        for app in apps() {
            let isDue = depths.contains { $0.app == app.name && $0.due > 0 && $0.pause == nil }
            let mustMove = isDue && app.openConnections() > 0
            stalls.withLock { $0[app.name, default: Stall()].observe(app.progress.steps, mustMove: mustMove, at: now) }
        }
    }

    /// The dispatchers that have stalled for at least their limit, and for how long.
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

/// Measures the time for which a counter has not changed although it should have.
struct Stall: Sendable {
    private var count: UInt64?
    private var since = Duration.zero
    private(set) var time = Duration.zero

    mutating func observe(_ count: UInt64, mustMove: Bool, at now: Duration) {
        if !mustMove || count != self.count { since = now }
        self.count = count
        time = now - since
    }
}
