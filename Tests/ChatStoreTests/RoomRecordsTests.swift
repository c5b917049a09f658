import ChatDomain
import Testing

@testable import ChatStore

@Suite("What the operator sees of rooms")
struct RoomRecordsTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private func code(_ text: String) throws -> SecretCode { try SecretCode(parsing: text) }

    @Test("Rooms stand in the order of their codes, in pages, from a prefix on to its end")
    func rooms() async throws {
        for (number, room) in ["b", "ba", "a", "bé", "b😀", "c", "B", "ba"].enumerated() {
            try await store.rooms.join(StoreFixture.join(number + 1, room))
        }
        let said = try await store.rooms.post(StoreFixture.post(2, "hi")).message
        var found: [RoomRecord] = []
        var cursor: SecretCode?
        repeat {
            let page = try await store.records.rooms(startingWith: "b", after: cursor, limit: 2)
            #expect(page.rooms.count <= 2)
            found += page.rooms
            cursor = page.next
        } while cursor != nil
        #expect(found.map(\.code.text) == ["b", "ba", "bé", "b😀"])
        #expect(found.map(\.members) == [1, 2, 1, 1])
        #expect(found.map(\.lastMessage) == [nil, said, nil, nil])
        #expect(found[1].lastMessageAt == fixture.time.withLock { $0 })
        #expect(try await store.records.rooms(startingWith: "", after: nil, limit: 100).rooms.count == 7)
        #expect(try await store.records.rooms(startingWith: "bb", after: nil, limit: 100).rooms.isEmpty)
        #expect(
            try await store.records.rooms(startingWith: "b", after: code("a"), limit: 1).rooms.map(\.code.text) == ["b"]
        )
    }

    @Test("What members did is noted of a limited number of them until it is written down")
    func bounded() async throws {
        for number in 1...5 { try await store.rooms.join(StoreFixture.join(number)) }
        let activity = MemberActivity(database: store.database, mostWaiting: 3)
        let time = fixture.time.withLock { $0 } + .seconds(1)
        for number in [1, 2, 3, 4, 5, 1] { activity.wrote(try StoreFixture.member(number), at: time, from: nil) }
        try await activity.flush()
        #expect(try fixture.value("SELECT count(*) FROM active_users WHERE time_last_message IS NOT NULL") == 3)
        // Then there is room for others.
        activity.wrote(try StoreFixture.member(5), at: time, from: nil)
        try await activity.flush()
        #expect(try fixture.value("SELECT count(*) FROM active_users WHERE time_last_message IS NOT NULL") == 4)
    }

    @Test("A message's progress: who may read it, who has fetched it, what became of its pushes")
    func progress() async throws {
        for number in 1...3 { try await store.rooms.join(StoreFixture.join(number)) }
        try await store.rooms.join(StoreFixture.join(4, tokenless: true))
        let first = try await store.rooms.post(StoreFixture.post(1, "häh")).message
        try await store.rooms.join(StoreFixture.join(5))
        let second = try await store.rooms.post(StoreFixture.post(1, "and?")).message

        var progress = try await store.records.progress(of: first)
        #expect(progress.message.message.text == "häh" && progress.message.message.nickname == "name1")
        #expect(progress.counts == [.pending: 2] && !progress.isQueueing)
        // Not the writer, and not who came later.
        #expect(progress.readers == 3 && progress.fetched == 0)
        #expect(try await store.records.progress(of: second).readers == 4)

        _ = try await store.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 1)
        store.feed.handedOut(second, to: try StoreFixture.member(4))
        // What was handed out before does not lower it.
        store.feed.handedOut(first, to: try StoreFixture.member(4))
        await record()
        // Nor what was written down before.
        store.feed.handedOut(first, to: try StoreFixture.member(4))
        fixture.advance(.seconds(5))
        await record()
        progress = try await store.records.progress(of: first)
        #expect(progress.fetched == 2)
        #expect(try await store.records.progress(of: second).fetched == 1)

        let deliveries = try await store.records.deliveries(ofMessage: first, after: nil, limit: 1)
        #expect(deliveries.items.map(\.isFetched) == [true])
        let rest = try await store.records.deliveries(ofMessage: first, after: deliveries.next, limit: 10)
        #expect(rest.items.map(\.isFetched) == [false] && rest.next == nil)
        await #expect(throws: ChatError.self) { try await store.records.progress(of: 99) }

        let members = try await store.records.members(of: code("room"), after: nil, limit: 4)
        #expect(members.items.map(\.fetchedTo) == [nil, first, nil, second])
        #expect(members.items.map { $0.token == nil } == [false, false, false, true])
        #expect(members.items[1].fetchedAt == fixture.time.withLock { $0 - .seconds(5) })
        let last = try await store.records.members(of: code("room"), after: members.next, limit: 4)
        #expect(last.items.map(\.nickname) == ["name5"] && last.next == nil)
        let messages = try await store.records.messages(of: code("room"), .newestFirst(before: nil), limit: 1)
        #expect(messages.items.map(\.message.id) == [second])
        #expect(
            try await store.records.messages(of: code("room"), .newestFirst(before: messages.next), limit: 5).items.map(
                \.message.id) == [
                    first
                ])
    }

    private func record() async {
        try? await store.activity.flush()
    }

    @Test("Who comes again has fetched nothing of before, nor of another room")
    func again() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        store.feed.handedOut(message, to: try StoreFixture.member(2))
        try await store.rooms.join(StoreFixture.join(2, "other"))
        await record()
        #expect(
            try await store.records.members(of: code("other"), after: nil, limit: 5).items.map(\.fetchedTo) == [nil])
        try await store.rooms.join(StoreFixture.join(2))
        let later = try await store.rooms.post(StoreFixture.post(1, "again")).message
        store.feed.handedOut(later, to: try StoreFixture.member(2))
        await record()
        #expect(try await store.records.progress(of: message).fetched == 0)
        let deliveries = try await store.records.deliveries(ofMessage: message, after: nil, limit: 5)
        #expect(deliveries.items.map(\.isFetched) == [false])
        #expect(try await store.records.progress(of: later).fetched == 1)
    }

    @Test("What cannot be written down now is written down later")
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

    @Test("What failed last stands first, of one app or of all")
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
        #expect(try await store.records.failures(of: nil, before: nil, limit: 10).items.map(\.entry) == [1, 4, 2])
        let page = try await store.records.failures(of: .default, before: nil, limit: 1)
        #expect(page.items.map(\.entry) == [1])
        #expect(try await store.records.failures(of: .default, before: page.next, limit: 1).items.map(\.entry) == [4])
        await #expect(throws: ChatError.self) { try await store.records.failures(of: nil, before: 3, limit: 1) }
    }
}
