import NIOCore
import Synchronization

@testable import APNSGateway

/// A monotonic clock that stands still until a test advances it.
final class ManualClock: Sendable {
    private struct Sleeper {
        let id: Int
        let until: NIODeadline
        let continuation: CheckedContinuation<Void, any Error>
    }

    private struct State {
        var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        var sleepers: [Sleeper] = []
        var lastID = 0
        var watchers: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    var now: NIODeadline { state.withLock { $0.now } }
    var clock: MonotonicClock { MonotonicClock(now: { self.now }, sleep: { try await self.sleep(until: $0) }) }

    func advance(by amount: TimeAmount) {
        let due = state.withLock { state in
            state.now = state.now + amount
            let due = state.sleepers.filter { $0.until <= state.now }
            state.sleepers.removeAll { $0.until <= state.now }
            return due
        }
        for sleeper in due { sleeper.continuation.resume() }
    }

    /// Waits until a task sleeps, and advances to the time at which the first one wakes.
    /// - Returns: The time that was skipped.
    @discardableResult
    func advanceToNextWakeUp() async -> TimeAmount {
        while true {
            let next = state.withLock { state in state.sleepers.map(\.until).min().map { $0 - state.now } }
            if let next {
                advance(by: max(next, .zero))
                return next
            }
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    guard state.sleepers.isEmpty else { return true }
                    state.watchers.append(continuation)
                    return false
                }
                if isReady { continuation.resume() }
            }
        }
    }

    private func sleep(until time: NIODeadline) async throws {
        let id = state.withLock { state in
            state.lastID += 1
            return state.lastID
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                let (result, watchers): (Result<Void, any Error>?, [CheckedContinuation<Void, Never>]) =
                    state.withLock { state in
                        if Task.isCancelled { return (.failure(CancellationError()), []) }
                        if time <= state.now { return (.success(()), []) }
                        state.sleepers.append(Sleeper(id: id, until: time, continuation: continuation))
                        defer { state.watchers = [] }
                        return (nil, state.watchers)
                    }
                if let result { continuation.resume(with: result) }
                for watcher in watchers { watcher.resume() }
            }
        } onCancel: {
            let sleeper = state.withLock { state in
                state.sleepers.firstIndex { $0.id == id }.map { state.sleepers.remove(at: $0) }
            }
            sleeper?.continuation.resume(throwing: CancellationError())
        }
    }
}
