#if PostgreSQL
import APNSGateway
import ChatDomain
@testable import ChatStorePostgres
import Foundation
import Synchronization
import Testing

/// Counts in several tasks.
private final class Counter: Sendable {
    private let count = Atomic(0)

    var value: Int { count.load(ordering: .relaxed) }

    /// - Returns: how many there are then.
    @discardableResult
    func add(_ more: Int = 1) -> Int { count.add(more, ordering: .relaxed).newValue }
}

/// Relays over one database of PostgreSQL.
private final class Relays: Sendable {
    let fixture: PostgresFixture
    let all: [PostgresStores]
    var first: PostgresStores { all[0] }
    var second: PostgresStores { all[1] }

    init(_ count: Int = 1, apps: Set<AppName>? = nil) async throws {
        let fixture = try PostgresFixture()
        self.fixture = fixture
        var all: [PostgresStores] = []
        for _ in 0..<count { all.append(try await fixture.open(apps: apps)) }
        self.all = all
    }

    deinit { for stores in all { stores.close() } }

    @discardableResult
    func register(
        _ number: Int, app: AppName = .default, user: String? = nil, tags: [String]? = nil,
        client: ClientInfo = ClientInfo(), relay: Int = 0
    ) async throws -> DeviceRegistration {
        try await all[relay].devices.register(
            RegistrationRequest(
                token: try StoreFixture.token(number), app: app,
                edit: DeviceEdit(
                    user: user.map { .set(UserReference(stored: $0)) } ?? .keep, client: client,
                    tags: tags.map { Set($0.map(Tag.init(stored:))) })))
    }

    /// Devices without tokens that a test reads, in one statement.
    func fill(_ count: Int, tags: [String] = []) throws {
        try fixture.query(
            """
            INSERT INTO devices (app, device_token, time_registered)
            SELECT 'default', lpad(to_hex(n), 64, '0'), now() FROM generate_series(1, \(count)) n
            """)
        for tag in tags {
            try fixture.query("INSERT INTO device_tags SELECT '\(tag)', device_id FROM devices")
        }
    }

    /// Does the background work of all relays until none is left.
    func work(during body: (@Sendable () async throws -> Void)? = nil) async throws {
        try await withThrowingTaskGroup { group in
            for stores in all { group.addTask { await stores.jobs.run() } }
            try await body?()
            while try fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
                try await Task.sleep(for: .milliseconds(20))
            }
            group.cancelAll()
        }
    }

    func send(
        _ audience: Audience, app: AppName? = nil, alert: String = "x", badge: Int? = nil, notBefore: Timestamp? = nil,
        skips: Bool = false, key: String? = nil, relay: Int = 0
    ) async throws -> NotificationReceipt {
        try await all[relay].notifications.send(
            NotificationRequest(
                audience: audience, app: app,
                payload: badge.map { #"{"aps":{"badge":\#($0)}}"# } ?? #"{"aps":{"alert":"\#(alert)"}}"#,
                notBefore: notBefore, skipsUnchanged: skips, idempotencyKey: key))
    }

    func deliveries(_ id: NotificationID, in state: PushState? = nil, page: Int = 7) async throws -> [Delivery] {
        var (all, cursor): ([Delivery], Int64?) = ([], nil)
        repeat {
            let page = try await first.notifications.deliveries(of: id, in: state, after: cursor, limit: page)
            all += page.items
            cursor = page.next
        } while cursor != nil
        return all
    }

    /// Leases what is due and settles it as sent.
    @discardableResult
    func deliver(relay: Int = 0, limit: Int = 100_000) async throws -> Int {
        let pushes = try await all[relay].queue.lease(app: .default, lanes: PushLane.allCases, limit: limit).pushes
        let sent = Transition(.sent, adding: PushHistory(attempts: 1))
        _ = try await all[relay].queue.settle(
            pushes.map { Settlement($0.entry...$0.entry, sent, notification: $0.notification) }, app: .default)
        return pushes.count
    }
}

