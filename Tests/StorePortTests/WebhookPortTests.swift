import ChatDomain
import Testing

@testable import TestStores

/// Tests the requirements of `docs/stores.md` for webhooks, in every store.
@Suite("Webhooks in every store", .timeLimit(.minutes(3)))
struct WebhookPortTests {
    private static let room = SecretCode(stored: "room")
    private static let moderator = Moderator(name: "ann", address: nil)
    private static let secret = WebhookSecret(stored: Array(0..<32))

    private func webhook(
        room: SecretCode? = nil, token: Int64? = nil, events: Set<WebhookEventKind>? = nil, bot: Nickname? = nil,
        in store: TestedStore
    ) async throws -> Webhook {
        try await store.stores.webhooks.create(
            WebhookSettings(url: "https://example.org/secret", room: room, token: token, events: events, bot: bot),
            secret: Self.secret, by: Self.moderator)
    }

    private func post(
        _ text: String, in room: SecretCode = Self.room, as writer: MemberID = .administrator, key: String? = nil,
        _ store: TestedStore
    ) async throws -> MessageID {
        let request = try Self.request(text, in: room, as: writer)
        guard let key else { return try await store.stores.rooms.post(request).message }
        return try await store.stores.changes.post(KeyedPost(request, key: MessageKey(stored: key))).message
    }

