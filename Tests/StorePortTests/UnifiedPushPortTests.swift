import ChatDomain
import Testing

@testable import TestStores

/// Tests of the topics of UnifiedPush, for every store.
@Suite("UnifiedPush of every store", .timeLimit(.minutes(2)))
struct UnifiedPushPortTests {
    private static func topic(_ number: Int) throws -> UnifiedPushTopic {
        let digits = String(number)
        return try #require(UnifiedPushTopic("up" + String(repeating: "A", count: 12 - digits.utf8.count) + digits))
    }

    private static let room = SecretCode(stored: "room")

    private func owner(_ number: Int, in store: TestedStore) async throws -> UnifiedPushOwner {
        try await store.stores.rooms.join(StoreFixture.join(number))
        let (credential, _) = try await store.stores.clients.createCredential(
            try Credential.name("phone"), for: .member(StoreFixture.member(number)))
        guard case .member(let member) = credential.owner else { throw ChatError.notJoined() }
        return .member(member.id)
    }

    private func token(in store: TestedStore) async throws -> UnifiedPushOwner {
        let grant = try AccessGrant(scopes: [.read])
        return .token(
            try await store.stores.tokens.create(Nickname(stored: "t"), grant, expiresAt: nil).token.id)
    }

    private func messages(
        _ topic: UnifiedPushTopic, after: MessageID = 0, in store: TestedStore
    ) async throws -> [String] {
        try await store.stores.unifiedPush.messages(in: topic, after: after, limit: 200)
            .map { String(decoding: $0.body, as: UTF8.self) }
    }

    private func post(_ text: String, to topic: UnifiedPushTopic, in store: TestedStore) async throws -> MessageID {
        guard case .stored(let id) = try await store.stores.unifiedPush.post(Array(text.utf8), to: topic) else {
            Issue.record("not stored")
            return 0
        }
        return id
    }

    @Test("Names have `up` and 12 letters and digits")
    func names() {
        #expect(UnifiedPushTopic("upABCabc012345")?.text == "upABCabc012345")
        for name in ["up", "upABCabc01234", "upABCabc0123456", "UPABCabc012345", "upABCabc01234-", "upÄBCabc01234"] {
            #expect(UnifiedPushTopic(name) == nil)
        }
    }

    @Test("The first subscriber owns a topic; its pushes stay until they are confirmed", arguments: StoreKind.allCases)
    func ownership(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (topic, other) = (try Self.topic(1), try Self.topic(2))
        let (first, second) = (try await owner(1, in: store), try await token(in: store))
        let pushes = store.stores.unifiedPush
        #expect(try await pushes.post([1], to: topic) == .noOwner)
        #expect(try await pushes.claim([topic, topic], for: first) == [topic: .owned], "a request may name it twice")
        #expect(try await pushes.claim([topic, other], for: second) == [topic: .foreign, other: .owned])
        #expect(try await pushes.claim([topic, other], for: first) == [topic: .owned, other: .foreign])
        #expect(try await pushes.owned([topic, other], by: first) == [topic])
        let chat = try await store.stores.rooms.post(StoreFixture.post(1, "chat")).message
        let one = try await post("1", to: topic, in: store)
        let two = try await post("2", to: topic, in: store)
        let later = try await store.stores.rooms.post(StoreFixture.post(1, "chat")).message
        #expect(chat < one && one < two && two < later, "the ids are those of chat messages")
        #expect(try await store.stores.unifiedPush.lastID() == later)
        try await store.restart()
        #expect(try await messages(topic, in: store) == ["1", "2"])
        #expect(try await messages(topic, after: one, in: store) == ["2"])
        #expect(try await messages(other, in: store).isEmpty)
        try await store.stores.unifiedPush.confirm(one, in: [topic])
        #expect(try await messages(topic, in: store) == ["2"])
        #expect(try await store.stores.unifiedPush.claim([topic], for: first) == [topic: .owned])
    }

    @Test("Topics end with their owner, and can get another one", arguments: StoreKind.allCases)
    func end(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (topic, other) = (try Self.topic(1), try Self.topic(2))
        let (first, second) = (try await owner(1, in: store), try await token(in: store))
        _ = try await store.stores.unifiedPush.claim([topic], for: first)
        _ = try await store.stores.unifiedPush.claim([other], for: second)
        _ = try await post("1", to: topic, in: store)
        _ = try await store.stores.rooms.leave(StoreFixture.member(1))
        #expect(try await store.stores.unifiedPush.post([1], to: topic) == .noOwner)
        #expect(try await store.stores.unifiedPush.claim([topic], for: second) == [topic: .owned])
        #expect(try await messages(topic, in: store).isEmpty)
        guard case .token(let id) = second else { return }
        _ = try await store.stores.tokens.revoke(id, by: .commandLine)
        #expect(try store.value("SELECT count(*) FROM unifiedpush_topics") == 0)
    }

