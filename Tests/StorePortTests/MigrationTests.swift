import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import ChatStorePostgres
@testable import TestStores

/// `pushchat migrate` between a file and a server's database, both filled through the ports.
@Suite("Moves from one store to the other", .timeLimit(.minutes(2)))
struct MigrationTests {
    /// The database of a store.
    private enum Base {
        case file(StoreFixture)
        case server(PostgresFixture)

        init(_ kind: StoreKind, isEmpty: Bool = false) throws {
            switch kind {
            case .sqlite: self = .file(try StoreFixture())
            case .postgres: self = .server(try PostgresFixture(isEmpty: isEmpty))
            }
        }

        /// An empty database of the other kind.
        func other() throws -> Base {
            switch self {
            case .file: try Base(.postgres, isEmpty: true)
            case .server: try Base(.sqlite)
            }
        }

        var now: Timestamp {
            get {
                switch self {
                case .file(let fixture): fixture.time.now
                case .server(let fixture): fixture.time.now
                }
            }
            nonmutating set {
                switch self {
                case .file(let fixture): fixture.time.now = newValue
                case .server(let fixture): fixture.time.now = newValue
                }
            }
        }

        /// A flag that is set, in a statement.
        var flag: String {
            switch self {
            case .file: "1"
            case .server: "true"
            }
        }

        /// Runs a statement as another program.
        func query(_ sql: String) throws {
            switch self {
            case .file(let fixture): _ = try fixture.query(sql)
            case .server(let fixture): try fixture.query(sql)
            }
        }

        func value(_ sql: String) throws -> Int {
            switch self {
            case .file(let fixture): try fixture.value(sql)
            case .server(let fixture): try fixture.value(sql)
            }
        }

        /// Opens the store for a moment, as a relay does.
        func use<Result>(_ body: (Stores) async throws -> Result) async throws -> Result {
            switch self {
            case .file(let fixture):
                let stores = try fixture.open()
                defer { try? stores.close() }
                _ = try await stores.upkeep.prepare()
                return try await body(stores.ports)
            case .server(let fixture):
                let stores = try await fixture.open()
                defer { stores.close() }
                return try await body(stores.ports)
            }
        }

        /// Copies this database into an empty one, and sets its clock.
        func copy(to target: Base, isStopped: () -> Bool = { false }) throws -> [Migration.Copied] {
            target.now = now
            switch (self, target) {
            case (.file(let file), .server(let server)):
                return try SQLiteMigration.read(file.path) { source in
                    try PostgresMigration.write(PostgresConfiguration(url: server.url)) {
                        try Migration.run(from: source, to: $0, isStopped: isStopped)
                    }
                }
            case (.server(let server), .file(let file)):
                return try PostgresMigration.read(PostgresConfiguration(url: server.url)) { source in
                    try SQLiteMigration.write(file.path) {
                        try Migration.run(from: source, to: $0, isStopped: isStopped)
                    }
                }
            default: throw ChatError.invalid("target", "must be of the other kind")
            }
        }

        /// Whether a move has left nothing there.
        func isUntouched() throws -> Bool {
            switch self {
            case .file(let fixture):
                let names = try FileManager.default.contentsOfDirectory(atPath: fixture.directory.path)
                return names.filter { !$0.hasSuffix(".lock") }.isEmpty
            case .server(let fixture):
                return try fixture.value("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
                    == 0
            }
        }
    }

    private static let program = PostRequest.Program(
        nickname: Nickname(stored: "cron"), room: SecretCode(stored: "room"))

    private func lease(_ stores: Stores) async throws -> [QueuedPush] {
        try await stores.queue.lease(app: .default, lanes: PushLane.allCases, limit: 100).pushes
    }

    private func settle(_ push: QueuedPush, _ transition: Transition, _ stores: Stores) async throws {
        let settled = try await stores.queue.settle(
            [Settlement(push.id...push.id, transition, notification: push.notification)], app: .default)
        #expect(settled.map(\.count) == [1])
    }

    private func register(_ number: Int, _ edit: DeviceEdit = DeviceEdit(), in stores: Stores) async throws {
        var request = RegistrationRequest(token: try StoreFixture.token(number), app: .default, edit: edit)
        request.edit.client = ClientInfo(appVersion: "2.\(number)", osVersion: "9", deviceModel: "iPad")
        _ = try await stores.devices.register(request)
    }

