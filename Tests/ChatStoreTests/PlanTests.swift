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
        ].map { (SQLiteDeviceStore.candidates($0.0), $0.1) } + [
            (SQLitePushQueue.nextWaitingSQL, ["push_queue_waiting (app=? AND <expr>=? AND not_before>?)"]),
            (
                SQLitePushQueue.waitingSQL,
                ["push_queue_waiting (app=? AND <expr>=? AND not_before>? AND not_before<?)"]
            ),
            (SQLitePushQueue.delayedSQL, ["COVERING INDEX push_queue_waiting (app=?)"]),
            (SQLitePushQueue.nextAppSQL, ["push_queue_waiting (app>?)"]),
            (SQLitePushQueue.scanSQL, ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
            (
                QueueReader.sql,
                ["SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "SEARCH d USING INTEGER PRIMARY KEY"]
            ),
            (
                PostRoom.sql,
                [
                    "SEARCH w USING INDEX sqlite_autoindex_active_users_1 (udid=?)",
                    "active_users_room (secret_code=?)", "(device_token=? AND app=?)",
                ]
            ),
            (SQLiteRoomRecords.failuresSQL, ["push_queue_lost (time_settled<?)"]),
            (SQLiteRoomRecords.roomsSQL, ["active_users_room (secret_code>? AND secret_code<?)"]),
            (
                SQLiteNotificationStore.deliveriesSQL,
                ["SEARCH n USING INTEGER PRIMARY KEY", "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                SQLiteNotificationStore.pendingSQL,
                ["SEARCH n USING INTEGER PRIMARY KEY", "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                NotificationCancellation.candidatesSQL,
                ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (
                NotificationCancellation.sweepSQL,
                ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
            (SQLiteUpkeep.windowSQL, ["SEARCH push_queue USING INTEGER PRIMARY KEY (rowid>?)"]),
            ("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL", ["COVERING INDEX devices_inactive"]),
            ("SELECT count(*) FROM devices", ["COVERING INDEX"]),
            (SQLiteDeviceStore.cancelSQL, ["push_queue_device (device=?)"]),
            (
                "SELECT notification_id FROM notifications WHERE work IS NOT NULL ORDER BY notification_id LIMIT ?",
                ["notifications_work"]
            ),
            ("SELECT 1 FROM notifications WHERE idempotency_key = ?", ["(idempotency_key=?)"]),
            (
                SQLiteUpkeep.oldNotificationsSQL,
                ["SEARCH n USING INTEGER PRIMARY KEY", "SEARCH q USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]
            ),
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

    @Test("Lists that sort what an index found")
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
            SQLiteRoomRecords.messageDeliveriesSQL,
            [
                "COVERING INDEX push_queue_chat_message (chat_message=?)",
                "active_users_device (device_token=? AND app=?)",
            ], maySort: true)
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
        let plan = try store.database.pool.read { db in
            let statement = try db.makeStatement(sql: "EXPLAIN QUERY PLAN " + sql)
            statement.setUncheckedArguments([])
            return try Row.fetchAll(statement).map { $0["detail"] as String }
        }
        for word in words { #expect(plan.contains { $0.contains(word) }, "\(word): \(plan)") }
        #expect(maySort || !plan.contains { $0.contains("TEMP B-TREE") }, "\(plan)")
        #expect(!plan.contains { $0.hasPrefix("SCAN d ") || $0 == "SCAN push_queue" || $0 == "SCAN q" }, "\(plan)")
    }
}
