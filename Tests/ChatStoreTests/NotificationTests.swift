import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Notifications", .timeLimit(.minutes(1)))
struct NotificationTests {
    let bench: NotificationFixture

    init() throws {
        bench = try NotificationFixture()
    }

    private func user(_ text: String) -> UserReference { UserReference(stored: text) }
    private func tag(_ text: String) -> ChatDomain.Tag { ChatDomain.Tag(stored: text) }

    @Test("A notification to a room goes to all its members' devices, registered or not, each in its app")
    func room() async throws {
        for number in 1...3 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        try await bench.store.rooms.join(StoreFixture.join(4, "elsewhere"))
        try await bench.store.rooms.join(StoreFixture.join(5, tokenless: true))
        try await bench.store.rooms.join(StoreFixture.join(6, app: "other"))
        try bench.deactivate(2)
        _ = try bench.fixture.query("DELETE FROM devices WHERE device_token LIKE '%a3'")
        let receipt = try await bench.send(.room(SecretCode(stored: "room")))
        #expect(try bench.queued() == ["1", "3", "6"])
        #expect(receipt.devices == 3)
        #expect(try bench.queued("app = 'other'") == ["6"])
        #expect(try bench.queued("device IS NULL") == ["3"])
    }

    @Test("Leased pushes have the properties of the request, and the payload that is stored once")
    func handedOut() async throws {
        try await bench.register([1, 2])
        var request = bench.request(.all)
        request.pushType = "voip"
        request.expiration = 0
        request.priority = 5
        request.collapseID = "score"
        let receipt = try await bench.store.notifications.send(request)
        #expect(try bench.fixture.value("SELECT max(length(payload)) FROM push_queue") == 0)
        let lease = try await bench.queue.lease(StoreFixture.slot())
        #expect(lease.pushes.count == 2)
        for push in lease.pushes {
            #expect(push.payload == Array(NotificationFixture.payload.utf8))
            #expect(push.type == "voip")
            #expect(push.expiration == 0)
            #expect(push.priority == 5)
            #expect(push.collapseID == "score")
        }
        let status = try await bench.store.notifications.notification(receipt.id)
        #expect(status.request == request)
        #expect(status.counts[.pending] == 2)
        #expect(status.state == .sending)
    }

    @Test("Counts follow the outcomes of the pushes, also of one that silence had made sent")
    func counts() async throws {
        try await bench.register(1...4)
        let id = try await bench.send(.all).id
        _ = try await bench.queue.lease(StoreFixture.slot())
        func settle(_ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, late: Bool = false) async throws {
            _ = try await bench.queue.settle([
                DeliveryReport(
                    connection: ConnectionID(1), identifiers: identifiers, outcome: outcome, overrulesSilence: late)
            ])
        }
        try await settle(1...2, .accepted)
        try await settle(3...3, .rejected(reason: "BadDeviceToken"))
        try await settle(4...4, .retry(reason: "InternalServerError"))
        var status = try await bench.store.notifications.notification(id)
        #expect(status.counts == [.pending: 1, .sent: 2, .failed: 1, .expired: 0, .cancelled: 0])
        #expect(status.state == .sending)
        try await settle(2...2, .badAddress(reason: "InvalidToken"), late: true)
        _ = try bench.fixture.query("DELETE FROM push_queue WHERE state = 'pending'")
        status = try await bench.store.notifications.notification(id)
        #expect(status.counts == [.pending: 0, .sent: 1, .failed: 2, .expired: 0, .cancelled: 0])
        #expect(status.state == .done)
    }

    @Test("A scheduled notification is not sent early, and its state says so")
    func scheduled() async throws {
        try await bench.register(1...3)
        var request = bench.request(.all)
        request.notBefore = bench.now + .seconds(86_400)
        let id = try await bench.store.notifications.send(request).id
        #expect(try await bench.store.notifications.notification(id).state == .scheduled)
        // The store looks again before that time, because the clock may be set.
        #expect(try await bench.store.queue.nextDue(app: .default) == bench.now + PushLifeCycle.longestWait)
        bench.fixture.advance(.seconds(86_399))
        #expect(try await bench.queue.lease(StoreFixture.slot()).pushes.isEmpty)
        bench.fixture.advance(.seconds(1))
        #expect(try await bench.queue.lease(StoreFixture.slot()).pushes.count == 3)
        #expect(try await bench.store.notifications.notification(id).state == .sending)
    }

