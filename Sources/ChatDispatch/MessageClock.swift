package import ChatDomain
package import Logging
import ServiceLifecycle

/// Performs the work of changed and scheduled messages when it is due. The store keeps the work and its progress, so a crash loses
/// nothing, and any relay can perform the next step.
package final class MessageClock: Service {
    /// The interval of checks for work of other relays.
    private static let interval = Duration.seconds(1)

    private let changes: any MessageChanges
    private let now: TimeSource
    private let logger: Logger

    package init(changes: any MessageChanges, now: @escaping TimeSource = Timestamp.now, logger: Logger) {
        self.changes = changes
        self.now = now
        self.logger = logger
    }

    package func run() async throws {
        let loop = WorkLoop(now: now)
        changes.announceWork(to: loop.signal)
        await cancelWhenGracefulShutdown {
            await loop.run(
                every: Self.interval,
                failure: "a changed or scheduled message has work that failed and will be retried",
                self.logger, step: self.changes.performDue, nextDue: self.changes.nextDue)
        }
    }
}
