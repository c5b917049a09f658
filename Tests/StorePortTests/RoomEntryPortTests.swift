import ChatDomain
import Testing

@testable import TestStores

/// Tests of the messages and changes that readers of a room continue with, for every store. Other tests make the changes
/// through the ports.
@Suite("Entries of rooms in every store", .timeLimit(.minutes(2)))
struct RoomEntryPortTests {
    private static let room = SecretCode(stored: "room")

    /// Posts a message of a program. Returns its id.
    private func post(_ text: String, in code: SecretCode = room, _ store: TestedStore) async throws -> MessageID {
        try await store.stores.rooms.post(
            PostRequest(
                member: .administrator,
                program: PostRequest.Program(nickname: Nickname(stored: "Relay"), room: code),
                content: try MessageContent(parsing: text))
        ).message
    }

    /// Writes the last change of a message. Returns its number, which no message gets.
    @discardableResult
    private func change(
        _ kind: MessageChange.Kind, _ message: MessageID, in code: SecretCode = room, _ store: TestedStore
    ) async throws -> MessageID {
        let number = try await post("takes a number", in: SecretCode(stored: "elsewhere"), store)
        let time = store.time(store.now())
        _ = try store.query(
            """
            INSERT INTO message_states (message_id, secret_code, author, message_key, revision, change_id, change, time_changed)
            VALUES (\(message), '\(code.text)', 'admin', 'k', 2, \(number), '\(kind.rawValue)', \(time))
            ON CONFLICT (message_id) DO UPDATE
            SET change_id = excluded.change_id, change = excluded.change, revision = message_states.revision + 1
            """)
        _ = try store.query("DELETE FROM messages WHERE message_id = \(number)")
        if kind == .deleted { _ = try store.query("DELETE FROM messages WHERE message_id = \(message)") }
        return number
    }

    private func entries(
        after: MessageID = 0, limit: Int = 100, in code: SecretCode = room, _ store: TestedStore
    ) async throws -> [String] {
        try await store.stores.feed.entries(in: code, after: after, limit: limit).map(Self.text)
    }

    private static func text(_ entry: RoomEntry) -> String {
        switch entry {
        case .message(let message): "\(message.id) \(message.text)"
        case .change(let change, let message):
            "\(change.id) \(change.kind) \(change.message) \(message?.text ?? "-") r\(change.revision)"
        }
    }

    @Test(
        "Messages and last changes come in the order of their numbers, in pages of any size",
        arguments: StoreKind.allCases)
    func order(kind: StoreKind) async throws {
        let store = try await kind.make()
        #expect(try await entries(store).isEmpty)
        #expect(try await store.stores.feed.lastEntry(in: Self.room) == 0)
        let first = try await post("one", store)
        #expect(try await store.stores.feed.lastEntry(in: Self.room) == first)
        let edited = try await change(.edited, first, store)
        #expect(try await store.stores.feed.lastEntry(in: Self.room) == edited)
        let second = try await post("two", store)
        let other = try await post("other", in: SecretCode(stored: "hall"), store)
        let cleared = try await change(.cleared, first, store)
        let deleted = try await change(.deleted, second, store)
        let resolvedElsewhere = try await change(.resolved, other, in: SecretCode(stored: "hall"), store)
        let third = try await post("three", store)
        let expected = [
            "\(first) one", "\(cleared) cleared \(first) one r3", "\(deleted) deleted \(second) - r2", "\(third) three",
        ]
        #expect(try await entries(store) == expected)
        for limit in 1...5 {
            var (all, last): ([String], MessageID) = ([], 0)
            while true {
                let page = try await store.stores.feed.entries(in: Self.room, after: last, limit: limit)
                guard let end = page.last?.id else { break }
                all += page.map(Self.text)
                last = end
            }
            #expect(all == expected, "\(limit)")
        }
        #expect(try await entries(after: edited, store) == Array(expected.dropFirst()))
        #expect(try await entries(after: cleared, store) == Array(expected.dropFirst(2)))
        #expect(try await store.stores.feed.lastEntry(in: Self.room) == third)
        #expect(try await store.stores.feed.lastEntry(in: SecretCode(stored: "hall")) == resolvedElsewhere)
        // Lists of messages have no changes.
        let messages = try await store.stores.feed.messages(in: Self.room, after: 0, limit: 100)
        #expect(messages.map(\.text) == ["one", "three"])
    }

    @Test("A change knows its message, author, key and time", arguments: StoreKind.allCases)
    func columns(kind: StoreKind) async throws {
        let store = try await kind.make()
        let message = try await post("one", store)
        let number = try await change(.resolved, message, store)
        let expected = MessageChange(
            id: number, kind: .resolved, message: message, author: .administrator, key: MessageKey(stored: "k"),
            revision: 2, time: store.now())
        guard
            case .change(let change, let found) = try await store.stores.feed.entries(
                in: Self.room, after: message, limit: 1
            ).first
        else {
            Issue.record("There is no change")
            return
        }
        #expect(change == expected && found?.id == message && found?.sender == .administrator)
    }

    @Test("A member's page has only changes of messages that the member may read", arguments: StoreKind.allCases)
    func history(kind: StoreKind) async throws {
        let store = try await kind.make()
        let before = try await post("before", store)
        let gone = try await post("gone", store)
        try await store.stores.rooms.join(StoreFixture.join(1))
        let member = try StoreFixture.member(1)
        func page(since: MessageID? = nil, limit: Int = 100) async throws -> RoomEntryPage {
            try await store.stores.rooms.entries(for: member, since: since, limit: limit, isPeek: true)
        }
        let empty = try await page()
        #expect(empty.entries.isEmpty && empty.next == gone && empty.room == Self.room)
        let after = try await post("after", store)
        try await change(.edited, before, store)
        try await change(.deleted, gone, store)
        let edited = try await change(.edited, after, store)
        let all = try await page()
        #expect(all.entries.map(Self.text) == ["\(after) after", "\(edited) edited \(after) after r2"])
        #expect(all.next == edited)
        #expect(try await page(since: 0, limit: 1).next == after)
        #expect(try await page(since: after).entries.map(\.id) == [edited])
        #expect(try await page(since: edited) == RoomEntryPage(entries: [], next: edited, room: Self.room))
        // A client that has a change continues with a position that the stream knows.
        #expect(try await store.stores.feed.position(of: member).last >= edited)
        await #expect(throws: ChatError.self) {
            try await store.stores.rooms.entries(
                for: StoreFixture.member(2), since: nil, limit: 1, isPeek: false)
        }
    }
}