    @Test("A room with the name wins", arguments: StoreKind.allCases)
    func room(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (topic, first) = (try Self.topic(1), try await owner(1, in: store))
        _ = try await store.stores.unifiedPush.claim([topic], for: first)
        try await store.stores.rooms.join(StoreFixture.join(2, topic.text))
        #expect(try await store.stores.unifiedPush.claim([topic], for: first) == [topic: .room])
        #expect(try await store.stores.unifiedPush.owned([topic], by: first).isEmpty)
        #expect(try await store.stores.unifiedPush.post([1], to: topic) == .noOwner)
    }

    @Test("The number of topics of an owner, and of pushes of a topic, is limited", arguments: StoreKind.allCases)
    func limits(kind: StoreKind) async throws {
        let store = try await kind.make()
        let first = try await owner(1, in: store)
        let topics = try (0..<UnifiedPushLimits.topicsPerOwner).map(Self.topic)
        for topic in topics {
            _ = try await store.stores.unifiedPush.claim([topic], for: first)
            store.advance(.seconds(1))
        }
        let next = try Self.topic(1000)
        #expect(try await store.stores.unifiedPush.claim([next], for: first) == [next: .owned])
        #expect(try await store.stores.unifiedPush.post([1], to: topics[0]) == .noOwner)
        for number in 0...UnifiedPushLimits.messagesPerTopic {
            _ = try await post("\(number)", to: next, in: store)
        }
        let kept = try await messages(next, in: store)
        #expect(kept.count == UnifiedPushLimits.messagesPerTopic && kept.first == "1" && kept.last == "100")
    }

    @Test("An owner has a share of the space, and all owners together a total", arguments: StoreKind.allCases)
    func space(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (first, second) = (try await owner(1, in: store), try await token(in: store))
        let (one, two, other) = (try Self.topic(1), try Self.topic(2), try Self.topic(3))
        let pushes = store.stores.unifiedPush
        let smallest = UnifiedPushLimits.smallestSize
        func resize(_ topic: UnifiedPushTopic, to size: Int) throws {
            _ = try store.query("UPDATE unifiedpush_messages SET size = \(size) WHERE topic = '\(topic.text)'")
        }
        _ = try await pushes.claim([one, two], for: first)
        _ = try await pushes.claim([other], for: second)
        _ = try await post("", to: one, in: store)
        #expect(try store.value("SELECT size FROM unifiedpush_messages") == smallest, "an empty push also needs space")
        try resize(one, to: UnifiedPushLimits.bytesPerOwner - smallest)
        _ = try await post("1", to: two, in: store)
        #expect(try await pushes.post([1], to: two) == .full)
        _ = try await post("1", to: other, in: store)
        // The second owner gets the space of all but one push. The store notices at its next count.
        try await pushes.confirm(.max, in: [one, two])
        try resize(other, to: UnifiedPushLimits.totalBytes - smallest)
        store.advance(UnifiedPushLimits.countInterval)
        _ = try await post("2", to: two, in: store)
        #expect(try await pushes.post([1], to: two) == .full)
        try await pushes.confirm(.max, in: [other])
        #expect(try await pushes.post([1], to: two) == .full, "The total is kept, and not summed for each push.")
        store.advance(UnifiedPushLimits.countInterval)
        _ = try await post("3", to: two, in: store)
    }

    @Test("Pushes are kept for twelve hours, unused topics for thirty days", arguments: StoreKind.allCases)
    func retention(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (topic, first) = (try Self.topic(1), try await owner(1, in: store))
        let longest = Duration.seconds(3650 * 86_400)
        func sweep() async throws {
            _ = try await store.stores.upkeep.applyRetention(messages: longest, queue: longest)
        }
        _ = try await store.stores.unifiedPush.claim([topic], for: first)
        _ = try await post("1", to: topic, in: store)
        store.advance(UnifiedPushLimits.lifetime - .seconds(1))
        try await sweep()
        #expect(try await messages(topic, in: store) == ["1"])
        store.advance(.seconds(1))
        #expect(try await messages(topic, in: store).isEmpty)
        try await sweep()
        #expect(try store.value("SELECT count(*) FROM unifiedpush_messages") == 0)
        _ = try await store.stores.unifiedPush.claim([topic], for: first)
        store.advance(UnifiedPushLimits.topicLifetime)
        try await sweep()
        #expect(try await store.stores.unifiedPush.post([1], to: topic) == .noOwner)
    }

    @Test("The room feed reports a topic with a new push", arguments: StoreKind.allCases)
    func feed(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (topic, first) = (try Self.topic(1), try await owner(1, in: store))
        _ = try await store.stores.unifiedPush.claim([topic], for: first)
        let signals = store.stores.feed.roomChanges()
        _ = await store.stores.feed.takeRoomChanges()
        _ = try await post("1", to: topic, in: store)
        for await _ in signals { break }
        #expect(await store.stores.feed.takeRoomChanges().topics == [topic])
    }
}
