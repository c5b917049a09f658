import ChatDomain
import Testing

@testable import TestStores

/// Tests an operator's changes of the queue, from a command beside the relay and from inside the relay.
@Suite("The queue, for an operator", .timeLimit(.minutes(2)))
struct QueuePauseTests {
    enum Place: CaseIterable {
        case command, relay
    }

    private static let operatorOfTest = Moderator(name: "ops", address: "192.0.2.1")
    private static let other = AppName("other")

    private func queue(_ place: Place, _ store: TestedStore) throws -> any QueueAdministration {
        switch place {
        case .command: try store.queue()
        case .relay: store.stores.queueAdministration
        }
    }

    /// Inserts pushes as another program does.
    private func insert(_ rows: String, in store: TestedStore) async throws {
        _ = try store.query(
            "INSERT INTO push_queue (device_token, payload, app, state, reason, time_queued) VALUES \(rows)")
        try await store.notice()
    }

    private func lease(_ app: AppName, _ store: TestedStore) async throws -> [Int64] {
        try await store.stores.queue.lease(app: app, lanes: PushLane.allCases, limit: 100).pushes.map(\.id)
    }

    private func states(_ store: TestedStore) throws -> String {
        try store.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0].prefix(2) }
            .joined(separator: " ")
    }

    @Test(
        "A paused app's pushes are not leased, also after a restart, until the app is resumed",
        arguments: StoreKind.allCases, Place.allCases)
    func pause(kind: StoreKind, place: Place) async throws {
        let store = try await kind.make()
        let now = store.time(store.now())
        try await insert(
            "('aa', '{}', 'default', 'pending', NULL, \(now)), ('aa', '{}', 'other', 'pending', NULL, \(now))",
            in: store)
        let paused = try await queue(place, store).pause(.default, reason: "a bad build", by: Self.operatorOfTest)
        #expect(paused == QueuePause(app: .default, reason: "a bad build", actor: "ops", since: store.now()))
        try await store.notice()
        #expect(try await lease(.default, store) == [])
        #expect(try await store.stores.queue.nextDue(app: .default) == nil)
        #expect(try await lease(Self.other, store) == [2])
        // A chat message is accepted all the same, and so is a push with a time.
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hi"))
        _ = try store.query(
            "INSERT INTO push_queue (device_token, payload, not_before) VALUES ('aa', '{}', \(store.now().milliseconds - 1))"
        )
        try await store.restart()
        try await store.notice()
        #expect(try await lease(.default, store) == [])
        #expect(try await queue(place, store).pauses() == [paused])
        let depths = try await store.stores.metrics.queueDepths()
        #expect(depths.first { $0.app == .default }?.pause == paused)
        #expect(depths.first { $0.app == Self.other }?.pause == nil)

        // A second pause changes the reason, and keeps the time.
        store.advance(.seconds(60))
        let again = try await queue(place, store).pause(.default, reason: nil, by: .commandLine)
        #expect(again == QueuePause(app: .default, reason: nil, actor: "command line", since: paused.since))
        #expect(try await queue(place, store).resume(.default, by: Self.operatorOfTest) == again)
        try await store.notice()
        #expect(Set(try await lease(.default, store)) == [1, 3, 4])
        #expect(try await queue(place, store).resume(.default, by: Self.operatorOfTest) == nil)
        let records = try await store.stores.moderation.records(before: nil, limit: 9).items
        #expect(records.map(\.action) == ["resume", "pause", "pause"])
        #expect(records.map(\.subject) == ["app default", "app default", "app default: a bad build"])
        #expect(records.map(\.actor) == ["ops", "command line", "ops"])
        #expect(records[0].address == "192.0.2.1" && records[0].room == nil)
    }

    @Test("A relay stops leasing and starts again at once, and resuming signals", arguments: StoreKind.allCases)
    func atOnce(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try await store.stores.queueAdministration.pause(.default, reason: nil, by: Self.operatorOfTest)
        try await insert("('aa', '{}', 'default', 'pending', NULL, \(store.time(store.now())))", in: store)
        #expect(try await lease(.default, store) == [])
        var arrivals = store.stores.queue.arrivals(of: .default).makeAsyncIterator()
        let queue = store.stores.queueAdministration
        let resumed = Task { try await queue.resume(.default, by: Self.operatorOfTest) }
        if kind == .sqlite { await arrivals.next() }
        #expect(try await resumed.value != nil)
        #expect(try await lease(.default, store) == [1])
    }

    @Test("A dry run counts what the change then changes", arguments: StoreKind.allCases, Place.allCases)
    func dryRun(kind: StoreKind, place: Place) async throws {
        let store = try await kind.make()
        let (old, new) = (store.time(store.now() - .seconds(7200)), store.time(store.now() - .seconds(60)))
        try await insert(
            """
            ('aa', '{}', 'default', 'failed', 'BadDeviceToken', \(old)),
            ('aa', '{}', 'default', 'failed', 'BadDeviceToken', \(new)),
            ('aa', '{}', 'default', 'failed', 'Busy', \(new)), ('aa', '{}', 'other', 'failed', 'Busy', \(new)),
            ('aa', '{}', 'default', 'pending', NULL, \(old)), ('aa', '{}', 'default', 'cancelled', NULL, \(old))
            """, in: store)
        let queue = try queue(place, store)
        let hour = store.now() - .seconds(3600)
        func found(_ filter: QueueFilter) async throws -> [Int64] {
            try await Page.all { try await queue.pushes(filter, after: $0, limit: 2) }.map(\.id)
        }
        #expect(try await found(QueueFilter(reason: "Busy")) == [3, 4])
        #expect(try await found(QueueFilter(queuedBefore: hour)) == [1, 5, 6])
        #expect(try await found(QueueFilter(app: .default, queuedAfter: hour)) == [2, 3])
        #expect(try await found(QueueFilter(app: .default, ids: [4, 3, 99])) == [3])
        for (change, filter, count, after) in [
            (QueueChange.retry, QueueFilter(reason: "BadDeviceToken", queuedAfter: hour), 1, "fa pe fa fa pe ca"),
            (.retry, QueueFilter(app: .default, states: [.failed], ids: [1, 4, 6]), 1, "pe pe fa fa pe ca"),
            (.cancel, QueueFilter(queuedBefore: hour), 2, "ca pe fa fa ca ca"),
            (.retry, QueueFilter(reason: "nothing"), 0, "ca pe fa fa ca ca"),
        ] {
            let before = try states(store)
            #expect(try await queue.dryRun(change, .matching(filter)) == QueuePart(count: count, next: nil))
            #expect(try states(store) == before)
            let changed = try await queue.perform(change, .matching(filter), by: Self.operatorOfTest)
            #expect(changed == QueuePart(count: count, next: nil))
            #expect(try states(store) == after)
        }
        let records = try await store.stores.moderation.records(before: nil, limit: 9).items
        #expect(records.map(\.action) == ["cancel", "retry", "retry"])
        #expect(records[0].subject == "queued before \(hour.rfc3339): 2 pushes")
        #expect(records[1].subject == "app default, state failed, 3 push ids: 1 push")
    }

    @Test(
        "A call with a limited number of parts continues at its cursor", arguments: StoreKind.allCases, Place.allCases)
    func parts(kind: StoreKind, place: Place) async throws {
        let store = try await kind.make()
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2200)
            INSERT INTO push_queue (device_token, payload, app) SELECT 'aa', '{}', 'other' FROM n
            """)
        try await store.notice()
        let queue = try queue(place, store)
        let all = QueueSelection.matching(QueueFilter(app: Self.other))
        let first = try await queue.perform(.cancel, all, parts: 2, by: Self.operatorOfTest)
        #expect(first == QueuePart(count: 2000, next: 2000))
        #expect(try await queue.dryRun(.cancel, all, parts: 1) == QueuePart(count: 200, next: nil))
        let second = try await queue.perform(.cancel, all, after: first.next, parts: 2, by: Self.operatorOfTest)
        #expect(second == QueuePart(count: 200, next: nil))
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE state = 'cancelled'") == 2200)
    }

    @Test("Inside the relay, a retry is due at once, and leased pushes are left alone", arguments: StoreKind.allCases)
    func inside(kind: StoreKind) async throws {
        let store = try await kind.make()
        let now = store.time(store.now())
        try await insert(
            "('aa', '{}', 'default', 'failed', 'why', \(now)), ('aa', '{}', 'default', 'pending', NULL, \(now))",
            in: store)
        #expect(try await lease(.default, store) == [2])
        let queue = store.stores.queueAdministration
        #expect(try await queue.cancel(.matching(QueueFilter()), progress: { _ in }) == 0)
        #expect(try await queue.retry(.matching(QueueFilter()), progress: { _ in }) == 1)
        #expect(try await lease(.default, store) == [1])
        #expect(try states(store) == "pe pe")
    }
}
