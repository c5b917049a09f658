import ChatDomain
import ChatSQL
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Moderation of rooms", .timeLimit(.minutes(1)))
struct ModerationTests {
    private let bench: QueueFixture
    private var store: SQLiteStores { bench.store }
    private let moderator = Moderator(name: "admin", address: "192.0.2.9")

    init() throws {
        bench = try QueueFixture()
    }

    private func code(_ text: String = "room") -> SecretCode { SecretCode(stored: text) }

    private func id(_ number: Int) throws -> Int64 {
        try bench.fixture.query(
            "SELECT member_id FROM active_users WHERE udid = ?", [StoreFixture.member(number).text])[0][0]
    }

    /// Returns the text of the error that the call throws. `nil` if it throws none.
    private func refusal(_ call: () async throws -> Void) async -> String? {
        do {
            try await call()
            return nil
        } catch let error as ChatError {
            return error.code == .notJoined ? "not joined" : error.message
        } catch {
            return "\(error)"
        }
    }

    private func records(_ store: SQLiteStores) async throws -> [String] {
        try await store.moderation.records(before: nil, limit: 100).items.map {
            [$0.action, $0.room?.text, $0.subject, $0.actor, $0.address].map { $0 ?? "-" }.joined(separator: " ")
        }
    }

    // MARK: - Removal

