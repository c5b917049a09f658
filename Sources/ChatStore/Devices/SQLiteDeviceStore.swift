package import ChatDomain
import ChatSQL
import GRDB

/// The registered devices, in the SQLite file.
package struct SQLiteDeviceStore: DeviceStore {
    let database: SQLiteDatabase
    let outcomes: OutcomeCounter
    let ids: APNSIDs
    let settings: @Sendable () -> StoreSettings

    // MARK: - Registration

    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let (token, app) = (request.token.description, request.app)
        var edit = request.edit
        if !settings().keepsUsage { edit.client = ClientInfo() }
        let now = database.now()
        let known = try await database.read { [edit] db in try KnownDevice(token, app.text, for: edit, db) }
        if let known, known.isUnchanged(by: edit, at: now) { return .unchanged }
        return try await database.writer.perform { [edit] db in
            // Another request may have registered it in the meantime.
            let known = try KnownDevice(token, app.text, for: edit, db)
            if let known, known.isUnchanged(by: edit, at: now) { return .unchanged }
            try Self.setRegistered(
                token, app: app, now: database.now(), says: settings().keepsUsage ? edit.client : nil, db)
            try (known ?? KnownDevice(token, app.text, for: edit, db))?.apply(edit, db)
            return known == nil ? .created : .refreshed
        }
    }

    /// Creates the device's row or updates its registration time. Clears earlier reports of the push service.
    /// - Parameter client: The details that the app has sent. `nil` if they are not to be stored.
    static func setRegistered(
        _ token: String, app: AppName, now: Timestamp, says client: ClientInfo?, _ db: Database
    ) throws {
        try db.run(
            """
            INSERT INTO devices (app, device_token, time_created, time_registered) VALUES (?, ?, ?, ?)
            ON CONFLICT (device_token, app) DO UPDATE SET time_registered = excluded.time_registered,
                time_deactivated = NULL, deactivated_reason = NULL, refusals = 0
            """, [app.text, token, now.sqlText, now.sqlText])
        if let client { try DeviceUsage.saw(token, app: app.text, client, now: now, db) }
    }

    /// Cancels pushes of notifications and of other programs immediately. Chat pushes are cancelled when they are
    /// leased, because the device no longer exists then. No index leads from a device to chat pushes: it would make
    /// every message more expensive.
    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        try await unregister(token, app: app) { _ in true }
    }

    package func unregister(_ browser: Subscription) async throws(ChatError) -> Bool {
        try await unregister(browser.address, app: .web) { db in try SQLiteTransaction(db).isKnown(browser) }
    }

    /// - Parameter isAdmitted: Returns, in the same transaction, whether the device may be deleted.
    private func unregister(
        _ token: DeviceToken, app: AppName?, if isAdmitted: @escaping @Sendable (Database) throws -> Bool
    ) async throws(ChatError) -> Bool {
        let cancelled: [FinalStateCount]? = try await database.writer.perform { db in
            guard try isAdmitted(db) else { return nil }
            guard let device = try Self.find(token, app: app, db) else { return nil }
            let rows = try db.rows(
                Self.cancelSQL, [PushLifeCycle.unregistered, database.now().sqlText, device.id])
            // A device gets a notification only once, so each of these notifications has exactly one push less.
            for row in rows {
                guard let notification = row[1] as NotificationID? else { continue }
                try db.run(
                    "UPDATE notification_counts SET cancelled = cancelled + 1 WHERE notification_id = ?",
                    [notification])
            }
            try db.run(
                """
                UPDATE active_users SET device_token = '0'
                WHERE device_token = ? AND app = ? AND device_token <> '0'
                """, [token.description, device.app])
            try db.run("DELETE FROM devices WHERE device_id = ?", [device.id])
            return rows.map {
                FinalStateCount(app: AppName($0[0]), state: .cancelled, reason: PushLifeCycle.unregistered)
            }
        }
        guard let cancelled else { return false }
        outcomes.add(cancelled)
        return true
    }

    static let cancelSQL = """
        UPDATE push_queue SET state = 'cancelled', reason = ?, time_settled = ?
        WHERE device = ? AND chat_message IS NULL AND state = 'pending' RETURNING app, notification
        """

    package func edit(
        _ token: DeviceToken, app: AppName?, _ edit: DeviceEdit
    ) async throws(ChatError) -> Device {
        try await database.writer.perform { db in
            let device = try Self.require(token, app: app, db)
            try KnownDevice(token.description, device.app, for: edit, db)?.apply(edit, db)
            return try Self.load(device.id, db)
        }
    }

    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await database.read { db in try Self.load(Self.require(token, app: app, db).id, db) }
    }

    // MARK: - Finding a device

    /// The maximum number of apps to name in the error that asks for an app.
    private static let mostNamed = 10

    /// Returns `nil` if the device is not registered.
    /// - Throws: ``ChatError/Code/ambiguous``.
    private static func find(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> (id: Int64, app: String)? {
        let rows = try db.rows(
            """
            SELECT device_id, app FROM devices WHERE device_token = ?1 AND (?2 IS NULL OR app = ?2)
            ORDER BY app LIMIT ?3
            """, [token.description, app?.text, mostNamed])
        guard rows.count < 2 else {
            let apps = rows.map { $0[1] as String }.joined(separator: ", ")
            throw ChatError(
                .ambiguous, "token: belongs to several apps of this relay (\(apps)); name one with app", field: "app")
        }
        return rows.first.map { ($0[0], $0[1]) }
    }

    private static func require(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> (id: Int64, app: String)
    {
        if let device = try find(token, app: app, db) { return device }
        guard let app else { throw ChatError.notFound("device") }
        throw ChatError(.notFound, "There is no such device of the app \(app)", field: "app")
    }

    private static func load(_ id: Int64, _ db: Database) throws -> Device {
        let rows = try db.rows("SELECT \(Device.columns) FROM devices d WHERE d.device_id = ?", [id])
        guard let device = try Device.all(rows, db).first else { throw ChatError.notFound("device") }
        return device
    }

    // MARK: - Lists

    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await database.read { db in
            let page = try db.page(
                Self.candidates(filter),
                [
                    "after": cursor ?? 0, "user": filter.user?.text, "tag": filter.tag?.text, "app": filter.app?.text,
                    "most": SQLPage.window + 1,
                ], limit: limit
            ) { row in
                if let app = filter.app, row[2] as String != app.text { return false }
                if let user = filter.user, row[3] as String? != user.text { return false }
                if let isActive = filter.isActive, (row[8] as String? == nil) != isActive { return false }
                return filter.tag == nil || row[14]
            }
            return Page(items: try Device.all(page.rows, db), next: page.next)
        }
    }

    /// Uses the most selective index. The caller checks the other conditions row by row. The last column says whether
    /// the device has the tag.
    static func candidates(_ filter: DeviceFilter) -> String {
        let hasTag =
            filter.tag == nil
            ? "TRUE" : "EXISTS (SELECT 1 FROM device_tags t WHERE t.tag = :tag AND t.device_id = d.device_id)"
        let select = "SELECT \(Device.columns),"
        let rest = "d.device_id > :after ORDER BY d.device_id LIMIT :most"
        if filter.user != nil {
            return
                "\(select) \(hasTag) FROM devices d INDEXED BY devices_user WHERE d.user_reference = :user AND \(rest)"
        }
        if filter.tag != nil {
            return """
                \(select) TRUE FROM device_tags w CROSS JOIN devices d ON d.device_id = w.device_id
                WHERE w.tag = :tag AND w.device_id > :after ORDER BY w.device_id LIMIT :most
                """
        }
        if filter.isActive == false {
            return """
                \(select) TRUE FROM devices d INDEXED BY devices_inactive
                WHERE d.time_deactivated IS NOT NULL AND \(rest)
                """
        }
        if filter.app != nil {
            return "\(select) TRUE FROM devices d INDEXED BY devices_app WHERE d.app = :app AND \(rest)"
        }
        return "\(select) TRUE FROM devices d WHERE \(rest)"
    }

    /// Finds chat pushes through the room of the device's current member. Those of a room that it has left are not
    /// listed. A page examines ``SQLPage/window`` messages of the room.
    package func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { db in
            let page = try db.page(
                Self.historySQL,
                [
                    "device": device, "before": cursor ?? Int64.max, "window": SQLPage.window,
                    "limit": min(limit, SQLPage.window) + 1,
                ], limit: limit)
            return Page(items: page.rows.map { Delivery($0, ids) }, next: page.next)
        }
    }

    /// Merges the pushes of the index `push_queue_device` with the chat pushes. For those, it goes from the device's
    /// member to its room, from the room to its messages, and from each message to its push for the device.
    ///
    /// `bound` is the message at which a later page begins: the newest one with a push at the cursor or shortly after
    /// it. Pushes are queued soon after their message, so pushes before the cursor belong to that message or an earlier
    /// one.
    static let historySQL = """
        WITH bound AS MATERIALIZED (
            SELECT coalesce(max(chat_message), \(Int64.max)) AS newest FROM (
                SELECT chat_message FROM push_queue WHERE message_id >= :before ORDER BY message_id LIMIT :window))
        SELECT \(Delivery.columns) FROM (
            SELECT * FROM (
                SELECT message_id AS push_id FROM push_queue
                WHERE device = :device AND chat_message IS NULL AND message_id < :before
                ORDER BY message_id DESC LIMIT :limit)
            UNION ALL
            SELECT * FROM (
                SELECT p.message_id AS push_id FROM devices d
                CROSS JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
                CROSS JOIN messages m ON m.secret_code = u.secret_code AND m.message_id <= (SELECT newest FROM bound)
                    AND m.message_id > coalesce(
                        (SELECT e.message_id FROM messages e
                        WHERE e.secret_code = u.secret_code AND e.message_id <= (SELECT newest FROM bound)
                        ORDER BY e.message_id DESC LIMIT 1 OFFSET :window), \(Int64.min))
                CROSS JOIN push_queue p ON p.chat_message = m.message_id AND p.device = d.device_id
                WHERE d.device_id = :device AND p.message_id < :before ORDER BY push_id DESC LIMIT :limit)
            ORDER BY push_id DESC LIMIT :limit) h
        CROSS JOIN push_queue q ON q.message_id = h.push_id ORDER BY h.push_id DESC
        """
}

