import ChatDomain
import Synchronization
import Testing

@Suite("Pending updates of members")
struct PendingMemberUpdatesTests {
    @Test("A flush also records what another flush has not ended to record, because a ban relies on all addresses")
    func overlapping() async throws {
        let updates = PendingMemberUpdates()
        let member = MemberID(stored: String(repeating: "1", count: 40))
        updates.wrote(member, at: Timestamp(milliseconds: 1), from: "192.0.2.1")
        let recorded = Mutex<[String?]>([])
        try await updates.flush(step: 500) { _ throws(ChatError) in
            // The first flush waits for its transaction while a ban flushes.
            try await updates.flush(step: 500) { notes in
                recorded.withLock { $0 += notes.map(\.note.writing?.address) }
            }
        }
        #expect(recorded.withLock { $0 } == ["192.0.2.1"])
        try await updates.flush(step: 500) { notes in #expect(notes.isEmpty) }
    }
}