    private static func request(
        _ text: String, in room: SecretCode = Self.room, as writer: MemberID = .administrator
    ) throws -> PostRequest {
        PostRequest(
            member: writer, program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: room),
            content: try MessageContent(parsing: text))
    }

    private func settle(
        _ attempt: WebhookAttempt, _ outcome: WebhookOutcome = .answered(status: 200), in store: TestedStore
    ) async throws {
        let settlement = WebhookLifeCycle.settlement(
            of: outcome, attempts: attempt.event.attempts, failures: attempt.failures, now: store.now(), random: 0.5)
        let response = WebhookEvent.Response(status: 200, body: "ok", duration: .milliseconds(12))
        try await store.stores.webhooks.settle(attempt, settlement, response)
    }

    /// Delivers all events that are due.
    private func events(_ store: TestedStore) async throws -> [WebhookEvent] {
        var events: [WebhookEvent] = []
        while true {
            let attempts = try await store.stores.webhooks.lease()
            if attempts.isEmpty { return events }
            for attempt in attempts {
                events.append(attempt.event)
                try await settle(attempt, in: store)
            }
        }
    }

    private func triggers(_ store: TestedStore, _ kind: StoreKind) throws -> Int {
        try store.value(
            kind == .sqlite
                ? "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"
                : "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'webhook%' AND tgenabled <> 'D'")
    }

    @Test("Triggers exist only while a webhook asks for their events", arguments: StoreKind.allCases)
    func triggers(kind: StoreKind) async throws {
        let store = try await kind.make()
        #expect(try triggers(store, kind) == 0)
        let first = try await webhook(events: [.posted], in: store)
        #expect(try triggers(store, kind) == 1)
        let all = try await webhook(events: Set(WebhookEventKind.allCases), in: store)
        #expect(try triggers(store, kind) == 7)
        try await store.restart()
        #expect(try triggers(store, kind) == 7)
        #expect(try await store.stores.webhooks.delete(all.id, by: Self.moderator))
        #expect(try triggers(store, kind) == 1)
        var settings = first.settings
        settings.events = [.joined, .left]
        let changed = try await store.stores.webhooks.change(
            first.id, to: WebhookEdit(settings: settings), by: Self.moderator)
        #expect(changed?.settings.events == [.joined, .left])
        #expect(try triggers(store, kind) == 2)
        #expect(try await store.stores.webhooks.delete(first.id, by: Self.moderator))
        #expect(try await !store.stores.webhooks.delete(first.id, by: Self.moderator))
        #expect(try triggers(store, kind) == 0)
        // A trigger of an earlier version ends, and a disabled one begins again.
        _ = try store.query(
            kind == .sqlite
                ? "CREATE TRIGGER webhook_old_1 AFTER INSERT ON messages BEGIN SELECT 1; END"
                : """
                CREATE FUNCTION webhook_old_1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
                CREATE TRIGGER webhook_old_1 AFTER INSERT ON messages EXECUTE FUNCTION webhook_old_1()
                """)
        try await store.stores.webhooks.dropExcess()
        #expect(try triggers(store, kind) == 0)
        let last = try await webhook(events: [.posted], in: store)
        #expect(try triggers(store, kind) == 1)
        #expect(try await store.stores.webhooks.delete(last.id, by: Self.moderator))
        _ = try await post("unheard", store)
        #expect(try store.value("SELECT count(*) FROM webhook_events") == 0)
        let records = try await store.stores.moderation.records(before: nil, limit: 10).items
        #expect(records.map(\.action) == Array(repeating: "webhook", count: 7))
        #expect(records.last?.subject == "webhook 1 created: https://example.org")
    }

    @Test("Messages and their changes, entries and departures are events in their order", arguments: StoreKind.allCases)
    func events(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: Set(WebhookEventKind.allCases), in: store)
        try await store.stores.rooms.join(StoreFixture.join(1))
        let message = try await post("down", key: "a", store)
        store.advance(.seconds(1))
        #expect(try await post("still down", key: "a", store) == message)
        let author = ChangeAuthor(writer: .administrator, isAdmin: true, room: Self.room)
        _ = try await store.stores.changes.change(MessageChangeRequest(.id(message), by: author, .resolve(nil)))
        _ = try await store.stores.changes.change(MessageChangeRequest(.id(message), by: author, .delete))
        _ = try await store.stores.rooms.leave(StoreFixture.member(1))
        let leased = try await store.stores.webhooks.lease()
        #expect(leased.count == 1 && leased[0].secrets == [Self.secret] && leased[0].settings == webhook.settings)
        #expect(try await store.stores.webhooks.lease().isEmpty, "a webhook has one event at a time under way")
        try await settle(leased[0], in: store)
        let all = [leased[0].event] + (try await events(store))
        #expect(
            all.map(\.type) == [
                "member.joined", "message.posted", "message.edited", "message.resolved", "message.deleted",
                "member.left",
            ])
        #expect(all.allSatisfy { $0.room == Self.room && $0.attempts == 1 })
        #expect(all.map(\.message) == [nil, message, message, message, message, nil])
        #expect(all.first?.details["name"] != nil && all.first?.details == all.last?.details)
        let stored = try await store.stores.webhooks.deliveries(of: webhook.id, in: .delivered, before: nil, limit: 4)
        #expect(stored.items.map(\.type) == all.reversed().prefix(4).map(\.type) && stored.next != nil)
        #expect(stored.items[0].response == WebhookEvent.Response(status: 200, body: "ok", duration: .milliseconds(12)))
        #expect(try await store.stores.webhooks.webhook(webhook.id)?.lastSuccess == store.now())
    }

    @Test(
        "A webhook gets only events of its room and token, and a bot none of its messages",
        arguments: StoreKind.allCases)
    func filters(kind: StoreKind) async throws {
        let store = try await kind.make()
        let token = try await store.stores.tokens.create(
            AccessToken.name("cron"), AccessGrant(scopes: [.post]), expiresAt: nil
        ).token.id
        let rooms = try await webhook(room: Self.room, in: store)
        let tokens = try await webhook(token: token, in: store)
        let bot = try await webhook(bot: Nickname(stored: "bot"), in: store)
        let other = SecretCode(stored: "other")
        let (first, second) = (
            try await post("1", store), try await post("2", in: other, as: .program(token: token), store)
        )
        let third = try await post("3", as: .bot(webhook: bot.id), store)
        let all = try await events(store)
        func messages(of webhook: Webhook) -> [MessageID?] { all.filter { $0.webhook == webhook.id }.map(\.message) }
        #expect(messages(of: rooms) == [first, third])
        #expect(messages(of: tokens) == [second])
        #expect(messages(of: bot) == [first, second])
        #expect(try await store.stores.webhooks.botMessages(in: Self.room, since: store.now() - .seconds(60)) == 1)
        #expect(try await store.stores.webhooks.botMessages(in: other, since: store.now() - .seconds(60)) == 0)
        // A webhook of a token ends with it.
        _ = try await store.stores.tokens.revoke(token, by: Self.moderator)
        #expect(try await store.stores.webhooks.webhooks().map(\.id) == [rooms.id, bot.id])
        await #expect(throws: ChatError.self) { try await webhook(token: 99, in: store) }
    }

    @Test("A deleted text is not sent, and a room's webhook follows its code", arguments: StoreKind.allCases)
    func deleted(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook(room: Self.room, events: [.posted], in: store)
        let message = try await post("secret", store)
        try await store.stores.moderation.delete(message, by: Self.moderator)
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        #expect(attempt.record == nil && !attempt.event.body(nil).contains("secret"))
        try await settle(attempt, in: store)
        let code = SecretCode(stored: "new")
        _ = try await post("here", store)
        _ = try await store.stores.moderation.recode(Self.room, to: code, by: Self.moderator)
        let moved = try await post("there", in: code, store)
        #expect(try await store.stores.webhooks.webhooks().first?.settings.room == code)
        let attempts = try await store.stores.webhooks.lease()
        #expect(attempts.first?.record?.room == code)
        try await settle(try #require(attempts.first), in: store)
        #expect(try await events(store).map(\.message) == [moved])
    }

    @Test("Events keep their order for three attempts, and a lease ends after a kill", arguments: StoreKind.allCases)
    func order(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook(events: [.posted], in: store)
        let first = try await post("1", store)
        var later: [MessageID] = []
        for text in ["2", "3"] { later.append(try await post(text, store)) }
        for pause in WebhookLifeCycle.pauses.prefix(3) {
            let attempts = try await store.stores.webhooks.lease()
            #expect(attempts.map(\.event.message) == [first])
            try await settle(attempts[0], .answered(status: 500), in: store)
            #expect(try await store.stores.webhooks.lease().isEmpty)
            if pause != WebhookLifeCycle.pauses[2] { store.advance(pause) } else { store.advance(.seconds(10)) }
        }
        #expect(try await store.stores.webhooks.webhooks()[0].failures == 3)
        // Later events overtake, and a success makes the first one due.
        let killed = try await store.stores.webhooks.lease()
        #expect(killed.map(\.event.message) == [later[0]])
        // The file has one relay, so its next one frees the lease at once.
        try await store.restart()
        if kind == .postgres {
            #expect(try await store.stores.webhooks.lease().isEmpty)
            store.advance(WebhookLifeCycle.lease)
        }
        let again = try await store.stores.webhooks.lease()
        #expect(again.map(\.event.message) == [later[0]] && again[0].event.attempts == 2)
        // The relay that was silent for too long reports at last. Only a delivery counts.
        try await settle(killed[0], .answered(status: 500), in: store)
        #expect(try await store.stores.webhooks.lease().isEmpty)
        let sent = try await store.stores.webhooks.deliveries(
            of: again[0].event.webhook, in: .waiting, before: nil, limit: 9
        ).items.first { $0.id == again[0].event.id }
        #expect(sent?.attempts == 2 && sent?.response == nil)
        try await settle(again[0], in: store)
        #expect(try await events(store).map(\.message) == [first, later[1]])
    }

    @Test("Events of a webhook that has ended have the reason, and no next attempt", arguments: StoreKind.allCases)
    func waitingAtTheEnd(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        _ = (try await post("1", store), try await post("2", store))
        try await settle(try #require(try await store.stores.webhooks.lease().first), .answered(status: 500), in: store)
        _ = try await store.stores.webhooks.test(webhook.id)
        try await settle(try #require(try await store.stores.webhooks.lease().first), .answered(status: 410), in: store)
        try await store.stores.webhooks.dropExcess()
        let failed = try await store.stores.webhooks.deliveries(of: webhook.id, in: .failed, before: nil, limit: 10)
        #expect(failed.items.map(\.attempts) == [1, 0, 1])
        let reason = "the webhook has ended"
        #expect(failed.items.map(\.response?.error) == [nil, reason, reason])
        #expect(failed.items.map(\.notBefore) == [nil, nil, nil])
    }

    @Test("410 ends a webhook, and an operator resumes it", arguments: StoreKind.allCases)
    func ended(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        _ = (try await post("1", store), try await post("2", store))
        try await settle(try #require(try await store.stores.webhooks.lease().first), .answered(status: 410), in: store)
        try await store.stores.webhooks.dropExcess()
        #expect(try triggers(store, kind) == 0)
        let ended = try #require(try await store.stores.webhooks.webhook(webhook.id))
        #expect(ended.state == .ended && ended.reason == "the receiver answered 410 Gone" && ended.waiting == 0)
        _ = try await post("3", store)
        let failed = try await store.stores.webhooks.deliveries(of: webhook.id, in: nil, before: nil, limit: 10).items
        #expect(failed.map(\.state) == [.failed, .failed])
        await #expect(throws: ChatError.self) {
            try await store.stores.webhooks.redeliver(.all(.failed), of: webhook.id)
        }
        let resumed = try await store.stores.webhooks.change(
            webhook.id, to: WebhookEdit(settings: webhook.settings, state: .active), by: Self.moderator)
        #expect(resumed?.state == .active && resumed?.failures == 0 && resumed?.reason == nil)
        _ = try await post("4", store)
        #expect(try await store.stores.webhooks.redeliver(.events([failed[1].id]), of: webhook.id) == 1)
        #expect(try await store.stores.webhooks.redeliver(.all(.failed), of: webhook.id) == 1)
        #expect(try await events(store).count == 3)
        let paused = try await store.stores.webhooks.change(
            webhook.id, to: WebhookEdit(settings: webhook.settings, state: .paused), by: Self.moderator)
        #expect(paused?.reason == "by ann")
        await #expect(throws: ChatError.self) { try await store.stores.webhooks.test(webhook.id) }
        #expect(try await store.stores.webhooks.lease().isEmpty)
        #expect(try await store.stores.webhooks.totals().paused == 1)
    }

    @Test("A webhook whose receiver fails for too long is paused, and keeps its events", arguments: StoreKind.allCases)
    func paused(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        for text in ["1", "2"] { _ = try await post(text, store) }
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        let last = WebhookLifeCycle.settlement(
            of: .answered(status: 500), attempts: 10, failures: 9, now: store.now(), random: 0.5)
        try await store.stores.webhooks.settle(attempt, last, WebhookEvent.Response(status: 500, duration: .zero))
        store.advance(.seconds(600))
        #expect(try await store.stores.webhooks.lease().isEmpty)
        let paused = try #require(try await store.stores.webhooks.webhook(webhook.id))
        #expect(paused.state == .paused && paused.failures == 10 && paused.waiting == 1)
        #expect(paused.reason == "10 requests have failed in a row: the last response was 500")
    }

    @Test("A new secret and the old one sign for a day", arguments: StoreKind.allCases)
    func rotation(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        let next = WebhookSecret(stored: Array(32..<64))
        #expect(
            try await store.stores.webhooks.rotate(webhook.id, to: next, by: Self.moderator)?.rotatesUntil
                == store.now() + Webhook.rotation)
        _ = try await store.stores.webhooks.test(webhook.id)
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        #expect(attempt.secrets == [next, Self.secret] && attempt.event.type == WebhookEventKind.test)
        try await store.stores.webhooks.release(attempt)
        store.advance(Webhook.rotation)
        let later = try #require(try await store.stores.webhooks.lease().first)
        #expect(later.secrets == [next] && later.event.attempts == 1)
    }

    @Test("Failed pushes of a message, and gone devices of an app, are one event", arguments: StoreKind.allCases)
    func folded(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook(events: [.pushFailed, .deviceGone], in: store)
        for number in 1...4 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        let message = try await store.stores.rooms.post(StoreFixture.post(1, "hello")).message
        let pushes = try await store.lease()
        #expect(pushes.count == 3)
        let gone = Transition(.failed(reason: "Unregistered"), adding: PushHistory(attempts: 1))
        try await store.settle(Array(pushes.prefix(2)), gone)
        try await store.settle([pushes[2]], gone)
        _ = try store.query(
            "UPDATE devices SET time_deactivated = \(store.time(store.now())), deactivated_reason = 'Unregistered'")
        let all = try await events(store).sorted { $0.type < $1.type }
        #expect(all.map(\.type) == ["device.gone", "push.failed"])
        #expect(all.map(\.count) == [4, 3])
        #expect(all[0].details["devices"]?.array?.count == 4 && all[1].message == message && all[1].room == Self.room)
    }

    @Test("A test goes before a failing event and all that wait", arguments: StoreKind.allCases)
    func tests(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        for text in ["1", "2"] { _ = try await post(text, store) }
        try await settle(try #require(try await store.stores.webhooks.lease().first), .answered(status: 500), in: store)
        #expect(try await store.stores.webhooks.lease().isEmpty)
        let test = try await store.stores.webhooks.test(webhook.id)
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        #expect(attempt.event.id == test)
        // A test that fails holds back nothing.
        try await settle(attempt, .answered(status: 500), in: store)
        store.advance(.seconds(5))
        let again = try #require(try await store.stores.webhooks.lease().first)
        #expect(again.event.id == test)
        try await settle(again, .answered(status: 500), in: store)
        store.advance(.seconds(10))
        #expect(try await store.stores.webhooks.lease().first?.event.message != nil)
    }

    @Test("A clock that was set back stops no webhook", arguments: StoreKind.allCases)
    func clock(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook(events: [.posted], in: store)
        _ = try await post("1", store)
        let later = WebhookOutcome.answered(status: 429, retryAfter: store.now() + .seconds(86_400))
        try await settle(try #require(try await store.stores.webhooks.lease().first), later, in: store)
        #expect(try await store.stores.webhooks.lease().isEmpty)
        store.advance(.seconds(-86_400))
        let attempt = try #require(try await store.stores.webhooks.lease().first)
        // The lease of a relay that was killed ends by this relay's clock, wherever it goes.
        #expect(try await store.stores.webhooks.lease().isEmpty)
        store.advance(.seconds(-86_400))
        #expect(try await store.stores.webhooks.lease().isEmpty)
        store.advance(WebhookLifeCycle.lease)
        #expect(try await store.stores.webhooks.lease().first?.event.id == attempt.event.id)
    }

    @Test("A late response to a dropped event does not settle the one in its place", arguments: StoreKind.allCases)
    func late(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await webhook(events: [.posted], in: store)
        _ = try await post("1", store)
        let dropped = try #require(try await store.stores.webhooks.lease().first)
        store.advance(WebhookLifeCycle.longestRetry + .seconds(1))
        _ = try await store.stores.upkeep.applyRetention(
            RetentionAges(messages: .seconds(9e8), queue: .seconds(60), webhooks: .seconds(9e8)))
        try await settle(dropped, in: store)
        #expect(try await events(store).map(\.type) == [WebhookEventKind.gap])
    }

    @Test("Events above the limits become one that says how many, in their place", arguments: StoreKind.allCases)
    func gap(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted], in: store)
        for text in ["1", "2"] { _ = try await post(text, store) }
        store.advance(WebhookLifeCycle.longestWait + .seconds(1))
        let last = try await post("3", store)
        let ages = RetentionAges(messages: .seconds(9e8), queue: .seconds(60))
        // By number alone: the clock may be wrong.
        try await store.stores.webhooks.dropExcess()
        let waiting = try await store.stores.webhooks.deliveries(of: webhook.id, in: .waiting, before: nil, limit: 9)
        #expect(waiting.items.count == 3)
        for _ in 1...2 { _ = try await store.stores.upkeep.applyRetention(ages) }
        let all = try await events(store)
        #expect(all.map(\.type) == [WebhookEventKind.gap, "message.posted"] && all.last?.message == last)
        #expect(all[0].details["events"]?.integer == 2)
        store.advance(.seconds(8 * 86_400))
        _ = try await store.stores.upkeep.applyRetention(ages)
        #expect(
            try await store.stores.webhooks.deliveries(of: webhook.id, in: nil, before: nil, limit: 9).items.isEmpty)
    }

    @Test("Events above the largest number become one, also while one is under way", arguments: StoreKind.allCases)
    func excess(kind: StoreKind) async throws {
        let store = try await kind.make()
        let limited = store.webhooks(mostWaiting: 3)
        let webhook = try await webhook(events: [.posted], in: store)
        var messages: [MessageID?] = []
        for text in ["1", "2", "3"] { messages.append(try await post(text, store)) }
        func waiting() async throws -> [WebhookEvent] {
            try await limited.deliveries(of: webhook.id, in: .waiting, before: nil, limit: 9).items.reversed()
        }
        try await limited.dropExcess()
        #expect(try await waiting().map(\.message) == messages)
        // The event under way takes the place of the gap.
        let first = try #require(try await limited.lease().first)
        messages.append(try await post("4", store))
        try await limited.dropExcess()
        #expect(try await waiting().map(\.message) == [nil] + messages[1...])
        try await settle(first, .answered(status: 500), in: store)
        #expect(try await waiting().first?.response == nil)
        store.advance(.seconds(1))
        let gap = try #require(try await limited.lease().first)
        #expect(gap.event.type == WebhookEventKind.gap && gap.event.details["events"]?.integer == 1)
        // A relay that was silent for too long reports that its receiver accepted the dropped event.
        try await settle(first, in: store)
        #expect(try await waiting().first?.type == WebhookEventKind.gap)
        // The gap under way goes into the next one, which is sent as well.
        for text in ["5", "6"] { messages.append(try await post(text, store)) }
        try await limited.dropExcess()
        #expect(try await waiting().map(\.message) == [nil] + messages[3...])
        try await settle(gap, in: store)
        let all = try await events(store)
        #expect(all.map(\.message) == [nil] + messages[3...])
        #expect(all[0].type == WebhookEventKind.gap && all[0].details["events"]?.integer == 3)
        #expect(all[0].details["from"] == .time(first.event.time))
    }

    @Test("More events than are counted become one in steps", arguments: StoreKind.allCases)
    func manyInExcess(kind: StoreKind) async throws {
        let store = try await kind.make()
        let most = Webhook.countedEvents + 5
        let webhook = try await webhook(events: [.posted], in: store)
        _ = try store.query(
            """
            INSERT INTO webhook_events (webhook_id, type)
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < \(most + 1200))
            SELECT \(webhook.id), 'message.posted' FROM numbers
            """)
        try await store.webhooks(mostWaiting: most).dropExcess()
        let count = "SELECT count(*) FROM webhook_events WHERE type = 'message.posted'"
        #expect(try store.value(count) == most)
        let gap = try #require(try await store.stores.webhooks.lease().first?.event)
        #expect(gap.type == WebhookEventKind.gap && gap.details["events"]?.integer == 1200)
        try await store.webhooks(mostWaiting: most).dropExcess()
        #expect(try store.value(count) == most)
    }

    @Test("A response is forgotten with its message, because it may repeat the text", arguments: StoreKind.allCases)
    func responses(kind: StoreKind) async throws {
        let store = try await kind.make()
        let webhook = try await webhook(events: [.posted, .joined], in: store)
        try await store.stores.rooms.join(StoreFixture.join(1))
        let deleted = try await post("secret", store)
        _ = try await post("kept", store)
        _ = try await events(store)
        try await store.stores.moderation.delete(deleted, by: Self.moderator)
        _ = try await store.stores.upkeep.applyRetention(RetentionAges(messages: .seconds(9e8), queue: .seconds(60)))
        let stored = try await store.stores.webhooks.deliveries(of: webhook.id, in: nil, before: nil, limit: 9).items
        #expect(stored.map(\.response?.body) == ["ok", nil, "ok"])
        #expect(stored.map(\.response?.status) == [200, 200, 200])
    }

    @Test("The first webhook begins while another connection posts", arguments: StoreKind.allCases)
    func first(kind: StoreKind) async throws {
        let store = try await kind.make()
        // Its statements are prepared before the trigger exists.
        var messages = [try await post("before", store)]
        let other = try await store.another()
        let rooms = store.stores.rooms
        let posting = Task {
            var messages: [MessageID] = []
            for number in 1...40 { messages.append(try await rooms.post(Self.request("\(number)")).message) }
            return messages
        }
        _ = try await other.stores.webhooks.create(
            WebhookSettings(url: "https://example.org/", events: [.posted]), secret: Self.secret, by: Self.moderator)
        let after = try await post("after", store)
        messages = (messages + (try await posting.value) + [after]).sorted()
        let heard = try store.query("SELECT message_id FROM webhook_events ORDER BY event_id").map { $0[0] }
        #expect(heard.contains("\(after)"))
        #expect(heard == messages.suffix(heard.count).map { "\($0)" })
        try other.close()
    }
}