extension KnownDevice {
    /// Returns `nil` if the device is not registered.
    /// - Parameter edit: The edit to compare with. Tags are read only if it contains tags.
    fileprivate init?(_ token: String, _ app: String, for edit: DeviceEdit, _ db: Database) throws {
        let row = try db.row(
            """
            SELECT device_id, time_deactivated IS NULL, time_registered, user_reference, client_info, server_info,
                app_version, os_version, device_model
            FROM devices WHERE device_token = ? AND app = ?
            """, [token, app])
        guard let row else { return nil }
        let id: Int64 = row[0]
        self.init(
            id: id, isActive: row[1], registered: row.time(2), user: row[3], clientInfo: row[4], serverInfo: row[5],
            client: ClientInfo(appVersion: row[6], osVersion: row[7], deviceModel: row[8]),
            tags: edit.tags == nil ? [] : Set(try db.values("SELECT tag FROM device_tags WHERE device_id = ?", [id])))
    }

    /// Writes the changes of an edit.
    fileprivate func apply(_ edit: DeviceEdit, _ db: Database) throws {
        guard let changes = changes(by: edit) else { return }
        try db.run(
            "UPDATE devices SET user_reference = ?, client_info = ?, server_info = ? WHERE device_id = ?",
            [changes.user, changes.clientInfo, changes.serverInfo, id])
        for tag in changes.oldTags {
            try db.run("DELETE FROM device_tags WHERE tag = ? AND device_id = ?", [tag, id])
        }
        for tag in changes.newTags {
            try db.run("INSERT INTO device_tags (tag, device_id) VALUES (?, ?)", [tag, id])
        }
    }
}

