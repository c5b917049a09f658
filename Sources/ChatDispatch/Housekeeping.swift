package import ChatDomain
package import Logging
import ServiceLifecycle

/// Deletes what is older than its retention, every so often.
package struct Housekeeping<Timer: Clock>: Service where Timer.Duration == Duration {
    private let interval: Duration
    private let clock: TimeSource
    private let timer: Timer
    private let sweep: @Sendable () async throws(ChatError) -> Logger.Metadata
    private let logger: Logger

    /// - Parameters:
    ///   - interval: also how long after the start the first sweep comes.
    ///   - timer: what the interval is measured with.
    ///   - sweep: deletes, and says for the log what.
    package init(
        interval: Duration = .seconds(600), clock: @escaping TimeSource = Timestamp.now,
        timer: Timer = ContinuousClock(), sweep: @escaping @Sendable () async throws(ChatError) -> Logger.Metadata,
        logger: Logger
    ) {
        self.interval = interval
        self.clock = clock
        self.timer = timer
        self.sweep = sweep
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            var steady = SteadyClock(wall: clock(), elapsed: .zero)
            let start = timer.now
            while true {
                do { try await timer.sleep(for: interval) } catch { return }
                guard steady.isSteady(wall: clock(), elapsed: start.duration(to: timer.now)) else {
                    logger.warning("the clock has jumped; nothing is deleted by age until it has settled")
                    continue
                }
                do throws(ChatError) {
                    let metadata = try await sweep()
                    if !metadata.isEmpty { logger.info("deleted by age", metadata: metadata) }
                } catch {
                    logger.error("old rows could not be deleted", metadata: ["error": "\(error)"])
                }
            }
        }
    }
}

/// Tells whether the wall clock kept pace with the one that only counts.
///
/// A wall clock that jumps ahead by years would make everything look old enough to be deleted. A jump is reported for
/// ``SteadyClock/settlingTime`` after it was seen, which is time for a time server or a person to set it right.
struct SteadyClock: Sendable {
    /// What counts as a jump.
    static let tolerance = Duration.seconds(3600)
    static let settlingTime = Duration.seconds(24 * 3600)

    private var wall: Timestamp
    private var elapsed: Duration
    private var jumpedAt: Duration?

    init(wall: Timestamp, elapsed: Duration) {
        self.wall = wall
        self.elapsed = elapsed
    }

    mutating func isSteady(wall now: Timestamp, elapsed: Duration) -> Bool {
        let drift = (now.milliseconds - wall.milliseconds) - (elapsed - self.elapsed).milliseconds
        if abs(drift) > Self.tolerance.milliseconds { jumpedAt = elapsed }
        wall = now
        self.elapsed = elapsed
        guard let jumpedAt else { return true }
        return elapsed - jumpedAt >= Self.settlingTime
    }
}
