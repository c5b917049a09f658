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
}