    /// Fills every table, over two days. Some ids are assigned and then deleted.
    private func fill(_ base: Base) async throws {
        try await base.use { stores in
            for number in 1...4 { try await stores.rooms.join(StoreFixture.join(number)) }
            try await stores.rooms.join(StoreFixture.join(5, "else\\where", tokenless: true))
            let first = try await stores.rooms.post(StoreFixture.post(1, "hello", key: "k"))
            _ = try await stores.rooms.post(
                PostRequest(
                    member: MemberID(stored: "token:1"), program: Self.program,
                    content: try MessageContent(
                        parsing: "done", title: "T", link: "https://example.com/", sound: "", isUrgent: true,
                        extras: MessageExtras(stored: #"{"later":[1]}"#))))
            stores.feed.handedOut(first.message, to: try StoreFixture.member(4))
            _ = try await stores.rooms.leave(StoreFixture.member(4))

            let pushes = try await lease(stores)
            #expect(pushes.count == 7)
            let once = PushHistory(attempts: 1)
            try await settle(pushes[0], Transition(.sent, adding: once), stores)
            try await settle(pushes[1], Transition(.failed(reason: "BadTopic", hint: "which?")), stores)
            try await settle(
                pushes[2], Transition(.waiting(until: base.now + .seconds(30), reason: "Busy"), adding: once), stores)
            try await settle(
                pushes[3],
                Transition(.due(.retry, reason: "Lost"), adding: PushHistory(attempts: 1, unanswered: 1)), stores)
            base.now = base.now + .seconds(86_400)
            try await settle(pushes[4], Transition(.expired, adding: once), stores)
            try await settle(pushes[5], Transition(.sent, adding: once), stores)

            try await register(
                11,
                DeviceEdit(
                    user: .set(UserReference(stored: "ann")), clientInfo: .set("c\t"), serverInfo: .set("s"),
                    tags: [ChatDomain.Tag(stored: "a"), ChatDomain.Tag(stored: "ä")]), in: stores)
            for number in 12...13 { try await register(number, in: stores) }
            #expect(try await stores.devices.unregister(StoreFixture.token(13), app: nil))
            func report(_ number: Int) throws -> FeedbackReport {
                FeedbackReport(token: try StoreFixture.token(number), since: base.now)
            }
            try await stores.feedback.record([report(12)], app: .default)
            _ = try await stores.feedback.actOnFeedback()
            try await stores.feedback.record([report(99)], app: .default)

            let payload = #"{"aps":{"alert":"x"}}"#
            for (key, notBefore) in [("a", nil), ("b", base.now + .seconds(3600)), ("c", nil)] {
                let id = try await stores.notifications.send(
                    NotificationRequest(
                        audience: .all, payload: payload, expiration: 2_000_000_000, priority: 5, collapseID: "z",
                        notBefore: notBefore, skipsUnchanged: key == "a", idempotencyKey: key)
                ).id
                if key == "c" { _ = try await stores.notifications.cancel(id) }
            }

            let kept = try await stores.tokens.create(
                AccessToken.name("backup"),
                AccessGrant(scopes: [.post, .send], room: SecretCode(parsing: "room")),
                expiresAt: base.now + .seconds(9))
            let gone = try await stores.tokens.create(
                AccessToken.name("gone"), AccessGrant(scopes: [.read]), expiresAt: nil)
            _ = try await stores.tokens.revoke(gone.token.id, by: .commandLine)
            #expect(try await stores.tokens.token(of: kept.secret) == kept.token)

            // The clients of the member, of the token and of a revoked credential.
            for owner in [.member(try StoreFixture.member(2)), .token(kept.token.id)] as [CredentialOwner] {
                _ = try await stores.clients.createCredential(Credential.name("phone"), for: owner)
            }
            let revoked = try await stores.clients.createCredential(
                Credential.name("gone"), for: .token(kept.token.id))
            _ = try await stores.clients.revokeCredential(revoked.credential.id, of: nil)
            _ = try await stores.clients.alias(of: SecretCode(stored: "room"))
            try await stores.pollRequests.polled(SecretCode(stored: "room"))
            let topic = try #require(UnifiedPushTopic("upAbCdEf123456"))
            _ = try await stores.unifiedPush.claim([topic], for: .token(kept.token.id))
            _ = try await stores.unifiedPush.post([0xFF, 0x00], to: topic)
            let content = try ActivityContent(
                #require(
                    try JSONValue(parsing: #"{"event":"start","state":{"n":1},"alert":{"title":"x"}}"#).object))
            let tag = ActivityTag(stored: "order-17")
            _ = try await stores.activities.accept(
                ActivityRequest(
                    tag: tag, app: .default, content: content, audience: nil, token: kept.token.id,
                    isAdministrator: true))
            try await stores.activities.report(
                ActivityTokenReport(token: StoreFixture.token(61), use: .update(tag), system: 18),
                by: StoreFixture.member(2))
            try await stores.activities.report(
                ActivityTokenReport(token: StoreFixture.token(62), use: .start(type: "Score"), system: nil),
                by: StoreFixture.member(2))
            try await stores.clients.hide(first.message + 1, from: "credential:1")
            try await stores.clients.hideAll(
                upTo: first.message, in: SecretCode(stored: "room"), from: "credential:2")

            let moderator = Moderator(name: "admin", address: "192.0.2.9")
            _ = try await stores.moderation.ban(
                BanRequest(.udid(StoreFixture.member(8), room: nil), reason: "spam"), by: moderator)
            let closed = try await stores.moderation.ban(
                BanRequest(.room(SecretCode(stored: "shut")), endsAt: base.now + .seconds(60)), by: moderator)
            try await stores.moderation.endBan(closed.id, by: moderator)
            let last = try await stores.rooms.post(StoreFixture.post(2, "never said"))
            try await stores.moderation.delete(last.message, by: moderator)
            let member = try await stores.records.members(of: SecretCode(stored: "room"), after: nil, limit: 9).items[2]
            try await stores.moderation.remove(member.id, by: moderator)
            let hook = try await stores.tokens.create(
                AccessToken.name("hook"),
                AccessGrant(
                    scopes: [.post], room: SecretCode(stored: "room"),
                    hook: HookGrant(stored: #"{"format":"json","secret":"é"}"#)),
                expiresAt: nil)
            try await stores.hooks.remember(
                HookMemory(firing: ["é": 4, "b": 0], time: base.now), of: hook.token.id, MessageKey(stored: "disk"))
            try await stores.hooks.countUnreadable(hook.token.id, reason: "no JSON")
            let webhook = try await stores.webhooks.create(
                WebhookSettings(
                    url: "https://example.org/é", room: SecretCode(stored: "room"), events: [.edited, .posted],
                    bot: Nickname(stored: "é"), onlyMentions: true),
                secret: WebhookSecret(stored: [0xFF, 0x00]), by: moderator)
            _ = try await stores.webhooks.test(webhook.id)
            let attempt = try #require(try await stores.webhooks.lease().first)
            try await stores.webhooks.settle(
                attempt,
                WebhookLifeCycle.settlement(
                    of: .answered(status: 500), attempts: 1, failures: 0, now: base.now, random: 0.5),
                WebhookEvent.Response(status: 500, body: "é", duration: .milliseconds(5)))
            _ = try await stores.webhooks.rotate(webhook.id, to: WebhookSecret(stored: [1]), by: moderator)
            _ = try await stores.queueAdministration.pause(AppName("held"), reason: "é", by: moderator)

            try await stores.subscriptions.keep(
                Subscription(
                    address: StoreFixture.token(50), endpoint: "https://push.example.org/1",
                    publicKey: [UInt8](repeating: 0xFE, count: 65), secret: [UInt8](0..<16),
                    expiresAt: Timestamp(seconds: 1_900_000_000)))
            _ = try await stores.subscriptions.vapidKey { "key" }
            _ = try await stores.providerTokens.providerToken(
                for: ProviderKeyName(teamID: "TEAM", keyID: "KEY", fingerprint: "f"), refused: nil, sign: { _ in "jwt" }
            )
        }
        // Characters that COPY escapes, control characters that it does not escape, and characters of several bytes.
        try base.query(
            "UPDATE messages SET text = '\\N \\\\ \t \n \r \u{8} \u{B} \u{C} \u{1} \u{7F} é 👩‍👩‍👧' WHERE message_id = 2")
        try base.query("UPDATE active_users SET fetched_to = 2, time_fetched = time_joined WHERE member_id = 2")
        // Unfinished work.
        try base.query("UPDATE messages SET fanout_after = 1, fanout_until = 3 WHERE message_id = 2")
        try base.query(
            "UPDATE notifications SET work = 'cancel', work_after = 7, work_until = 77 WHERE idempotency_key = 'c'")
        // Rows of scripts: one is due, one was settled without a time.
        try base.query("INSERT INTO push_queue (device_token, payload) VALUES ('ff00', '{}'), ('ff01', '{}')")
        try base.query("UPDATE push_queue SET state = 'cancelled' WHERE device_token = 'ff01'")
        // Messages that change, and messages for later.
        try base.query(
            """
            INSERT INTO message_states (message_id, secret_code, author, message_key, is_open, is_apart, revision, change_id,
                change, time_changed, removes, ring_after, push_due, push_after, push_again, push_began)
            VALUES (2, 'room', 'token:1', 'disk', \(base.flag), \(base.flag), 3, 90, 'edited', '2026-05-07 21:57:29.123',
                \(base.flag), 4, 1700000000000, 5, 6, 1700000000001)
            """)
        try base.query(
            """
            INSERT INTO message_retries (author, idempotency_key, message_id, number, digest, time_used)
            SELECT 'token:1', 'é', 2, 90, hash, '2026-05-07 21:57:29.123' FROM credentials LIMIT 1
            """)
        try base.query(
            """
            INSERT INTO scheduled_messages (scheduled_id, secret_code, author, nickname, message_key, ip_address, text, title,
                link, priority, sound, urgent, extras, renotify, revision, due, is_held, time_created)
            VALUES (92, 'room', 'admin', 'cron', 'k', '192.0.2.1', 'soon', 'T', 'https://example.com/', 5, '', \(base.flag),
                '{}', \(base.flag), 2, 1800000000000, \(base.flag), '2026-05-07 21:57:29.123')
            """)
        try base.query("INSERT INTO posted_schedules (scheduled_id, message_id) VALUES (91, 2)")
        try base.query("UPDATE push_queue SET silent = \(base.flag) WHERE message_id = 1")
        // SQLite clears `chat_message` when a message is deleted, and a move does the same to PostgreSQL's pushes.
        try base.query(
            "UPDATE push_queue SET chat_message = NULL WHERE chat_message NOT IN (SELECT message_id FROM messages)")
    }

    /// Returns everything that the ports report.
    private func picture(_ stores: Stores) async throws -> [AnyHashable] {
        var values: [AnyHashable] = []
        func add(_ items: [some Hashable & Sendable]) { values += items.map { AnyHashable($0) } }
        for name in ["room", "else\\where"] {
            let room = SecretCode(stored: name)
            add(try await stores.records.members(of: room, after: nil, limit: 99).items)
            let messages = try await stores.records.messages(of: room, .oldestFirst(after: 0), limit: 99).items
            add(messages)
            add(try await stores.records.reach(of: messages))
            for message in messages {
                add([try await stores.records.progress(of: message.message.id)])
                add(try await stores.records.deliveries(ofMessage: message.message.id, after: nil, limit: 99).items)
            }
        }
        add([try await stores.rooms.receipt(of: 1, for: StoreFixture.member(1))])
        add(try await stores.records.failures(of: nil, before: nil, limit: 99).items)
        let devices = try await stores.devices.devices(DeviceFilter(), after: nil, limit: 99).items
        add(devices)
        for device in devices { add(try await stores.devices.deliveries(to: device.id, before: nil, limit: 99).items) }
        for id in 1...3 as ClosedRange<NotificationID> {
            add([try await stores.notifications.notification(id)])
            add(try await stores.notifications.deliveries(of: id, in: nil, after: nil, limit: 99).items)
        }
        let tokens = try await stores.tokens.tokens(after: nil, limit: 99).items
        add(tokens)
        for token in tokens { add([try await stores.hooks.memory(of: token.id, MessageKey(stored: "disk"))]) }
        for webhook in try await stores.webhooks.webhooks() {
            add([webhook])
            add(try await stores.webhooks.deliveries(of: webhook.id, in: nil, before: nil, limit: 10).items)
        }
        add(try await stores.clients.credentials(ofMembersOf: nil, after: nil, limit: 99).items)
        add(try await stores.clients.rooms(after: nil, limit: 99).items)
        for number in 1...2 {
            let reading = ClientReading(room: nil, client: "credential:\(number)")
            add(try await stores.clients.messages(reading, before: nil, limit: 99))
        }
        add(try await stores.moderation.bans(in: nil, before: nil, limit: 99).items)
        add(try await stores.moderation.records(before: nil, limit: 99).items)
        add(try await stores.queueAdministration.pauses())
        add([try await stores.subscriptions.subscriptions([StoreFixture.token(50)])])
        add([try await stores.subscriptions.vapidKey { "another" }])
        add([
            try await stores.providerTokens.providerToken(
                for: ProviderKeyName(teamID: "TEAM", keyID: "KEY", fingerprint: "f"), refused: nil,
                sign: { _ in "another" }
            ).text
        ])
        add(try await stores.metrics.usage(since: "2000-01-01") ?? [])
        let pushes = try await lease(stores)
        add(
            pushes.map {
                [
                    $0.id.description, $0.apnsID, "\($0.address, default: "-")", "\($0.lane)", "\($0.history)",
                    "\($0.obstacle, default: "-")",
                ]
            })
        add(pushes.map(\.payload))
        for push in pushes { stores.queue.release([push.id...push.id], lane: push.lane, app: .default) }
        return values
    }

    private func expectSame(_ found: [AnyHashable], _ expected: [AnyHashable]) {
        #expect(found.count == expected.count)
        for (found, expected) in zip(found, expected) { #expect(found == expected) }
    }

    // MARK: - There and back

    @Test(
        "A move, and the move back, keep everything; work and ids continue where they were",
        arguments: StoreKind.allCases)
    func everything(kind: StoreKind) async throws {
        let first = try Base(kind)
        try await fill(first)
        let before = try await first.use(picture)
        let (second, third) = (try first.other(), try Base(kind))
        let there = try first.copy(to: second)
        let back = try second.copy(to: third)
        #expect(there == back)
        #expect(there.map(\.table) == MigratedTable.all.map(\.name))
        for table in there { #expect(table.rows > 0, "\(table.table)") }
        if case (.file(let first), .file(let third)) = (first, third) { try expectSameRows(first, third) }
        for base in [second, third] {
            expectSame(try await base.use(picture), before)
            try await expectNewNumbers(base, after: first)
        }
    }

    /// Compares the rows and the highest assigned ids in SQLite.
    private func expectSameRows(_ first: StoreFixture, _ third: StoreFixture) throws {
        // A relay recomputes `settled_to` and the progress of a cancellation.
        for table in MigratedTable.all where table.name != "queue_state" && table.name != "notifications" {
            let keys = table.columns.prefix(table.keys).map(\.name).joined(separator: ", ")
            let sql = "SELECT * FROM \(table.name) ORDER BY \(keys)"
            #expect(try third.query(sql) == first.query(sql), "\(table.name)")
        }
        let numbers = "SELECT name, seq FROM sqlite_sequence ORDER BY name"
        #expect(try third.query(numbers) == first.query(numbers))
        #expect(
            try third.value("SELECT count(*) FROM notifications WHERE work = 'cancel' AND work_after = first_push - 1")
                == 1)
        #expect(try third.query("PRAGMA integrity_check").map { $0[0] as String } == ["ok"])
    }

    private func expectNewNumbers(_ base: Base, after first: Base) async throws {
        func highest(_ table: String) throws -> Int64 {
            guard let table = MigratedTable.all.first(where: { $0.name == table }) else { return .max }
            switch first {
            case .file(let file): return try SQLiteMigration.read(file.path) { try $0.highestNumber(of: table) }
            case .server(let server):
                return try PostgresMigration.read(PostgresConfiguration(url: server.url)) {
                    try $0.highestNumber(of: table)
                }
            }
        }
        try await base.use { stores in
            // The last message was deleted, and the last token revoked.
            let posted = try await stores.rooms.post(StoreFixture.post(1, "again"))
            #expect(try posted.message == highest("messages") + 1 && posted.queued == 1)
            #expect(try await stores.rooms.post(StoreFixture.post(1, "hello", key: "k")).isRepeat)
            #expect(try await lease(stores).map(\.id).max() == highest("push_queue") + 1)
            let token = try await stores.tokens.create(
                AccessToken.name("gone"), AccessGrant(scopes: [.read]), expiresAt: nil)
            #expect(try token.token.id == highest("api_tokens") + 1)
            let credential = try await stores.clients.createCredential(
                Credential.name("gone"), for: .token(token.token.id))
            #expect(try credential.credential.id == highest("credentials") + 1)
            try await register(77, in: stores)
            #expect(try await stores.devices.device(StoreFixture.token(77), app: nil).id > highest("devices"))
            let sent = try await stores.notifications.send(
                NotificationRequest(audience: .all, payload: #"{"aps":{}}"#))
            #expect(try sent.id == highest("notifications") + 1 && sent.devices > 0)
            try await stores.rooms.join(StoreFixture.join(9))
            let members = try await stores.records.members(of: SecretCode(stored: "room"), after: nil, limit: 99)
            #expect(try members.items.last?.id == highest("active_users") + 1)
        }
    }

    @Test("Settled pushes are in the partitions of their days, and due pushes are where relays look for them")
    func days() async throws {
        let file = try StoreFixture()
        try file.open().close()
        _ = try file.query(
            """
            INSERT INTO push_queue (device_token, payload, state, time_sent, time_settled) VALUES
                ('a1', '{}', 'sent', '2020-02-29 23:59:59.999', '2020-02-29 23:59:59.999'),
                ('a2', '{}', 'sent', '2020-03-01 00:00:00', '2020-03-01 00:00:00'),
                ('a3', '{}', 'sent', '2020-02-29 01:00:00', '2020-02-29 01:00:00.5'),
                ('a4', '{}', 'sent', '2020-03-01 00:00:00', NULL), ('a5', '{}', 'pending', NULL, '2020-03-01 00:00:00')
            """)
        let server = try PostgresFixture(isEmpty: true)
        _ = try Base.file(file).copy(to: .server(server))
        #expect(
            try server.query("SELECT device_token, tableoid::regclass FROM push_queue ORDER BY 1") == """
                a1|push_queue_20200229
                a2|push_queue_20200301
                a3|push_queue_20200229
                a4|push_queue_due
                a5|push_queue_due
                """)
        #expect(
            try server.query(
                "SELECT time_settled = '2020-02-29 01:00:00.5+00' FROM push_queue WHERE device_token = 'a3'") == "t")
        let stores = try await server.open()
        defer { stores.close() }
        #expect(
            try await stores.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.map(\.id) == [5])
        #expect(try await stores.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(7 * 86_400)).pushes == 3)
    }

    @Test("Rows are left out if a script has deleted their owner without SQLite's foreign keys")
    func ownerless() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        let stores = try file.open()
        for number in 1...2 {
            try await stores.rooms.join(StoreFixture.join(number))
            _ = try await stores.clients.createCredential(
                Credential.name("c\(number)"), for: .member(StoreFixture.member(number)))
            let topic = try #require(UnifiedPushTopic("upAAAAAAAAAAA\(number)"))
            _ = try await stores.unifiedPush.claim([topic], for: .member(Int64(number)))
            _ = try await stores.unifiedPush.post([1], to: topic)
            _ = try await stores.devices.register(
                RegistrationRequest(
                    token: StoreFixture.token(number), app: .default, edit: DeviceEdit(tags: [Tag(stored: "t")])))
        }
        try stores.close()
        try await file.connection().writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA foreign_keys = OFF; DELETE FROM active_users WHERE nickname = 'name1'")
            try db.execute(sql: "DELETE FROM devices WHERE device_id = 1")
        }
        _ = try Base.file(file).copy(to: .server(server))
        #expect(try server.query("SELECT name FROM credentials") == "c2")
        for table in ["unifiedpush_topics", "unifiedpush_messages", "device_tags"] {
            #expect(try server.value("SELECT count(*) FROM \(table)") == 1, "\(table)")
        }
    }

    @Test("A push loses its chat_message in SQLite if PostgreSQL has deleted the message")
    func deletedMessage() async throws {
        let (server, file) = (try PostgresFixture(), try StoreFixture())
        try await server.open().close()
        try server.query("INSERT INTO push_queue (device_token, payload, chat_message) VALUES ('a1', '{}', 5)")
        _ = try Base.server(server).copy(to: .file(file))
        #expect(try file.value("SELECT count(*) FROM push_queue WHERE chat_message IS NULL") == 1)
    }

    // MARK: - Values that cannot be moved

    @Test(
        "A value that the other store cannot hold is named with its table, row and column, and nothing is kept",
        arguments: [
            ("UPDATE push_queue SET payload = x'7b00'", "table push_queue, message_id 1: payload has a zero byte"),
            ("UPDATE push_queue SET payload = x'ff'", "table push_queue, message_id 1: payload is not UTF-8"),
            ("UPDATE active_users SET nickname = 'a' || char(0)", "active_users, member_id 1: nickname has a zero"),
            (
                "UPDATE active_users SET time_joined = 'today'",
                "active_users, member_id 1: time_joined is not a time like"
            ),
            (
                "UPDATE device_tags SET tag = CAST(x'c0af' AS TEXT)",
                "device_tags, tag \u{FFFD}\u{FFFD}, device_id 1: tag is no"
            ),
            ("UPDATE push_queue SET message_id = 5000000000000000000", "PostgreSQL refuses a row of push_queue"),
        ])
    func refusedValues(statement: String, problem: String) async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        let stores = try file.open()
        try await stores.rooms.join(StoreFixture.join(1))
        try stores.close()
        _ = try file.query("INSERT INTO push_queue (device_token, payload) VALUES ('a1', '{}')")
        _ = try file.query("INSERT INTO device_tags VALUES ('a', 1)")
        _ = try file.query(statement)
        #expect(try problemOf { try Base.file(file).copy(to: .server(server)) }.contains(problem))
        #expect(try Base.server(server).isUntouched())
    }

    @Test("A payload becomes text, and a time gets milliseconds, in whatever form a script has written them")
    func forms() throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        try file.open().close()
        _ = try file.query(
            """
            INSERT INTO push_queue (device_token, payload, time_queued) VALUES
                ('a1', CAST('{"ä":1}' AS BLOB), '2020-01-01T10:00:00Z'), ('a2', 5, '2020-01-01 10:00:00.123456')
            """)
        _ = try Base.file(file).copy(to: .server(server))
        #expect(
            try server.query("SELECT payload, time_queued AT TIME ZONE 'UTC' FROM push_queue ORDER BY 1 DESC") == """
                {"ä":1}|2020-01-01 10:00:00
                5|2020-01-01 10:00:00.123
                """)
    }

    @Test(
        "A time that SQLite's format cannot express is refused, and no file is created",
        arguments: ["infinity", "0044-03-15 BC", "10000-01-01"])
    func refusedTimes(time: String) async throws {
        let (server, file) = (try PostgresFixture(), try StoreFixture())
        try await server.open().close()
        try server.query("INSERT INTO devices (app, device_token, time_created) VALUES ('default', 'a1', '\(time)')")
        #expect(try problemOf { try Base.server(server).copy(to: .file(file)) }.contains("devices, time_created"))
        #expect(try Base.file(file).isUntouched())
    }

    /// Returns the error that a call throws, or "nothing".
    private func problemOf(_ call: () throws -> some Any) throws -> String {
        do {
            _ = try call()
            return "nothing"
        } catch {
            return "\(error)"
        }
    }

    // MARK: - Refused moves

    @Test("A move is refused if a relay uses either side, the source is missing, or the target is not empty")
    func refused() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        func there() throws -> String { try problemOf { try Base.file(file).copy(to: .server(server)) } }
        func back() throws -> String { try problemOf { try Base.server(server).copy(to: .file(file)) } }
        #expect(try there().contains("does not exist"))
        #expect(try back().contains("no relay's tables"))
        try file.open().close()
        do {
            let lock = try DatabaseLock(path: file.path)
            #expect(try there().contains("is being served by another pushchat"))
            _ = consume lock
        }
        let relay = try await server.open()
        #expect(try there().contains("relays use the database"))
        #expect(try back().contains("relays use the database"))
        try await relay.rooms.join(StoreFixture.join(1))
        relay.close()
        #expect(try there().contains("is not empty (active_users, rooms, devices"))
        #expect(try back().contains("exists already"))

        // The record of a relay that was killed and never ended.
        try server.query("DELETE FROM active_users; DELETE FROM rooms; DELETE FROM devices; DELETE FROM device_days")
        try server.query("UPDATE relay_starts SET time_ended = NULL, time_seen = now() - interval '16 s'")
        #expect(try there() == "nothing")
        #expect(try server.value("SELECT count(*) FROM queue_state") == 1)
    }

    @Test("Another schema version is refused on both sides")
    func versions() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        try file.createFile(ofVersion: 8)
        #expect(
            try problemOf { try Base.file(file).copy(to: .server(server)) }.contains(
                "has schema version 8; start pushchat serve once, which upgrades it"))
        try await server.open().close()
        try server.query("UPDATE relay_schema SET version = 99")
        #expect(
            try problemOf { try Base.server(server).copy(to: .file(StoreFixture())) }.contains(
                "has schema version 99, this pushchat knows up to"))
    }

