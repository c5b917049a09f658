import ChatDomain
import Testing

@testable import TestStores

@Suite("The requirements of every store", .timeLimit(.minutes(2)))
struct StorePortTests {
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))

    /// Adds members to a room, and posts a message from the first member to the others.
    private func room(_ members: Int, in store: TestedStore) async throws {
        for number in 1...members { try await store.stores.rooms.join(StoreFixture.join(number)) }
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hello"))
    }

    @Test("Data of a call that has returned is there after a restart", arguments: StoreKind.allCases)
    func durable(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(3, in: store)
        try await store.restart()
        let page = try await store.stores.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 9)
        #expect(page.messages.map(\.text) == ["hello"])
        #expect(
            try await store.lease().map(\.address) == [.token(StoreFixture.token(2)), .token(StoreFixture.token(3))])
    }

    @Test("A push belongs to one caller until that settles or returns it", arguments: StoreKind.allCases)
    func leases(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(6, in: store)
        let first = try await store.lease(2)
        let rest = try await store.lease()
        #expect(first.count == 2 && rest.count == 3)
        #expect(first.map(\.id) + rest.map(\.id) == (first + rest).map(\.id).sorted())
        #expect(try await store.lease().isEmpty)
        store.stores.queue.release([first[1].id...first[1].id], lane: first[1].lane, app: .default)
        #expect(try await store.lease().map(\.id) == [first[1].id])
        try await store.settle(first + rest, Self.sent)
        #expect(try await store.lease().isEmpty)
        try await store.restart()
        #expect(try await store.lease().isEmpty)
    }

    @Test("A leased push that was not settled is due after a restart, under the same id", arguments: StoreKind.allCases)
    func crash(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(5, in: store)
        let leased = try await store.lease()
        try await store.settle([leased[1]], Self.sent)
        try await store.restart()
        let again = try await store.lease()
        #expect(again.map(\.id) == [leased[0], leased[2], leased[3]].map(\.id))
    }

    @Test(
        "Outcomes are counted, waiting pushes are due at their time, and lost pushes go to the retry lane",
        arguments: StoreKind.allCases)
    func transitions(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(5, in: store)
        let leased = try await store.lease()
        let time = store.now() + .seconds(30)
        try await store.settle(
            [leased[0]],
            Transition(.waiting(until: time, reason: "Busy", hint: "why?"), adding: PushHistory(attempts: 1)))
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE state = 'pending' AND hint = 'why?'") == 1)
        try await store.settle(
            [leased[1]], Transition(.due(.retry, reason: "Lost"), adding: PushHistory(attempts: 1, unanswered: 1)))
        try await store.settle([leased[2]], Transition(.failed(reason: "BadTopic", hint: "which?")))
        try await store.settle([leased[3]], Self.sent)
        #expect(try await store.stores.queue.nextDue(app: .default) == time)
        let suspect = try await store.lease()
        #expect(suspect.map(\.id) == [leased[1].id])
        #expect(suspect[0].lane == .retry && suspect[0].history == PushHistory(attempts: 1, unanswered: 1))
        store.advance(.seconds(30))
        let repeated = try await store.lease()
        #expect(repeated.map(\.id) == [leased[0].id] && repeated[0].history == PushHistory(attempts: 1))
        // A hint belongs to its reason.
        try await store.settle([repeated[0]], Transition(.waiting(until: time, reason: "503")))
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE reason = '503' AND hint IS NULL") == 1)
        let busy = Transition(.waiting(until: time, reason: "Busy", hint: "why?"))
        try await store.settle(try await store.lease(), busy)
        try await store.settle(try await store.lease(), Transition(.due(.retry, reason: nil)))
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE reason = 'Busy' AND hint = 'why?'") == 1)
        let failures = try await store.stores.records.failures(of: nil, before: nil, limit: 9)
        #expect(failures.items.map(\.reason) == ["BadTopic"] && failures.items.map(\.hint) == ["which?"])
        let outcomes = store.stores.metrics.outcomes()
        #expect(outcomes.map(\.state) == [.failed, .sent] && outcomes.map(\.total) == [1, 1])
        try await store.settle(try await store.lease(), Self.sent)
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE hint = 'why?'") == 0)
    }

    @Test(
        "A second outcome of a push has no effect, unless the gateway responds after its silence",
        arguments: StoreKind.allCases)
    func outcomes(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(7, in: store)
        let ids = try await store.lease(5).map(\.id)
        func settle(_ range: ClosedRange<Int>, _ transition: Transition, late: Bool = false) async throws -> Int {
            let settled = try await store.stores.queue.settle(
                [Settlement(ids[range.lowerBound]...ids[range.upperBound], transition, overrulesSilence: late)],
                app: .default)
            return settled[0].count
        }
        func states() throws -> [String] {
            try store.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0] }
        }
        #expect(try await settle(0...4, Self.sent) == 5)
        #expect(try await settle(0...4, Self.sent) == 0)
        #expect(try await settle(0...0, Transition(.failed(reason: "Late"))) == 0)
        #expect(try await settle(0...0, Transition(.failed(reason: "Bad", hint: "why")), late: true) == 1)
        #expect(try await settle(1...1, Transition(.due(.normal, reason: nil)), late: true) == 1)
        #expect(try await settle(2...3, Transition(.cancelled(reason: "Cancelled")), late: true) == 2)
        #expect(try await settle(2...2, Self.sent) == 1)
        #expect(try states() == ["failed", "pending", "sent", "cancelled", "sent", "pending"])
        #expect(
            try store.query(
                "SELECT attempts, reason, hint FROM push_queue WHERE state = 'failed' AND time_sent IS NULL")
                == [["1", "Bad", "why"]])
        #expect(try store.value("SELECT attempts FROM push_queue WHERE message_id = \(ids[1])") == 0)
        let again = try await store.lease()
        #expect(again.map(\.id) == [ids[1], ids[4] + 1])
        // Another program cancels both while they are with the gateway.
        _ = try store.query("UPDATE push_queue SET state = 'cancelled', reason = 'x' WHERE state = 'pending'")
        try await store.notice()
        #expect(try await settle(1...1, Self.sent) == 1)
        let last = Settlement(again[1].id...again[1].id, Transition(.failed(reason: "Bad")))
        #expect(try await store.stores.queue.settle([last], app: .default)[0].count == 0)
        #expect(try states() == ["failed", "sent", "sent", "cancelled", "sent", "cancelled"])
    }

    @Test(
        "A push waits for its time, the next due time is right, and a clock that is set back makes retries due",
        arguments: StoreKind.allCases)
    func times(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (queue, now) = (store.stores.queue, store.now())
        func insert(_ wait: Int, unanswered: Int) throws {
            _ = try store.query(
                """
                INSERT INTO push_queue (device_token, payload, not_before, unanswered)
                VALUES ('\(StoreFixture.token(1))', '{}', \((now + .seconds(wait)).milliseconds), \(unanswered))
                """)
        }
        #expect(try await queue.nextDue(app: .default) == nil)
        try insert(60, unanswered: 0)
        try insert(30, unanswered: 1)
        try await store.notice()
        #expect(try await store.lease().isEmpty)
        #expect(try await queue.nextDue(app: .default) == now + .seconds(30))
        store.advance(.seconds(30))
        let retry = try await store.lease()
        #expect(retry.map(\.notBefore) == [(now + .seconds(30)).milliseconds])
        #expect(try await queue.nextDue(app: .default) == now + .seconds(60))
        let wait = Transition(.waiting(until: now + .seconds(90), reason: "Busy"), adding: PushHistory(attempts: 1))
        try await store.settle(retry, wait)
        store.advance(.seconds(-2 * 86_400))
        try await store.notice()
        #expect(try await store.lease().map(\.id) == retry.map(\.id))
        #expect(try await store.lease().isEmpty)
    }

    @Test("The metrics have the depth of the queue for each app, and totals", arguments: StoreKind.allCases)
    func metrics(kind: StoreKind) async throws {
        let store = try await kind.make()
        let metrics = store.stores.metrics
        #expect(try await metrics.queueDepths().isEmpty)
        // PostgreSQL's metrics are up to some seconds old.
        store.advance(.seconds(60))
        for number in 1...3 {
            try await store.stores.rooms.join(StoreFixture.join(number, number == 3 ? "other" : "room"))
        }
        _ = try await store.stores.devices.register(
            RegistrationRequest(token: StoreFixture.token(4), app: .default))
        try await store.stores.feedback.record(
            [FeedbackReport(token: StoreFixture.token(4), since: store.now())], app: .default)
        _ = try await store.stores.feedback.actOnFeedback()
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hi"))
        _ = try await store.stores.notifications.send(NotificationRequest(audience: .all, payload: "{}"))
        // SQLite's index knows one time for all pushes of a range in a lane.
        let unanswered = kind == .sqlite ? 1 : 0
        _ = try store.query(
            """
            INSERT INTO push_queue (device_token, payload, app, not_before, time_queued, unanswered) VALUES
                ('aa', '{}', 'late', \((store.now() + .seconds(9)).milliseconds), \(store.time(store.now())), 0),
                ('aa', '{}', 'default', NULL, \(store.time(Timestamp(seconds: 1_577_836_800))), \(unanswered))
            """)
        try await store.notice()
        #expect(try await store.lease(2).count == 2)
        #expect(
            try await metrics.queueDepths() == [
                QueueDepth(app: .default, due: 3, written: 2, oldest: Timestamp(seconds: 1_577_836_800)),
                QueueDepth(app: AppName("late"), delayed: 1),
            ])
        let totals = try await metrics.totals()
        #expect([totals.devices, totals.activeDevices, totals.members, totals.rooms] == [4, 3, 3, 2])
        #expect((totals.messages, totals.notifications) == (1, 1))
    }

    @Test("A join returns whether the room was empty before", arguments: StoreKind.allCases)
    func emptyRooms(kind: StoreKind) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        #expect(try await rooms.join(StoreFixture.join(1)))
        #expect(try await !rooms.join(StoreFixture.join(1)))
        #expect(try await !rooms.join(StoreFixture.join(2)))
        #expect(try await !rooms.join(StoreFixture.join(2, app: "other")))
        // Earlier messages do not count: a member who joins later does not see them.
        for number in 1...2 { try await rooms.leave(StoreFixture.member(number)) }
        #expect(try await rooms.join(StoreFixture.join(3)))
        #expect(try await rooms.join(StoreFixture.join(3, "elsewhere")))
    }

    @Test(
        "A member reads messages since it joined, never earlier ones, also after it returns",
        arguments: StoreKind.allCases)
    func history(kind: StoreKind) async throws {
        let store = try await kind.make()
        let reader = try StoreFixture.member(3)
        try await room(2, in: store)
        for round in 1...2 {
            let before = try await store.stores.rooms.post(StoreFixture.post(1, "before \(round)")).message
            try await store.stores.rooms.join(StoreFixture.join(3))
            #expect(try await store.stores.feed.position(of: reader).historyFrom >= before)
            for since in [nil, 0, before - 1, before] as [MessageID?] {
                let page = try await store.stores.rooms.messages(for: reader, since: since, limit: 9)
                #expect(page.messages.isEmpty && page.next >= before)
            }
            let after = try await store.stores.rooms.post(StoreFixture.post(1, "after \(round)")).message
            for since in [nil, 0, before] as [MessageID?] {
                let page = try await store.stores.rooms.messages(for: reader, since: since, limit: 9)
                #expect(page.messages.map(\.text) == ["after \(round)"] && page.next == after)
            }
            _ = try await store.stores.rooms.leave(reader)
        }
    }

    @Test("A trial write changes nothing", arguments: StoreKind.allCases)
    func trial(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(3, in: store)
        for _ in 0..<3 { try await store.stores.upkeep.tryWriting() }
        #expect(try await store.lease().count == 2)
        try await store.restart()
        #expect(try await store.lease().count == 2)
    }

    @Test("A repeated request with the same key writes nothing", arguments: StoreKind.allCases)
    func idempotent(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        for isRepeat in [false, true] {
            let receipt = try await store.stores.rooms.post(StoreFixture.post(1, "once", key: "k"))
            #expect(receipt.isRepeat == isRepeat)
        }
        var request = NotificationRequest(audience: .all, payload: #"{"aps":{}}"#)
        request.idempotencyKey = "n"
        for isRepeat in [false, true] {
            #expect(try await store.stores.notifications.send(request).isRepeat == isRepeat)
        }
        #expect(try await store.lease().count == 3)
    }

    @Test(
        "A notification goes to each device once, counts its pushes, and can be cancelled",
        arguments: StoreKind.allCases)
    func notifications(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...4 {
            _ = try await store.stores.devices.register(
                RegistrationRequest(token: StoreFixture.token(number), app: .default))
        }
        let id = try await store.stores.notifications.send(
            NotificationRequest(audience: .all, payload: #"{"aps":{"alert":"x"}}"#)
        ).id
        let leased = try await store.lease(2)
        #expect(leased.allSatisfy { $0.notification == id && $0.payload == Array(#"{"aps":{"alert":"x"}}"#.utf8) })
        try await store.settle([leased[0]], Self.sent)
        let status = try await store.stores.notifications.cancel(id)
        #expect(status.state == .cancelled)
        #expect(try await store.lease().isEmpty)
        // The push that was with the gateway gets the gateway's outcome.
        try await store.settle([leased[1]], Self.sent)
        #expect(
            try await store.stores.notifications.notification(id).counts
                == [.pending: 0, .sent: 2, .failed: 0, .expired: 0, .cancelled: 2])
    }

    @Test(
        "A device that the push service reports as gone gets nothing until it registers again",
        arguments: StoreKind.allCases)
    func feedback(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...2 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "before"))
        let now = store.now()
        let reports = [(1, now - .seconds(1)), (2, now), (3, now)]
        try await store.stores.feedback.record(
            reports.map { FeedbackReport(token: try StoreFixture.token($0), since: $1) }, app: .default)
        let feedback = store.stores.feedback
        #expect(try await feedback.actOnFeedback() == FeedbackResult(deactivated: 1, kept: 1, unknown: 1))
        #expect(try await feedback.actOnFeedback() == FeedbackResult())
        #expect(try await store.stores.rooms.post(StoreFixture.post(1, "after")).queued == 0)
        // A push that was queued before is read again after the restart, and has the obstacle.
        try await store.restart()
        #expect(try await store.lease().map(\.obstacle) == [.deviceInactive])
        try await store.stores.rooms.join(StoreFixture.join(2))
        #expect(try await store.stores.rooms.post(StoreFixture.post(1, "again")).queued == 1)
    }

    @Test("Retention deletes old settled data, and nothing else", arguments: StoreKind.allCases)
    func retention(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(3, in: store)
        let leased = try await store.lease()
        try await store.settle([leased[0]], Self.sent)
        store.advance(.seconds(100))
        let result = try await store.stores.upkeep.applyRetention(messages: .seconds(10), queue: .seconds(10))
        #expect((result.pushes, result.messages) == (1, 1))
        try await store.restart()
        #expect(try await store.lease().map(\.id) == [leased[1].id])
    }

    @Test("Rows with future times from a wrong clock do not keep old rows behind them", arguments: StoreKind.allCases)
    func datedAhead(kind: StoreKind) async throws {
        let store = try await kind.make()
        let day = Duration.seconds(86_400)
        func fill(_ time: Timestamp) throws {
            for (into, columns, rows) in [
                ("messages (secret_code, udid, nickname, text, time_sent)", "'room', 'u', 'n', 't'", 3000),
                (
                    "push_queue (state, device_token, payload, time_settled, time_queued)",
                    "'failed', 'aa', '{}', \(store.time(time))", 6000
                ),
            ] {
                _ = try store.query(
                    """
                    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(rows))
                    INSERT INTO \(into) SELECT \(columns), \(store.time(time)) FROM n
                    """)
            }
        }
        /// Applies retention three times.
        /// - Returns: The numbers of deleted messages and pushes.
        func apply(_ age: Duration) async throws -> (messages: Int, pushes: Int) {
            var (messages, pushes) = (0, 0)
            for _ in 1...3 {
                let result = try await store.stores.upkeep.applyRetention(messages: age, queue: age)
                messages += result.messages
                pushes += result.pushes
            }
            return (messages, pushes)
        }
        try fill(store.now() + day * 60)
        try fill(store.now())
        try await store.notice()
        store.advance(day * 40)
        var deleted = try await apply(day * 30)
        // PostgreSQL deletes pushes by the day on which the relay moved them.
        #expect(deleted.messages == 3000 && deleted.pushes == (kind == .sqlite ? 6000 : 12_000))
        // The times of the first rows have passed by now. The rows behind them are older.
        try fill(store.now())
        try await store.notice()
        store.advance(day * 25)
        deleted = try await apply(day * 20)
        #expect(deleted == (3000, 6000))
        #expect(try store.value("SELECT count(*) FROM messages") == 3000)
    }

    @Test("A lease that passes over a device leaves its pushes to the next one", arguments: StoreKind.allCases)
    func passes(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await room(4, in: store)
        let queue = store.stores.queue
        let all = try await store.lease()
        queue.release(all.map { $0.id...$0.id }, lane: all[0].lane, app: .default)
        let passed = try Set(all.prefix(2).map { try #require($0.address) })
        let leased = try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 10, passing: passed).pushes
        // Leases over SQLite cost nothing, so it passes over none.
        #expect(leased.map(\.id) == all.dropFirst(kind == .sqlite ? 0 : 2).map(\.id))
        #expect(try await store.lease().map(\.id) == (kind == .sqlite ? [] : all.prefix(2).map(\.id)))
    }

    @Test(
        "Another program's push whose not_before is in microseconds is due, so that it fails; a later one still waits",
        arguments: StoreKind.allCases)
    func misreadTime(kind: StoreKind) async throws {
        let store = try await kind.make()
        func insert(_ time: Int64) async throws {
            _ = try store.query(
                "INSERT INTO push_queue (device_token, payload, not_before) VALUES ('\(StoreFixture.token(1))', '{}', \(time))"
            )
            try await store.notice()
        }
        let now = store.now().milliseconds
        try await insert(now + 60_000)
        #expect(try await store.lease().isEmpty)
        try await insert(now * 1000)
        try await insert(Int64.max)
        let leased = try await store.lease()
        #expect(leased.map(\.notBefore) == [now * 1000, .max])
        let failures = try leased.map { push in
            try #require(PushLifeCycle().obstacle(to: push, at: store.now()))
        }
        #expect(failures.map(\.reason) == ["InvalidNotBefore", "InvalidNotBefore"])
        for (push, failure) in zip(leased, failures) { try await store.settle([push], failure) }
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE state = 'failed'") == 2)
        store.advance(.seconds(60))
        #expect(try await store.lease().map(\.notBefore) == [now + 60_000])
    }

    @Test("The store returns the newest time up to a limit", arguments: StoreKind.allCases)
    func evidence(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (upkeep, begin) = (store.stores.upkeep, store.now())
        #expect(try await upkeep.clockEvidence(upTo: begin).newest == nil)
        try await room(2, in: store)
        store.advance(.seconds(100))
        _ = try store.query(
            "INSERT INTO push_queue (device_token, payload, time_queued) VALUES ('aa', '{}', \(store.time(store.now())))"
        )
        store.advance(.seconds(60 * 86_400))
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "dated ahead"))
        func newest(_ limit: Timestamp) async throws -> Timestamp? {
            try await upkeep.clockEvidence(upTo: limit).newest
        }
        #expect(try await newest(begin - .seconds(1)) == nil)
        #expect(try await newest(begin + .seconds(1)) == begin)
        #expect(try await newest(store.now() - .seconds(86_400)) == begin + .seconds(100))
        #expect(try await newest(store.now()) == store.now())
        let server = try await upkeep.clockEvidence(upTo: begin).server
        #expect((server != nil) == (kind != .sqlite))
    }

    @Test(
        "Ended bans and records are kept for their time, a ban in force for good, an address for 30 days",
        arguments: StoreKind.allCases)
    func moderation(kind: StoreKind) async throws {
        let store = try await kind.make()
        let (moderation, upkeep) = (store.stores.moderation, store.stores.upkeep)
        let moderator = Moderator(name: "admin", address: "192.0.2.9")
        let day = Duration.seconds(86_400)
        try await room(3, in: store)
        func ban(_ number: Int, until end: Timestamp? = nil) async throws -> Int64 {
            let subject = BanRequest.Subject.udid(try StoreFixture.member(number), room: nil)
            return try await moderation.ban(BanRequest(subject, endsAt: end), by: moderator).id
        }
        // The removal cancels the pending push to the second member.
        let member = try #require(
            try await store.stores.records.members(of: SecretCode(stored: "room"), after: nil, limit: 9).items
                .first { $0.nickname == "name2" })
        try await moderation.remove(member.id, by: moderator)
        let bans = [try await ban(7, until: store.now() + day), try await ban(8), try await ban(9)]
        try await moderation.endBan(bans[2], by: moderator)
        let ages = RetentionAges(messages: day * 1000, queue: day * 7, moderation: day * 90)
        func addresses() throws -> Int { try store.value("SELECT count(*) FROM messages WHERE ip_address IS NOT NULL") }
        _ = try store.query("UPDATE messages SET ip_address = '192.0.2.1'")
        store.advance(day * 30)
        #expect(try await upkeep.applyRetention(ages).moderation == 0)
        #expect(try addresses() == 1)
        store.advance(.seconds(1))
        #expect(try await upkeep.applyRetention(ages) == RetentionResult())
        #expect(try addresses() == 0)
        #expect(try store.value("SELECT count(*) FROM messages") == 1)

        store.advance(day * 60)
        // The record of the removal stays while a push that it cancels is pending.
        let result = try await upkeep.applyRetention(ages)
        #expect(result.moderation == 1 + 3 + 1)
        #expect(try await moderation.bans(in: nil, before: nil, limit: 9).items.map(\.id) == [bans[1], bans[0]])
        #expect(try await moderation.records(before: nil, limit: 9).items.map(\.action) == ["remove"])
        store.advance(day)
        #expect(try await upkeep.applyRetention(ages).moderation == 1)
        let pushes = try await store.lease()
        #expect(pushes.map(\.obstacle) == [.memberRemoved, nil])
        try await store.settle(pushes, Self.sent)
        store.advance(day * 9)
        #expect(try await upkeep.applyRetention(ages).moderation == 1)
        #expect(try await moderation.bans(in: nil, before: nil, limit: 9).items.map(\.hasEnded) == [false])
        #expect(try await moderation.records(before: nil, limit: 9).items.isEmpty)
        await #expect(throws: ChatError.self) { try await store.stores.rooms.join(StoreFixture.join(8)) }
    }
}