@Suite("PostgreSQL: devices", .timeLimit(.minutes(3)))
struct PostgresDeviceTests {
    @Test("An equal repeat of a registration reads and does not write")
    func repeats() async throws {
        let relays = try await Relays(2)
        let version = { try relays.fixture.query("SELECT xmin, ctid, time_seen FROM devices") }
        let client = ClientInfo(appVersion: "1", osVersion: "9", deviceModel: "iPhone")
        #expect(try await relays.register(1, user: "u", tags: ["a", "b"], client: client) == .created)
        let before = try version()
        relays.fixture.advance(.seconds(599))
        for relay in 0...1 {
            #expect(
                try await relays.register(1, user: "u", tags: ["b", "a"], client: client, relay: relay) == .unchanged)
            #expect(try await relays.register(1, relay: relay) == .unchanged)
        }
        #expect(try version() == before)
        #expect(try await relays.register(1, tags: ["b"], relay: 1) == .refreshed)
        #expect(try await relays.register(1, client: ClientInfo(appVersion: "2")) == .refreshed)
        relays.fixture.advance(.seconds(600))
        #expect(try await relays.register(1) == .refreshed)
        let device = try await relays.second.devices.device(StoreFixture.token(1), app: nil)
        #expect(device.tags.map(\.text) == ["b"] && device.user?.text == "u" && device.client.appVersion == "2")
        #expect(device.registeredAt == relays.fixture.time.withLock { $0 } && device.seenAt == device.registeredAt)
        #expect(device.createdAt == Timestamp(milliseconds: 1_800_000_000_000))
        // A registration makes an inactive device active.
        try relays.fixture.query("UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x', refusals = 3")
        #expect(try await relays.register(1) == .refreshed)
        #expect(try relays.fixture.query("SELECT deactivated_reason IS NULL, refusals FROM devices") == "t|0")
    }

    @Test("Registrations at the same time, of the same devices on two relays, are each device once, and counted once")
    func together() async throws {
        let relays = try await Relays(2)
        let created = try await withThrowingTaskGroup(of: DeviceRegistration.self) { group in
            for number in 1...60 {
                for relay in [0, 1, 0] {
                    group.addTask {
                        try await relays.register(
                            number, user: "u\(number % 7)", tags: ["t\(number % 3)", "all"],
                            client: ClientInfo(appVersion: "v\(number % 2)"), relay: relay)
                    }
                }
            }
            return try await group.reduce(into: 0) { if $1 == .created { $0 += 1 } }
        }
        #expect(created >= 60)
        #expect(try relays.fixture.value("SELECT count(*) FROM devices") == 60)
        #expect(try relays.fixture.value("SELECT count(*) FROM device_tags") == 120)
        #expect(
            try relays.fixture.query("SELECT kind, value, devices FROM device_days ORDER BY kind, value")
                == "||60\napp_version|v0|30\napp_version|v1|30\ndevice_model||60\nos_version||60")
    }

    @Test("What apps say is counted by day; values after the first 64 together; what is said anew moves")
    func usage() async throws {
        let relays = try await Relays()
        for number in 1...70 { try await relays.register(number, client: ClientInfo(appVersion: "v\(number)")) }
        let count = { (value: String) in
            try relays.fixture.value(
                """
                SELECT coalesce(sum(devices), 0) FROM device_days
                WHERE day = '2027-01-15' AND kind = 'app_version' AND value = '\(value)'
                """)
        }
        #expect(try count(DeviceDay.others) == 6 && count("v1") == 1 && count("v70") == 0)
        try await relays.register(1, client: ClientInfo(appVersion: "v2"))
        try await relays.register(70, client: ClientInfo(appVersion: "v2"))
        #expect(try count("v1") == 0 && count("v2") == 3 && count(DeviceDay.others) == 5)
        relays.fixture.advance(.seconds(86_400))
        #expect(try await relays.register(1) == .refreshed)
        #expect(
            try relays.fixture.query(
                "SELECT value, devices FROM device_days WHERE day > '2027-01-15' AND kind LIKE 'app%'")
                == "v2|1")
        let days = try #require(try await relays.first.figures.usage(since: "2027-01-16"))
        #expect(days.map(\.devices) == [1, 1, 1, 1])
        try await DeviceUsage.forget(relays.first.database)
        #expect(
            try relays.fixture.value(
                "SELECT count(*) FROM devices WHERE app_version IS NOT NULL OR time_seen IS NOT NULL") == 0)
        #expect(try relays.fixture.value("SELECT count(*) FROM device_days") == 0)
    }

    @Test("Without usage nothing of it is kept")
    func withoutUsage() async throws {
        let fixture = try PostgresFixture()
        let stores = try await fixture.open(keepsUsage: { false })
        defer { stores.close() }
        let edit = DeviceEdit(client: ClientInfo(appVersion: "1"))
        let request = RegistrationRequest(token: try StoreFixture.token(1), app: .default, edit: edit)
        #expect(try await stores.devices.register(request) == .created)
        #expect(try await stores.devices.register(request) == .unchanged)
        #expect(try fixture.query("SELECT app_version IS NULL, time_seen IS NULL FROM devices") == "t|t")
        #expect(try fixture.value("SELECT count(*) FROM device_days") == 0)
    }

    @Test("An edit changes what it names; a token of several apps must say which is meant")
    func edits() async throws {
        let relays = try await Relays()
        let (devices, token) = (relays.first.devices, try StoreFixture.token(1))
        try await relays.register(1, user: "u", tags: ["a"])
        var device = try await devices.edit(
            token, app: nil,
            DeviceEdit(clientInfo: .set("c\"\\,{}"), serverInfo: .set("s\nü"), tags: [Tag(stored: "b\"\\,{}NULL")]))
        #expect(device.clientInfo == "c\"\\,{}" && device.serverInfo == "s\nü" && device.user?.text == "u")
        #expect(device.tags.map(\.text) == ["b\"\\,{}NULL"])
        device = try await devices.edit(token, app: .default, DeviceEdit(user: .remove, clientInfo: .remove, tags: []))
        #expect(device.user == nil && device.clientInfo == nil && device.serverInfo == "s\nü" && device.tags.isEmpty)
        try await relays.register(1, app: AppName("other"))
        let ambiguous = await #expect(throws: ChatError.self) { try await devices.device(token, app: nil) }
        #expect(ambiguous?.code == .ambiguous && ambiguous?.message.contains("(default, other)") == true)
        let absent = await #expect(throws: ChatError.self) {
            try await devices.edit(token, app: AppName("third"), DeviceEdit())
        }
        #expect(absent?.code == .notFound && absent?.field == "app")
        let unknown = await #expect(throws: ChatError.self) {
            try await devices.device(StoreFixture.token(2), app: nil)
        }
        #expect(unknown?.code == .notFound && unknown?.field == nil)
    }

    @Test(
        "A list shows what its filter leaves, each device once, in the order of registration", arguments: [1, 3, 100])
    func filters(limit: Int) async throws {
        let relays = try await Relays()
        for number in 1...24 {
            try await relays.register(
                number, app: number.isMultiple(of: 3) ? AppName("other") : .default,
                user: number.isMultiple(of: 2) ? "even" : nil,
                tags: number.isMultiple(of: 4) ? ["four", "x"] : number.isMultiple(of: 5) ? ["five"] : nil)
        }
        try relays.fixture.query(
            "UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x' WHERE device_id % 6 < 2")
        func list(_ filter: DeviceFilter) async throws -> [Device] {
            var (all, cursor): ([Device], Int64?) = ([], nil)
            repeat {
                let page = try await relays.first.devices.devices(filter, after: cursor, limit: limit)
                #expect(page.items.count <= limit)
                all += page.items
                cursor = page.next
            } while cursor != nil
            return all
        }
        let everything = try await list(DeviceFilter())
        #expect(everything.count == 24 && everything.map(\.id) == everything.map(\.id).sorted())
        for app in [nil, AppName("other")] {
            for user in [nil, UserReference(stored: "even")] {
                for tag in [nil, Tag(stored: "four")] {
                    for isActive in [nil, true, false] as [Bool?] {
                        let filter = DeviceFilter(app: app, user: user, tag: tag, isActive: isActive)
                        let wanted = everything.filter { device in
                            (app == nil || device.app == app) && (user == nil || device.user == user)
                                && (tag.map(device.tags.contains) ?? true)
                                && (isActive == nil || (device.deactivatedAt == nil) == isActive)
                        }
                        #expect(try await list(filter) == wanted, "\(filter)")
                    }
                }
            }
        }
    }

    @Test("A page looks at a bounded number of devices, and goes on where it ended")
    func window() async throws {
        let relays = try await Relays()
        try relays.fill(PostgresTransaction.pageWindow + 10)
        try relays.fixture.query("UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x'")
        try await relays.register(1)
        let filter = DeviceFilter(isActive: true)
        let empty = try await relays.first.devices.devices(filter, after: nil, limit: 10)
        #expect(empty.items.isEmpty && empty.next != nil)
        let rest = try await relays.first.devices.devices(filter, after: empty.next, limit: 10)
        #expect(rest.items.map(\.token) == [try StoreFixture.token(1)] && rest.next == nil)
    }

    @Test("To unregister takes back what waits, and the member's token")
    func unregister() async throws {
        let relays = try await Relays(2)
        try await relays.first.rooms.join(StoreFixture.join(1))
        try await relays.register(2)
        let kept = try await relays.send(.all)
        let (token, other) = (try StoreFixture.token(1), try StoreFixture.token(2))
        try relays.fixture.query(
            "INSERT INTO push_queue (device_token, payload, device) SELECT device_token, '{}', device_id FROM devices")
        #expect(try await relays.second.devices.unregister(token, app: nil))
        #expect(try await !relays.first.devices.unregister(token, app: nil))
        #expect(
            try relays.fixture.query("SELECT state, reason, count(*) FROM push_queue GROUP BY 1, 2 ORDER BY 1")
                == "cancelled|Unregistered|2\npending||2")
        #expect(try relays.fixture.query("SELECT device_token FROM active_users") == "0")
        let status = try await relays.first.notifications.notification(kept.id)
        #expect(status.counts[.cancelled] == 1 && status.counts[.pending] == 1)
        let outcomes = relays.second.figures.outcomes()
        #expect(outcomes.map(\.total) == [2] && outcomes.map(\.reason) == [PushLifeCycle.unregistered])
        let leased = try await relays.first.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes
        #expect(leased.map(\.address) == [.token(other), .token(other)])
    }

    @Test(
        "A device's history has its notifications, others' pushes and its room's, newest first", arguments: [1, 4, 50])
    func history(limit: Int) async throws {
        let relays = try await Relays()
        for number in 1...3 { try await relays.first.rooms.join(StoreFixture.join(number)) }
        let device = try await relays.first.devices.device(StoreFixture.token(2), app: nil)
        for round in 0..<6 {
            _ = try await relays.first.rooms.post(StoreFixture.post(1, "message \(round)"))
            _ = try await relays.send(.tokens([StoreFixture.token(2)]), alert: "\(round)")
            _ = try await relays.first.rooms.post(StoreFixture.post(2, "own"))
            if round == 3 { try await relays.deliver() }
        }
        var (found, cursor): ([Delivery], Int64?) = ([], nil)
        repeat {
            let page = try await relays.first.devices.deliveries(to: device.id, before: cursor, limit: limit)
            #expect(page.items.count <= limit)
            found += page.items
            cursor = page.next
        } while cursor != nil
        #expect(found.count == 12 && found.map(\.entry) == Set(found.map(\.entry)).sorted(by: >))
        #expect(found.filter { $0.message != nil }.count == 6 && found.filter { $0.notification != nil }.count == 6)
        #expect(found.filter { $0.state == .sent }.count == 8)
        #expect(found.allSatisfy { $0.token == device.token.description && ($0.pushID != nil) == ($0.state == .sent) })
    }
}

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
        // Two members with one device, one without, and one whose device is not registered.
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

    @Test("The app default is the configured one; for an app that is not configured nothing is queued")
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

    @Test("Who was told the same last is left out, and counted once")
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
        // What another program queued is no JSON, and says something else.
        try relays.fixture.query(
            "INSERT INTO push_queue (device_token, payload, device) SELECT device_token, 'nonsense', device_id FROM devices"
        )
        #expect(try await skipped(.all) == [0, 4])
        #expect(try await skipped(.all, badge: 3) == [4, 0])
    }

    @Test("What is scheduled waits for its time")
    func scheduled() async throws {
        let relays = try await Relays()
        try await relays.register(1)
        let time = relays.fixture.time.withLock { $0 + .seconds(60) }
        let id = try await relays.send(.all, notBefore: time).id
        #expect(try await relays.first.notifications.notification(id).state == .scheduled)
        #expect(try await relays.first.queue.nextDue(app: .default) == time)
        #expect(try await relays.deliver() == 0)
        relays.fixture.advance(.seconds(61))
        #expect(try await relays.deliver() == 1)
        #expect(try await relays.first.notifications.notification(id).state == .done)
    }

    @Test("Two relays work at the same notifications while two deliver them: nobody twice, nobody missing")
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
        #expect(page.count == 5000 && page.map(\.entry) == page.map(\.entry).sorted())
    }

    @Test("To cancel in the middle takes back what no gateway has, on whatever relay")
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
        // What comes back from the gateway is taken back then.
        relays.first.queue.giveBack([leased[0].entry...leased[0].entry], lane: leased[0].lane, app: .default)
        var again: [QueuedPush] = []
        while again.isEmpty {
            again = try await relays.first.queue.lease(app: .default, lanes: PushLane.allCases, limit: 20).pushes
        }
        #expect(again.map(\.obstacle) == [.notificationCancelled])
        let counts = [relays.first, relays.second].map { stores in
            stores.figures.outcomes().filter { $0.state == .cancelled }.reduce(0) { $0 + $1.total }
        }
        #expect(counts[0] + counts[1] == queued - 20)
        #expect(try await relays.first.notifications.cancel(id).state == .cancelled)
        await #expect(throws: ChatError.self) { try await relays.first.notifications.cancel(id + 1) }
    }

    @Test("While one relay has a notification's row, another does the rest; when it dies, nothing is lost")
    func abandoned() async throws {
        let relays = try await Relays()
        try relays.fill(1200)
        let held = try await relays.send(.all).id
        let other = try await relays.send(.all).id
        // As a relay that stopped in the middle of a step.
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

    /// Fails for the notification with the key `bad`.
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

    @Test("Work that fails is passed: the rest goes on")
    func failing() async throws {
        let relays = try await Relays()
        try relays.fill(600)
        for number in 1...30 { _ = try await relays.send(.all, key: number == 7 ? "bad" : "good\(number)") }
        let jobs = BackgroundJobs(
            database: relays.first.database, outcomes: OutcomeCounter(clock: Timestamp.now),
            settings: { StoreSettings(format: { _ in APNSFormat(.binary, payloadLimit: 2048) }) }, kinds: [Failing.self]
        )
        let task = Task { await jobs.run() }
        defer { task.cancel() }
        while try relays.fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 1 {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(try relays.fixture.query("SELECT idempotency_key FROM notifications WHERE work IS NOT NULL") == "bad")
    }

    @Test("The same key at the same time on two relays is one notification")
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

    @Test("No statement goes through all of what there can be very many of")
    func plans() async throws {
        let relays = try await Relays()
        let connection = try PostgresConnection(url: relays.fixture.url)
        connection.deadline = .now + .seconds(60)
        _ = try connection.run("BEGIN")
        // Where there is an index for it, it is taken, however few rows the tables have.
        _ = try connection.run("SET LOCAL enable_seqscan = off")
        func check(_ sql: String, _ values: [PostgresValue]) throws {
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
                var parameters = PostgresParameters()
                let sql = fanout.insertSQL(fanout.items[...], 500, now: now, settings, &parameters)
                try check(sql, parameters.values)
            }
        }
        for user in [nil, users[0]] {
            for (tag, isActive) in [(nil, nil), (tags[0], true), (nil, false)] as [(ChatDomain.Tag?, Bool?)] {
                var parameters = PostgresParameters()
                let filter = DeviceFilter(user: user, tag: tag, isActive: isActive)
                let candidates = PostgresDeviceStore.candidates(filter, after: 1, &parameters)
                let rest = PostgresDeviceStore.rest(filter, &parameters).map { "AND " + $0 } ?? ""
                try check(
                    "SELECT * FROM \(candidates) \(rest) ORDER BY d.device_id LIMIT 9", parameters.values)
            }
        }
        try check(PostgresDeviceStore.historySQL, [1, 9, 9])
        try check(PostgresDeviceStore.chatHistorySQL, [1, 9, 9, 9])
        try check(PostgresDeviceStore.cancelSQL, ["x", .time(now), 1])
        try check(PostgresNotificationStore.pendingSQL, [1, 9, 1])
        try check(NotificationCancellation.cancelSQL, [0, 1, 500, "x", .time(now)])
        try check(NotificationWork.claimSQL, [0, 20])
        try check(NotificationRetention.oldSQL, [.time(now), 0, 500])
    }

    @Test("Old notifications go when none of their pushes is left")
    func retention() async throws {
        let relays = try await Relays()
        for number in 1...2 { try await relays.register(number) }
        let old = try await relays.send(.tokens(Self.tokens(1))).id
        let waiting = try await relays.send(.tokens(Self.tokens(2))).id
        relays.fixture.advance(.seconds(100))
        let new = try await relays.send(.tokens(Self.tokens(1))).id
        try relays.fixture.query("DELETE FROM push_queue WHERE notification IN (\(old), \(new))")
        let retention = NotificationRetention(database: relays.first.database)
        let time = relays.fixture.time.withLock { $0 - .seconds(50) }
        #expect(try await retention.apply(before: time) == 1)
        #expect(
            try relays.fixture.query("SELECT array_agg(notification_id ORDER BY 1) FROM notifications")
                == "{\(waiting),\(new)}")
        #expect(try relays.fixture.value("SELECT count(*) FROM notification_counts") == 2)
    }
}

