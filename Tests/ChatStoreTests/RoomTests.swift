import ChatDomain
import Testing

@testable import ChatStore

@Suite("Rooms in the store")
struct RoomTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    @Test("A message is queued for everyone else of the room, once each")
    func recipients() async throws {
        for number in 1...3 { try await store.rooms.join(StoreFixture.join(number)) }
        try await store.rooms.join(StoreFixture.join(4, "elsewhere"))
        try await store.rooms.join(StoreFixture.join(5, tokenless: true))
        let receipt = try await store.rooms.post(StoreFixture.post(1, "hi"))
        #expect(receipt.queued == 2)
        let rows = try fixture.query(
            "SELECT device_token, payload, state, time_sent FROM push_queue ORDER BY message_id")
        #expect(
            try rows.map { $0[0] as String } == [StoreFixture.token(2).description, StoreFixture.token(3).description])
        #expect(rows[0][1] == #"{"aps":{"alert":"name1: hi","sound":"default"}}"#)
        #expect(rows[0][2] == "pending")
        #expect(rows[0][3] == (nil as String?))
    }

    @Test("Who has not joined cannot speak, update or read")
    func strangers() async throws {
        await #expect(throws: ChatError.self) { try await store.rooms.post(StoreFixture.post(9, "hi")) }
        await #expect(throws: ChatError.self) {
            try await store.rooms.update(
                StoreFixture.member(9), token: StoreFixture.token(9), client: ClientInfo(), user: nil)
        }
        await #expect(throws: ChatError.self) {
            try await store.rooms.messages(for: StoreFixture.member(9), since: nil, limit: 10)
        }
        #expect(try await store.rooms.leave(StoreFixture.member(9)) == false)
        #expect(try fixture.value("SELECT count(*) FROM messages") == 0)
    }

    @Test("Codes are compared exactly")
    func exactCodes() async throws {
        try await store.rooms.join(StoreFixture.join(1, "Room"))
        try await store.rooms.join(StoreFixture.join(2, "room"))
        #expect(try await store.rooms.post(StoreFixture.post(1, "hi")).queued == 0)
    }

    @Test("A token belongs to the member who brought it last (defect 14)")
    func sharedToken() async throws {
        try await store.rooms.join(StoreFixture.join(1, token: 7))
        try await store.rooms.join(StoreFixture.join(2, token: 7))
        try await store.rooms.join(StoreFixture.join(3))
        #expect(try await store.rooms.post(StoreFixture.post(3, "one push")).queued == 1)
        #expect(try await store.rooms.post(StoreFixture.post(1, "still in the room")).queued == 2)
        #expect(try fixture.value("SELECT count(*) FROM active_users") == 3)
    }

    @Test("Joining again keeps the place in the room, joining another leaves the first")
    func rejoin() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        _ = try await store.rooms.post(StoreFixture.post(2, "first"))
        try await store.rooms.join(StoreFixture.join(1, name: "renamed"))
        let page = try await store.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 10)
        #expect(page.messages.map(\.text) == ["first"])
        try await store.rooms.join(StoreFixture.join(1, "other"))
        #expect(try await store.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 10).messages.isEmpty)
        #expect(try await store.rooms.post(StoreFixture.post(2, "alone")).queued == 0)
    }

    @Test("History comes in order, in pages, from joining on, and says what is one's own")
    func history() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        _ = try await store.rooms.post(StoreFixture.post(1, "before"))
        try await store.rooms.join(StoreFixture.join(2))
        for number in 0..<5 { _ = try await store.rooms.post(StoreFixture.post(number % 2 + 1, "m\(number)")) }
        let first = try await store.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 3)
        #expect(first.messages.map(\.text) == ["m0", "m1", "m2"])
        let reader = try StoreFixture.member(2)
        #expect(first.messages.map { $0.sender == reader } == [false, true, false])
        #expect(first.messages[0].nickname == "name1")
        let second = try await store.rooms.messages(for: StoreFixture.member(2), since: first.next, limit: 3)
        #expect(second.messages.map(\.text) == ["m3", "m4"])
        let end = try await store.rooms.messages(for: StoreFixture.member(2), since: second.next, limit: 3)
        #expect(end.messages.isEmpty)
        #expect(end.next == second.next)
        // What was said before it entered is not for it, whatever it asks for.
        #expect(try await store.rooms.messages(for: StoreFixture.member(2), since: 0, limit: 10).messages.count == 5)
    }

    @Test("A repeat with the same key is the same message, another text with it is refused")
    func idempotency() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        let first = try await store.rooms.post(StoreFixture.post(1, "hi", key: "k"))
        let again = try await store.rooms.post(StoreFixture.post(1, "hi", key: "k"))
        #expect(again == PostReceipt(message: first.message, isRepeat: true, queued: 0))
        #expect(try await store.rooms.post(StoreFixture.post(2, "hi", key: "k")).isRepeat == false)
        let error = await #expect(throws: ChatError.self) {
            try await store.rooms.post(StoreFixture.post(1, "other", key: "k"))
        }
        #expect(error?.code == .idempotencyConflict)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 2)
    }

    /// Members of a room, written at once.
    private func fill(_ members: Int) throws {
        _ = try fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO active_users (udid, nickname, secret_code, device_token)
            SELECT printf('%040d', i), 'n', 'room', printf('%064d', i) FROM n
            """, [members])
    }

    @Test("A large room is served completely, behind the answer, and not to who comes later")
    func largeRoom() async throws {
        let members = 1300
        try fill(members)
        let receipt = try await store.rooms.post(StoreFixture.post(700, "hello all"))
        #expect(receipt.queued <= 500)
        try await store.rooms.join(StoreFixture.join(members + 1))
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == members - 1)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == members - 1)
    }

    @Test(
        "A small room is served before the answer, a larger one behind it",
        arguments: [PostRoom.small + 1, PostRoom.small + 2])
    func sizes(members: Int) async throws {
        for number in 1...members { try await store.rooms.join(StoreFixture.join(number)) }
        // Nobody that a push goes to, and a member all the same.
        try await store.rooms.join(StoreFixture.join(members, tokenless: true))
        let isSmall = members == PostRoom.small + 1
        #expect(try await store.rooms.post(StoreFixture.post(1, "hi")).queued == (isSmall ? members - 2 : 0))
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == members - 2)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == members - 2)
    }

    @Test("While messages keep coming, a large room is served nevertheless", .timeLimit(.minutes(1)))
    func largeRoomBesideOthers() async throws {
        try fill(1200)
        try await store.rooms.join(StoreFixture.join(2000, "other"))
        #expect(try await store.rooms.post(StoreFixture.post(1, "hello all")).queued == 0)
        var posted = 0
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            _ = try await store.rooms.post(StoreFixture.post(2000, "\(posted)"))
            posted += 1
        }
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 1199)
    }

    @Test("A fan-out that a crash interrupted goes on where it stood")
    func interruptedFanout() async throws {
        for number in 1...9 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        // As the file looks when the process ended after a step that reached member 4.
        _ = try fixture.query("DELETE FROM push_queue WHERE message_id > 3")
        _ = try fixture.query("UPDATE messages SET fanout_after = 4, fanout_until = 9")
        try await store.jobs.resume()
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == 8)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 8)
    }

    @Test("A full room takes no more, and lets those in it join again")
    func fullRoom() async throws {
        _ = try fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO active_users (udid, nickname, secret_code) SELECT printf('%040d', i), 'n', 'room' FROM n
            """, [SQLiteRoomStore.largestRoom])
        let error = await #expect(throws: ChatError.self) {
            try await store.rooms.join(StoreFixture.join(SQLiteRoomStore.largestRoom + 1))
        }
        #expect(error?.field == "code")
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(SQLiteRoomStore.largestRoom + 1, "elsewhere"))
    }

    @Test("Many at once share transactions and each is told of its own result")
    func groupCommit() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        let results = await withTaskGroup(of: Bool.self) { group in
            for number in 0..<400 {
                group.addTask { [store] in
                    // Every fifth is from a stranger and must fail alone.
                    let sender = number.isMultiple(of: 5) ? 99 : 1
                    return (try? await store.rooms.post(StoreFixture.post(sender, "m\(number)"))) != nil
                }
            }
            return await group.reduce(into: [Bool]()) { $0.append($1) }
        }
        #expect(results.filter { $0 }.count == 320)
        #expect(try fixture.value("SELECT count(*) FROM messages") == 320)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 320)
    }

    @Test("What a client says of itself is kept")
    func analytics() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        let row = try fixture.query(
            "SELECT ip_address, app_version, os_version, device_model, time_joined, time_updated FROM active_users")[0]
        #expect(
            row == [
                "ip_address": "192.0.2.1", "app_version": "1.0", "os_version": "5.1", "device_model": "iPhone",
                "time_joined": "2027-01-15 08:00:00.000", "time_updated": "2027-01-15 08:00:00.000",
            ])
    }
}
