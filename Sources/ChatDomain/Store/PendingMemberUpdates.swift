import Synchronization

/// The last messages that each member has fetched and its phone has shown, and when it last wrote, until a store records
/// them. The store records them a few seconds later, for many members together, so that reading and writing need not
/// wait. A crash loses these seconds and nothing else.
package final class PendingMemberUpdates: Sendable {
    /// The maximum number of members with pending updates, about 20 MB. The interval is too short to reach this number,
    /// unless the disk is full. Updates of further members are then dropped, until the members' next actions.
    package static let most = 100_000

    /// The pending update of one member.
    package struct Note: Sendable {
        package var fetch: (message: MessageID, time: Timestamp)?
        package var shown: (message: MessageID, time: Timestamp)?
        package var writing: (time: Timestamp, address: String?)?

        /// Keeps the newest message and the latest time, in whatever order updates arrive.
        fileprivate mutating func add(_ other: Note) {
            if let fetch = other.fetch, fetch.message > self.fetch?.message ?? .min { self.fetch = fetch }
            if let shown = other.shown, shown.message > self.shown?.message ?? .min { self.shown = shown }
            guard let new = other.writing else { return }
            let old = writing ?? new
            let (earlier, later) = new.time < old.time ? (new, old) : (old, new)
            writing = (later.time, later.address ?? earlier.address)
        }

        /// The time at which the member was last active.
        package var seenAt: Timestamp? { [fetch?.time, shown?.time, writing?.time].compactMap(\.self).max() }
    }

    private struct State {
        var notes: [MemberID: Note] = [:]
        /// Updates that are being recorded.
        var inProgress: [MemberID: Note] = [:]
        /// Flushes that have not ended.
        var flushes = 0
    }

    private let most: Int
    private let state = Mutex(State())

    package init(most: Int = PendingMemberUpdates.most) {
        self.most = most
    }

    /// Records that a member has received a message and all earlier ones.
    package func fetched(_ message: MessageID, by member: MemberID, at time: Timestamp) {
        add(Note(fetch: (message, time)), of: member)
    }

    /// Records that a member's phone has shown a message.
    package func shown(_ message: MessageID, to member: MemberID, at time: Timestamp) {
        add(Note(shown: (message, time)), of: member)
    }

    /// Records that a member has posted a message.
    ///
    /// - Parameter address: The address of the request, if it is known.
    package func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        add(Note(writing: (time, address)), of: member)
    }

    private func add(_ note: Note, of member: MemberID) {
        state.withLock { state in
            guard state.notes.count < most || state.notes[member] != nil else { return }
            state.notes[member, default: Note()].add(note)
        }
    }

    /// The last fetch of a member, unless it is already recorded. For a transaction that deletes the member's row.
    package func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        state.withLock { state in
            var note = state.inProgress[member] ?? Note()
            if let newer = state.notes[member] { note.add(newer) }
            return note.fetch
        }
    }

    /// Records the pending updates, in steps. Throws the error of the first step that fails. The updates of that step
    /// and of later ones stay for the next flush.
    ///
    /// The updates include those that another flush has not recorded yet, because the caller relies on all of them. A
    /// second recording changes nothing.
    ///
    /// - Parameter write: Records one step.
    package func flush(
        step: Int, write: @Sendable ([(member: MemberID, note: Note)]) async throws(ChatError) -> Void
    ) async throws(ChatError) {
        let all = state.withLock { state in
            for (member, note) in state.notes { state.inProgress[member, default: Note()].add(note) }
            state.notes = [:]
            state.flushes += 1
            return state.inProgress.map { (member: $0.key, note: $0.value) }
        }
        defer {
            state.withLock { state in
                state.flushes -= 1
                if state.flushes == 0 { state.inProgress = [:] }
            }
        }
        for start in stride(from: 0, to: all.count, by: step) {
            do throws(ChatError) {
                try await write(Array(all[start..<min(start + step, all.count)]))
            } catch {
                for (member, note) in all[start...] { add(note, of: member) }
                throw error
            }
        }
    }
}
