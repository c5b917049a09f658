import Synchronization

/// A monotonic clock that only the test advances.
package final class TestClock: Clock {
    package struct Instant: InstantProtocol {
        package var offset: Duration

        package init(offset: Duration) {
            self.offset = offset
        }

        package func advanced(by duration: Duration) -> Instant { Instant(offset: offset + duration) }
        package func duration(to other: Instant) -> Duration { other.offset - offset }
        package static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }
    }

    private struct State {
        var now = Instant(offset: .zero)
        var sleepers: [Int: (deadline: Instant, continuation: CheckedContinuation<Void, any Error>)] = [:]
        var nextID = 0
        /// Tests that wait for a task to sleep.
        var waiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    package init() {}

    package var now: Instant { state.withLock { $0.now } }
    package var minimumResolution: Duration { .zero }
    /// The number of tasks that sleep.
    package var sleepers: Int { state.withLock { $0.sleepers.count } }

    package func sleep(until deadline: Instant, tolerance: Duration? = nil) async throws {
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let (result, waiters): (Result<Void, any Error>?, [CheckedContinuation<Void, Never>]) =
                    state.withLock { state in
                        if Task.isCancelled { return (.failure(CancellationError()), []) }
                        if deadline <= state.now { return (.success(()), []) }
                        state.sleepers[id] = (deadline, continuation)
                        defer { state.waiters = [] }
                        return (nil, state.waiters)
                    }
                if let result { continuation.resume(with: result) }
                for waiter in waiters { waiter.resume() }
            }
        } onCancel: {
            state.withLock { $0.sleepers.removeValue(forKey: id) }?.continuation.resume(throwing: CancellationError())
        }
    }

    /// Waits until a task sleeps. Then advances the time and wakes the tasks whose deadline has come.
    package func advanceSleepers(by duration: Duration) async {
        _ = await nextDeadline()
        advance(by: duration)
    }

    /// Waits until a task sleeps, and advances to the time at which the first one wakes.
    /// - Returns: The time that was skipped.
    @discardableResult
    package func advanceToNextWakeUp() async -> Duration {
        let skipped = now.duration(to: await nextDeadline())
        advance(by: skipped)
        return skipped
    }

    /// Advances the time and wakes the tasks whose deadline has come.
    package func advance(by duration: Duration) {
        let woken = state.withLock { state in
            state.now = state.now.advanced(by: duration)
            let due = state.sleepers.filter { $0.value.deadline <= state.now }
            for id in due.keys { state.sleepers[id] = nil }
            return due.values.map(\.continuation)
        }
        for continuation in woken { continuation.resume() }
    }

    /// Waits until a task sleeps, and returns the first time at which one wakes.
    private func nextDeadline() async -> Instant {
        while true {
            if let next = state.withLock({ state in state.sleepers.values.map(\.deadline).min() }) { return next }
            await withCheckedContinuation { continuation in
                let isSleeping = state.withLock { state in
                    if state.sleepers.isEmpty { state.waiters.append(continuation) }
                    return !state.sleepers.isEmpty
                }
                if isSleeping { continuation.resume() }
            }
        }
    }
}

/// A monotonic clock that each sleep advances at once.
package final class SteppingClock: Clock {
    package typealias Instant = TestClock.Instant

    private let slept = Mutex<[Duration]>([])

    package init() {}

    /// The sleeps so far.
    package var pauses: [Duration] { slept.withLock { $0 } }
    package var now: Instant { Instant(offset: pauses.reduce(.zero, +)) }
    package var minimumResolution: Duration { .zero }

    package func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let pause = max(now.duration(to: deadline), .zero)
        slept.withLock { $0.append(pause) }
    }
}
