import Synchronization

/// What members have fetched, and when they last wrote, until a store writes it down: some seconds behind, many members at a
/// time, because neither reading nor writing is to wait for it. A crash loses some seconds of it, and nothing else.
package final class PendingMemberUpdates: Sendable {
    /// Members of whom something may wait to be written down; about 20 MB. More do not come together within the interval; when
    /// the disk is full, they might. Of a further member nothing is noted until there is room: it is only for the operator to
    /// read, and what the member does next makes up for it.
    package static let most = 100_000

    /// What is to be written down of a member.
    package struct Note: Sendable {
        package var fetch: (message: MessageID, time: Timestamp)?
        package var writing: (time: Timestamp, address: String?)?

        /// The newest message and the last time stand, in whatever order they come.
        fileprivate mutating func add(_ other: Note) {
            if let fetch = other.fetch, fetch.message > self.fetch?.message ?? .min { self.fetch = fetch }
            guard let new = other.writing else { return }
            let old = writing ?? new
            let (earlier, later) = new.time < old.time ? (new, old) : (old, new)
            writing = (later.time, later.address ?? earlier.address)
        }

        /// When the member was there last.
        package var seenAt: Timestamp? { [fetch?.time, writing?.time].compactMap(\.self).max() }
    }

    private struct State {
        var notes: [MemberID: Note] = [:]
        /// Those that are being written down.
        var underWay: [MemberID: Note] = [:]
    }

    private let most: Int
    private let state = Mutex(State())

    package init(most: Int = PendingMemberUpdates.most) {
        self.most = most
    }

    /// A message, and what came before it, was handed out to a member.
    package func fetched(_ message: MessageID, by member: MemberID, at time: Timestamp) {
        add(Note(fetch: (message, time)), of: member)
    }

    /// - Parameter address: where the request came from, if that is known.
    package func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        add(Note(writing: (time, address)), of: member)
    }

    private func add(_ note: Note, of member: MemberID) {
        state.withLock { state in
            guard state.notes.count < most || state.notes[member] != nil else { return }
            state.notes[member, default: Note()].add(note)
        }
    }

    /// What a member has fetched last, as far as it is not written down; for a transaction that takes the member's row away.
    package func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        state.withLock { state in
            var note = state.underWay[member] ?? Note()
            if let newer = state.notes[member] { note.add(newer) }
            return note.fetch
        }
    }

    /// Writes down what waits, in steps. What cannot be written stays for the next time.
    /// - Parameter write: writes a step down, and says in which rooms somebody has fetched something.
    /// - Returns: these rooms.
    package func flush(
        step: Int, write: @Sendable ([(member: MemberID, note: Note)]) async throws(ChatError) -> Set<SecretCode>
    ) async throws(ChatError) -> Set<SecretCode> {
        let all = state.withLock { state in
            state.underWay = state.notes
            state.notes = [:]
            return state.underWay.map { (member: $0.key, note: $0.value) }
        }
        defer { state.withLock { $0.underWay = [:] } }
        var rooms: Set<SecretCode> = []
        for start in stride(from: 0, to: all.count, by: step) {
            do throws(ChatError) {
                rooms.formUnion(try await write(Array(all[start..<min(start + step, all.count)])))
            } catch {
                for (member, note) in all[start...] { add(note, of: member) }
                // Those that were written are told first; the error comes again the next time, if it lasts.
                guard rooms.isEmpty else { return rooms }
                throw error
            }
        }
        return rooms
    }
}