    @Test("Concurrent requests with one key make one notification")
    func atOnce() async throws {
        try await bench.register(1...2)
        var request = bench.request(.all)
        request.idempotencyKey = "k"
        let receipts = try await withThrowingTaskGroup(of: NotificationReceipt.self) { [request, bench] group in
            for _ in 0..<30 { group.addTask { try await bench.store.notifications.send(request) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(receipts.filter { !$0.isRepeat }.count == 1)
        #expect(Set(receipts.map(\.id)).count == 1)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 2)
    }

    @Test("skip_unchanged leaves out devices whose last push was the same, each counted once")
    func unchanged() async throws {
        try await bench.register([1, 2], user: "ann", tags: ["red", "blue"])
        try await bench.register([3], tags: ["red"])
        _ = try await bench.send(.users([user("ann")]))
        // The device has not received a push that failed or was cancelled.
        _ = try bench.fixture.query("UPDATE push_queue SET state = 'failed' WHERE message_id = 2")
        var request = bench.request(.tags([tag("red"), tag("blue")]))
        request.skipsUnchanged = true
        let receipt = try await bench.store.notifications.send(request)
        #expect(try bench.queued("notification = \(receipt.id)") == ["2", "3"])
        #expect(receipt.devices == 2)
        #expect(try await bench.store.notifications.notification(receipt.id).skipped == 1)
        let again = try await bench.store.notifications.send(request)
        #expect(again.devices == 0)
        #expect(try await bench.store.notifications.notification(again.id).skipped == 3)
        request.audience = .tokens([try StoreFixture.token(1)])
        request.payload = #"{"aps":{"badge":3}}"#
        #expect(try await bench.store.notifications.send(request).devices == 1)
        request.payload = NotificationFixture.payload
        #expect(try await bench.store.notifications.send(request).devices == 0)
    }

    @Test(
        "skip_unchanged compares a badge with the last badge, and other pushes with the last that was not only a badge")
    func kinds() async throws {
        try await bench.register([1])
        func send(_ payload: String, skips: Bool = true) async throws -> Int {
            var request = bench.request(.all, payload: payload)
            request.skipsUnchanged = skips
            return try await bench.store.notifications.send(request).devices
        }
        let (three, four) = (#"{"aps":{"badge":3}}"#, #"{"aps":{"badge":4}}"#)
        let (news, others) = (#"{"aps":{"alert":"news","badge":3}}"#, #"{"aps":{"alert":"others"}}"#)
        for (payload, devices) in [
            (three, 1), (three, 0), (others, 1), (three, 0), (others, 0), (four, 1), (news, 1), (three, 0), (four, 1),
            (news, 0), (others, 1), (news, 1),
        ] {
            #expect(try await send(payload) == devices, "\(payload)")
        }
        // Pushes of other programs count. A payload that is not JSON does no harm.
        let token = try StoreFixture.token(1).description
        for payload in ["'no JSON'", "x'ff'", "'{\"aps\":{\"badge\":9}}'"] {
            _ = try bench.fixture.query(
                """
                INSERT INTO push_queue (device_token, payload, device)
                VALUES (?, \(payload), (SELECT device_id FROM devices WHERE device_token = ?))
                """, [token, token])
        }
        #expect(try await send(#"{"aps":{"badge":9}}"#) == 0)
        #expect(try await send(four) == 1)
        #expect(try await send(four, skips: false) == 1)
    }

    @Test("Each of several requests has its own audience, content and response, and repeats are recognized")
    func batch() async throws {
        try await bench.register([1, 2, 3], tags: ["t"])
        var requests: [NotificationRequest] = []
        for number in 1...3 {
            var request = bench.request(
                .tokens([try StoreFixture.token(number)]), payload: #"{"aps":{"badge":\#(number)}}"#)
            request.idempotencyKey = "k\(number)"
            requests.append(request)
        }
        requests.append(bench.request(.tags([tag("t")])))
        let results = try await bench.store.notifications.send(requests)
        #expect(try results.map { try $0.get().devices } == [1, 1, 1, 3])
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 6)

        // The second key now has other content, the third request is unchanged, and the first occurs twice.
        requests[1].payload = #"{"aps":{"badge":7}}"#
        requests[3] = requests[0]
        let again = try await bench.store.notifications.send(requests)
        #expect(try again[0].get().isRepeat && again[2].get().isRepeat && again[3].get().id == results[0].get().id)
        #expect(throws: ChatError.self) { try again[1].get() }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 6)
        var twice = requests[0]
        twice.idempotencyKey = "new"
        let both = try await bench.store.notifications.send([twice, twice])
        #expect(try both[0].get().id == both[1].get().id && both[1].get().isRepeat)
    }

    @Test("Pushes of a large request are queued after the response", .timeLimit(.minutes(1)))
    func largeBatch() async throws {
        try bench.fill(1500)
        let results = try await bench.store.notifications.send([
            bench.request(.all), bench.request(.all), bench.request(.all),
            bench.request(.all), bench.request(.all), bench.request(.all),
        ])
        #expect(try results.map { try $0.get().devices } == [Int](repeating: 1500, count: 6))
        while try bench.fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
            try await bench.store.rooms.ping()
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 9000)
        #expect(try bench.fixture.value("SELECT min(queued) FROM notification_counts") == 1500)
    }

    @Test("Devices of apps that are no longer configured are skipped; those of `default` belong to the default app")
    func apps() async throws {
        try await bench.register([1], tags: ["t"])
        try await bench.register([2], app: "old", user: "ann", tags: ["t"])
        try await bench.register([3], app: "chat", tags: ["t"])
        try await bench.store.rooms.join(StoreFixture.join(4, app: "old"))
        try await bench.store.rooms.join(StoreFixture.join(5, app: "chat"))
        try bench.store.close()
        let store = try bench.fixture.open(defaultApp: AppName("chat"), apps: [AppName("chat")])
        let room = try SecretCode(parsing: "room")
        for (audience, expected) in [
            (.all, ["1", "3", "5"]), (.users([user("ann")]), []), (.tags([tag("t")]), ["1", "3"]), (.room(room), ["5"]),
            (.tokens([try StoreFixture.token(2), try StoreFixture.token(9)]), ["9"]),
        ] as [(Audience, [String])] {
            let receipt = try await store.notifications.send(bench.request(audience))
            #expect(try bench.queued("notification = \(receipt.id)") == expected)
            #expect(receipt.devices == expected.count)
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE app <> 'chat'") == 0)
    }

    @Test("A user name in another Unicode composition is the same user")
    func composed() async throws {
        let (one, other) = (try UserReference(parsing: "e\u{301}"), try UserReference(parsing: "\u{E9}"))
        _ = try await bench.store.devices.register(
            RegistrationRequest(token: StoreFixture.token(1), app: .default, edit: DeviceEdit(user: .set(one))))
        #expect(try await bench.send(.users([other, one])).devices == 1)
    }

    @Test("Deliveries come in pages, each exactly once, registered or not, and can be filtered by state")
    func deliveries() async throws {
        try await bench.register(1...5)
        let tokens = try (1...8).map { try StoreFixture.token($0) }
        let id = try await bench.send(.tokens(tokens)).id
        _ = try await bench.send(.all)
        _ = try await bench.queue.lease(StoreFixture.slot(room: 3))
        func ids(_ state: PushState?) async throws -> [Int64] {
            try await Page.all {
                try await bench.store.notifications.deliveries(of: id, in: state, after: $0, limit: 2)
            }.map(\.id)
        }
        #expect(try await ids(nil) == Array(1...8))
        #expect(try await ids(.sent) == [])
        try await bench.queue.settle(1...3, .accepted)
        #expect(try await ids(.sent) == [1, 2, 3])
        #expect(try await ids(.pending) == Array(4...8))
        let last = try await bench.store.notifications.deliveries(of: id, in: nil, after: 6, limit: 2)
        #expect(last.items.count == 2)
        #expect(last.next == nil)
        let delivery = try await bench.store.notifications.deliveries(of: id, in: nil, after: nil, limit: 1).items[0]
        #expect(delivery.notification == id)
        #expect(delivery.token == (try StoreFixture.token(1).description))
        #expect(delivery.attempts == 1)
        #expect(delivery.sentAt == bench.now)
    }

    @Test("Retention keeps the pushes that prevent a notification in progress from going to a device twice")
    func retentionAmidFanout() async throws {
        try bench.fill(NotificationFanout.step + 2)
        _ = try bench.fixture.query(
            "INSERT INTO device_tags (tag, device_id) SELECT 'a', device_id FROM devices UNION ALL SELECT 'b', 1")
        let id = try await bench.store.accept(bench.request(.tags([tag("a"), tag("b")])), steps: 1)
        _ = try bench.fixture.query(
            "UPDATE push_queue SET state = 'sent', time_sent = '2027-01-01', time_settled = '2027-01-01'")
        bench.fixture.advance(.seconds(100 * 86_400))
        #expect(try await bench.store.upkeep.applyRetention(messages: .seconds(1), queue: .seconds(1)).pushes == 0)
        try await bench.store.jobs.resume()
        _ = try await bench.finish(id)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE device = 1") == 1)
        #expect(try await bench.store.upkeep.applyRetention(messages: .seconds(1), queue: .seconds(1)).pushes > 0)
    }

    @Test("Retention deletes a notification after its pushes, and not before")
    func retention() async throws {
        try await bench.register([1])
        let day = 86_400
        let old = try await bench.send(.all).id
        var later = bench.request(.all)
        later.notBefore = bench.now + .seconds(60 * day)
        let scheduled = try await bench.store.notifications.send(later).id
        let empty = try await bench.send(.users([user("nobody")])).id
        func sweep() async throws -> Int {
            try await bench.store.upkeep.applyRetention(messages: .seconds(30 * day), queue: .seconds(7 * day))
                .notifications
        }
        bench.fixture.advance(.seconds(6 * day))
        #expect(try await sweep() == 0)
        _ = try await bench.queue.lease(StoreFixture.slot())
        _ = try await bench.queue.settle([
            DeliveryReport(connection: ConnectionID(1), identifiers: 1...1, outcome: .accepted)
        ])
        bench.fixture.advance(.seconds(2 * day))
        #expect(try await sweep() == 1)
        await #expect(throws: ChatError.self) { try await bench.store.notifications.notification(empty) }
        bench.fixture.advance(.seconds(6 * day))
        #expect(try await sweep() == 1)
        await #expect(throws: ChatError.self) { try await bench.store.notifications.notification(old) }
        #expect(try await bench.store.notifications.notification(scheduled).state == .scheduled)
        #expect(try bench.fixture.value("SELECT count(*) FROM notification_counts") == 1)
    }
}
