import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatDispatch

@Suite("Loops that wait for work", .timeLimit(.minutes(1)))
final class WorkLoopTests: Sendable {
    private let timer = TestClock()
    private let wall = WallClock(Timestamp(seconds: 1_800_000_000))
    private let log = LogRecorder()
    private let rounds = Atomic(0)

    private func loop() -> WorkLoop { WorkLoop(now: wall.source, clock: timer) }

    /// Counts a round, and returns its number.
    @discardableResult
    private func countRound() -> Int { rounds.add(1, ordering: .relaxed).newValue }

    private var count: Int { rounds.load(ordering: .relaxed) }

    /// Runs `body` beside a loop, and then cancels the loop, which must end.
    private func beside(
        _ run: @escaping @Sendable () async -> Void, _ body: () async throws -> Void
    ) async throws {
        let running = Task(operation: run)
        defer { running.cancel() }
        try await body()
        running.cancel()
        await running.value
    }

    /// Waits until the loop waits after the given number of rounds.
    private func expectRounds(_ number: Int) async throws {
        try await eventually("round \(number) is over") { count == number && timer.sleepers == 1 }
    }

    @Test("The first round runs at once, the others at a signal or after the wait, and a cancelled loop ends")
    func waits() async throws {
        let loop = loop()
        try await beside {
            await loop.run {
                self.countRound()
                return .seconds(10)
            }
        } _: {
            try await expectRounds(1)
            timer.advance(by: .seconds(9))
            loop.signal.yield()
            try await expectRounds(2)
            // The signal has started a new wait.
            timer.advance(by: .seconds(9))
            #expect(timer.sleepers == 1)
            timer.advance(by: .seconds(1))
            try await expectRounds(3)
        }
        #expect(count == 3)
        try await eventually("the wait has ended") { timer.sleepers == 0 }
    }

    @Test("Signals during a round start one more round")
    func merged() async throws {
        let loop = loop()
        try await beside {
            await loop.run {
                guard self.countRound() == 1 else { return .seconds(10) }
                for _ in 1...5 { loop.signal.yield() }
                return nil
            }
        } _: {
            try await expectRounds(2)
            #expect(count == 2)
        }
    }

    @Test("A loop whose signal is finished ends")
    func finished() async {
        let loop = loop()
        await loop.run {
            countRound()
            loop.signal.finish()
            return .seconds(10)
        }
        #expect(count == 1)
    }

    @Test("After an error the loop pauses, and warns about the first of several errors")
    func errors() async throws {
        let loop = loop()
        let isBroken = Mutex(true)
        try await beside {
            await loop.run(every: .seconds(1), afterError: .seconds(5), failure: "work failed", self.log.logger) {
                () async throws(ChatError) in
                self.countRound()
                if isBroken.withLock({ $0 }) { throw ChatError.unavailable(cause: "locked") }
                return false
            }
        } _: {
            try await expectRounds(1)
            timer.advance(by: .seconds(4))
            #expect(timer.sleepers == 1)
            timer.advance(by: .seconds(1))
            try await expectRounds(2)
            isBroken.withLock { $0 = false }
            timer.advance(by: .seconds(5))
            try await expectRounds(3)
            isBroken.withLock { $0 = true }
            timer.advance(by: .seconds(1))
            try await expectRounds(4)
        }
        #expect(log.lines.map { String($0.prefix { $0 != " " }) } == ["warning", "debug", "warning"], "\(log.lines)")
    }

    @Test("A round repeats its step until nothing is due, and the next one is due with the next work")
    func steps() async throws {
        let loop = loop()
        let steps = Atomic(0)
        try await beside {
            await loop.run(
                every: .seconds(10), failure: "work failed", self.log.logger,
                step: { () async throws(ChatError) in
                    !steps.add(1, ordering: .relaxed).newValue.isMultiple(of: 3)
                },
                nextDue: { () async throws(ChatError) in
                    self.countRound()
                    return self.wall.now + .seconds(4)
                })
        } _: {
            try await expectRounds(1)
            #expect(steps.load(ordering: .relaxed) == 3)
            #expect(await timer.advanceToNextWakeUp() == .seconds(4))
            try await expectRounds(2)
            #expect(steps.load(ordering: .relaxed) == 6)
        }
    }

    @Test("The wait is never shorter than 50 ms, nor longer than the interval, even if the wall clock jumps")
    func clock() async throws {
        let loop = loop()
        #expect(loop.wait(until: wall.now + .seconds(3)) == .seconds(3))
        #expect(loop.wait(until: wall.now - .seconds(3)) == .milliseconds(50))
        #expect(loop.wait(until: Timestamp(milliseconds: .min)) == .milliseconds(50))
        #expect(loop.wait(until: Timestamp(milliseconds: .max)) > .seconds(1_000_000))
        let due = wall.now + .seconds(3)
        try await beside {
            await loop.run(
                every: .seconds(10), failure: "work failed", self.log.logger,
                step: { () async throws(ChatError) in false },
                nextDue: { () async throws(ChatError) in
                    self.countRound()
                    return due
                })
        } _: {
            try await expectRounds(1)
            // Back by a year.
            wall.advance(by: .seconds(-365 * 86_400))
            #expect(await timer.advanceToNextWakeUp() == .seconds(3))
            try await expectRounds(2)
            wall.advance(by: .seconds(2 * 365 * 86_400))
            #expect(await timer.advanceToNextWakeUp() == .seconds(10))
            try await expectRounds(3)
            #expect(await timer.advanceToNextWakeUp() == .milliseconds(50))
        }
    }
}