@Suite("PostgreSQL: tokens and keys", .timeLimit(.minutes(3)))
struct PostgresTokenTests {
    @Test("Of many on two relays that sign at the same time all get the same token")
    func providerTokens() async throws {
        let relays = try await Relays(2)
        let key = ProviderKeyName(teamID: "T", keyID: "K", fingerprint: "f")
        let signed = Counter()
        func tokens(refused: String?) async throws -> Set<IssuedToken> {
            try await withThrowingTaskGroup(of: IssuedToken.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        try await relays.all[number % 2].providerTokens.providerToken(for: key, refused: refused) {
                            time in
                            "token \(signed.add()) of \(time.seconds)"
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.insert($1) }
            }
        }
        let first = try await tokens(refused: nil)
        #expect(first.count == 1 && signed.value == 1)
        // Too young to be replaced.
        #expect(try await tokens(refused: first.first?.text) == first)
        relays.fixture.advance(IssuedToken.shortestLife)
        let second = try await tokens(refused: first.first?.text)
        #expect(second.count == 1 && second != first && signed.value == 2)
        #expect(try await tokens(refused: first.first?.text) == second)
        relays.fixture.advance(IssuedToken.lifetime)
        #expect(try await tokens(refused: nil).isDisjoint(with: second))
    }

    @Test("Of many on two relays that ask for the first key all get the same")
    func vapidKeys() async throws {
        let relays = try await Relays(2)
        let made = Counter()
        func keys() async throws -> Set<String> {
            try await withThrowingTaskGroup(of: String.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        try await relays.all[number % 2].subscriptions.vapidKey {
                            "key \(made.add())"
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.insert($1) }
            }
        }
        #expect(try await keys().count == 1)
        try await relays.first.subscriptions.setVAPIDKey("other")
        #expect(try await keys() == ["other"])
    }

