import Testing

@testable import ChatDomain

@Suite("Pending sessions")
struct PendingSessionsTests {
    @Test("The pending calls are taken once, in the order of members, so that relays lock rows in the same order")
    func order() {
        let sessions = PendingSessions()
        let members = (100..<150).map { MemberID(stored: "\($0)") }
        for member in members.shuffled() {
            sessions.add(
                member, of: UserReference(stored: "u"), at: Timestamp(seconds: 1_800_000_000), lifetime: .seconds(3600))
        }
        #expect(sessions.take().map(\.key.member) == members)
        #expect(sessions.take().isEmpty)
    }
}
