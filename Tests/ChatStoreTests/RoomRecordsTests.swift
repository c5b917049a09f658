import ChatDomain
import ChatSQL
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("The operator's records of rooms")
struct RoomRecordsTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private func code(_ text: String) throws -> SecretCode { try SecretCode(parsing: text) }

    @Test(
        "While one search or list is stuck, others wait or are refused, and all other reads go on",
        .timeLimit(.minutes(2)), arguments: [LongRead.search, .administration])
    func readBurst(kind: LongRead) async throws {
        #expect(try await ReadBurst(of: kind, on: store.database, store.ports, extra: 8) == .expected(extra: 8))
    }

    @Test("The activity of a limited number of members is kept in memory until it is stored")
    func bounded() async throws {
        for number in 1...5 { try await store.rooms.join(StoreFixture.join(number)) }
        let activity = MemberActivity(database: store.database, mostWaiting: 3)
        let time = fixture.time.now + .seconds(1)
        for number in [1, 2, 3, 4, 5, 1] { activity.wrote(try StoreFixture.member(number), at: time, from: nil) }
        try await activity.flush()
        #expect(try fixture.value("SELECT count(*) FROM active_users WHERE time_last_message IS NOT NULL") == 3)
        // After that there is room for other members.
        activity.wrote(try StoreFixture.member(5), at: time, from: nil)
        try await activity.flush()
        #expect(try fixture.value("SELECT count(*) FROM active_users WHERE time_last_message IS NOT NULL") == 4)
    }

    private func record() async {
        try? await store.activity.flush()
    }

    @Test("A member's read messages stay read after it leaves and returns, and messages in between stay unread")
    func again() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        // The member leaves before the activity is stored.
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        try await store.rooms.join(StoreFixture.join(2, "other"))
        await record()
        #expect(
            try await store.records.members(of: code("other"), after: nil, limit: 5).items.map(\.fetchedTo) == [nil])
        let unseen = try await store.rooms.post(StoreFixture.post(1, "where are you?")).message
        #expect(try await isFetched(message) == [true])
        try await store.rooms.join(StoreFixture.join(2))
        let members = try await store.records.members(of: code("room"), after: nil, limit: 5)
        #expect(members.items.map(\.fetchedTo) == [nil, message])
        #expect(members.items[1].fetchedAt == fixture.time.now)
        let later = try await store.rooms.post(StoreFixture.post(1, "again")).message
        store.feed.handedOut(later, to: try StoreFixture.member(2))
        await record()
        for (id, readers) in [(message, 1), (unseen, 0), (later, 1)] {
            let progress = try await store.records.progress(of: id)
            #expect(progress.readers == readers && progress.fetched == readers)
            #expect(progress.fetchedBy == [String](repeating: "name2", count: readers))
        }
        // The member leaves and joins once more, with another name.
        _ = try await store.rooms.leave(StoreFixture.member(2))
        try await store.rooms.join(StoreFixture.join(2, name: "Bo"))
        #expect(try await store.records.progress(of: later).fetchedBy == ["name2"])
        #expect(try await isFetched(message) == [true])
        let reach = try await store.records.reach(
            of: store.records.messages(of: code("room"), .newestFirst(before: nil), limit: 5).items)
        #expect(reach.map(\.fetched) == [1, 0, 1] && reach.map(\.sent) == [0, 0, 0])
    }

    private func isFetched(_ message: MessageID) async throws -> [Bool] {
        try await store.records.deliveries(ofMessage: message, after: nil, limit: 5).items.map(\.isFetched)
    }

    @Test("A push to an earlier token of a member is fetched when the member has fetched its message")
    func newToken() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        try await store.rooms.update(
            StoreFixture.member(2), token: StoreFixture.token(7), client: ClientInfo(), user: nil)
        #expect(try await isFetched(message) == [false])
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        await record()
        #expect(try await isFetched(message) == [true])
        // A push from before version 8 names no member. It counts for the member that has the device now.
        _ = try fixture.query("UPDATE push_queue SET member = NULL")
        #expect(try await isFetched(message) == [false])
    }

    @Test("A push names its member in large rooms as well")
    func largeRoom() async throws {
        for number in 1...12 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        while try fixture.value("SELECT count(*) FROM push_queue") < 11 { try await Task.sleep(for: .milliseconds(10)) }
        for number in 2...4 {
            _ = try await store.rooms.messages(for: StoreFixture.member(number), since: nil, limit: 5)
        }
        await record()
        _ = try await store.rooms.leave(StoreFixture.member(2))
        let deliveries = try await store.records.deliveries(ofMessage: message, after: nil, limit: 20)
        #expect(deliveries.items.count { $0.isFetched } == 3)
        #expect(try await store.records.progress(of: message).fetchedBy == ["name2", "name3", "name4"])
    }

    @Test("A member that the operator removes still counts as a reader", arguments: ["remove", "ban", "close"])
    func removed(how: String) async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        await record()
        let moderator = Moderator(name: "admin", address: nil)
        let id = try await store.records.members(of: code("room"), after: nil, limit: 5).items[1].id
        switch how {
        case "remove": try await store.moderation.remove(id, by: moderator)
        case "ban":
            _ = try await store.moderation.ban(
                BanRequest(.member(id, everywhere: false)), by: moderator)
        default:
            _ = try await store.moderation.ban(
                BanRequest(.room(code("room"))), by: moderator)
        }
        let progress = try await store.records.progress(of: message)
        #expect(progress.readers == 1 && progress.fetchedBy == ["name2"])
    }

    @Test("The read positions of former members are deleted with the room's messages")
    func forgotten() async throws {
        for number in 1...3 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        _ = try await store.rooms.leave(StoreFixture.member(2))
        _ = try await store.rooms.leave(StoreFixture.member(3))
        #expect(
            try fixture.value("SELECT count(*) FROM past_members") == 1, "A member who has read nothing leaves no row.")
        fixture.advance(.seconds(3600))
        _ = try await store.upkeep.applyRetention(messages: .seconds(3600), queue: .seconds(3600))
        #expect(try fixture.value("SELECT count(*) FROM past_members") == 1)
        fixture.advance(.seconds(1))
        let result = try await store.upkeep.applyRetention(messages: .seconds(3600), queue: .seconds(3600))
        #expect(result.messages == 1)
        #expect(try fixture.value("SELECT count(*) FROM past_members") == 0)
    }

    /// Flushes, and returns the rooms that it announced.
    private func flushed() async throws -> Set<String> {
        let rooms = Mutex<Set<String>>([])
        store.database.listeners.add { announcement in rooms.withLock { $0.formUnion(announcement.read) } }
        try await store.activity.flush()
        return rooms.withLock(\.self)
    }

    @Test("After a member has read, a flush announces the room")
    func reads() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        #expect(try await flushed() == [], "Writing is not reading.")
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        #expect(try await flushed() == ["room"])
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        #expect(try await flushed() == [])
    }

    @Test("A flush that fails after its first part keeps the rest, and the ban that needs it fails")
    func partly() async throws {
        let count = 600
        for number in 1...count { try await store.rooms.join(StoreFixture.join(number, "room\(number)")) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        for number in 1...count { store.feed.handedOut(message, to: try StoreFixture.member(number)) }
        _ = try fixture.query(
            """
            CREATE TRIGGER stop BEFORE UPDATE OF fetched_to ON active_users
            WHEN (SELECT count(*) FROM active_users WHERE fetched_to > 0) >= 500
            BEGIN SELECT raise(ABORT, 'no'); END
            """)
        let moderator = Moderator(name: "admin", address: nil)
        let request = try BanRequest(.address(BannedAddress(parsing: "192.0.2.1", proxies: []), room: nil))
        for _ in 1...2 {
            await #expect(throws: ChatError.self) { _ = try await store.moderation.ban(request, by: moderator) }
            #expect(try fixture.value("SELECT count(*) FROM active_users WHERE fetched_to > 0") == 500)
        }
        #expect(try fixture.value("SELECT count(*) FROM bans") == 0)
        _ = try fixture.query("DROP TRIGGER stop")
        #expect(try await flushed().count == count - 500)
        _ = try await store.moderation.ban(request, by: moderator)
    }

    @Test("Activity that cannot be stored now is stored later")
    func locked() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        _ = try fixture.query(
            "CREATE TRIGGER stop BEFORE UPDATE ON active_users BEGIN SELECT raise(ABORT, 'no'); END")
        await record()
        #expect(try await store.records.progress(of: message).fetched == 0)
        _ = try fixture.query("DROP TRIGGER stop")
        await record()
        #expect(try await store.records.progress(of: message).fetched == 1)
    }

    @Test("Failures are listed by time, the latest first, of one app or of all")
    func failures() async throws {
        for (number, app, state) in [
            (1, "default", "failed"), (2, "other", "expired"), (3, "default", "sent"), (4, "default", "expired"),
        ] {
            _ = try fixture.query(
                """
                INSERT INTO push_queue (device_token, payload, app, state, time_sent, time_settled)
                VALUES ('aa\(number)', '{}', '\(app)', '\(state)', CASE '\(state)' WHEN 'sent' THEN '2026' END,
                    CASE \(number) WHEN 1 THEN '2026-02' ELSE '2026-01' END)
                """)
        }
        #expect(try await store.records.failures(of: nil, before: nil, limit: 10).items.map(\.id) == [1, 4, 2])
        let page = try await store.records.failures(of: .default, before: nil, limit: 1)
        #expect(page.items.map(\.id) == [1])
        #expect(try await store.records.failures(of: .default, before: page.next, limit: 1).items.map(\.id) == [4])
        await #expect(throws: ChatError.self) { try await store.records.failures(of: nil, before: 3, limit: 1) }
    }
}
