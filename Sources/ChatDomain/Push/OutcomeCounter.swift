import Synchronization

/// A count of an app's pushes that reached a final state for one reason.
package struct FinalStateCount: Sendable {
    package let app: AppName
    package let state: PushState
    package let reason: String?
    package var count: Int

    package init(app: AppName, state: PushState, reason: String?, count: Int = 1) {
        self.app = app
        self.state = state
        self.reason = reason
        self.count = count
    }
}

/// Counts the final states of pushes for all stores: since the process started, and in the last minute.
///
/// A count never falls. So a push that became `sent` because the gateway was silent, and that the gateway rejected
/// later, is counted twice.
package final class OutcomeCounter: Sendable {
    /// The maximum number of different reasons of an app. A gateway has about thirty.
    package static let mostReasons = 64
    /// The seconds that the recent counts cover.
    private static let window = 60

    private struct Key: Hashable {
        let app: AppName
        let state: PushState
        let reason: String?
    }

    /// A count, with a ring buffer of the last seconds.
    private struct Count {
        var total = 0
        var seconds = [Int64](repeating: .min, count: OutcomeCounter.window)
        var counts = [Int](repeating: 0, count: OutcomeCounter.window)

        mutating func add(_ count: Int, at second: Int64) {
            total += count
            let index = Int(second.magnitude % UInt64(OutcomeCounter.window))
            if seconds[index] != second {
                seconds[index] = second
                counts[index] = 0
            }
            counts[index] += count
        }

        func recent(at second: Int64) -> Int {
            zip(seconds, counts).reduce(0) { sum, entry in
                entry.0 > second - Int64(OutcomeCounter.window) && entry.0 <= second ? sum + entry.1 : sum
            }
        }
    }

    private struct State {
        var counts: [Key: Count] = [:]
        var reasons: [AppName: BoundedNames] = [:]

        mutating func known(_ reason: String, of app: AppName) -> String {
            reasons[app, default: BoundedNames(most: OutcomeCounter.mostReasons)].known(reason)
        }
    }

    private let state = Mutex(State())
    private let now: TimeSource

    package init(now: @escaping TimeSource) {
        self.now = now
    }

    /// Counts pushes. Call it after the commit. Ignores pushes that are still pending.
    package func add(_ pushes: [FinalStateCount]) {
        guard !pushes.isEmpty else { return }
        let second = now().seconds
        state.withLock { state in
            for pushes in pushes where pushes.count > 0 && pushes.state != .pending {
                let reason = pushes.state == .sent ? nil : pushes.reason.map { state.known($0, of: pushes.app) }
                state.counts[Key(app: pushes.app, state: pushes.state, reason: reason), default: Count()]
                    .add(pushes.count, at: second)
            }
        }
    }

    /// The counts, ordered by app, state and reason.
    package var outcomes: [OutcomeCount] {
        let second = now().seconds
        return state.withLock(\.counts).map { key, count in
            OutcomeCount(
                app: key.app, state: key.state, reason: key.reason, total: count.total,
                lastMinute: count.recent(at: second))
        }
        .sorted { ($0.app, $0.state.rawValue, $0.reason ?? "") < ($1.app, $1.state.rawValue, $1.reason ?? "") }
    }
}
