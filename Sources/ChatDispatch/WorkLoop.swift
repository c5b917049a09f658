import ChatDomain
import Logging

/// Runs rounds of work, until its task is cancelled: at the start, at each signal, and when the next work is due.
///
/// The store keeps the work, so a round does not depend on the reason for which it runs.
struct WorkLoop: Sendable {
    /// The shortest time until the next round, so that work that is due but cannot be done now causes no busy loop.
    private static let shortestWait = Duration.milliseconds(50)

    /// Starts a round. Signals during a round start one more after it.
    let signal: AsyncStream<Void>.Continuation
    private let signals: AsyncStream<Void>
    private let now: TimeSource
    private let clock: any Clock<Duration>

    init(now: @escaping TimeSource, clock: any Clock<Duration> = ContinuousClock()) {
        (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.now = now
        self.clock = clock
    }

    /// - Parameter round: Returns the time until the next round. `nil` if only a signal starts it.
    func run(_ round: () async -> Duration?) async {
        // An earlier process may have left work.
        signal.yield()
        var timer: Task<Void, any Error>?
        for await _ in signals where !Task.isCancelled {
            timer?.cancel()
            timer = await round().map { wait in
                Task {
                    try await clock.sleep(for: wait)
                    signal.yield()
                }
            }
        }
        timer?.cancel()
    }

    /// Repeats a step in each round until nothing is due. The first of several errors is a warning in the log.
    ///
    /// - Parameters:
    ///   - interval: The longest time between rounds. Finds the work of other relays, and limits the delay after the
    ///     wall clock was set back.
    ///   - pause: The time until the next round after an error. By default the interval.
    ///   - failure: The log's message about an error.
    ///   - step: Returns whether something was due.
    func run(
        every interval: Duration, afterError pause: Duration? = nil, failure: Logger.Message, _ logger: Logger,
        step: () async throws(ChatError) -> Bool, nextDue: () async throws(ChatError) -> Timestamp? = { nil }
    ) async {
        var hasFailed = false
        await run {
            do throws(ChatError) {
                while !Task.isCancelled, try await step() {}
                let due = Task.isCancelled ? nil : try await nextDue()
                hasFailed = false
                return min(interval, due.map(wait) ?? interval)
            } catch {
                logger.log(level: hasFailed ? .debug : .warning, failure, metadata: ["error": "\(error)"])
                hasFailed = true
                return pause ?? interval
            }
        }
    }

    func wait(until due: Timestamp) -> Duration {
        max(Self.shortestWait, .milliseconds(due.milliseconds) - .milliseconds(now().milliseconds))
    }
}
