import ChatDomain
import Logging
import Synchronization
import Testing

@testable import ChatDispatch

@Suite("Deletion by age", .timeLimit(.minutes(1)))
struct HousekeepingTests {
    @Test("It runs at each interval, continues after a failure, and waits for a day after the wall clock has jumped")
    func intervals() async throws {
        let timer = ManualClock()
        let wall = Mutex(Timestamp(seconds: 1_800_000_000))
        let sweeps = Mutex(0)
        let service = Housekeeping(
            interval: .seconds(600), now: { wall.withLock { $0 } }, clock: timer, isSynchronized: { false },
            evidence: { _ throws(ChatError) in ClockEvidence() },
            sweep: { () async throws(ChatError) in
                let count = sweeps.withLock { count in
                    count += 1
                    return count
                }
                if count == 1 { throw ChatError.unavailable(cause: "locked") }
                return ["messages": "1"]
            }, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        /// Lets time pass. The wall clock moves by `jump`, or by the same time if `jump` is `nil`.
        func pass(_ duration: Duration, wall jump: Duration? = nil) async {
            await eventually("it waits") { timer.sleepers == 1 }
            wall.withLock { $0 = $0 + (jump ?? duration) }
            timer.advance(by: duration)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await service.run() }
            await pass(.seconds(599))
            await pass(.seconds(1))
            await eventually("the first") { sweeps.withLock { $0 } == 1 }
            await pass(.seconds(600))
            await eventually("the second, though the first failed") { sweeps.withLock { $0 } == 2 }
            // The wall clock jumps ahead by a year, and is corrected after that.
            await pass(.seconds(600), wall: .seconds(365 * 86_400))
            await pass(.seconds(600), wall: .seconds(1200 - 365 * 86_400))
            for _ in 1..<144 { await pass(.seconds(600)) }
            await eventually("it waits") { timer.sleepers == 1 }
            #expect(sweeps.withLock { $0 } == 2)
            // A day has passed since the last jump.
            await pass(.seconds(600))
            await eventually("the third") { sweeps.withLock { $0 } == 3 }
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test("A wall clock that jumps delays deletion by age; a steady one does not")
    func steadyClock() {
        var clock = SteadyClock(wall: Timestamp(seconds: 0), elapsed: .zero)
        // The wall clock and the elapsed time, in seconds, at each check.
        let looks: [(Int64, Int64)] = [
            (600, 600), (1300, 1200), (400_000_000, 1800), (400_000_600, 2400), (3000, 3000), (90_000, 90_000),
        ]
        let steady = looks.map { wall, elapsed in
            clock.isSteady(wall: Timestamp(seconds: wall), elapsed: .seconds(elapsed))
        }
        #expect(steady == [true, true, false, false, false, true])
    }
}

/// A clock that stands still until a test advances it.
final class ManualClock: Clock {
    struct Instant: InstantProtocol {
        var elapsed: Duration

        func advanced(by duration: Duration) -> Instant { Instant(elapsed: elapsed + duration) }
        func duration(to other: Instant) -> Duration { other.elapsed - elapsed }
        static func < (left: Instant, right: Instant) -> Bool { left.elapsed < right.elapsed }
    }

    private struct State {
        var now = Instant(elapsed: .zero)
        var waiting: [(deadline: Instant, end: AsyncStream<Void>.Continuation)] = []
    }

    private let state = Mutex(State())

    var now: Instant { state.withLock { $0.now } }
    var minimumResolution: Duration { .zero }
    /// The number of tasks that sleep.
    var sleepers: Int { state.withLock { $0.waiting.count } }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let (stream, end) = AsyncStream.makeStream(of: Void.self)
        state.withLock { state in
            if deadline <= state.now { end.finish() } else { state.waiting.append((deadline, end)) }
        }
        // The stream also ends when the task is cancelled.
        for await _ in stream {}
        try Task.checkCancellation()
    }

    func advance(by duration: Duration) {
        let due = state.withLock { state in
            state.now = state.now.advanced(by: duration)
            let due = state.waiting.filter { $0.deadline <= state.now }
            state.waiting.removeAll { $0.deadline <= state.now }
            return due
        }
        for sleeper in due { sleeper.end.finish() }
    }
}
