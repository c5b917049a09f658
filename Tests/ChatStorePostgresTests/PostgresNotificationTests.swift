import APNSGateway
import ChatDomain
import ChatSQL
import Foundation
import Testing

@testable import ChatStorePostgres
@testable import TestStores

@Suite("PostgreSQL: notifications", .timeLimit(.minutes(3)))
struct PostgresNotificationTests {
    private static func tokens(_ numbers: Int...) throws -> [DeviceToken] { try numbers.map(StoreFixture.token) }

    @Test("A notification goes to the devices of its audience, each once")
    func audiences() async throws {
        let relays = try await Relays()
        let other = AppName("other")
        for number in 1...6 {
            try await relays.register(
                number, user: ["a", "b"][number % 2], tags: number < 4 ? ["x", "y"] : number < 6 ? ["y"] : nil)
        }
        try await relays.register(7, app: other, user: "a", tags: ["x"])
        try await relays.register(1, app: other)
        try relays.fixture.query(
            "UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x' WHERE device_token LIKE '%a5'")
        // Two members with one device, one without a device, and one whose device is not registered.
        for number in [1, 2, 8, 9] { try await relays.first.rooms.join(StoreFixture.join(number)) }
        try relays.fixture.query("DELETE FROM devices WHERE device_token LIKE '%a8'")
        try relays.fixture.query(
            """
            UPDATE active_users SET device_token = '0' WHERE udid LIKE '%9';
            INSERT INTO active_users (udid, device_token, nickname, secret_code)
                SELECT lpad('77', 40, '0'), device_token, 'same', 'room' FROM active_users WHERE udid LIKE '%02'
            """)
        try relays.fixture.query("DELETE FROM devices WHERE device_token LIKE '%a9'")
        func check(
            _ audience: Audience, app: AppName? = nil, _ wanted: [String], failed: [String] = [],
            sourceLocation: SourceLocation = #_sourceLocation
        ) async throws {
            let receipt = try await relays.send(audience, app: app)
            let found = try await relays.deliveries(receipt.id)
            #expect(
                found.filter { $0.state == .pending }.map { "\($0.token.suffix(1))\($0.app)" }.sorted()
                    == wanted.sorted(),
                sourceLocation: sourceLocation)
            #expect(
                found.filter { $0.state == .failed }.map { "\($0.token.suffix(1))\($0.app)" } == failed,
                sourceLocation: sourceLocation)
            #expect(receipt.devices == found.count, sourceLocation: sourceLocation)
            let status = try await relays.first.notifications.notification(receipt.id)
            #expect(
                status.counts[.pending] == wanted.count && status.counts[.failed] == failed.count
                    && status.devices == found.count, sourceLocation: sourceLocation)
            _ = try await relays.first.notifications.cancel(receipt.id)
        }
        let names = { (text: String) in [UserReference(stored: text)] }
        try await check(
            .tokens(Self.tokens(2, 1, 2, 5, 99)), ["1default", "1other", "2default", "9default"], failed: ["5default"])
        try await check(.tokens(Self.tokens(1, 5, 99)), app: other, ["1other", "5other", "9other"])
        try await check(.users(names("a")), ["2default", "4default", "6default", "7other"])
        try await check(
            .users(names("b") + names("a") + names("none")), app: .default,
            (1...6).filter { $0 != 5 }.map { "\($0)default" })
        try await check(
            .tags([Tag(stored: "x"), Tag(stored: "y")]), ["1default", "2default", "3default", "4default", "7other"])
        try await check(.tags([Tag(stored: "y")]), app: other, [])
        try await check(.room(SecretCode(stored: "room")), ["1default", "2default", "8default"])
        try await check(.all, ["1default", "1other", "2default", "3default", "4default", "6default", "7other"])
        try await check(.all, app: other, ["1other", "7other"])
    }

    @Test("The app default is the configured one, and nothing is queued for an unconfigured app")
    func apps() async throws {
        let fixture = try PostgresFixture()
        let main = AppName("main")
        let stores = try await fixture.open(defaultApp: main, apps: [main])
        defer { stores.close() }
        try fixture.query(
            """
            INSERT INTO devices (app, device_token) SELECT app, lpad(app, 64, 'a')
            FROM unnest(ARRAY['default', 'main', 'gone']) app
            """)
        let receipt = try await stores.notifications.send(NotificationRequest(audience: .all, payload: "{}"))
        #expect(receipt.devices == 2)
        #expect(try fixture.query("SELECT DISTINCT app FROM push_queue") == "main")
    }

    @Test("A device whose last push was the same is skipped, and counted once")
    func unchanged() async throws {
        let relays = try await Relays()
        for number in 1...4 { try await relays.register(number, tags: number < 3 ? ["x", "y"] : ["y"]) }
        func skipped(_ audience: Audience, alert: String = "x", badge: Int? = nil) async throws -> [Int] {
            let id = try await relays.send(audience, alert: alert, badge: badge, skips: true).id
            let status = try await relays.first.notifications.notification(id)
            return [status.skipped, status.counts.values.reduce(0, +)]
        }
        let tags = Audience.tags([Tag(stored: "x"), Tag(stored: "y")])
        #expect(try await skipped(.all) == [0, 4])
        #expect(try await skipped(.all) == [4, 0])
        try await relays.deliver()
        #expect(try await skipped(tags) == [4, 0])
        #expect(try await skipped(.tokens(Self.tokens(1)), alert: "y") == [0, 1])
        #expect(try await skipped(tags) == [3, 1])
        // A badge is compared with the last badge.
        #expect(try await skipped(.all, badge: 3) == [0, 4])
        #expect(try await skipped(.all, badge: 3) == [4, 0])
        #expect(try await skipped(.all) == [4, 0])
        #expect(try await skipped(.tokens(Self.tokens(2)), badge: 4) == [0, 1])
        #expect(try await skipped(.all, badge: 3) == [3, 1])
        // Another program queued a payload that is not JSON. It counts as a different payload.
        try relays.fixture.query(
            "INSERT INTO push_queue (device_token, payload, device) SELECT device_token, 'nonsense', device_id FROM devices"
        )
        #expect(try await skipped(.all) == [0, 4])
        #expect(try await skipped(.all, badge: 3) == [4, 0])
    }

    @Test("A scheduled notification waits for its time")
    func scheduled() async throws {
        let relays = try await Relays()
        try await relays.register(1)
        let time = relays.fixture.time.now + .seconds(60)
        let id = try await relays.send(.all, notBefore: time).id
        #expect(try await relays.first.notifications.notification(id).state == .scheduled)
        #expect(try await relays.first.queue.nextDue(app: .default) == time)
        #expect(try await relays.deliver() == 0)
        relays.fixture.advance(.seconds(61))
        #expect(try await relays.deliver() == 1)
        #expect(try await relays.first.notifications.notification(id).state == .done)
    }

    @Test("Two relays queue and deliver the same notifications: each device gets each of them once")
    func shared() async throws {
        let relays = try await Relays(2)
        try relays.fill(5000, tags: ["x", "y"])
        try relays.fixture.query(
            """
            INSERT INTO active_users (udid, device_token, nickname, secret_code)
            SELECT lpad(n::text, 40, '0'), device_token, 'n', 'room'
            FROM generate_series(1, 2) round, LATERAL (SELECT device_token, round * 10000 + device_id AS n FROM devices) d
            """)
        let tags = ["x", "y"].map(Tag.init(stored:))
        var ids: [NotificationID] = []
        for (relay, audience) in [(0, Audience.all), (1, .tags(tags)), (0, .room(SecretCode(stored: "room")))] {
            let receipt = try await relays.send(audience, relay: relay)
            #expect(receipt.devices >= 5000)
            #expect(try await relays.first.notifications.notification(receipt.id).state == .queueing)
            ids.append(receipt.id)
        }
        let sent = Counter()
        try await withThrowingTaskGroup { group in
            for relay in 0...1 {
                group.addTask {
                    while sent.value < 15_000 {
                        let count = try await relays.deliver(relay: relay, limit: 700)
                        sent.add(count)
                        if count == 0 { try await Task.sleep(for: .milliseconds(5)) }
                    }
                }
            }
            try await relays.work()
            try await group.waitForAll()
        }
        for id in ids {
            let status = try await relays.second.notifications.notification(id)
            #expect(status.state == .done && status.counts[.sent] == 5000, "\(status.counts)")
            #expect(
                try relays.fixture.query(
                    "SELECT count(*), count(DISTINCT device), min(state) FROM push_queue WHERE notification = \(id)")
                    == "5000|5000|sent")
        }
        #expect(sent.value == 15_000)
        let page = try await relays.deliveries(ids[1], page: 1000)
        #expect(page.count == 5000 && page.map(\.id) == page.map(\.id).sorted())
    }

    @Test("Cancelling during a fan-out cancels all pushes that no gateway has, on any relay")
    func cancelled() async throws {
        let relays = try await Relays(2)
        try relays.fill(5000)
        let id = try await relays.send(.all).id
        let leased = try await relays.first.queue.lease(app: .default, lanes: PushLane.allCases, limit: 20).pushes
        #expect(leased.count == 20)
        try await relays.work {
            while try await relays.second.notifications.notification(id).counts[.pending, default: 0] < 2000 {
                try await Task.sleep(for: .milliseconds(2))
            }
            #expect(try await relays.second.notifications.cancel(id).state == .cancelled)
        }
        let status = try await relays.first.notifications.cancel(id)
        #expect(status.state == .cancelled && status.counts[.pending] == 20)
        let queued = try relays.fixture.value("SELECT queued FROM notification_counts")
        #expect(queued >= 2000 && status.counts[.cancelled] == queued - 20)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'cancelled'") == queued - 20)
        #expect(try await relays.deliver(relay: 1) == 0)
        // A push that the gateway returns is cancelled when it is leased again.
        relays.first.queue.release([leased[0].id...leased[0].id], lane: leased[0].lane, app: .default)
        var again: [QueuedPush] = []
        while again.isEmpty {
            again = try await relays.first.queue.lease(app: .default, lanes: PushLane.allCases, limit: 20).pushes
        }
        #expect(again.map(\.obstacle) == [.notificationCancelled])
        let counts = [relays.first, relays.second].map { stores in
            stores.metrics.outcomes().filter { $0.state == .cancelled }.reduce(0) { $0 + $1.total }
        }
        #expect(counts[0] + counts[1] == queued - 20)
        #expect(try await relays.first.notifications.cancel(id).state == .cancelled)
        await #expect(throws: ChatError.self) { try await relays.first.notifications.cancel(id + 1) }
    }

    @Test("While a relay holds a notification's row, another does the other work; nothing is lost when it dies")
    func abandoned() async throws {
        let relays = try await Relays()
        try relays.fill(1200)
        let held = try await relays.send(.all).id
        let other = try await relays.send(.all).id
        // As if a relay had stopped in the middle of a step.
        let connection = try PostgresConnection(url: relays.fixture.url)
        connection.deadline = .now + .seconds(60)
        _ = try connection.run("BEGIN")
        _ = try connection.run("SELECT 1 FROM notifications WHERE notification_id = \(held) FOR UPDATE")
        _ = try connection.run(
            "UPDATE notifications SET work_after = 1000 WHERE notification_id = \(held)")
        let jobs = Task { await relays.first.jobs.run() }
        defer { jobs.cancel() }
        while try relays.fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 1 {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE notification = \(other)") == 1200)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE notification = \(held)") == 500)
        _ = try connection.run("ROLLBACK")
        while try relays.fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(
            try relays.fixture.query(
                "SELECT count(*), count(DISTINCT device) FROM push_queue WHERE notification = \(held)")
                == "1200|1200")
    }

    /// A step that fails for the notification with the key `bad`.
    private enum Failing: BackgroundStep {
        static let claimSQL = NotificationWork.claimSQL

        static func step(
            of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
        ) throws -> BackgroundProgress {
            _ = try transaction.run(
                """
                UPDATE notifications SET work = NULL, devices = 1 / (idempotency_key IS DISTINCT FROM 'bad')::int
                WHERE notification_id = ANY ($1::bigint[])
                """,
                [.ints(ids)])
            return BackgroundProgress(last: ids.last ?? 0)
        }
    }

    @Test("Work that fails is skipped, and the rest continues")
    func failing() async throws {
        let relays = try await Relays()
        try relays.fill(600)
        for number in 1...30 { _ = try await relays.send(.all, key: number == 7 ? "bad" : "good\(number)") }
        let jobs = BackgroundJobs(
            database: relays.first.database, outcomes: OutcomeCounter(now: Timestamp.now),
            settings: { StoreSettings(format: { _ in APNSFormat(.binary, payloadLimit: 2048) }) }, kinds: [Failing.self]
        )
        let task = Task { await jobs.run() }
        defer { task.cancel() }
        while try relays.fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 1 {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(try relays.fixture.query("SELECT idempotency_key FROM notifications WHERE work IS NOT NULL") == "bad")
    }

    @Test("The same key on two relays at the same time makes one notification")
    func keys() async throws {
        let relays = try await Relays(2)
        for number in 1...3 { try await relays.register(number) }
        let receipts = try await withThrowingTaskGroup(of: NotificationReceipt.self) { group in
            for number in 0..<16 { group.addTask { try await relays.send(.all, key: "k", relay: number % 2) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(Set(receipts.map(\.id)).count == 1 && receipts.filter { !$0.isRepeat }.count == 1)
        #expect(receipts.allSatisfy { $0.devices == 3 })
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue") == 3)
        let conflict = await #expect(throws: ChatError.self) { try await relays.send(.all, alert: "y", key: "k") }
        #expect(conflict?.code == .idempotencyConflict)
        let both = try await relays.first.notifications.send([
            NotificationRequest(audience: .all, payload: #"{"aps":{"alert":"z"}}"#, idempotencyKey: "k"),
            NotificationRequest(audience: .all, payload: #"{"aps":{"alert":"z"}}"#, idempotencyKey: "l"),
        ])
        #expect((try? both[0].get()) == nil && (try? both[1].get())?.devices == 3)
    }

    @Test("No statement scans a whole table that can be large")
    func plans() async throws {
        let relays = try await Relays()
        let connection = try PostgresConnection(url: relays.fixture.url)
        connection.deadline = .now + .seconds(60)
        _ = try connection.run("BEGIN")
        // The planner then uses an index wherever there is one, however few rows the tables have.
        _ = try connection.run("SET LOCAL enable_seqscan = off")
        func check(_ sql: String, _ values: [SQLValue]) throws {
            let plan = try connection.run("EXPLAIN " + sql, values).map { try $0.text(0) }
            let bad = plan.filter { $0.contains("Seq Scan") && !$0.contains("notification_counts") }
            #expect(bad.isEmpty, "\(plan.joined(separator: "\n"))")
        }
        let now = Timestamp.now()
        let tags = ["x", "y"].map(Tag.init(stored:))
        let users = [UserReference(stored: "u"), UserReference(stored: "v")]
        let audiences: [Audience] = [
            .all, .tags(tags), .users(users), .room(SecretCode(stored: "r")), .tokens(try Self.tokens(1, 2)),
        ]
        let settings = StoreSettings(format: { _ in APNSFormat(.binary, payloadLimit: 2048) }, apps: [.default])
        for audience in audiences {
            for (app, skips) in [(nil, false), (AppName.default, true)] {
                let request = NotificationRequest(audience: audience, app: app, payload: "{}", skipsUnchanged: skips)
                let fanout = NotificationFanout(id: 1, request: request, devices: 2, until: 9)
                var parameters = SQLParameters()
                let sql = fanout.insertSQL(fanout.items[...], 500, now: now, settings, &parameters)
                try check(sql, parameters.values)
            }
        }
        for user in [nil, users[0]] {
            for (tag, isActive) in [(nil, nil), (tags[0], true), (nil, false)] as [(ChatDomain.Tag?, Bool?)] {
                var parameters = SQLParameters()
                let filter = DeviceFilter(user: user, tag: tag, isActive: isActive)
                let (candidates, key) = filter.candidates(after: 1, .postgres, &parameters)
                let rest = filter.rest(&parameters).map { "AND " + $0 } ?? ""
                try check(
                    "SELECT * FROM \(candidates) \(rest) ORDER BY \(key) LIMIT 9", parameters.values)
            }
        }
        try check(PostgresDeviceStore.historySQL, [1, 9, 9])
        try check(PostgresDeviceStore.chatHistorySQL, [1, 9, 9, 9, 9])
        try check(Device.cancelSQL(.postgres), ["x", .time(now), 1])
        try check(NotificationRecord.statusSQL(.postgres), [1])
        try check(NotificationCancellation.cancelSQL, [0, 1, 500, "x", .time(now)])
        try check(NotificationWork.claimSQL, [0, 20])
        let retention = SQLRetention(.postgres).notifications
        try check(retention.windowSQL, [.time(now), 0])
        for sql in [retention.oldSQL, retention.stepSQL] { try check(sql, [.time(now), 0, 500]) }
    }

    @Test("Old notifications are deleted when none of their pushes is left")
    func retention() async throws {
        let relays = try await Relays()
        for number in 1...2 { try await relays.register(number) }
        let old = try await relays.send(.tokens(Self.tokens(1))).id
        let waiting = try await relays.send(.tokens(Self.tokens(2))).id
        relays.fixture.advance(.seconds(100))
        let new = try await relays.send(.tokens(Self.tokens(1))).id
        try relays.fixture.query("DELETE FROM push_queue WHERE notification IN (\(old), \(new))")
        let retention = SQLRetention(.postgres).notifications
        let time = relays.fixture.time.now - .seconds(50)
        #expect(try await retention.apply(before: time, relays.first.database) == 1)
        #expect(
            try relays.fixture.query("SELECT array_agg(notification_id ORDER BY 1) FROM notifications")
                == "{\(waiting),\(new)}")
        #expect(try relays.fixture.value("SELECT count(*) FROM notification_counts") == 2)
    }
}
