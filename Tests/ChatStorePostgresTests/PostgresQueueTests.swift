import ChatDomain
import ChatSQL
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests the queue of PostgreSQL with several relays and other programs. ``StorePortTests`` tests the queue of every
/// store.
@Suite("The queue that relays share", .timeLimit(.minutes(2)))
struct PostgresQueueTests {
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))

    /// Relays on one database.
    private final class Relays: Sendable {
        let fixture: PostgresFixture
        let all: [PostgresStores]
        var first: PostgresStores { all[0] }

        init(_ count: Int = 1, defaultApp: AppName = .default) async throws {
            fixture = try PostgresFixture()
            var all: [PostgresStores] = []
            for _ in 0..<count { all.append(try await fixture.open(defaultApp: defaultApp)) }
            self.all = all
        }

        deinit { for stores in all { stores.close() } }

        /// Inserts pushes as a script does.
        func insert(_ count: Int, _ columns: String = "", _ values: String = "") throws {
            try fixture.query(
                """
                INSERT INTO push_queue (device_token, payload\(columns))
                SELECT lpad(i::text, 64, 'a'), '{"aps":{}}'\(values) FROM generate_series(1, \(count)) i
                """)
        }

        func lease(
            _ limit: Int = 1000, relay: Int = 0, lanes: [PushLane] = PushLane.allCases, app: AppName = .default
        ) async throws -> [QueuedPush] {
            try await all[relay].queue.lease(app: app, lanes: lanes, limit: limit).pushes
        }

        @discardableResult
        func settle(
            _ ids: ClosedRange<Int64>, _ transition: Transition, relay: Int = 0, late: Bool = false,
            notification: NotificationID? = nil
        ) async throws -> Int {
            try await all[relay].queue.settle(
                [Settlement(ids, transition, notification: notification, overrulesSilence: late)], app: .default)[0]
                .count
        }

        /// Does the watch's work of one round.
        func look(relay: Int = 0) async throws { try await all[relay].upkeep.queue.look() }

        func states() throws -> String {
            try fixture.query("SELECT string_agg(state, ' ' ORDER BY message_id) FROM push_queue")
        }
    }

    // MARK: - Leases

    /// Counts that the tasks of a test share.
    private final class Tally: Sendable {
        let held = Mutex<Set<Int64>>([])
        let settled = Atomic(0)
        let ends = Mutex<[Int64: Int]>([:])
    }

    @Test("No push is leased by two relays at once, and none is lost, whatever is released")
    func exclusive() async throws {
        let relays = try await Relays(2)
        let queues = relays.all.map(\.queue)
        let count = 3000
        try relays.insert(count, ", bulk, unanswered", ", i % 3 = 0, CASE WHEN i % 5 = 0 THEN 1 ELSE 0 END")
        let tally = Tally()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for task in 0..<12 {
                group.addTask {
                    let queue = queues[task % 2]
                    var round = task
                    while tally.settled.load(ordering: .relaxed) < count {
                        round += 1
                        let pushes = try await queue.lease(
                            app: .default, lanes: PushLane.allCases, limit: 1 + round * 7 % 60
                        ).pushes
                        let isNew = tally.held.withLock { held in pushes.filter { held.insert($0.id).inserted }.count
                        }
                        #expect(isNew == pushes.count)
                        if pushes.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
                        for push in pushes {
                            tally.held.withLock { _ = $0.remove(push.id) }
                            let range = push.id...push.id
                            if (push.id + Int64(round)).isMultiple(of: 4) {
                                queue.release([range], lane: push.lane, app: .default)
                            } else {
                                let changed = try await queue.settle([Settlement(range, Self.sent)], app: .default)
                                #expect(changed.map(\.count) == [1])
                                tally.ends.withLock { $0[push.id, default: 0] += 1 }
                                tally.settled.add(1, ordering: .relaxed)
                            }
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(tally.ends.withLock { $0.count } == count && tally.ends.withLock { $0.values.allSatisfy { $0 == 1 } })
        #expect(try relays.fixture.query("SELECT state, count(*) FROM push_queue GROUP BY state") == "sent|\(count)")
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue_due") == 0)
    }

    @Test("The leases of an ended relay go to another, and the first relay's outcomes change nothing")
    func takenOver() async throws {
        let relays = try await Relays(2)
        try relays.insert(4)
        #expect(try await relays.lease(3).count == 3)
        try await relays.look(relay: 1)
        #expect(try await relays.lease(relay: 1).map(\.id) == [4])
        let start = relays.first.database.start
        try relays.fixture.query("UPDATE relay_starts SET time_ended = now() WHERE start_id = \(start)")
        try await relays.look(relay: 1)
        #expect(try await relays.lease(2, relay: 1).map(\.id) == [1, 2])
        // The first relay may have a new start by then. Otherwise it gets no pushes.
        if relays.first.database.start == start { #expect(try await relays.lease().isEmpty) }
        let gone = Transition(.failed(reason: "Gone"), device: .countRefusal(reason: "Gone", limit: 1))
        #expect(try await relays.settle(1...2, gone) == 0)
        #expect(relays.first.metrics.outcomes().isEmpty)
        relays.first.queue.release([1...2], lane: .normal, app: .default)
        try await relays.look()
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue_due WHERE lease_start IS NULL") <= 1)
        #expect(try await relays.settle(1...2, Self.sent, relay: 1) == 2)
        #expect(try relays.states() == "sent sent pending pending")
    }

    /// A counterexample of `Tests/Spin/leases.pml` without one of the fixes (ANY_START).
    @Test("A lease whose COMMIT ends after the relay has started again is void, and another relay gets the push")
    func startedAgain() async throws {
        let relays = try await Relays(2)
        try relays.insert(1)
        // The COMMIT of a lease waits for this lock.
        try relays.fixture.query(
            """
            CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END';
            CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON push_queue_due DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW WHEN (NEW.lease_start IS NOT NULL) EXECUTE FUNCTION wait();
            """)
        let holder = PostgresClient(url: relays.fixture.url)
        try holder.rows("SELECT pg_advisory_lock(7)")
        let start = relays.first.database.start
        let lease = Task { try await relays.lease() }
        try await eventually("the COMMIT waits") {
            try relays.fixture.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1
        }
        try relays.fixture.query("UPDATE relay_starts SET time_ended = now() WHERE start_id = \(start)")
        try await eventually("the relay starts again") { relays.first.database.start != start }
        try holder.rows("SELECT pg_advisory_unlock(7)")
        await #expect(throws: ChatError.self) { try await lease.value }
        try await relays.look(relay: 1)
        #expect(try await relays.lease(relay: 1).map(\.id) == [1])
    }

    @Test("The search for unknown leases releases no push that was released and leased again since")
    func leasedAgain() async throws {
        let relays = try await Relays()
        try relays.insert(1)
        #expect(try await relays.lease().count == 1)
        let start = relays.first.database.start
        func version() throws -> String { try relays.fixture.query("SELECT xmin FROM push_queue_due") }
        func release(_ version: String) async throws -> Int {
            try await relays.first.database.write { transaction in
                try transaction.run(QueueUpkeep.orphansSQL, [.ints([1]), .int(start), .texts([version])])
            }
        }
        let found = try version()
        for lease in ["NULL", "\(start)"] {
            try relays.fixture.query("UPDATE push_queue_due SET lease_start = \(lease)")
        }
        #expect(try await release(found) == 0)
        #expect(try await release(version()) == 1)
    }

    @Test("A released push is due again: for the same relay at once, for others with its next look")
    func released() async throws {
        let relays = try await Relays(2)
        try relays.insert(3)
        #expect(try await relays.lease().count == 3)
        relays.first.queue.release([2...3], lane: .normal, app: .default)
        #expect(try await relays.lease(1).map(\.id) == [2])
        relays.first.queue.release([2...2], lane: .normal, app: .default)
        try await relays.look()
        #expect(try await relays.lease(relay: 1).map(\.id) == [2, 3])
        #expect(try await relays.lease().isEmpty)
    }

    @Test("A lease whose COMMIT got no response does not keep its pushes")
    func inDoubt() async throws {
        let relays = try await Relays()
        try relays.insert(3)
        #expect(try await relays.lease(1).map(\.id) == [1])
        try relays.fixture.query(
            "UPDATE push_queue SET lease_start = \(relays.first.database.start) WHERE message_id = 2")
        try await relays.look()
        #expect(try await relays.lease().map(\.id) == [3])
        relays.first.queue.leases.withLock { leases in
            let plan = leases.begin(.default)
            leases.fail(plan, app: .default, at: .now)
        }
        try await relays.look()
        #expect(try await relays.lease().map(\.id) == [2])
    }

    @Test("A lease follows the order of lanes, takes the lowest ids of each, and reports the lanes with more")
    func lanes() async throws {
        let relays = try await Relays()
        try relays.insert(2, ", unanswered", ", 1")
        try relays.insert(2, ", bulk", ", true")
        try relays.insert(2)
        try relays.insert(2, ", not_before", ", 5")
        let queue = relays.first.queue
        let one = try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 3)
        #expect(one.pushes.map(\.id) == [5, 7, 8] && one.lanes == [.normal, .bulk, .retry])
        let retry = try await queue.lease(app: .default, lanes: [.retry], limit: 1)
        #expect(retry.pushes.map(\.id) == [1] && retry.lanes == [.normal, .bulk, .retry])
        let some = try await queue.lease(app: .default, lanes: [.bulk, .normal], limit: 2)
        #expect(some.pushes.map(\.id) == [3, 4] && some.lanes == [.normal, .retry])
        let rest = try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 9)
        #expect(rest.pushes.map(\.id) == [6, 2] && rest.lanes.isEmpty)
    }

    // MARK: - Outcomes

    @Test("Two settlements of one push in a call are applied in order")
    func order() async throws {
        let relays = try await Relays()
        try relays.insert(3)
        _ = try await relays.lease()
        let settled = try await relays.first.queue.settle(
            [
                Settlement(1...3, Self.sent),
                Settlement(2...2, Transition(.failed(reason: "Bad")), overrulesSilence: true),
                Settlement(3...3, Transition(.failed(reason: "Bad"))),
            ], app: .default)
        #expect(settled.map(\.count) == [3, 1, 0])
        #expect(try settled[1].address == StoreFixture.token(2).description)
        #expect(try relays.states() == "sent failed sent")
        // Two equal settlements, one of which is for a deleted push.
        try relays.insert(3)
        _ = try await relays.lease(2)
        try relays.fixture.query("DELETE FROM push_queue WHERE message_id = 4")
        let alike = try await relays.first.queue.settle((4...5).map { Settlement($0...$0, Self.sent) }, app: .default)
        #expect(alike.map(\.count) == [0, 1])
        let counts = relays.first.metrics.outcomes()
        #expect(counts.map(\.state) == [.failed, .sent] && counts.map(\.total) == [1, 4])
    }

    @Test("An outcome changes the device and the notification's counts")
    func effects() async throws {
        let relays = try await Relays()
        let now = relays.fixture.time.now
        for number in 1...4 {
            _ = try await relays.first.devices.register(
                RegistrationRequest(token: StoreFixture.token(number), app: .default))
        }
        let id = try await relays.first.notifications.send(
            NotificationRequest(audience: .all, payload: #"{"aps":{"alert":"x"}}"#)
        ).id
        let pushes = try await relays.lease()
        #expect(pushes.count == 4 && pushes.allSatisfy { $0.isOurs && $0.obstacle == nil })
        #expect(pushes[0].payload == Array(#"{"aps":{"alert":"x"}}"#.utf8))
        let pushIDs = pushes.map(\.id)
        func failed(_ effect: Transition.Device) -> Transition {
            Transition(.failed(reason: "Bad"), adding: PushHistory(attempts: 1), device: effect)
        }
        let settled = try await relays.first.queue.settle(
            [
                Settlement(pushIDs[0]...pushIDs[0], Self.sent, notification: id),
                Settlement(
                    pushIDs[1]...pushIDs[1], failed(.deactivate(since: now, reason: "Gone")), notification: id),
                Settlement(
                    pushIDs[2]...pushIDs[2], failed(.deactivate(since: now - .seconds(1), reason: "Gone")),
                    notification: id),
                Settlement(
                    pushIDs[3]...pushIDs[3], failed(.countRefusal(reason: "Bad", limit: 1)), notification: id),
            ], app: .default)
        #expect(settled.map(\.count) == [1, 1, 1, 1])
        #expect(
            try relays.fixture.query(
                "SELECT deactivated_reason, refusals FROM devices ORDER BY device_id") == "|0\nGone|0\n|0\nBad|1")
        let counts = try await relays.first.notifications.notification(id).counts
        #expect(counts == [.pending: 0, .sent: 1, .failed: 3, .expired: 0, .cancelled: 0])
        #expect(
            try await relays.settle(
                pushIDs[0]...pushIDs[0], failed(.countRefusal(reason: "Bad", limit: nil)),
                late: true, notification: id) == 1)
        #expect(try await relays.first.notifications.notification(id).counts[.failed] == 4)
        #expect(try relays.fixture.query("SELECT refusals FROM devices WHERE device_id = 1") == "1")
    }

    @Test("The obstacle to a push is known when it is leased")
    func obstacles() async throws {
        let relays = try await Relays()
        for number in 1...3 { try await relays.first.rooms.join(StoreFixture.join(number)) }
        _ = try await relays.first.rooms.post(StoreFixture.post(1, "hello"))
        try relays.insert(4)
        try relays.insert(1, ", device", ", 999")
        try relays.fixture.query(
            """
            UPDATE push_queue SET device_token = '<' || upper(device_token) || ' >', payload = '' WHERE chat_message IS NULL;
            UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x'
                WHERE device_token = '\(try StoreFixture.token(3))';
            UPDATE push_queue SET device_token = lpad('7', 64, 'a') WHERE device = 999;
            INSERT INTO moderation (action, secret_code, actor, last_push, device_token)
                SELECT 'remove', 'room', 'x', 1, '\(try StoreFixture.token(2))';
            """)
        let pushes = try await relays.lease()
        #expect(
            pushes.map(\.obstacle) == [
                .memberRemoved, .deviceInactive, nil, nil, .deviceInactive, nil, .deviceForgotten,
            ])
        #expect(try pushes[3].address == .token(StoreFixture.token(2)))
        #expect(pushes.prefix(2).allSatisfy { $0.message != nil && $0.isOurs } && pushes[2].isOurs == false)
        // A script's row gets its device id, for the device's history.
        #expect(try relays.fixture.query("SELECT count(DISTINCT device) FROM push_queue WHERE payload = ''") == "4")
    }

    // MARK: - Other programs

    @Test("A script's row with two columns is leased within moments, for the default app")
    func scripts() async throws {
        let app = AppName("chat")
        let relays = try await Relays(defaultApp: app)
        let watch = Task { await relays.first.upkeep.watch() }
        defer { watch.cancel() }
        var arrivals = relays.first.queue.arrivals(of: app).makeAsyncIterator()
        #expect(try await relays.lease(app: app).isEmpty)
        try relays.insert(2)
        var found: [QueuedPush] = []
        while found.count < 2, await arrivals.next() != nil { found += try await relays.lease(app: app) }
        #expect(found.map(\.id) == [1, 2] && found[0].payload == Array(#"{"aps":{}}"#.utf8))
        // Committed late, with an id below others that were leased long ago.
        try relays.fixture.query(
            "INSERT INTO push_queue (message_id, device_token, payload) VALUES (-7, lpad('1', 64, 'a'), '{}')")
        while found.count < 3, await arrivals.next() != nil { found += try await relays.lease(app: app) }
        #expect(found.last?.id == -7)
    }

    @Test("Rows that a script settles or makes due again move to the right partition")
    func strays() async throws {
        let relays = try await Relays()
        try relays.insert(3)
        _ = try await relays.lease(1)
        #expect(try await relays.settle(1...1, Transition(.failed(reason: "Bad"))) == 1)
        try relays.fixture.query(
            """
            UPDATE push_queue SET state = 'cancelled' WHERE message_id = 2;
            UPDATE push_queue SET state = 'pending' WHERE message_id = 1;
            """)
        #expect(try await relays.lease().map(\.id) == [3])
        try await relays.look()
        #expect(try await relays.lease().map(\.id) == [1])
        #expect(
            try relays.fixture.query("SELECT message_id, time_settled IS NOT NULL FROM push_queue_20270115") == "2|t")
        #expect(throws: PostgresServer.Failed.self) {
            try relays.fixture.query(
                "INSERT INTO push_queue (message_id, device_token, payload) VALUES (9223372036854775807, 'aa', '{}')")
        }
    }

    @Test("An id that a script reuses delays nothing: the push that was settled under it gets another")
    func numbersAgain() async throws {
        let relays = try await Relays()
        func insert(_ number: Int) throws {
            try relays.fixture.query(
                "INSERT INTO push_queue (message_id, device_token, payload) VALUES (\(number), 'aa', '{}')")
        }
        for number in 2...3 { try insert(number) }
        #expect(try await relays.lease().map(\.id) == [2, 3])
        #expect(try await relays.settle(2...3, Self.sent) == 2)
        // Ids from 1 on, because the sequence does not know of the others.
        try relays.insert(3)
        try await relays.look()
        #expect(try await relays.lease().map(\.id) == [1, 2, 3])
        #expect(try await relays.settle(1...3, Self.sent) == 3)
        #expect(try relays.states() == "sent sent sent sent sent")
        #expect(try relays.fixture.value("SELECT count(DISTINCT message_id) FROM push_queue") == 5)

        // The script settles a push itself, and makes another one due again.
        try insert(1)
        try relays.fixture.query("UPDATE push_queue_due SET state = 'cancelled' WHERE message_id = 1")
        try await relays.look()
        try insert(2)
        try relays.fixture.query(
            "UPDATE push_queue SET state = 'pending', time_sent = NULL WHERE message_id = 2 AND settled_on IS NOT NULL")
        try await relays.look()
        #expect(try await relays.lease().count == 2)
        #expect(try relays.fixture.value("SELECT count(DISTINCT message_id) FROM push_queue") == 7)
    }

    // MARK: - Days

    @Test("Each day has a partition that retention drops, except pushes of a notification in progress")
    func days() async throws {
        let relays = try await Relays()
        try relays.insert(4)
        func names() throws -> String {
            try relays.fixture.query(
                "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relname ~ '^push_queue_[0-9]{8}$'"
            )
        }
        #expect(try names() == "push_queue_20270115 push_queue_20270116")
        _ = try await relays.lease(3)
        try await relays.settle(1...1, Self.sent)
        relays.fixture.advance(.seconds(3 * 86_400))
        try await relays.settle(2...2, Self.sent)
        try await relays.look()
        try relays.fixture.query("UPDATE push_queue SET time_settled = NULL, state = 'cancelled' WHERE message_id = 4")
        #expect(
            try names() == "push_queue_20270115 push_queue_20270116 push_queue_20270118 push_queue_20270119")
        #expect(try await relays.first.upkeep.applyRetention(messages: .zero, queue: .seconds(2 * 86_400)).pushes == 1)
        #expect(try names() == "push_queue_20270116 push_queue_20270118 push_queue_20270119")
        #expect(try relays.states() == "sent pending cancelled")
        relays.fixture.advance(.seconds(60))
        #expect(try await relays.first.upkeep.applyRetention(messages: .zero, queue: .seconds(30)).pushes == 2)
        #expect(try relays.states() == "pending")
        // The push can still be settled after that.
        #expect(try await relays.settle(3...3, Self.sent) == 1)
        try relays.fixture.query(
            """
            INSERT INTO notifications (push_type, devices, payload, audience, work)
                VALUES ('alert', 1, '{}', '{"all":true}', 'queue');
            UPDATE push_queue SET notification = 1;
            """)
        relays.fixture.advance(.seconds(9 * 86_400))
        #expect(try await relays.first.upkeep.applyRetention(messages: .zero, queue: .seconds(3 * 86_400)).pushes == 0)
        try relays.fixture.query("UPDATE notifications SET work = NULL")
        #expect(try await relays.first.upkeep.applyRetention(messages: .zero, queue: .seconds(3 * 86_400)).pushes == 1)
    }

    // MARK: - Feedback, metrics, apps and plans

    @Test("Reports of the feedback service are acted on once, by any relay")
    func feedback() async throws {
        let relays = try await Relays(2)
        let now = relays.fixture.time.now
        for number in 1...2 {
            _ = try await relays.first.devices.register(
                RegistrationRequest(token: StoreFixture.token(number), app: .default))
        }
        try await relays.first.feedback.record(
            [
                FeedbackReport(token: try StoreFixture.token(1), since: now),
                FeedbackReport(token: try StoreFixture.token(2), since: now - .seconds(5)),
                FeedbackReport(token: try StoreFixture.token(3), since: now),
            ], app: .default)
        async let one = relays.all[0].feedback.actOnFeedback()
        async let other = relays.all[1].feedback.actOnFeedback()
        let results = try await [one, other]
        #expect(results.map(\.deactivated).reduce(0, +) == 1)
        #expect(results.map(\.kept).reduce(0, +) == 1 && results.map(\.unknown).reduce(0, +) == 1)
        #expect(try relays.fixture.query("SELECT count(*) FROM devices WHERE deactivated_reason = 'Feedback'") == "1")
    }

    @Test("Every relay reports the metrics of the whole database")
    func metrics() async throws {
        let relays = try await Relays(2)
        let now = relays.fixture.time.now
        try relays.insert(5)
        try relays.insert(1, ", app, not_before", ", 'late', \((now + .seconds(9)).milliseconds)")
        try relays.fixture.query("UPDATE push_queue SET time_queued = '2020-01-01 00:00:00+00' WHERE message_id = 5")
        #expect(try await relays.lease(2).count == 2)
        let depths = try await relays.all[1].metrics.queueDepths()
        #expect(
            depths == [
                QueueDepth(app: .default, due: 3, written: 2, oldest: Timestamp(sqlText: "2020-01-01 00:00:00")),
                QueueDepth(app: AppName("late"), delayed: 1),
            ])
        #expect(try await relays.first.upkeep.queue.unconfiguredApps([.default]) == [AppName("late")])
    }

    @Test("The data of the app named default moves to the default app when that gets a name")
    func adoption() async throws {
        let fixture = try PostgresFixture()
        let before = try await fixture.open()
        for number in 1...3 { try await before.rooms.join(StoreFixture.join(number)) }
        for app in ["default", "chat"] {
            _ = try await before.devices.register(
                RegistrationRequest(
                    token: StoreFixture.token(9), app: AppName(app),
                    edit: DeviceEdit(tags: [Tag(stored: app)])))
        }
        _ = try await before.rooms.post(StoreFixture.post(1, "hello"))
        before.close()
        let after = try await fixture.open(defaultApp: AppName("chat"))
        defer { after.close() }
        #expect(try fixture.query("SELECT DISTINCT app FROM active_users") == "chat")
        #expect(try fixture.query("SELECT app, count(*) FROM devices GROUP BY app") == "chat|4")
        #expect(
            try fixture.query(
                "SELECT string_agg(t.tag, ' ' ORDER BY t.tag) FROM device_tags t JOIN devices d USING (device_id)")
                == "chat default")
        let pushes = try await after.queue.lease(app: AppName("chat"), lanes: PushLane.allCases, limit: 9).pushes
        #expect(pushes.count == 2)
    }

    @Test("Leases and outcomes use indexes, even if the server believes that the table is empty")
    func plans() async throws {
        let relays = try await Relays()
        try relays.fixture.query("ALTER TABLE push_queue_due SET (autovacuum_enabled = off)")
        try relays.fixture.query("VACUUM ANALYZE push_queue_due")
        try relays.insert(20_000)
        let floors = SQLValue.ints([.min, .min, .min])
        func plan(_ sql: String, _ values: [SQLValue]) async throws -> String {
            try await relays.first.database.write { transaction in
                transaction.pipeline("SET LOCAL enable_seqscan = off")
                return try transaction.rows("EXPLAIN \(sql)", values).map { try $0.text(0) }.joined(separator: "\n")
            }
        }
        let lease = try await plan(
            QueueReader.leaseSQL(PushLane.allCases, countsUnread: false),
            [.text("default"), 1, 1000, 1, floors, floors, floors])
        #expect(!lease.contains("Seq Scan on push_queue") && !lease.contains("Sort"), "\(lease)")
        #expect(!lease.contains("active_users"), "The statement counts messages only if they are shown: \(lease)")
        let passing = try await plan(
            QueueReader.leaseSQL(PushLane.allCases, countsUnread: false, passes: true),
            [.text("default"), 1, 1000, 1, floors, floors, floors, .texts(["aa", "bb"])])
        #expect(!passing.contains("Seq Scan on push_queue") && !passing.contains("Sort"), "\(passing)")
        let counting = try await plan(
            QueueReader.leaseSQL(PushLane.allCases, countsUnread: true),
            [.text("webpush"), 1, 1000, 1, floors, floors, floors])
        for table in ["push_queue", "active_users", "messages"] {
            #expect(!counting.contains("Seq Scan on \(table)"), "\(counting)")
        }
        for index in ["active_users_device", "messages_room"] { #expect(counting.contains(index), "\(counting)") }
        #expect(lease.contains("Tid Scan on push_queue_due"), "\(lease)")
        let settle = try await plan(
            SettlementWriter.changeSQL(to: .sent, from: .pending),
            [.ints(Array(1...1000)), 1, 1, 0, 0, .null, 1, "2027-01-15"])
        #expect(!settle.contains("Seq Scan on push_queue") && !settle.contains("Nested Loop"), "\(settle)")
    }
}
