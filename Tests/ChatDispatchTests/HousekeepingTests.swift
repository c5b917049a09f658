import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatDispatch

@Suite("Deletion by age", .timeLimit(.minutes(1)))
struct HousekeepingTests {
    @Test("It runs at each interval, continues after a failure, and waits for a day after the wall clock has jumped")
    func intervals() async throws {
        let timer = TestClock()
        let wall = WallClock(Timestamp(seconds: 1_800_000_000))
        let sweeps = Mutex(0)
        let service = Housekeeping(
            interval: .seconds(600), now: { wall.now }, clock: timer, isSynchronized: { false },
            evidence: { _ throws(ChatError) in ClockEvidence() },
            sweep: { () async throws(ChatError) in
                let count = sweeps.withLock { count in
                    count += 1
                    return count
                }
                if count == 1 { throw ChatError.unavailable(cause: "locked") }
                return ["messages": "1"]
            }, logger: .silent)
        /// Lets time pass. The wall clock moves by `jump`, or by the same time if `jump` is `nil`.
        func pass(_ duration: Duration, wall jump: Duration? = nil) async throws {
            try await eventually("it waits") { timer.sleepers == 1 }
            wall.advance(by: jump ?? duration)
            timer.advance(by: duration)
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await service.run() }
            try await pass(.seconds(599))
            try await pass(.seconds(1))
            try await eventually("the first") { sweeps.withLock { $0 } == 1 }
            try await pass(.seconds(600))
            try await eventually("the second, though the first failed") { sweeps.withLock { $0 } == 2 }
            // The wall clock jumps ahead by a year, and is corrected after that.
            try await pass(.seconds(600), wall: .seconds(365 * 86_400))
            try await pass(.seconds(600), wall: .seconds(1200 - 365 * 86_400))
            for _ in 1..<144 { try await pass(.seconds(600)) }
            try await eventually("it waits") { timer.sleepers == 1 }
            #expect(sweeps.withLock { $0 } == 2)
            // A day has passed since the last jump.
            try await pass(.seconds(600))
            try await eventually("the third") { sweeps.withLock { $0 } == 3 }
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
