import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatDispatch

@Suite("The check of the clock before deletion by age", .timeLimit(.minutes(1)))
struct RetentionGateTests {
    private static let start = Timestamp(seconds: 1_800_000_000)
    private static let day = Duration.seconds(86_400)

    /// The reading of a relay that has run for `elapsed`, with a wall clock that has moved by the same time.
    private func reading(
        after elapsed: Duration, stored days: Int? = nil, server: Duration? = nil, isSynchronized: Bool = false
    ) -> RetentionGate.Reading {
        let wall = Self.start + elapsed
        return RetentionGate.Reading(
            wall: wall, elapsed: elapsed, isSynchronized: isSynchronized,
            evidence: ClockEvidence(
                newest: days.map { Self.start - Self.day * $0 }, server: server.map { wall + $0 }))
    }

    @Test("A clock far ahead of the stored times is doubted until the kernel confirms it or a day has passed")
    func ahead() {
        var gate = RetentionGate(wall: Self.start)
        let stored = Self.start - Self.day * 60
        #expect(gate.doubt(reading(after: .seconds(600), stored: 60)) == .ahead(of: stored))
        #expect(gate.doubt(reading(after: .seconds(1200), stored: 60, isSynchronized: true)) == nil)
        // The kernel no longer reports a synchronized clock after a program sets the clock.
        #expect(gate.doubt(reading(after: .seconds(1800), stored: 60)) == .ahead(of: stored))
        #expect(gate.doubt(reading(after: Self.day - .seconds(1), stored: 60)) == .ahead(of: stored))
        #expect(gate.doubt(reading(after: Self.day, stored: 60)) == nil)
    }

    @Test("A weekend without messages, an empty database and rows with future times cause no doubt")
    func plausible() {
        var gate = RetentionGate(wall: Self.start)
        for days in [nil, 1, 2, -60] {
            #expect(gate.doubt(reading(after: .seconds(600), stored: days)) == nil, "\(days ?? 0)")
        }
    }

    @Test("A clock that jumped is doubted for a day, unless the kernel confirms it")
    func jump() {
        var gate = RetentionGate(wall: Self.start)
        func reading(_ seconds: Int, jumped: Bool = true, isSynchronized: Bool = false) -> RetentionGate.Reading {
            var reading = self.reading(after: .seconds(seconds), isSynchronized: isSynchronized)
            if jumped { reading.wall = reading.wall + Self.day * 60 }
            return reading
        }
        #expect(gate.doubt(reading(600, jumped: false)) == nil)
        #expect(gate.doubt(reading(1200)) == .jumped)
        #expect(gate.doubt(reading(1800)) == .jumped)
        #expect(gate.doubt(reading(2400, isSynchronized: true)) == nil)
        #expect(gate.doubt(reading(3000)) == nil)
        #expect(gate.doubt(reading(3600, jumped: false)) == .jumped)
        #expect(gate.doubt(reading(3600 + 86_400, jumped: false)) == nil)
    }

    @Test("A clock that differs from the database server's is doubted until they agree or the kernel confirms it")
    func server() {
        var gate = RetentionGate(wall: Self.start)
        #expect(gate.doubt(reading(after: .seconds(600), server: .seconds(1800))) == nil)
        let late = reading(after: Self.day * 9, server: Self.day * -60)
        #expect(gate.doubt(late) == .differs(from: late.wall - Self.day * 60))
        #expect(gate.doubt(reading(after: Self.day * 9, server: .zero)) == nil)
        #expect(gate.doubt(reading(after: Self.day * 9, server: Self.day, isSynchronized: true)) == nil)
    }

    @Test("Deletion waits while the clock is in doubt, and looks for times that are at least a day old")
    func housekeeping() async throws {
        let timer = TestClock()
        let sweeps = Mutex(0)
        let limits = Mutex<[Timestamp]>([])
        let isSynchronized = Mutex(false)
        let wall = { @Sendable in Self.start + .seconds(timer.now.offset.components.seconds) }
        let service = Housekeeping(
            interval: .seconds(600), now: wall, clock: timer, isSynchronized: { isSynchronized.withLock { $0 } },
            evidence: { limit throws(ChatError) in
                limits.withLock { $0.append(limit) }
                return ClockEvidence(newest: Self.start - Self.day * 60)
            },
            sweep: { () async throws(ChatError) in
                sweeps.withLock { $0 += 1 }
                return [:]
            }, logger: .silent)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await service.run() }
            for look in 1...2 {
                try await eventually("it waits") { timer.sleepers == 1 }
                timer.advance(by: .seconds(600))
                try await eventually("it asked") { limits.withLock { $0.count } == look }
            }
            try await eventually("it waits") { timer.sleepers == 1 }
            #expect(sweeps.withLock { $0 } == 0)
            isSynchronized.withLock { $0 = true }
            timer.advance(by: .seconds(600))
            try await eventually("it deletes") { sweeps.withLock { $0 } == 1 }
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(limits.withLock { $0.first } == Self.start + .seconds(600) - Self.day)
    }
}
