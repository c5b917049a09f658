import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatDispatch
@testable import TestStores

/// Receivers that answer as a test wants.
private struct ScriptedReceiver: WebhookTransport {
    let answer: @Sendable (WebhookRequest) async -> WebhookResponse

    func send(_ request: WebhookRequest) async -> WebhookResponse { await answer(request) }
}

@Suite("Sending of webhooks over every store", .timeLimit(.minutes(3)))
struct WebhookSenderTests {
    private static let room = SecretCode(stored: "room")
    private static let moderator = Moderator(name: "ann", address: nil)

    private func webhook(_ url: String, bot: String? = nil, onlyMentions: Bool = false, in store: TestedStore)
        async throws
        -> Webhook
    {
        try await store.stores.webhooks.create(
            WebhookSettings(
                url: url, events: [.posted], bot: bot.map(Nickname.init(stored:)), onlyMentions: onlyMentions),
            secret: .random(), by: Self.moderator)
    }

    private func sender(
        _ store: TestedStore, logger: Logger = .silent,
        _ answer: @escaping @Sendable (WebhookRequest) async -> WebhookResponse
    ) -> WebhookSender {
        let now = store.now()
        return WebhookSender(
            store: store.stores.webhooks, rooms: store.stores.rooms, transport: ScriptedReceiver(answer: answer),
            now: { now }, logger: logger)
    }

    private func post(_ text: String, _ store: TestedStore) async throws {
        let program = PostRequest.Program(nickname: Nickname(stored: "cron"), room: Self.room)
        _ = try await store.stores.rooms.post(
            PostRequest(member: .administrator, program: program, content: try MessageContent(parsing: text)))
    }

