import ChatDomain
import Testing

@testable import TestStores

@Suite("Webhooks of other programs, in every store", .timeLimit(.minutes(2)))
struct HookPortTests {
    private static let key = MessageKey(stored: "disk")

    private static func hook(_ format: String) -> HookGrant? { HookGrant(stored: #"{"format":"\#(format)"}"#) }

    private func make(_ hook: HookGrant?, named name: String = "monitor", in store: TestedStore) async throws -> (
        token: AccessToken, secret: String
    ) {
        try await store.stores.tokens.create(
            AccessToken.name(name), AccessGrant(scopes: [.post], room: SecretCode(stored: "ops"), hook: hook),
            expiresAt: nil)
    }

    @Test("A token for a webhook keeps its format, secret and template", arguments: StoreKind.allCases)
    func grant(kind: StoreKind) async throws {
        let store = try await kind.make()
        let stored = #"{"format":"json","secret":"sécret","template":{"text":"{a.b}","tags":["x"]}}"#
        let hook = try #require(HookGrant(stored: stored))
        #expect(hook.format == "json" && HookGrant(stored: "{}") == nil)
        let (token, secret) = try await make(hook, in: store)
        let found = try #require(try await store.stores.tokens.token(of: secret))
        #expect(found == token && found.grant.hook == hook && found.unreadable == nil)
        #expect(try await store.stores.tokens.tokens(after: nil, limit: 9).items == [token])
        let listed = JSONValue.object(token.json).description
        #expect(listed.contains(#""hook":{"format":"json","signed":true,"template":{"text":"#))
        #expect(!listed.contains("sécret"))
        // Another program must not turn it into a token for the APIs.
        for broken in ["{}", "[]", #"{"format":1}"#] {
            _ = try store.query("UPDATE api_tokens SET hook = '\(broken)'")
            #expect(try await store.stores.tokens.token(of: secret) == nil)
        }
    }

    @Test("A webhook needs a room, and the scope post alone")
    func rules() throws {
        let (hook, room) = (Self.hook("github"), SecretCode(stored: "ops"))
        for scopes in [[.post, .read], [.admin], [.read], [.post, .send]] as [Set<Scope>] {
            #expect(throws: ChatError.self) { try AccessGrant(scopes: scopes, room: room, hook: hook) }
        }
        #expect(throws: ChatError.self) { try AccessGrant(scopes: [.post], hook: hook) }
        #expect(try AccessGrant(scopes: [.post], room: room, hook: hook).hook == hook)
    }

    @Test("The memory of a key ends with its message, its token, and after 30 days", arguments: StoreKind.allCases)
    func memory(kind: StoreKind) async throws {
        let store = try await kind.make()
        let hooks = store.stores.hooks
        let (first, second) = (
            try await make(Self.hook("alertmanager"), named: "a", in: store).token,
            try await make(Self.hook("grafana"), named: "b", in: store).token
        )
        #expect(try await hooks.memory(of: first.id, Self.key) == nil)
        var memory = HookMemory(firing: ["é": 4, "\"": 0], time: store.now())
        try await hooks.remember(memory, of: first.id, Self.key)
        try await hooks.remember(HookMemory(firing: [:], time: store.now()), of: second.id, Self.key)
        #expect(try await hooks.memory(of: first.id, Self.key) == memory)
        memory.firing = ["other": 1]
        memory.time = store.now() + .seconds(1)
        try await hooks.remember(memory, of: first.id, Self.key)
        #expect(try await hooks.memory(of: first.id, Self.key) == memory)
        #expect(try await hooks.memory(of: second.id, Self.key)?.firing == [:])
        #expect(try await hooks.memory(of: first.id, MessageKey(stored: "Disk")) == nil)
        try await hooks.forget(Self.key, of: first.id)
        try await hooks.forget(Self.key, of: first.id)
        #expect(try await hooks.memory(of: first.id, Self.key) == nil)
        _ = try await store.stores.tokens.revoke(second.id, by: .commandLine)
        try await hooks.remember(memory, of: second.id, Self.key)
        #expect(try store.query("SELECT count(*) FROM hook_memory") == [["0"]])

        memory.firing = Dictionary(uniqueKeysWithValues: (0..<1200).map { ("id\($0)", 1) })
        try await hooks.remember(memory, of: first.id, Self.key)
        #expect(try await hooks.memory(of: first.id, Self.key)?.firing.count == HookMemory.alertLimit)
        let ages = RetentionAges(messages: .seconds(86_400), queue: .seconds(86_400))
        store.advance(HookMemory.lifetime)
        _ = try await store.stores.upkeep.applyRetention(ages)
        #expect(try await hooks.memory(of: first.id, Self.key) != nil)
        store.advance(.seconds(2))
        _ = try await store.stores.upkeep.applyRetention(ages)
        #expect(try await hooks.memory(of: first.id, Self.key) == nil)
    }

    @Test("A token remembers the latest 1,000 keys", arguments: StoreKind.allCases)
    func limit(kind: StoreKind) async throws {
        let store = try await kind.make()
        let token = try await make(Self.hook("alertmanager"), in: store).token
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
            INSERT INTO hook_memory (token_id, hook_key, firing, time_used)
            SELECT \(token.id), 'k' || i, '{}', '2020-01-01 00:00:00.000' FROM n
            """)
        try await store.stores.hooks.remember(HookMemory(firing: [:], time: store.now()), of: token.id, Self.key)
        #expect(try await store.stores.hooks.memory(of: token.id, MessageKey(stored: "k998")) != nil)
        #expect(try await store.stores.hooks.memory(of: token.id, MessageKey(stored: "k999")) == nil)
        #expect(try store.query("SELECT count(*) FROM hook_memory") == [["\(HookMemory.keyLimit)"]])
    }

    @Test("Deliveries of one group at once are one message and one memory", arguments: StoreKind.allCases)
    func together(kind: StoreKind) async throws {
        let store = try await kind.make()
        let token = try await make(Self.hook("alertmanager"), in: store).token
        let (changes, hooks, now) = (store.stores.changes, store.stores.hooks, store.now())
        let messages = try await withThrowingTaskGroup(of: MessageID.self) { tasks in
            for number in 0..<8 {
                tasks.addTask {
                    let post = PostRequest(
                        member: .program(token: token.id),
                        program: PostRequest.Program(nickname: token.name, room: SecretCode(stored: "ops")),
                        content: MessageContent(stored: "alarm \(number)"))
                    let receipt = try await changes.post(KeyedPost(post, key: Self.key, renotify: true, notBefore: nil))
                    try await hooks.remember(
                        HookMemory(firing: ["\(number)": 1], time: now), of: token.id, Self.key)
                    return receipt.message
                }
            }
            return try await tasks.reduce(into: Set<MessageID>()) { $0.insert($1) }
        }
        #expect(messages.count == 1)
        #expect(try await hooks.memory(of: token.id, Self.key)?.firing.count == 1)
        #expect(try store.query("SELECT count(*) FROM messages") == [["1"]])
    }

    @Test("Unreadable deliveries are counted, with the last reason", arguments: StoreKind.allCases)
    func unreadable(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (token, secret) = try await make(Self.hook("alertmanager"), in: store)
        try await store.stores.hooks.countUnreadable(token.id, reason: "one")
        store.advance(.seconds(9))
        try await store.stores.hooks.countUnreadable(token.id, reason: "é \"two\"")
        try await store.stores.hooks.countUnreadable(99, reason: "gone")
        let found = try #require(try await store.stores.tokens.token(of: secret)?.unreadable)
        #expect(found.count == 2 && found.reason == "é \"two\"")
        #expect(found.at == Timestamp(seconds: store.now().seconds))
        for count in ["9223372036854775807", "-9223372036854775808"] {
            _ = try store.query(
                """
                UPDATE api_tokens SET unreadable =
                    '{"count":\(count),"at":"2026-01-01T00:00:00Z","reason":"other"}'
                """)
            try await store.stores.hooks.countUnreadable(token.id, reason: "three")
            #expect(try await store.stores.tokens.token(of: secret)?.unreadable?.count ?? 0 > 0)
        }
        _ = try store.query("UPDATE api_tokens SET unreadable = '[]'")
        #expect(try await store.stores.tokens.token(of: secret)?.unreadable == nil)
    }
}