    @Test("During a move no relay can start on either side, and no program can write to the source")
    func locks() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        try file.open().close()
        let lock = "SELECT pg_try_advisory_xact_lock(hashtextextended('pushchat schema public', 0))"
        try SQLiteMigration.read(file.path) { _ in
            #expect(try problemOf { try _ = DatabaseLock(path: file.path) }.contains("is being served by another"))
            #expect(throws: DatabaseError.self) {
                var configuration = GRDB.Configuration()
                configuration.busyMode = .immediateError
                try DatabaseQueue(path: file.path, configuration: configuration).write {
                    try $0.execute(sql: "DELETE FROM bans")
                }
            }
            try PostgresMigration.write(PostgresConfiguration(url: server.url)) { _ in
                let isFree = try server.query(lock)
                #expect(isFree == "f")
            }
        }
        #expect(try server.query(lock) == "t")
        let target = try StoreFixture()
        try PostgresMigration.read(PostgresConfiguration(url: server.url)) { _ in
            #expect(try server.query(lock) == "f")
            #expect(throws: (any Error).self) {
                try server.query("SET lock_timeout = 1; INSERT INTO relay_starts (host) VALUES ('late')")
            }
            try SQLiteMigration.write(target.path) { _ in
                let problem = try problemOf { try _ = DatabaseLock(path: target.path) }
                #expect(problem.contains("is being served by another"))
            }
        }
        #expect(try target.value("SELECT count(*) FROM active_users") == 0)
    }

    // MARK: - Interrupted moves

    @Test("A move that is stopped in the middle keeps nothing, and can be run again", arguments: StoreKind.allCases)
    func stopped(kind: StoreKind) async throws {
        let base = try Base(kind)
        try await base.use { _ in }
        // More rows than the writer keeps in memory, so that it has already sent some.
        try base.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
            INSERT INTO push_queue (device_token, payload) SELECT 'a' || i, '{"aps":{"alert":"hello"}}' FROM n
            """)
        let target = try base.other()
        for end in [1, 4, 7] {
            var looks = 0
            let problem = try problemOf {
                try base.copy(to: target) {
                    looks += 1
                    return looks == end
                }
            }
            #expect(problem == "it was stopped" && looks == end)
            #expect(try target.isUntouched())
        }
        let copied = try base.copy(to: target)
        #expect(copied.first { $0.table == "push_queue" }?.rows == 5000)
        #expect(try target.value("SELECT count(*) FROM push_queue") == 5000)
    }

    @Test("The draft that a killed move has left is reported and deleted")
    func killed() async throws {
        let (server, file) = (try PostgresFixture(), try StoreFixture())
        try await server.open().close()
        for name in [file.path, file.path + ".migrating-journal"] {
            #expect(FileManager.default.createFile(atPath: name, contents: nil))
        }
        try Data("half of it".utf8).write(to: URL(filePath: file.path + ".migrating"))
        var isReported = false
        _ = try PostgresMigration.read(PostgresConfiguration(url: server.url)) { source in
            try SQLiteMigration.write(file.path, interrupted: { isReported = true }) {
                try Migration.run(from: source, to: $0)
            }
        }
        #expect(isReported)
        let names = try FileManager.default.contentsOfDirectory(atPath: file.directory.path).sorted()
        #expect(names == ["pushchat.db", "pushchat.db.lock"])
        let modes = try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int
        #expect(modes == 0o600)
        try file.open().close()
    }

    @Test("A target that returns other rows than were written is detected")
    func falsified() throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture(isEmpty: true))
        try file.open().close()
        _ = try file.query("INSERT INTO push_queue (device_token, payload) VALUES ('a1', '{}')")
        try server.query(
            """
            CREATE SCHEMA relay;
            CREATE FUNCTION relay.spoil() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN NEW.payload := NEW.payload || ' '; RETURN NEW; END $$
            """)
        let postgres = PostgresConfiguration(url: server.url, schema: "relay")
        _ = try PostgresMigration.write(postgres) { _ in }
        try server.query(
            "CREATE TRIGGER spoil BEFORE INSERT ON relay.push_queue_due FOR EACH ROW EXECUTE FUNCTION relay.spoil()")
        let problem = try problemOf {
            try SQLiteMigration.read(file.path) { source in
                try PostgresMigration.write(postgres) { try Migration.run(from: source, to: $0) }
            }
        }
        #expect(problem.contains("push_queue differs in the target: 1 rows were read, and 1 are stored"))
        #expect(try server.value("SELECT count(*) FROM relay.push_queue") == 0)
    }

    // MARK: - The schemas

    @Test("Every table and column of both schemas is either copied or listed as left out")
    func complete() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture())
        try file.open().close()
        try await server.open().close()
        let copied = Set(MigratedTable.all.flatMap { table in table.columns.map { "\(table.name).\($0.name)" } })
        let inFile = try file.query(
            """
            SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_xinfo(t.name) c
            WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'
            """
        ).map { "\($0[0] as String).\($0[1] as String)" }
        #expect(Set(inFile) == copied.union(SQLiteMigration.leftOut))
        let inServer = try server.query(
            """
            SELECT c.table_name || '.' || c.column_name FROM information_schema.columns c
            JOIN pg_class t ON t.oid = to_regclass(c.table_name) AND NOT t.relispartition WHERE c.table_schema = 'public'
            """
        ).split(separator: "\n").map(String.init)
        let own = PostgresMigration.leftOut
        #expect(
            Set(inServer.filter { !own.contains(String($0.prefix { $0 != "." })) })
                == copied.union(own.filter { $0.contains(".") }))
        for table in own where !table.contains(".") { #expect(inServer.contains { $0.hasPrefix(table + ".") }) }
    }

    @Test("Objects that the operator has added are named")
    func additions() async throws {
        let (file, server) = (try StoreFixture(), try PostgresFixture())
        try file.open().close()
        try await server.open().close()
        func inFile() throws -> [String] { try SQLiteMigration.read(file.path) { try $0.unknown() } }
        func inServer() throws -> [String] {
            try PostgresMigration.read(PostgresConfiguration(url: server.url)) { try $0.unknown() }
        }
        #expect(try inFile().isEmpty && inServer().isEmpty)
        for statement in [
            "CREATE TABLE notes (a INTEGER, b INTEGER)", "ALTER TABLE messages ADD COLUMN mood TEXT",
            "CREATE VIEW recent AS SELECT message_id FROM messages",
        ] {
            _ = try file.query(statement)
            try server.query(statement)
        }
        #expect(try inFile() == ["messages.mood", "notes", "view recent"])
        #expect(try inServer() == ["messages.mood", "notes", "view recent"])
    }
}