extension Device {
    /// The columns of the table `devices` as `d`.
    fileprivate static let columns = """
        d.device_id, d.device_token, d.app, d.user_reference, d.client_info, d.server_info, d.time_created,
        d.time_registered, d.time_deactivated, d.deactivated_reason, d.app_version, d.os_version, d.device_model, d.time_seen
        """

    /// Reads devices from rows with ``columns``, and their tags in one query.
    fileprivate static func all(_ rows: [Row], _ db: Database) throws -> [Device] {
        let ids = rows.map { String($0[0] as Int64) }.joined(separator: ",")
        var tags: [Int64: [Tag]] = [:]
        let found = try db.rows(
            """
            SELECT device_id, tag FROM device_tags
            WHERE device_id IN (SELECT value FROM json_each(?)) ORDER BY device_id
            """, ["[\(ids)]"])
        for row in found { tags[row[0], default: []].append(Tag(stored: row[1])) }
        return rows.compactMap { row in
            // Skip a token that another program wrote and that is invalid.
            guard let token = try? DeviceToken(parsing: row[1]) else { return nil }
            return Device(
                id: row[0], token: token, app: AppName(row[2]),
                user: (row[3] as String?).map(UserReference.init(stored:)), clientInfo: row[4], serverInfo: row[5],
                client: ClientInfo(appVersion: row[10], osVersion: row[11], deviceModel: row[12]),
                tags: tags[row[0] as Int64, default: []].sorted(), createdAt: row.time(6), registeredAt: row.time(7),
                seenAt: row.optionalTime(13),
                deactivatedAt: row.optionalTime(8), deactivatedReason: row[9])
        }
    }
}
