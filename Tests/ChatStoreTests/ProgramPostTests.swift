import ChatDomain
import Testing

@testable import ChatStore

@Suite("Messages of programs")
struct ProgramPostTests {
    private let fixture: StoreFixture
    private let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private static func request(
        _ text: String, room: String = "room", key: String? = nil, writer: String = "token:1",
        extras: MessageExtras = .none
    ) throws -> PostRequest {
        PostRequest(
            member: MemberID(stored: writer),
            program: PostRequest.Program(
                nickname: Nickname(stored: "cron"), room: SecretCode(stored: room), extras: extras),
            text: try MessageText(parsing: text), idempotencyKey: key)
    }

    @Test("Go to every member, before the answer or behind it", arguments: [0, 1, PostRoom.small, PostRoom.small + 1])
    func fanout(members: Int) async throws {
        for number in 0..<members { try await store.rooms.join(StoreFixture.join(number + 1)) }
        let extras = try MessageExtras(title: "T", link: "https://example.org/", priority: 5, sound: "")
        let receipt = try await store.rooms.post(Self.request("done", extras: extras))
        #expect(receipt.queued == (members > PostRoom.small ? 0 : members))
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        let rows = try fixture.query("SELECT payload, priority FROM push_queue")
        #expect(rows.count == members)
        for row in rows {
            #expect(
                row[0]
                    == #"{"aps":{"alert":{"title":"T","body":"cron: done"}},"link":"https://example.org/"}"#)
            #expect(row[1] == 5)
        }
        #expect(try fixture.value("SELECT count(*) FROM active_users") == members)
    }

    @Test("Are the room's history, for who was there; who comes later reads what comes later")
    func history() async throws {
        _ = try await store.rooms.post(Self.request("before"))
        try await store.rooms.join(StoreFixture.join(1))
        let extras = try MessageExtras(title: "Title", link: "https://example.org/")
        _ = try await store.rooms.post(Self.request("after", extras: extras))
        let page = try await store.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 10)
        #expect(page.messages.map(\.text) == ["after"])
        #expect(page.messages.map(\.title) == ["Title"] && page.messages.map(\.link) == ["https://example.org/"])
        #expect(page.messages.map(\.nickname) == ["cron"])
        // The operator's programs read all of it, from both ends.
        let room = SecretCode(stored: "room")
        let all = try await store.records.messages(of: room, .oldestFirst(after: 0), limit: 1)
        #expect(all.items.map(\.message.text) == ["before"] && all.next == 1)
        #expect(
            try await store.records.messages(of: room, .oldestFirst(after: 1), limit: 1).items.map(\.message.text)
                == ["after"])
        #expect(
            try await store.records.messages(of: room, .newestFirst(before: nil), limit: 5).items.map(\.message.text)
                == ["after", "before"])
    }

    @Test("Make a room that nobody is in")
    func emptyRooms() async throws {
        try await store.rooms.join(StoreFixture.join(1, "b"))
        _ = try await store.rooms.post(Self.request("x", room: "c"))
        _ = try await store.rooms.post(Self.request("x", room: "a"))
        _ = try await store.rooms.post(Self.request("x", room: "a"))
        let rooms = try await store.records.rooms(startingWith: "", after: nil, limit: 10)
        #expect(rooms.rooms.map(\.code.text) == ["a", "b", "c"])
        #expect(rooms.rooms.map(\.members) == [0, 1, 0] && rooms.rooms.map(\.lastMessage) == [3, nil, 1])
        let first = try await store.records.rooms(startingWith: "", after: nil, limit: 1)
        #expect(first.rooms.map(\.code.text) == ["a"] && first.next?.text == "a")
        #expect(
            try await store.records.rooms(startingWith: "", after: first.next, limit: 5).rooms.map(\.code.text)
                == ["b", "c"])
        #expect(
            try await store.records.rooms(startingWith: "c", after: nil, limit: 5).rooms.map(\.code.text) == ["c"])
    }

    @Test("With the same key are one message; another program's key is its own")
    func idempotency() async throws {
        let first = try await store.rooms.post(Self.request("done", key: "k"))
        #expect(try await store.rooms.post(Self.request("done", key: "k")).isRepeat)
        #expect(try await store.rooms.post(Self.request("done", key: "k", writer: "token:2")).message != first.message)
        let title = try MessageExtras(title: "T")
        for other in [
            try Self.request("other", key: "k"), try Self.request("done", room: "other", key: "k"),
            try Self.request("done", key: "k", extras: title),
        ] {
            await #expect(throws: ChatError.self) { try await store.rooms.post(other) }
        }
        #expect(try fixture.value("SELECT count(*) FROM messages") == 2)
    }
}
