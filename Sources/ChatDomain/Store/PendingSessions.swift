import Synchronization

/// Members' calls with valid sessions, until a store records them a few seconds later. A crash loses these seconds.
package final class PendingSessions: Sendable {
    /// The time after which another call of a member is recorded.
    private static let interval = Duration.seconds(3600)
    /// The maximum number of members with a pending call, and of those whose last record is remembered. Beyond the
    /// latter, calls are recorded more often.
    private static let maxMembers = 65_536

    package struct Key: Sendable, Hashable {
        package let member: MemberID
        package let user: UserReference
    }

    private struct State {
        var recorded: [Key: Timestamp] = [:]
        var pending: [Key: Timestamp] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// - Parameter lifetime: The time for which a record counts.
    package func add(_ member: MemberID, of user: UserReference, at time: Timestamp, lifetime: Duration) {
        let key = Key(member: member, user: user)
        // A short lifetime needs records more often.
        let interval = min(Self.interval, lifetime / 10)
        state.withLock { state in
            // The clock may have been set back.
            if let last = state.recorded[key], last <= time, time < last + interval { return }
            guard state.pending.count < Self.maxMembers else { return }
            if state.recorded.count >= Self.maxMembers { state.recorded = [:] }
            state.recorded[key] = time
            state.pending[key] = time
        }
    }

    /// Removes and returns the pending calls, in the order of members. Relays that record at the same time then lock rows
    /// in the same order.
    package func take() -> [(key: Key, time: Timestamp)] {
        let pending = state.withLock { state in
            defer { state.pending = [:] }
            return state.pending
        }
        return pending.map { ($0, $1) }.sorted { $0.0.member.text < $1.0.member.text }
    }

    /// The calls could not be recorded, so the next ones must be.
    package func forget(_ keys: some Sequence<Key>) {
        state.withLock { state in
            for key in keys { state.recorded[key] = nil }
        }
    }
}
