import ChatDomain
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("The feed of changes in rooms", .timeLimit(.minutes(1)))
struct RoomFeedTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private func code(_ text: String) throws -> SecretCode { try SecretCode(parsing: text) }

    @Test("Messages, joins and leaves are reported with their room")
    func changes() async throws {
        // Nothing listens, so the feed keeps no changes.
        try await store.rooms.join(StoreFixture.join(1))
        #expect(store.feed.takeRoomChanges().isEmpty)
        var signals = store.feed.roomChanges().makeAsyncIterator()

        try await store.rooms.join(StoreFixture.join(2))
        await signals.next()
        var changes = store.feed.takeRoomChanges()
        #expect(try changes.memberships == [code("room")])
        #expect(try changes.members == [StoreFixture.member(2)])
        // Joining the same room again is not a change.
        try await store.rooms.join(StoreFixture.join(2, name: "other"))
        #expect(store.feed.takeRoomChanges().isEmpty)
        try await store.rooms.join(StoreFixture.join(2, "elsewhere"))
        changes = store.feed.takeRoomChanges()
        #expect(try changes.memberships == [code("room"), code("elsewhere")])
        _ = try await store.rooms.post(StoreFixture.post(2, "hi"))
        changes = store.feed.takeRoomChanges()
        #expect(try changes.messages == [code("elsewhere")])
        #expect(changes.members.isEmpty)
        #expect(try await store.rooms.leave(StoreFixture.member(2)))
        #expect(try await store.rooms.leave(StoreFixture.member(2)) == false)
        changes = store.feed.takeRoomChanges()
        #expect(try changes.memberships == [code("elsewhere")])
        #expect(!changes.isUnknown)
    }

    @Test("Another process's writes are reported as well")
    func others() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        var signals = store.feed.roomChanges().makeAsyncIterator()
        let watching = Task { [store] in await store.upkeep.watch() }
        while !store.feed.takeRoomChanges().isUnknown {
            _ = try fixture.query("UPDATE active_users SET nickname = nickname")
            await signals.next()
        }
        watching.cancel()
        await watching.value
    }
}
