import ChatDomain
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Rooms in the store")
struct RoomTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    /// Inserts members of a room in one statement.
    private func fill(_ members: Int) throws {
        _ = try fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO active_users (udid, nickname, secret_code, device_token)
            SELECT printf('%040d', i), 'n', 'room', printf('%064d', i) FROM n
            """, [members])
    }

    @Test(
        "Pushes of a small room are queued before the response, those of a larger one after it",
        arguments: [PostRoom.small + 1, PostRoom.small + 2])
    func sizes(members: Int) async throws {
        for number in 1...members { try await store.rooms.join(StoreFixture.join(number)) }
        // A member who gets no push, because it has no device.
        try await store.rooms.join(StoreFixture.join(members, tokenless: true))
        let isSmall = members == PostRoom.small + 1
        #expect(try await store.rooms.post(StoreFixture.post(1, "hi")).queued == (isSmall ? members - 2 : 0))
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == members - 2)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == members - 2)
    }

    @Test("A large room's fan-out proceeds while other messages keep coming", .timeLimit(.minutes(1)))
    func largeRoomBesideOthers() async throws {
        try fill(1200)
        try await store.rooms.join(StoreFixture.join(2000, "other"))
        #expect(try await store.rooms.post(StoreFixture.post(1, "hello all")).queued == 0)
        // A member who joins later gets no push.
        try await store.rooms.join(StoreFixture.join(1201))
        var posted = 0
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            _ = try await store.rooms.post(StoreFixture.post(2000, "\(posted)"))
            posted += 1
        }
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 1199)
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == 1199)
    }

    @Test("A fan-out that a crash interrupted continues where it ended")
    func interruptedFanout() async throws {
        for number in 1...9 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        // The state of the file if the process ended after a step that reached member 4.
        _ = try fixture.query("DELETE FROM push_queue WHERE message_id > 3")
        _ = try fixture.query("UPDATE messages SET fanout_after = 4, fanout_until = 9")
        try await store.jobs.resume()
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == 8)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 8)
    }

    @Test("A full room rejects new members, and lets its members join again")
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

    @Test("A client's data is stored")
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