    @Test("Pushes of another room, of others and of notifications still go")
    func otherPushes() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2, "other"))
        try await store.rooms.join(StoreFixture.join(3))
        _ = try await store.rooms.post(StoreFixture.post(1, "to 3"))
        _ = try await store.rooms.post(
            PostRequest(
                member: MemberID(stored: "token:1"),
                program: PostRequest.Program(nickname: Nickname(stored: "cron"), room: code("other")),
                content: try MessageContent(parsing: "to 2")))
        // Member 3 moves to the other room, and is removed from that room.
        try await store.rooms.join(StoreFixture.join(3, "other"))
        try await store.moderation.remove(id(3), by: moderator)
        _ = try await store.notifications.send(NotificationRequest(audience: .all, payload: #"{"aps":{}}"#))
        let lease = try await bench.lease(StoreFixture.slot())
        #expect(lease.reasons.isEmpty && lease.pushes.count == 2 + 3)
    }

    @Test("After a restart bans and removals still hold, also for a push that waits for a retry")
    func restart() async throws {
        for number in 1...3 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        let other = try StoreFixture.token(4)
        _ = try await store.moderation.ban(BanRequest(.device(other, room: nil)), by: moderator)
        _ = try await store.moderation.ban(BanRequest(.member(id(2), everywhere: false)), by: moderator)
        _ = try bench.fixture.query(
            "UPDATE push_queue SET attempts = 1, not_before = ? WHERE message_id = 1",
            [bench.fixture.time.now.milliseconds])
        try store.close()

        let again = try QueueFixture(bench.fixture, try bench.fixture.open())
        let lease = try await again.lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.id) == [2] && lease.reasons == ["MemberRemoved"])
        let banned = "You are banned from this room"
        #expect(await refusal { try await again.store.rooms.join(StoreFixture.join(2)) } == banned)
        #expect(
            await refusal { try await again.store.rooms.join(StoreFixture.join(9, "any", token: 4)) }
                == "You are banned from every room")
        #expect(
            try await records(again.store) == ["ban room name2 admin 192.0.2.9", "ban - - admin 192.0.2.9"])
    }

    // MARK: - Bans

    // MARK: - Changes

    @Test("The feed has a change before its call returns, and nothing of a call that failed or removed no member")
    func changes() async throws {
        for number in 1...6 { try await store.rooms.join(StoreFixture.join(number)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
        let topic = try #require(UnifiedPushTopic("upAAAAAAAAAAAA"))
        let token = try await store.tokens.create(Nickname(stored: "t"), AccessGrant(scopes: [.read]), expiresAt: nil)
        _ = try await store.unifiedPush.claim([topic], for: .token(token.token.id))
        _ = store.feed.roomChanges()
        func changes(_ call: () async throws -> Void) async throws -> RoomChanges {
            _ = store.feed.takeRoomChanges()
            try await call()
            return store.feed.takeRoomChanges()
        }
        func ban(_ subject: BanRequest.Subject) async throws -> RoomChanges {
            try await changes { _ = try await store.moderation.ban(BanRequest(subject), by: moderator) }
        }
        var expected = RoomChanges()
        expected.completeTo = message
        #expect(try await ban(.device(StoreFixture.token(9), room: nil)) == expected)
        #expect(try await ban(.udid(StoreFixture.member(9), room: nil)) == expected)
        let failed = try await changes {
            _ = await refusal { try await store.moderation.remove(99, by: moderator) }
            _ = await refusal { try await store.moderation.deleteOwn(message, of: StoreFixture.member(2)) }
            _ = await refusal { _ = try await store.moderation.recode(code("x"), to: code("y"), by: moderator) }
        }
        #expect(failed == expected)
        expected.memberships = [code()]
        let title = RoomEdit(title: .set(try RoomTitle(parsing: "Tea")))
        #expect(try await changes { _ = try await store.records.edit(code(), title) } == expected)
        let bans: [(Int, BanRequest.Subject)] = [
            (2, .member(try id(2), everywhere: false)), (3, .udid(try StoreFixture.member(3), room: nil)),
            (4, .device(try StoreFixture.token(4), room: code())),
        ]
        for (number, subject) in bans {
            expected.members = [try StoreFixture.member(number)]
            expected.removed = expected.members
            #expect(try await ban(subject) == expected)
        }
        expected.members = [try StoreFixture.member(5)]
        expected.removed = expected.members
        #expect(try await changes { try await store.moderation.remove(id(5), by: moderator) } == expected)
        let member = try StoreFixture.member(1)
        for isOwn in [true, false] {
            let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
            expected = RoomChanges()
            // A deletion has a number.
            expected.completeTo = message + 1
            expected.messages = [code()]
            expected.deleted = [code(): [message]]
            let found = try await changes {
                if isOwn { return try await store.moderation.deleteOwn(message, of: member) }
                try await store.moderation.delete(message, by: moderator)
            }
            #expect(found == expected)
        }
        expected.messages = []
        expected.deleted = [:]
        expected.closed = [code("shut")]
        #expect(try await ban(.room(code("shut"))) == expected)
        expected.closed = [code()]
        #expect(
            try await changes { _ = try await store.moderation.recode(code(), to: code("new"), by: moderator) }
                == expected)
        expected = RoomChanges()
        expected.topics = [topic]
        expected.completeTo = message + 5
        #expect(try await changes { _ = try await store.unifiedPush.post([1], to: topic) } == expected)
    }

    // MARK: - Closed rooms

    // MARK: - Messages

    @Test("Nothing of a deleted message's text is left in the file")
    func noRemains() async throws {
        for number in 1...3 { try await store.rooms.join(StoreFixture.join(number)) }
        let kept = try await store.rooms.post(StoreFixture.post(1, "what stays: magenta")).message
        let message = try await store.rooms.post(StoreFixture.post(1, "what goes: vermilion")).message
        #expect(kept < message)
        let connection = try bench.fixture.connection()
        func checkpoint() throws {
            try connection.writeWithoutTransaction { try $0.execute(sql: "PRAGMA wal_checkpoint(TRUNCATE)") }
        }
        func file(has text: String) throws -> Bool {
            let bytes = try Data(contentsOf: URL(filePath: bench.fixture.path))
            return bytes.range(of: Data(text.utf8)) != nil
        }
        try checkpoint()
        #expect(try file(has: "vermilion"))
        try await store.moderation.delete(message, by: moderator)
        try checkpoint()
        #expect(try file(has: "magenta") && !file(has: "vermilion"))
    }

    @Test("The checks of a join, a program's post and a push use their indexes")
    func plans() throws {
        for (sql, words) in [
            (
                SQLBans.admissionSQL,
                ["bans_udid (udid=?)", "bans_device (device_token=?)", "bans_address (address=?)", "bans_room"]
            ),
            (SQLBans.closedSQL(room: "?1", now: "?2"), ["bans_room (secret_code=?)"]),
            (QueueReader.removalsSQL, ["moderation_pushes (last_push>?)"]),
            (PushWithdrawal.waiting, ["push_queue_chat_message (chat_message=?)"]),
            (PushWithdrawal.cancelAndForget, ["push_queue_chat_message (chat_message=?)"]),
        ] {
            let plan = try store.database.pool.read { db in
                let statement = try db.makeStatement(sql: "EXPLAIN QUERY PLAN " + sql)
                statement.setUncheckedArguments([])
                return try Row.fetchAll(statement).map { $0["detail"] as String }
            }
            for word in words { #expect(plan.contains { $0.contains(word) }, "\(plan)") }
            #expect(!plan.contains { $0.hasPrefix("SCAN bans") || $0.hasPrefix("SCAN moderation") }, "\(plan)")
        }
    }
}
