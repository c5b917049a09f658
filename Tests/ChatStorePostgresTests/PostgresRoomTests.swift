import ChatDomain
import ChatSQL
import Foundation
import Synchronization
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests rooms that several relays share in one database.
@Suite("Rooms of several relays on one PostgreSQL database", .timeLimit(.minutes(3)))
struct PostgresRoomTests {
    private let fixture: PostgresFixture

    init() throws { fixture = try PostgresFixture() }

    /// Runs `body` with two relays, and closes them afterwards.
    private func withRelays(_ body: (PostgresStores, PostgresStores) async throws -> Void) async throws {
        let first = try await fixture.open()
        defer { first.close() }
        let second = try await fixture.open()
        defer { second.close() }
        try await body(first, second)
    }

    private func code(_ text: String = "room") throws -> SecretCode { try SecretCode(parsing: text) }

    private func wait(_ what: Comment, until isDone: () async throws -> Bool) async throws {
        let end = ContinuousClock.now + .seconds(60)
        while try await !isDone() {
            try #require(ContinuousClock.now < end, what)
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Inserts members and devices by SQL, which is fast for many.
    private func fill(_ room: String, _ numbers: ClosedRange<Int>) throws {
        try fixture.query(
            """
            INSERT INTO devices (app, device_token) SELECT 'default', lpad(i::text, 64, 'a')
            FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) i ON CONFLICT DO NOTHING;
            INSERT INTO active_users (udid, device_token, nickname, secret_code)
            SELECT lpad(i::text, 40, '0'), lpad(i::text, 64, 'a'), 'name' || i, '\(room)'
            FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) i ORDER BY i
            """)
    }

    // MARK: - Messages

    @Test("A message posted at one relay is announced to the other, and read there once and in order")
    func streams() async throws {
        try await withRelays { first, second in
            for number in 1...3 { try await first.rooms.join(StoreFixture.join(number)) }
            let changes = second.feed.roomChanges()
            let read = Task {
                var (ids, last) = ([MessageID](), MessageID(0))
                for await _ in changes {
                    let changes = await second.feed.takeRoomChanges()
                    guard try changes.isUnknown || changes.messages.contains(code()) else { continue }
                    let new = try await second.feed.messages(in: code(), after: last, limit: 1000)
                    ids += new.map(\.id)
                    last = ids.last ?? 0
                    if new.last?.text == "last" { break }
                }
                return ids
            }
            var posted: [MessageID] = []
            for number in 0..<40 {
                let store = number.isMultiple(of: 2) ? first : second
                posted.append(try await store.rooms.post(StoreFixture.post(1 + number % 3, "hello")).message)
            }
            posted.append(try await first.rooms.post(StoreFixture.post(1, "last")).message)
            let ids = try await read.value
            #expect(ids == posted && posted == posted.sorted())
        }
    }

    @Test("Joins, leaves, removals and deletions are announced to the other relay's streams")
    func changes() async throws {
        try await withRelays { first, second in
            _ = second.feed.roomChanges()
            let signals = second.feed.roomChanges()
            let seen = Mutex(RoomChanges())
            let listener = Task {
                for await _ in signals {
                    let new = await second.feed.takeRoomChanges()
                    seen.withLock { seen in
                        seen.members.formUnion(new.members)
                        seen.removed.formUnion(new.removed)
                        seen.memberships.formUnion(new.memberships)
                        seen.closed.formUnion(new.closed)
                        seen.deleted.merge(new.deleted) { $0 + $1 }
                        seen.reads.formUnion(new.reads)
                    }
                }
            }
            defer { listener.cancel() }
            let moderator = Moderator(name: "admin", address: nil)
            for number in 1...2 { try await first.rooms.join(StoreFixture.join(number)) }
            try await first.rooms.join(StoreFixture.join(3, "other"))
            let message = try await first.rooms.post(StoreFixture.post(1, "hello")).message
            _ = try await first.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 9)
            try await first.activity.flush()
            try await first.moderation.delete(message, by: moderator)
            let members = try await first.records.members(of: code(), after: nil, limit: 9).items
            try await first.moderation.remove(try #require(members.last).id, by: moderator)
            _ = try await first.moderation.ban(BanRequest(.room(try code("other"))), by: moderator)
            let (room, member) = (try code(), try StoreFixture.member(2))
            try await wait("the changes") {
                let seen = seen.withLock { $0 }
                return seen.deleted == [room: [message]] && seen.removed == [member] && seen.members.count == 3
                    && seen.memberships.contains(room) && seen.closed.count == 1 && seen.reads == [room]
            }
        }
    }

    @Test("A false claim that messages were deleted has no effect")
    func forged() async throws {
        try await withRelays { first, second in
            let signals = second.feed.roomChanges()
            for number in 1...2 { try await first.rooms.join(StoreFixture.join(number)) }
            let kept = try await first.rooms.post(StoreFixture.post(1, "kept")).message
            let gone = try await first.rooms.post(StoreFixture.post(1, "gone")).message
            try fixture.query("DELETE FROM messages WHERE message_id = \(gone)")
            // An attacker who can read the tables has the key.
            let key = try fixture.query("SELECT encode(channel_key, 'hex') FROM queue_state")
            let channel = AnnouncementChannel(schema: "public", secret: try #require(Hex.bytes(Array(key.utf8))))
            var claim = Announcement()
            claim.deleted = ["room": [kept, gone], "other": [kept]]
            // An attacker who can only connect has no key.
            try fixture.query(
                "SELECT pg_notify('pushchat_public', '{\"from\":\"x\",\"deleted\":{\"room\":[\(kept)]}}')")
            try fixture.query("SELECT pg_notify('pushchat_public', '\(channel.payload(claim))')")
            let room = try code()
            let deleted = Task {
                for await _ in signals {
                    let changes = await second.feed.takeRoomChanges()
                    if !changes.deleted.isEmpty { return changes.deleted }
                }
                return [:]
            }
            #expect(await deleted.value == [room: [gone]])
        }
    }

    @Test("A key that two relays get at the same time makes one message, with one push per device")
    func keys() async throws {
        try await withRelays { first, second in
            for number in 1...4 { try await first.rooms.join(StoreFixture.join(number)) }
            let receipts = try await withThrowingTaskGroup(of: (String, PostReceipt).self) { group in
                for number in 0..<120 {
                    let store = number.isMultiple(of: 2) ? first : second
                    group.addTask {
                        let key = "key\(number % 20)"
                        // Members of one room, and a program that posts to other rooms.
                        var request = try StoreFixture.post(1 + number % 4, "hello", key: key)
                        if number % 20 >= 10 {
                            request.member = MemberID(stored: "token:1")
                            request.program = PostRequest.Program(
                                nickname: try Nickname(parsing: "backup"), room: try code("program\(number % 20)"))
                        } else {
                            request.member = try StoreFixture.member(1 + number % 20 % 4)
                        }
                        return ("\(request.member.text) \(key)", try await store.rooms.post(request))
                    }
                }
                return try await group.reduce(into: [:]) { $0[$1.0, default: [PostReceipt]()].append($1.1) }
            }
            #expect(receipts.count == 20)
            for all in receipts.values {
                #expect(Set(all.map(\.message)).count == 1 && all.filter { !$0.isRepeat }.count == 1)
            }
            #expect(try fixture.value("SELECT count(*) FROM messages") == 20)
            #expect(try fixture.value("SELECT count(*) FROM push_queue") == 10 * 3)
            #expect(
                try fixture.value(
                    "SELECT count(*) FROM (SELECT DISTINCT chat_message, member FROM push_queue) p") == 10 * 3)
        }
    }

    @Test("A key with another text is rejected, at another relay and in the same transaction")
    func otherText() async throws {
        try await withRelays { first, second in
            try await first.rooms.join(StoreFixture.join(1))
            let requests = try ["one", "two", "three", "four"].map { try StoreFixture.post(1, $0, key: "key") }
            let results = await withTaskGroup(of: Result<PostReceipt, ChatError>.self) { group in
                for (number, request) in (requests + requests).enumerated() {
                    group.addTask {
                        do throws(ChatError) {
                            return .success(try await (number < 4 ? first : second).rooms.post(request))
                        } catch {
                            return .failure(error)
                        }
                    }
                }
                return await group.reduce(into: []) { $0.append($1) }
            }
            let codes = results.compactMap { result -> ChatError.Code? in
                if case .failure(let error) = result { error.code } else { nil }
            }
            #expect(codes == Array(repeating: .idempotencyConflict, count: 6))
            #expect(try fixture.value("SELECT count(*) FROM messages") == 1)
        }
    }

    @Test("A client that polls a room sees each message once and in order, whichever relay it was posted to")
    func order() async throws {
        try await withRelays { first, second in
            for number in 1...6 { try await first.rooms.join(StoreFixture.join(number)) }
            for number in 7...9 { try await first.rooms.join(StoreFixture.join(number, "other")) }
            let end = End()
            let polls = (0..<3).map { number in
                Task {
                    let store = number.isMultiple(of: 2) ? second : first
                    var (ids, last) = ([MessageID](), MessageID(0))
                    while true {
                        let isLast = end.isReached
                        let new = try await store.feed.messages(in: code(), after: last, limit: 7)
                        ids += new.map(\.id)
                        last = ids.last ?? 0
                        if isLast, new.isEmpty { return ids }
                    }
                }
            }
            let posted = try await withThrowingTaskGroup(of: [MessageID].self) { group in
                for number in 1...9 {
                    let store = number.isMultiple(of: 2) ? second : first
                    group.addTask {
                        var own: [MessageID] = []
                        for _ in 0..<40 {
                            own.append(try await store.rooms.post(StoreFixture.post(number, "hi")).message)
                        }
                        #expect(own == own.sorted())
                        return number < 7 ? own : []
                    }
                }
                return try await group.reduce(into: []) { $0 += $1 }
            }
            end.reach()
            for poll in polls { #expect(try await poll.value == posted.sorted()) }
        }
    }

    @Test("No message appears in a room below the position at which a stream begins")
    func positions() async throws {
        try await withRelays { first, second in
            for number in 1...4 { try await first.rooms.join(StoreFixture.join(number)) }
            try await withThrowingTaskGroup { group in
                for number in 1...4 {
                    group.addTask {
                        for _ in 0..<40 { _ = try await first.rooms.post(StoreFixture.post(number, "hi")) }
                    }
                }
                group.addTask {
                    for _ in 0..<60 {
                        let last = try await second.feed.position(of: StoreFixture.member(1)).last
                        let before = try await second.feed.messages(in: code(), after: 0, limit: 1000)
                        try await Task.sleep(for: .milliseconds(5))
                        let after = try await second.feed.messages(in: code(), after: 0, limit: 1000)
                        #expect(before.filter { $0.id <= last } == after.filter { $0.id <= last })
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    // MARK: - Members

    @Test("Of concurrent joins one is the first; a udid is in one room, and a token belongs to one member")
    func joins() async throws {
        try await withRelays { first, second in
            let firsts = try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 1...24 {
                    let store = number.isMultiple(of: 2) ? first : second
                    group.addTask { try await store.rooms.join(StoreFixture.join(number)) }
                }
                return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
            }
            #expect(firsts == 1)
            try await withThrowingTaskGroup { group in
                for number in 0..<24 {
                    let store = number.isMultiple(of: 2) ? first : second
                    // The same udids in several rooms, all with the same token.
                    group.addTask {
                        try await store.rooms.join(StoreFixture.join(100 + number % 3, "room\(number % 5)", token: 500))
                    }
                }
                try await group.waitForAll()
            }
            #expect(try fixture.value("SELECT count(*) FROM active_users WHERE udid LIKE '%10_'") == 3)
            let token = try StoreFixture.token(500).description
            #expect(try fixture.value("SELECT count(*) FROM active_users WHERE device_token = '\(token)'") == 1)
        }
    }

    @Test("After a ban, the banned member can neither post nor join at any relay")
    func bans() async throws {
        try await withRelays { first, second in
            for number in 1...3 { try await first.rooms.join(StoreFixture.join(number)) }
            let (end, rounds) = (End(), Counter())
            let busy = (0..<4).map { number in
                Task {
                    let store = number.isMultiple(of: 2) ? first : second
                    while !end.isReached {
                        _ = try? await store.rooms.post(StoreFixture.post(1, "hi"))
                        _ = try? await store.rooms.join(StoreFixture.join(1, "room\(number)"))
                        rounds.add()
                    }
                }
            }
            func others(_ count: Int) async throws {
                let target = rounds.value + count
                while rounds.value < target { try await Task.sleep(for: .milliseconds(5)) }
            }
            try await others(12)
            let request = BanRequest(.udid(try StoreFixture.member(1), room: nil))
            _ = try await second.moderation.ban(request, by: Moderator(name: "admin", address: nil))
            let udid = try StoreFixture.member(1).text
            let sql = "SELECT count(*) FROM messages WHERE udid = '\(udid)'"
            let said = try fixture.value(sql)
            #expect(try fixture.value("SELECT count(*) FROM active_users WHERE udid = '\(udid)'") == 0)
            try await others(12)
            end.reach()
            for task in busy { await task.value }
            #expect(said > 0)
            #expect(try fixture.value(sql) == said)
            #expect(try fixture.value("SELECT count(*) FROM active_users WHERE udid = '\(udid)'") == 0)
        }
    }

    @Test(
        "A member who leaves or moves waits for its message in progress, so that a ban comes after it",
        arguments: [true, false])
    func bansAfterMoves(leaves: Bool) async throws {
        try await withRelays { first, second in
            let member = try StoreFixture.member(1)
            try await first.rooms.join(StoreFixture.join(1))
            let (isWritten, isReleased, isBanned) = (End(), End(), End())
            defer { isReleased.reach() }
            let database = first.database
            let post = Task {
                try await database.write { transaction in
                    _ = try PostBatch.answers(
                        to: [StoreFixture.post(1, "hi")], now: database.now(),
                        StoreSettings(format: { _ in TextFormat() }), transaction)
                    _ = try transaction.row("SELECT 1")
                    isWritten.reach()
                    while !isReleased.isReached { usleep(1000) }
                }
            }
            try await wait("the message is written") { isWritten.isReached }
            let ban = Task {
                defer { isBanned.reach() }
                if leaves {
                    _ = try await second.rooms.leave(member)
                } else {
                    try await second.rooms.join(StoreFixture.join(1, "other"))
                }
                let request = BanRequest(.udid(member, room: nil))
                _ = try await second.moderation.ban(request, by: Moderator(name: "admin", address: nil))
                return try fixture.value("SELECT count(*) FROM messages")
            }
            let waiting =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
            try await wait("it waits, or is over") { try isBanned.isReached || fixture.value(waiting) > 0 }
            isReleased.reach()
            #expect(try await ban.value == 1)
            try await post.value
            #expect(try fixture.value("SELECT count(*) FROM messages") == 1)
        }
    }

    @Test("A new code for a large room waits for a message in progress, without a retry")
    func newCodeWaits() async throws {
        try await withRelays { first, second in
            func collisions() -> Int? { second.metrics.work().errors.first { $0.kind == "collision" }?.count }
            let before = collisions()
            try fill("large", 1...20)
            let (isWritten, isReleased) = (End(), End())
            defer { isReleased.reach() }
            let database = first.database
            let post = Task {
                try await database.write { transaction in
                    _ = try PostBatch.answers(
                        to: [StoreFixture.post(1, "hi")], now: database.now(),
                        StoreSettings(format: { _ in TextFormat() }), transaction)
                    _ = try transaction.row("SELECT 1")
                    isWritten.reach()
                    while !isReleased.isReached { usleep(1000) }
                }
            }
            try await wait("the message is written") { isWritten.isReached }
            let recode = Task {
                try await second.moderation.recode(
                    code("large"), to: code("new"), by: Moderator(name: "admin", address: nil))
            }
            let waiting =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
            try await wait("it waits") { try fixture.value(waiting) > 0 }
            isReleased.reach()
            try await post.value
            #expect(try await recode.value.members == 20)
            #expect(try fixture.value("SELECT count(*) FROM messages WHERE secret_code = 'new'") == 1)
            #expect(collisions() == before)
        }
    }

    @Test("The newest message that a member fetched at two relays counts")
    func activity() async throws {
        try await withRelays { first, second in
            for number in 1...2 { try await first.rooms.join(StoreFixture.join(number)) }
            for _ in 0..<4 { _ = try await first.rooms.post(StoreFixture.post(1, "hi")) }
            let member = try StoreFixture.member(2)
            _ = try await second.rooms.messages(for: member, since: nil, limit: 1)
            let newest = try await first.rooms.messages(for: member, since: nil, limit: 9).next
            try await first.activity.flush()
            try await second.activity.flush()
            let stored = try await second.records.members(of: code(), after: nil, limit: 9).items.map(\.fetchedTo)
            #expect(stored == [nil, newest])
        }
    }

    // MARK: - Plans

    private static var retention: [(String, Int, [String])] {
        let retention = SQLRetention(.postgres)
        return [
            (retention.messages, ["messages_pkey"]), (retention.addresses, ["messages_pkey"]),
            (retention.bans, ["bans_pkey"]), (retention.records, ["moderation_pkey", "push_queue_due_id"]),
        ].flatMap { rows, indexes in
            [(rows.windowSQL, 2, indexes), (rows.oldSQL, 3, indexes), (rows.stepSQL, 3, indexes)]
        }
    }

    @Test("Frequent statements use an index")
    func plans() async throws {
        let store = try await fixture.open()
        defer { store.close() }
        let statements = [
            (PostBatch.lockSQL, 2, ["active_users_udid_key"]),
            (PostBatch.findSQL, 5, ["active_users_udid_key", "active_users_room", "messages_idempotency", "bans_"]),
            (ChatPushes.countingSQL, 10, ["active_users_room", "devices_device_token_app_key", "messages_pkey"]),
            (MessageFanout.claimSQL, 2, ["messages_fanout"]),
            (MessageFanout.partsSQL, 5, ["messages_", "active_users_room"]),
            (ActivityStep.knownSQL(.postgres), 1, ["active_users_udid_key"]),
            (ActivityStep.updateSQL(.postgres), 6, ["active_users_pkey"]),
            (DeviceUsage.seenSQL(.postgres), 2, ["devices_"]),
            (DeviceUsage.updateSQL(.postgres), 5, ["devices_pkey"]),
            (DeviceUsage.DayCounts.knownSQL(.postgres), 4, ["device_days_pkey"]),
            (ReadState.earlierSQL, 2, ["past_members_udid"]),
            (
                ReadState.reachSQL(.postgres), 4,
                ["push_queue_due_chat_message", "active_users_room", "past_members_room"]
            ),
            (ReadState.namesSQL(.postgres), 5, ["active_users_room", "past_members_room"]),
            (PostgresRoomStore.messagesSQL, 3, ["active_users_udid_key", "messages_room"]),
            (SQLRoomStatements.rooms, 4, ["active_users_room", "messages_room"]),
            (SQLRoomStatements.messageDeliveries(.postgres), 3, ["push_queue_due_chat_message", "active_users_pkey"]),
            (SQLRoomStatements.failures(.postgres), 2, ["push_queue_due_time_settled"]),
            (SQLBans.admissionSQL, 5, ["bans_udid", "bans_device", "bans_address", "bans_room"]),
            (RoomRow.makeSQL(.postgres), 2, ["rooms_secret_code_key"]),
            (PushWithdrawal.empty, 1, ["push_queue_due_chat_message"]),
            (ClockEvidence.rowSQL[0], 1, ["messages_pkey"]),
            (ClockEvidence.rowSQL[1], 1, ["push_queue_due_id"]),
        ]
        for (sql, count, indexes) in statements + Self.retention {
            let plan = try fixture.query(
                """
                SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE asked AS \(sql);
                EXPLAIN EXECUTE asked (\(Array(repeating: "NULL", count: count).joined(separator: ", ")))
                """)
            #expect(!plan.contains("Seq Scan"), "\(sql)\n\(plan)")
            for index in indexes { #expect(plan.contains(index), "\(sql)\n\(plan)") }
        }
    }

    // MARK: - Large rooms

    /// Performs one step, as ``BackgroundJobs`` does.
    /// - Parameter isKilled: Whether the step fails before its commit.
    private func step(_ store: PostgresStores, isKilled: Bool = false) async throws {
        struct Killed: Error {}
        let database = store.database
        let settings = StoreSettings(format: { _ in TextFormat() })
        _ = try? await database.write(.background) { transaction in
            let ids = try transaction.rows(MessageFanout.claimSQL, [.int(Int64.min), .int(Int64(20))])
            guard !ids.isEmpty else { return }
            _ = try MessageFanout.step(of: ids.map { try $0.int(0) }, now: database.now(), settings, transaction)
            if isKilled {
                _ = try transaction.row("SELECT 1")
                throw Killed()
            }
        }
    }

    @Test("The other relay finishes a killed relay's fan-out to a large room, and no member gets two pushes")
    func fanout() async throws {
        try await withRelays { first, second in
            try fill("large", 1...2300)
            let receipt = try await first.rooms.post(StoreFixture.post(1, "hello"))
            #expect(receipt.queued == 0)
            try await step(first)
            #expect(try fixture.value("SELECT count(*) FROM push_queue") == 499)
            try await step(first, isKilled: true)
            #expect(try fixture.value("SELECT count(*) FROM push_queue") == 499)
            // A member who joins after the message gets no push. Neither does a member who leaves before its turn.
            try await first.rooms.join(StoreFixture.join(5000, "large"))
            _ = try await second.rooms.leave(StoreFixture.member(2000))
            let jobs = [first, second].map { store in Task { await store.jobs.run() } }
            defer { for job in jobs { job.cancel() } }
            try await wait("the end of the work") {
                try await !second.records.progress(of: receipt.message).isQueueing
            }
            #expect(try fixture.value("SELECT count(*) FROM push_queue") == 2298)
            #expect(try fixture.value("SELECT count(DISTINCT member) FROM push_queue WHERE bulk") == 2298)
        }
    }

    @Test("Each member gets one push per message of others, in rooms of all sizes and at two relays")
    func fanouts() async throws {
        try await withRelays { first, second in
            let sizes = [9, 10, 11, 60, 101, 102, 103, 600, 1100]
            for (index, size) in sizes.enumerated() {
                try fill("room\(index)", index * 10_000 + 1...index * 10_000 + size)
            }
            let jobs = [first, second].map { store in Task { await store.jobs.run() } }
            defer { for job in jobs { job.cancel() } }
            try await withThrowingTaskGroup { group in
                for number in 0..<6 * sizes.count {
                    let store = number.isMultiple(of: 2) ? first : second
                    let writer = number % sizes.count * 10_000 + 1
                    group.addTask { _ = try await store.rooms.post(StoreFixture.post(writer, "hi \(number)")) }
                }
                try await group.waitForAll()
            }
            try await wait("the end of the work") {
                try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") == 0
            }
            let expected = 6 * sizes.reduce(0) { $0 + $1 - 1 }
            #expect(try fixture.value("SELECT count(*) FROM push_queue") == expected)
            #expect(
                try fixture.value("SELECT count(*) FROM (SELECT DISTINCT chat_message, member FROM push_queue) p")
                    == expected)
            #expect(
                try fixture.query(
                    """
                    SELECT DISTINCT bulk, count(*) > 1 FROM push_queue q JOIN active_users u ON u.member_id = q.member
                    WHERE u.secret_code IN ('room4', 'room5') GROUP BY u.secret_code, bulk ORDER BY 1
                    """) == "f|t\nt|t")
        }
    }

    @Test("An infinite time and an app with a line feed, which a script wrote, do no harm")
    func foreignValues() async throws {
        try await withRelays { first, _ in
            try fill("room", 1...3)
            try fixture.query("UPDATE active_users SET app = E'default\\n' WHERE udid LIKE '%2'")
            try fixture.query("UPDATE active_users SET time_joined = 'infinity' WHERE udid LIKE '%3'")
            _ = try await first.rooms.post(StoreFixture.post(1, "hello"))
            #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE app = 'default'") == 1)
            let members = try await first.records.members(of: code(), after: nil, limit: 9)
            #expect(members.items.map(\.joinedAt.milliseconds).last == 0)
        }
    }

    @Test("After a member is removed during a fan-out, no push to it is queued beyond the record's last push")
    func removals() async throws {
        try await withRelays { first, second in
            try fill("large", 1...3000)
            let jobs = Task { await second.jobs.run() }
            defer { jobs.cancel() }
            for round in 0..<5 {
                let message = try await first.rooms.post(StoreFixture.post(1, "hello \(round)")).message
                let member = Int64(try fixture.value("SELECT max(member_id) - \(200 + round) FROM active_users"))
                try await Task.sleep(for: .milliseconds(5 * round))
                try await first.moderation.remove(member, by: Moderator(name: "admin", address: nil))
                try await wait("the end of the work") {
                    try await !second.records.progress(of: message).isQueueing
                }
            }
            #expect(try fixture.value("SELECT count(*) FROM moderation WHERE last_push IS NOT NULL") == 5)
            #expect(
                try fixture.value(
                    """
                    SELECT count(*) FROM push_queue q
                    JOIN moderation m ON m.device_token = q.device_token AND q.message_id > m.last_push
                    """) == 0)
        }
    }
}

/// A flag for tasks that run until something else is over.
private final class End: Sendable {
    private let isSet = Atomic(false)

    var isReached: Bool { isSet.load(ordering: .acquiring) }

    func reach() { isSet.store(true, ordering: .releasing) }
}

/// A format whose payload is the text.
private struct TextFormat: PushFormat {
    func payload(of alert: ChatAlert) throws(ChatError) -> String { alert.content.text.text }

    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        throw ChatError(.internalError, "no notification is composed here")
    }

    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push { throw PushRefusal("NotSent") }
}