    @Test("An endpoint that is known with other keys is refused, also when two bring it at the same time")
    func subscriptions() async throws {
        let relays = try await Relays(2)
        func subscription(_ number: Int, key: UInt8, ends: Timestamp? = nil) throws -> Subscription {
            Subscription(
                address: try StoreFixture.token(number), endpoint: "https://push.example/\(number)",
                publicKey: Array(repeating: key, count: 65), secret: Array(repeating: 255 - key, count: 16),
                expiresAt: ends)
        }
        let kept = await withTaskGroup(of: UInt8?.self) { group in
            for number in 0..<10 {
                group.addTask {
                    let key = UInt8(number % 2)
                    do {
                        try await relays.all[number % 2].subscriptions.keep(subscription(1, key: key))
                        return key
                    } catch {
                        return nil
                    }
                }
            }
            return await group.reduce(into: [UInt8?]()) { $0.append($1) }
        }
        #expect(kept.compactMap(\.self).count == 5 && Set(kept.compactMap(\.self)).count == 1)
        let end = Timestamp(seconds: 1_900_000_000)
        let winner = try #require(kept.compactMap(\.self).first)
        try await relays.first.subscriptions.keep(subscription(1, key: winner, ends: end))
        let found = try await relays.second.subscriptions.subscriptions([1, 2, 1].map(StoreFixture.token))
        #expect(found == [try StoreFixture.token(1): try subscription(1, key: winner, ends: end)])
        let conflict = await #expect(throws: ChatError.self) {
            try await relays.second.subscriptions.keep(subscription(1, key: 1 - winner))
        }
        #expect(conflict?.code == .conflict)
    }

    @Test("What one relay revokes is good for nothing on the other from then on")
    func apiTokens() async throws {
        let relays = try await Relays(2)
        let (first, second) = (relays.first.tokens, relays.second.tokens)
        let name = try AccessToken.name("build")
        let grant = try AccessGrant(scopes: [.send, .read], audience: .tags([Tag(stored: "x")]))
        let end = relays.fixture.time.withLock { $0 + .seconds(60) }
        let (token, secret) = try await first.create(name, grant, expiresAt: end)
        #expect(try await second.token(of: secret) == token)
        #expect(try await second.token(of: secret + "x") == nil)
        let conflict = await #expect(throws: ChatError.self) { try await second.create(name, grant, expiresAt: nil) }
        #expect(conflict?.code == .conflict && conflict?.field == "name")
        let (lasting, _) = try await second.create(try AccessToken.name("other"), grant, expiresAt: nil)
        let page = try await first.tokens(after: nil, limit: 1)
        #expect(page.items == [token] && page.next == token.id)
        #expect(try await first.tokens(after: page.next, limit: 1).items == [lasting])
        // The later use stands, whichever relay writes it down first.
        first.used(token.id, from: "192.0.2.1")
        relays.fixture.advance(.seconds(1))
        second.used(token.id, from: "192.0.2.2")
        try await second.flush()
        try await first.flush()
        let used = try await first.token(of: secret)
        #expect(used?.lastUsedFrom == "192.0.2.2" && used?.lastUsedAt == relays.fixture.time.withLock { $0 })
        #expect(try await second.revoke(token.id)?.text == "build")
        #expect(try await second.revoke(token.id) == nil)
        #expect(try await first.token(of: secret) == nil)
        let (_, expiring) = try await first.create(name, grant, expiresAt: end)
        relays.fixture.advance(.seconds(60))
        #expect(try await second.token(of: expiring) == nil)
    }
}
#endif
