import ChatDomain
import GRDB
import Testing

@testable import ChatStore

@Suite("Query plans of devices and notifications")
struct PlanTests {
    /// A statement, words that its plan must have, and whether it may sort.
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
        ].map { (SQLiteStore.candidates($0.0), $0.1) } + [
            (SQLiteStore.nextDueSQL, ["push_queue_waiting (app=? AND <expr>=?"]),
            (
                SQLiteStore.promotionSQL("<="),
                ["push_queue_waiting (app=? AND <expr>=? AND not_before>? AND not_before<?)"]
            ),
            (SQLiteStore.promotionSQL(">"), ["push_queue_waiting (app=? AND <expr>=? AND not_before>?)"]),
            (SQLiteStore.historySQL, ["push_queue_device (device=? AND message_id<?)"]),
            (
                SQLiteStore.messageDeliveriesSQL,
                [
                    "push_queue_chat_message (chat_message=? AND rowid>?)",
                    "active_users_device (device_token=? AND app=?)",
                ]
            ),
            (SQLiteStore.failuresSQL, ["push_queue_lost (time_settled<?)"]),
            (SQLiteStore.roomsSQL, ["active_users_room (secret_code>? AND secret_code<?)"]),
            (SQLiteStore.deliveriesSQL, ["push_queue_of_notification (notification=? AND message_id>?)"]),
            (SQLiteStore.writtenSQL, ["push_queue_written"]),
            (
                NotificationCancellation.candidatesSQL,
                ["COVERING INDEX push_queue_of_notification (notification=? AND message_id>? AND message_id<?)"]
            ),
            (
                NotificationCancellation.sweepSQL,
                ["push_queue_of_notification (notification=? AND message_id>? AND message_id<?)"]
            ),
            (
                "SELECT count(*) FROM push_queue WHERE app = ? AND \(SQLiteStore.isDue)",
                ["COVERING INDEX push_queue_due"]
            ),
            (
                "SELECT count(*) FROM push_queue WHERE app = ? AND \(SQLiteStore.isWaiting)",
                ["COVERING INDEX push_queue_waiting"]
            ),
            ("SELECT min(app) FROM push_queue WHERE \(SQLiteStore.isDue) AND app > ?", ["push_queue_due (app>?)"]),
            (
                "SELECT min(app) FROM push_queue WHERE \(SQLiteStore.isWaiting) AND app > ?",
                ["push_queue_waiting (app>?)"]
            ),
            (
                """
                SELECT time_queued FROM push_queue
                WHERE app = ? AND \(Lane.sql) = ? AND \(SQLiteStore.isDue) ORDER BY message_id LIMIT 1
                """, ["push_queue_due (app=? AND <expr>=?)"]
            ),
            ("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL", ["COVERING INDEX devices_inactive"]),
            ("SELECT count(*) FROM devices", ["COVERING INDEX"]),
            (
                "UPDATE push_queue SET state = 'cancelled' WHERE device = ? AND state = 'pending'",
                ["push_queue_device (device=?)"]
            ),
            (
                "SELECT notification_id FROM notifications WHERE work IS NOT NULL ORDER BY notification_id LIMIT ?",
                ["notifications_work"]
            ),
            ("SELECT 1 FROM notifications WHERE idempotency_key = ?", ["(idempotency_key=?)"]),
            ("SELECT 1 FROM push_queue q WHERE q.notification = ?", ["(notification=?)"]),
        ]

    @Test("Hot queries go by their index and never sort", arguments: 0..<statements.count)
    func plans(index: Int) throws {
        let (sql, words) = Self.statements[index]
        try Self.check(sql, words)
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

    @Test("So do the steps of a fan-out", arguments: 0..<items.count, [false, true])
    func fanouts(index: Int, skips: Bool) throws {
        let (item, ofOneApp, place, rows) = Self.items[index]
        if let places = item.places(ofOneApp: ofOneApp) {
            try Self.check("SELECT count(*), max(place) FROM (\(places))", [place])
        }
        let unchanged = skips ? ["push_queue_device (device=?)"] : []
        try Self.check(NotificationFanout.insertSQL(item, ofOneApp: ofOneApp, skips: skips), rows + unchanged)
        guard skips else { return }
        try Self.check(NotificationFanout.skippedSQL(item, ofOneApp: ofOneApp), rows + unchanged)
    }

    @Test("A token is looked up by itself")
    func tokens() throws {
        try Self.check(
            NotificationFanout.insertSQL(.token("a"), ofOneApp: false, skips: false), ["(device_token=?)"],
            maySort: true)
        try Self.check(
            NotificationFanout.insertSQL(.token("a"), ofOneApp: true, skips: false), ["(device_token=? AND app=?)"],
            maySort: true)
    }

    private static func check(_ sql: String, _ words: [String], maySort: Bool = false) throws {
        let store = try NotificationBench().store
        let plan = try store.pool.read { db in
            let statement = try db.makeStatement(sql: "EXPLAIN QUERY PLAN " + sql)
            statement.setUncheckedArguments([])
            return try Row.fetchAll(statement).map { $0["detail"] as String }
        }
        for word in words { #expect(plan.contains { $0.contains(word) }, "\(word): \(plan)") }
        #expect(maySort || !plan.contains { $0.contains("TEMP B-TREE") }, "\(plan)")
        #expect(!plan.contains { $0.hasPrefix("SCAN d ") || $0 == "SCAN push_queue" || $0 == "SCAN q" }, "\(plan)")
    }
}
