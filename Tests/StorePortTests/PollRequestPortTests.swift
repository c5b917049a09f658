import ChatDomain
import Testing

@testable import TestStores

/// Tests of the messages that an upstream server of ntfy has to know, for every store.
@Suite("Poll requests of every store", .timeLimit(.minutes(2)))
struct PollRequestPortTests {
    private static let room = SecretCode(stored: "room")

    /// Makes a room with one member and one message. Returns its alias.
    private func room(in store: TestedStore) async throws -> RoomAlias {
        try await store.stores.rooms.join(StoreFixture.join(1))
        _ = try await post("before", in: store)
        return try await store.stores.clients.alias(of: Self.room)
    }

    @discardableResult
    private func post(_ text: String, in store: TestedStore) async throws -> MessageID {
        try await store.stores.rooms.post(StoreFixture.post(1, text)).message
    }

    private func lease(_ store: TestedStore, limit: Int = 9) async throws -> [PollRequest] {
        try await store.stores.pollRequests.lease(limit: limit)
    }

    @Test(
        "Messages after the first poll of a room are leased one after another, also after a restart",
        arguments: StoreKind.allCases)
    func order(kind: StoreKind) async throws {
        let store = try await kind.make()
        let alias = try await room(in: store)
        #expect(try await lease(store).isEmpty)
        try await store.stores.pollRequests.polled(Self.room)
        #expect(try await lease(store).isEmpty)
        let (first, second) = (try await post("1", in: store), try await post("2", in: store))
        let leased = try await lease(store)
        #expect(leased.map(\.message) == [first] && leased.map(\.alias) == [alias])
        #expect(try await lease(store).isEmpty, "another relay must not send it")
        try await store.stores.pollRequests.settle(leased[0], .done)
        let next = try await lease(store)
        #expect(next.map(\.message) == [second])
        try await store.restart()
        #expect(try await lease(store).isEmpty, "the lease of a relay that was killed ends later")
        store.advance(PollRequest.lease)
        let again = try await lease(store)
        #expect(again.map(\.message) == [second])
        try await store.stores.pollRequests.settle(again[0], .done)
        try await store.stores.pollRequests.settle(next[0], .failed(next: store.now()))
        #expect(try await lease(store).isEmpty)
    }

    @Test("A failed request is due at its time, a released one at once", arguments: StoreKind.allCases)
    func failures(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await room(in: store)
        try await store.stores.pollRequests.polled(Self.room)
        let message = try await post("1", in: store)
        try await store.stores.pollRequests.settle(try await lease(store)[0], .released)
        let first = try await lease(store)
        #expect(first.map(\.message) == [message] && first.map(\.attempts) == [0])
        try await store.stores.pollRequests.settle(first[0], .failed(next: store.now() + .seconds(90)))
        store.advance(.seconds(89))
        #expect(try await lease(store).isEmpty)
        store.advance(.seconds(1))
        let second = try await lease(store)
        #expect(second.map(\.message) == [message] && second.map(\.attempts) == [1])
        try await store.stores.pollRequests.settle(second[0], .done)
        #expect(try await lease(store).isEmpty)
    }

    @Test(
        "Messages expire after twelve hours, and rooms thirty days after the last poll", arguments: StoreKind.allCases)
    func expiry(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await room(in: store)
        try await store.stores.pollRequests.polled(Self.room)
        for text in ["1", "2"] { try await post(text, in: store) }
        store.advance(PollRequest.lifetime)
        let last = try await post("3", in: store)
        store.advance(.seconds(1))
        _ = try await lease(store)
        #expect(try await lease(store).map(\.message) == [last])
        store.advance(PollRequest.pollLifetime)
        try await post("4", in: store)
        #expect(try await lease(store).isEmpty)
        let longest = Duration.seconds(3650 * 86_400)
        _ = try await store.stores.upkeep.applyRetention(messages: longest, queue: longest)
        #expect(try store.value("SELECT count(*) FROM polled_rooms") == 0)
        try await store.stores.pollRequests.polled(Self.room)
        let next = try await post("5", in: store)
        #expect(try await lease(store).map(\.message) == [next])
    }

    @Test("A poll is written at most once an hour, and not for a room without an alias", arguments: StoreKind.allCases)
    func writes(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(2, "other"))
        try await store.stores.pollRequests.polled(SecretCode(stored: "other"))
        try await store.stores.pollRequests.polled(SecretCode(stored: "none"))
        #expect(try store.value("SELECT count(*) FROM polled_rooms") == 0)
        _ = try await room(in: store)
        try await store.stores.pollRequests.polled(Self.room)
        let polled = "SELECT count(*) FROM polled_rooms WHERE time_polled = \(store.time(store.now()))"
        #expect(try store.value(polled) == 1)
        store.advance(.seconds(3599))
        try await store.stores.pollRequests.polled(Self.room)
        #expect(try store.value(polled) == 1)
        store.advance(.seconds(1))
        try await store.stores.pollRequests.polled(Self.room)
        #expect(
            try store.value("SELECT count(*) FROM polled_rooms WHERE time_polled = \(store.time(store.now()))") == 1)
    }

    @Test("Rooms are leased in the order of their oldest messages, up to the limit", arguments: StoreKind.allCases)
    func rooms(kind: StoreKind) async throws {
        let store = try await kind.make()
        for (member, code) in [(1, "room"), (2, "b"), (3, "c")] {
            try await store.stores.rooms.join(StoreFixture.join(member, code))
            _ = try await store.stores.clients.alias(of: SecretCode(stored: code))
            try await store.stores.pollRequests.polled(SecretCode(stored: code))
        }
        var posted: [MessageID] = []
        for member in [3, 1, 2, 3] {
            posted.append(try await store.stores.rooms.post(StoreFixture.post(member, "x")).message)
        }
        #expect(try await lease(store, limit: 2).map(\.message) == Array(posted[0...1]))
        #expect(try await lease(store).map(\.message) == [posted[2]])
    }
}
