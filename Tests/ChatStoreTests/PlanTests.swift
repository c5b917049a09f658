import ChatDomain
import ChatSQL
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Query plans")
struct PlanTests {
    /// The statements, and the words that the plan of each must have.
    private static let statements: [(String, [String])] =
        [
            (DeviceFilter(), ["SEARCH d USING INTEGER PRIMARY KEY"]),
            (DeviceFilter(app: .default), ["SEARCH d USING INDEX devices_app (app=? AND device_id>?)"]),
            (
                DeviceFilter(app: .default, user: UserReference(stored: "a"), isActive: true),
                ["SEARCH d USING INDEX devices_user (user_reference=? AND device_id>?)"]
            ),
            (
                DeviceFilter(app: .default, tag: ChatDomain.Tag(stored: "a"), isActive: false),
                ["SEARCH w USING PRIMARY KEY (tag=? AND device_id>?)", "SEARCH d USING INTEGER PRIMARY KEY"]
            ),
            (
                DeviceFilter(user: UserReference(stored: "a"), tag: ChatDomain.Tag(stored: "a")),
                ["devices_user (user_reference=?", "SEARCH t USING PRIMARY KEY (tag=? AND device_id=?)"]
            ),
            (DeviceFilter(app: .default, isActive: false), ["devices_inactive (device_id>?)"]),
        ].map { (listSQL($0.0), $0.1) } + [
            (
                SQLitePushQueue.unreadSQL,
                [
                    "active_users_device (device_token=? AND app=?)",
                    "messages_room (secret_code=? AND message_id>?)",
                ]
            ),
            (SQLitePushQueue.nextWaitingSQL, ["push_queue_waiting (app=? AND <expr>=? AND not_before>?)"]),
            (
                SQLitePushQueue.waitingSQL,
                ["push_queue_waiting (app=? AND <expr>=? AND not_before>? AND not_before<?)"]
            ),
            (SQLiteMetrics.delayedSQL, ["COVERING INDEX push_queue_waiting (app=?)"]),
            (SQLiteMetrics.nextAppSQL, ["push_queue_waiting (app>?)"]),
            (QueueRepair.scanSQL, ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
            (
                QueueReader.sql(findsReaders: true),
                [
                    "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "SEARCH d USING INTEGER PRIMARY KEY",
                    "SEARCH u USING INTEGER PRIMARY KEY",
                ]
            ),
            (
                PostRoom.sql,
                [
                    "SEARCH w USING INDEX sqlite_autoindex_active_users_1 (udid=?)",
                    "active_users_room (secret_code=?)", "(device_token=? AND app=?)",
                ]
            ),
            (SQLRoomStatements.failures(.sqlite), ["push_queue_lost (time_settled<?)"]),
            (PostRoom.programSQL, ["active_users_room (secret_code=?)", "(device_token=? AND app=?)"]),
            (
                SQLRoomStatements.rooms,
                [
                    "active_users_room (secret_code>?)", "messages_room (secret_code>?)",
                    "active_users_room (secret_code=?)", "messages_room (secret_code=?)",
                ]
            ),
            (
                "SELECT * FROM push_queue q WHERE q.message_id > $1 AND \(NotificationRecord.isOfNotification)"
                    + " AND q.state = $3 AND q.message_id <= $4 ORDER BY q.message_id",
                ["SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                NotificationRecord.statusSQL(.sqlite),
                ["SEARCH n USING INTEGER PRIMARY KEY", "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                NotificationCancellation.candidatesSQL,
                ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                NotificationCancellation.cancelSQL,
                ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (RoomRow.makeSQL(.sqlite), ["USING COVERING INDEX sqlite_autoindex_rooms_1 (secret_code=?)"]),
            (
                RoomRow.lookSQL,
                [
                    "SEARCH rooms USING INTEGER PRIMARY KEY (rowid>?)", "active_users_room (secret_code=?)",
                    "past_members_room (secret_code=?)", "messages_room (secret_code=?)",
                ]
            ),
            (ReadState.earlierSQL, ["USING INDEX past_members_udid (udid=? AND secret_code=?)"]),
            (
                ReadState.reachSQL(.sqlite),
                [
                    "push_queue_chat_message (chat_message=?)", "active_users_room (secret_code=?)",
                    "past_members_room (secret_code=? AND fetched_to>?)",
                ]
            ),
            (DeviceUsage.updateSQL(.sqlite), ["SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"]),
            (ActivityStep.updateSQL(.sqlite), ["SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"]),
            (Device.cancelSQL(.sqlite), ["push_queue_device (device=?)"]),
        ]

    private static func listSQL(_ filter: DeviceFilter) -> String {
        var parameters = SQLParameters()
        let (candidates, key) = filter.candidates(after: 1, .sqlite, &parameters)
        let rest = filter.rest(&parameters).map { "AND " + $0 } ?? ""
        return "SELECT * FROM \(candidates) \(rest) ORDER BY \(key) LIMIT 9"
    }

    @Test("Hot queries use their indexes and never sort", arguments: 0..<statements.count)
    func plans(index: Int) throws {
        let (sql, words) = Self.statements[index]
        try Self.check(sql, words)
    }

    @Test("Recording what devices and members do sorts only the given ones")
    func activity() throws {
        for (sql, word) in [
            (DeviceUsage.seenSQL(.sqlite), "(device_token=? AND app=?)"),
            (DeviceUsage.DayCounts.knownSQL(.sqlite), "PRIMARY KEY (day=? AND app=? AND kind=? AND value=?)"),
            (DeviceUsage.DayCounts.writeSQL(.sqlite), "PRIMARY KEY (day=? AND app=? AND kind=? AND value=?)"),
            (ActivityStep.knownSQL(.sqlite), "(udid=?)"),
        ] {
            try Self.check(sql, [word], maySort: true)
        }
    }

    @Test("Retention walks by id and needs no other lookup")
    func retention() throws {
        let store = try StoreFixture().open()
        defer { try? store.close() }
        let retention = store.upkeep.shared.retention
        for rows in [
            retention.messages, retention.addresses, store.upkeep.pushes, retention.feedback, retention.notifications,
            retention.bans, retention.records,
        ] {
            for sql in [rows.windowSQL, rows.oldSQL, rows.stepSQL] {
                try Self.check(sql, ["r USING INTEGER PRIMARY KEY (rowid>?"])
            }
        }
    }

    private static let items: [(AudienceItem, Bool, String, [String])] = [
        (
            .user("a"), false, "devices_user (user_reference=? AND device_id>? AND device_id<?)",
            ["devices_user (user_reference=? AND device_id>? AND device_id<?)"]
        ),
        (
            .user("a"), true, "devices_user (user_reference=? AND device_id>? AND device_id<?)",
            ["devices_user (user_reference=? AND device_id>? AND device_id<?)"]
        ),
        (
            .tag("a"), false, "SEARCH device_tags USING PRIMARY KEY (tag=?",
            ["SEARCH t USING PRIMARY KEY (tag=?", "SEARCH d USING INTEGER PRIMARY KEY"]
        ),
        (
            .tag("a"), true, "SEARCH device_tags USING PRIMARY KEY (tag=?",
            ["SEARCH t USING PRIMARY KEY (tag=?", "SEARCH d USING INTEGER PRIMARY KEY"]
        ),
        (
            .room("a"), false, "active_users_room (secret_code=? AND member_id>? AND member_id<?)",
            ["active_users_room (secret_code=? AND member_id>? AND member_id<?)", "(device_token=? AND app=?)"]
        ),
        (
            .all, false, "SEARCH devices USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
            ["SEARCH d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
        ),
        (
            .all, true, "devices_app (app=? AND device_id>? AND device_id<?)",
            ["devices_app (app=? AND device_id>? AND device_id<?)"]
        ),
    ]

    /// Words of statements that the store runs, and the words that the plan of each must have.
    private static let traced = [
        ("count(*) FROM devices WHERE time_deactivated IS NOT NULL", "COVERING INDEX devices_inactive"),
        ("count(*) FROM devices", "COVERING INDEX"),
        ("FROM notifications WHERE work IS NOT NULL", "notifications_work"),
        ("FROM notifications WHERE idempotency_key = $1", "(idempotency_key=?)"),
        ("FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ?\nORDER BY", "active_users_room"),
        ("FROM messages WHERE secret_code = $1 AND message_id > $2", "messages_room"),
        ("FROM messages WHERE udid = $1 AND idempotency_key = $2", "messages_idempotency"),
        ("FROM messages WHERE fanout_after IS NOT NULL", "messages_fanout"),
        ("FROM active_users WHERE secret_code = ? LIMIT 1", "active_users_room (secret_code=?)"),
        ("UPDATE active_users SET device_token = '0'", "active_users_device"),
    ]

    @Test("Posting, registering, totals and interrupted work use their indexes and never sort")
    func traced() async throws {
        let bench = try NotificationFixture()
        let store = bench.store
        let statements = try await Trace(store)
        for number in 1...PostRoom.small + 2 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try await store.rooms.post(StoreFixture.post(1, "hello", key: "key"))
        _ = try await store.rooms.messages(for: StoreFixture.member(2), since: nil, limit: 9)
        var request = bench.request(.all)
        request.idempotencyKey = "key"
        _ = try await store.notifications.send(request)
        _ = try await store.metrics.totals()
        try await store.jobs.resume()
        while try bench.fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        for (words, plan) in Self.traced {
            let all = statements.all
            let found = all.first { $0.hasSuffix(words) } ?? all.first { $0.contains(words) }
            let sql = try #require(found, "nothing runs \(words)")
            try Self.check(sql, [plan])
        }
    }

    @Test("A post of a program without a key runs as many statements as before messages could change")
    func plainPost() async throws {
        let store = try NotificationFixture().store
        try await store.rooms.join(StoreFixture.join(1))
        let program = PostRequest.Program(nickname: Nickname(stored: "cron"), room: SecretCode(stored: "room"))
        func post(_ text: String) async throws {
            _ = try await store.rooms.post(
                PostRequest(
                    member: .program(token: 1), program: program, content: try MessageContent(parsing: text),
                    idempotencyKey: text))
        }
        try await post("first")
        let statements = try await Trace(store)
        try await post("second")
        #expect(statements.count == 9, "\(statements.all.sorted().joined(separator: "\n"))")
    }

    @Test("A removal and a ban find their members by an index, and read a whole room only to close it")
    func removals() async throws {
        let store = try NotificationFixture().store
        for number in 1...9 { try await store.rooms.join(StoreFixture.join(number, number < 8 ? "room" : "other")) }
        let (room, moderator) = (SecretCode(stored: "room"), Moderator(name: "admin", address: nil))
        let members = try await store.records.members(of: room, after: nil, limit: 9).items
        let statements = try await Trace(store)
        func plans() throws -> [String] {
            let sql = statements.all.filter { $0.contains("FROM active_users") && !$0.contains("count(*)") }
            for start in ["DELETE", "INSERT INTO past_members"] { #expect(sql.contains { $0.hasPrefix(start) }) }
            return try sql.flatMap { try Self.plan($0, store) }.filter { $0.contains(" active_users") }
        }
        try await store.moderation.remove(members[0].id, by: moderator)
        for subject: BanRequest.Subject in [
            .member(members[1].id, everywhere: false), .member(members[2].id, everywhere: true),
            .udid(try StoreFixture.member(4), room: room), .udid(try StoreFixture.member(5), room: nil),
            .device(try StoreFixture.token(6), room: room), .device(try StoreFixture.token(7), room: nil),
        ] {
            _ = try await store.moderation.ban(BanRequest(subject), by: moderator)
        }
        var found = try plans()
        #expect(found.allSatisfy { $0.hasPrefix("SEARCH active_users USING") }, "\(found)")
        #expect(!found.contains { $0.contains("active_users_room") }, "\(found)")
        statements.clear()
        _ = try await store.moderation.ban(BanRequest(.room(SecretCode(stored: "other"))), by: moderator)
        found = try plans()
        #expect(found.allSatisfy { $0.contains("INDEX active_users_room (secret_code=?") }, "\(found)")
    }

    @Test("The steps of a fan-out use their indexes and never sort", arguments: 0..<items.count, [false, true])
    func fanouts(index: Int, skips: Bool) throws {
        let (item, ofOneApp, candidatesPlan, rows) = Self.items[index]
        if let candidates = item.candidatesSQL(ofOneApp: ofOneApp) { try Self.check(candidates, [candidatesPlan]) }
        let unchanged = skips ? ["push_queue_device (device=?)"] : []
        try Self.check(NotificationFanout.insertSQL(item, ofOneApp: ofOneApp, skips: skips), rows + unchanged)
        guard skips else { return }
        try Self.check(NotificationFanout.skippedSQL(item, ofOneApp: ofOneApp), rows + unchanged)
    }

    @Test("Lists sort only rows that an index found")
    func sorted() throws {
        try Self.check(
            SQLiteDeviceStore.historySQL,
            [
                "push_queue_device (device=? AND message_id<?)",
                "push_queue_chat_message (chat_message=? AND device=? AND rowid<?)",
                "messages_room (secret_code=? AND message_id>? AND message_id<?)",
                "active_users_device (device_token=? AND app=?)",
            ], maySort: true)
        try Self.check(
            SQLRoomStatements.messageDeliveries(.sqlite),
            [
                "COVERING INDEX push_queue_chat_message (chat_message=?)",
                "active_users_device (device_token=? AND app=?)",
            ], maySort: true)
    }

    @Test("A token is found by its index")
    func tokens() throws {
        try Self.check(
            NotificationFanout.insertSQL(.token("a"), ofOneApp: false, skips: false), ["(device_token=?)"],
            maySort: true)
        try Self.check(
            NotificationFanout.insertSQL(.token("a"), ofOneApp: true, skips: false), ["(device_token=? AND app=?)"],
            maySort: true)
    }

    private static func plan(_ sql: String, _ store: SQLiteStores) throws -> [String] {
        try store.database.pool.read { db in
            let statement = try db.makeStatement(sql: "EXPLAIN QUERY PLAN " + sql)
            statement.setUncheckedArguments([])
            return try Row.fetchAll(statement).map { $0["detail"] as String }
        }
    }

    private static func check(_ sql: String, _ words: [String], maySort: Bool = false) throws {
        let plan = try plan(sql, NotificationFixture().store)
        for word in words { #expect(plan.contains { $0.contains(word) }, "\(word): \(plan)") }
        #expect(maySort || !plan.contains { $0.contains("TEMP B-TREE") }, "\(plan)")
        #expect(!plan.contains { $0.hasPrefix("SCAN d ") || $0 == "SCAN push_queue" || $0 == "SCAN q" }, "\(plan)")
    }
}

/// Collects the statements that a store runs.
private final class Trace: Sendable {
    private let statements = Mutex<[String]>([])

    var all: Set<String> { statements.withLock { Set($0) } }
    var count: Int { statements.withLock { $0.count } }

    init(_ store: SQLiteStores) async throws {
        let trace: @Sendable (Database) -> Void = { [weak self] db in
            db.trace { event in
                guard case .statement(let statement) = event else { return }
                self?.statements.withLock { $0.append(statement.sql) }
            }
        }
        try await store.database.pool.writeWithoutTransaction(trace)
        // Consecutive reads use the same connection.
        try await store.database.pool.read(trace)
    }

    func clear() { statements.withLock { $0 = [] } }
}