    private func answer(_ text: String) -> WebhookResponse {
        WebhookResponse(.answered(status: 200), isJSON: true, body: Array(#"{"text":"\#(text)"}"#.utf8))
    }

    private func messages(_ store: TestedStore) throws -> [[String]] {
        try store.query("SELECT nickname, text FROM messages ORDER BY message_id")
    }

    @Test(
        "A bot's answer is posted once, also if the relay dies before it has recorded it", arguments: StoreKind.allCases
    )
    func once(kind: StoreKind) async throws {
        let store = try await kind.make()
        let bot = try await webhook("https://example.org/", bot: "Bot", in: store)
        try await post("hello", store)
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        let number = Counter()
        let sender = sender(store) { [answer] _ in answer("answer \(number.add())") }
        await sender.deliver(attempt)
        // The same event again: its settlement was lost.
        await sender.deliver(attempt)
        #expect(try messages(store) == [["cron", "hello"], ["Bot", "answer 1"]])
        // The answer is a message now, and is deleted as one.
        #expect(
            try await store.stores.webhooks.deliveries(of: bot.id, in: nil, before: nil, limit: 9).items.map(\.response)
                .allSatisfy { $0?.status == 200 && $0?.body == nil })
        #expect(try await store.stores.webhooks.lease().isEmpty, "a bot does not hear itself")
    }

    @Test("Only a bot's JSON with a text is an answer", arguments: StoreKind.allCases)
    func bodies(kind: StoreKind) async throws {
        let store = try await kind.make()
        let bot = try await webhook("https://example.org/", bot: "Bot", in: store)
        let bodies: [(Bool, String)] = [
            (true, "ok"), (false, #"{"text":"as HTML"}"#), (true, ""), (true, #"{"text":" "}"#), (true, #"{"text":7}"#),
            (true, #"["text"]"#), (true, #"{"text":"\#(String(repeating: "x", count: 5000))"}"#),
        ]
        for (isJSON, body) in bodies {
            try await post("hello", store)
            let attempt = try #require(try await store.stores.webhooks.lease().first)
            await sender(store) { _ in
                WebhookResponse(.answered(status: 200), isJSON: isJSON, body: Array(body.utf8))
            }.deliver(attempt)
        }
        #expect(try messages(store).allSatisfy { $0[0] == "cron" })
        let last = try await store.stores.webhooks.deliveries(of: bot.id, in: nil, before: nil, limit: 1).items[0]
        #expect(last.state == .delivered && last.response?.error?.hasPrefix("the answer was not posted") == true)
        #expect(last.response?.body?.utf8.count == 1024)
        // Only the body of a bot becomes a message.
        _ = try await store.stores.webhooks.delete(bot.id, by: Self.moderator)
        _ = try await webhook("https://example.org/", in: store)
        try await post("hello", store)
        await sender(store) { [answer] _ in answer("no") }.deliver(
            try #require(try await store.stores.webhooks.lease().first))
        #expect(try messages(store).allSatisfy { $0[0] == "cron" })
    }

    @Test(
        "A room gets twenty messages of bots in a minute, however many relays post them", arguments: StoreKind.allCases)
    func loop(kind: StoreKind) async throws {
        let store = try await kind.make()
        for name in ["One", "Two"] { _ = try await webhook("https://example.org/\(name)", bot: name, in: store) }
        try await post("hello", store)
        var rounds = 0
        while rounds < 100 {
            // Each round has another relay, or one that has been restarted.
            let sender = sender(store) { [answer] _ in answer("and you?") }
            let attempts = try await store.stores.webhooks.lease()
            if attempts.isEmpty { break }
            for attempt in attempts { await sender.deliver(attempt) }
            rounds += 1
        }
        #expect(rounds < 100)
        #expect(try messages(store).count == 21)
    }

    @Test("A bot that wants mentions gets nothing else", arguments: StoreKind.allCases)
    func mentions(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook("https://example.org/", bot: "Bot", onlyMentions: true, in: store)
        let sent = Counter()
        try await post("hello", store)
        #expect(try await store.stores.webhooks.lease().isEmpty)
        for text in ["@others hello", "@bot hello"] {
            try await post(text, store)
            await sender(store) { _ in
                sent.add()
                return WebhookResponse(.answered(status: 204))
            }.deliver(try #require(try await store.stores.webhooks.lease().first))
        }
        #expect(sent.value == 1)
    }

    @Test("A bot's response that was cut is not posted, and the record says why", arguments: StoreKind.allCases)
    func cut(kind: StoreKind) async throws {
        let store = try await kind.make()
        let bot = try await webhook("https://example.org/", bot: "Bot", in: store)
        try await post("hello", store)
        let body = #"{"text":"hi"}"# + String(repeating: " ", count: WebhookResponse.bodyLimit)
        await sender(store) { _ in
            WebhookResponse(
                .answered(status: 200), isJSON: true, body: Array(body.utf8.prefix(WebhookResponse.bodyLimit)))
        }.deliver(try #require(try await store.stores.webhooks.lease().first))
        #expect(try messages(store) == [["cron", "hello"]])
        let last = try await store.stores.webhooks.deliveries(of: bot.id, in: nil, before: nil, limit: 1).items[0]
        #expect(last.response?.error?.contains("65536 bytes or more") == true, "\(String(describing: last.response))")
    }

    @Test("A dead receiver warns once, and counts as failing until it accepts a request", arguments: StoreKind.allCases)
    func dead(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook("https://example.org/", in: store)
        let webhooks = store.stores.webhooks
        let log = LogRecorder()
        let status = Counter()
        let sender = sender(store, logger: log.logger) { _ in
            WebhookResponse(.answered(status: status.value == 0 ? 500 : 204))
        }
        func warnings() -> Int { log.lines.count { $0.hasPrefix("warning webhook fails") } }
        for number in 1...5 {
            try await post("\(number)", store)
            store.advance(.seconds(400))
            for attempt in try await webhooks.lease() { await sender.deliver(attempt) }
            #expect(warnings() == (number < 3 ? 0 : 1), "\(number): \(log.lines)")
            #expect(try await webhooks.totals().failing == (number < 3 ? 0 : 1))
            #expect(try await webhooks.totals().active == (number < 3 ? 1 : 0))
        }
        status.add()
        store.advance(.seconds(400))
        for attempt in try await webhooks.lease() { await sender.deliver(attempt) }
        #expect(try await webhooks.totals().failing == 0)
        #expect(try await webhooks.webhook(webhook.id)?.failures == 0)
    }

    @Test("A receiver that hangs delays no other", arguments: StoreKind.allCases)
    func hanging(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...5 { _ = try await webhook("https://example.org/hang\(number)", in: store) }
        let other = try await webhook("https://example.org/ok", in: store)
        for number in 1...10 { try await post("\(number)", store) }
        let sender = sender(store) { request in
            if request.url.contains("hang") {
                try? await Task.sleep(for: .seconds(600))
                return WebhookResponse(.unanswered("cancelled"))
            }
            return WebhookResponse(.answered(status: 200))
        }
        let webhooks = store.stores.webhooks
        let running = Task { try await sender.run() }
        try await eventually("the other gets all") {
            try await webhooks.deliveries(of: other.id, in: .delivered, before: nil, limit: 20).items.count == 10
        }
        running.cancel()
        _ = try? await running.value
        // The relay has stopped. The event under way is sent again, and the attempt does not count.
        let first = try await webhooks.deliveries(of: 1, in: .waiting, before: nil, limit: 20).items.last
        #expect(first?.attempts == 0)
    }
}
