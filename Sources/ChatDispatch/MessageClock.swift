package import ChatDomain
package import Logging
import ServiceLifecycle

/// Performs the work of changed and scheduled messages when it is due. The store keeps the work and its progress, so a crash loses
/// nothing, and any relay can perform the next step.
package final class MessageClock: Service {
    /// The interval of checks for work of other relays.
    private static let interval = Duration.seconds(1)
    /// The shortest time until the next check, so that work that is due but cannot be done now causes no busy loop.
    private static let shortestInterval = Duration.milliseconds(50)

    private let changes: any MessageChanges
    private let now: TimeSource
    private let logger: Logger

    package init(changes: any MessageChanges, now: @escaping TimeSource = Timestamp.now, logger: Logger) {
        self.changes = changes
        self.now = now
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            let (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
            self.changes.announceWork(to: signal)
            // An earlier process may have left work.
            signal.yield()
            var (timer, hasFailed) = (Task<Void, any Error>?.none, false)
            for await _ in signals {
                do throws(ChatError) {
                    while !Task.isCancelled, try await self.changes.performDue() {}
                    hasFailed = false
                } catch {
                    self.logger.log(
                        level: hasFailed ? .debug : .warning,
                        "a changed or scheduled message has work that failed and will be retried",
                        metadata: ["error": "\(error)"])
                    hasFailed = true
                }
                timer?.cancel()
                let wait = hasFailed ? Self.interval : await self.wait()
                timer = Task {
                    try await Task.sleep(for: wait)
                    signal.yield()
                }
            }
            timer?.cancel()
        }
    }

    /// The time until the next check without a signal.
    func wait() async -> Duration {
        guard let due = try? await changes.nextDue() else { return Self.interval }
        let wait = Duration.milliseconds(due.milliseconds - now().milliseconds)
        return min(Self.interval, max(Self.shortestInterval, wait))
    }
}
