package import ChatDomain
import GRDB

/// The devices that registered, in the SQLite file.
package final class SQLiteDeviceStore: DeviceStore {
    private let database: SQLiteDatabase
    private let outcomes: OutcomeCounter
    private let ids: PushIDs

    init(database: SQLiteDatabase, outcomes: OutcomeCounter, ids: PushIDs) {
        self.database = database
        self.outcomes = outcomes
        self.ids = ids
    }

    // MARK: - Registration

    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let (token, app, edit) = (request.token.description, request.app, request.edit)
        let earliest = (database.clock() - DeviceRegistration.freshness).sqlText
        let known = try await database.read { db in
            try DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db)
        }
        if known?.isFresh == true, known?.isChanged(by: edit) == false { return .unchanged }
        return try await database.writer.perform { [clock = database.clock] db in
            // Others may have registered it meanwhile.
            let known = try DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db)
            if known?.isFresh == true, known?.isChanged(by: edit) == false { return .unchanged }
            try Self.setRegistered(token, app: app, now: clock().sqlText, db)
            if let device = try known ?? DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db) {
                try device.apply(edit, db)
            }
            return known == nil ? .created : .refreshed
        }
    }

    /// Makes the device's row, or sets its time anew; what the push service said before does not count any more.
    static func setRegistered(_ token: String, app: AppName, now: String, _ db: Database) throws {
        try db.cachedStatement(
            sql: """
                INSERT INTO devices (app, device_token, time_created, time_registered) VALUES (?, ?, ?, ?)
                ON CONFLICT (device_token, app) DO UPDATE SET time_registered = excluded.time_registered,
                    time_deactivated = NULL, deactivated_reason = NULL, refusals = 0
                """
        ).execute(arguments: [app.text, token, now, now])
    }

    /// Pushes of notifications and of other programs are cancelled at once. The chat's are cancelled when their turn comes: a
    /// lease notices that the device is forgotten. No index leads from a device to the chat's pushes, because it would make
    /// every message more expensive.
    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        let endings: [Ending]? = try await database.writer.perform { [clock = database.clock] db in
            guard let device = try Self.resolve(token, app: app, db) else { return nil }
            let cancelled = try Row.fetchAll(
                db.cachedStatement(sql: Self.cancelSQL),
                arguments: [PushLifeCycle.unregistered, clock().sqlText, device.id])
            // A device gets a notification once: each of them has one push less.
            for row in cancelled {
                guard let notification = row[1] as NotificationID? else { continue }
                try db.cachedStatement(
                    sql: "UPDATE notification_counts SET cancelled = cancelled + 1 WHERE notification_id = ?"
                ).execute(arguments: [notification])
            }
            try db.cachedStatement(
                sql: """
                    UPDATE active_users SET device_token = '0'
                    WHERE device_token = ? AND app = ? AND device_token <> '0'
                    """
            ).execute(arguments: [token.description, device.app])
            try db.cachedStatement(sql: "DELETE FROM devices WHERE device_id = ?").execute(arguments: [device.id])
            return cancelled.map {
                Ending(app: AppName($0[0]), state: .cancelled, reason: PushLifeCycle.unregistered)
            }
        }
        guard let endings else { return false }
        outcomes.add(endings)
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
            let place = try Self.resolved(token, app: app, db)
            guard let row = try DeviceRow.find(token.description, app: AppName(place.app), for: edit, db) else {
                throw ChatError.notFound("device")
            }
            try row.apply(edit, db)
            return try Self.load(place.id, db)
        }
    }

    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await database.read { db in try Self.load(Self.resolved(token, app: app, db).id, db) }
    }

    // MARK: - Which device is meant

    private typealias Place = (id: Int64, app: String)

    /// Apps that the error names which asks for one.
    private static let mostNamed = 10

    /// Nil where it is not known.
    /// - Throws: ``ChatError/Code/ambiguous``.
    private static func resolve(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> Place? {
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT device_id, app FROM devices WHERE device_token = ?1 AND (?2 IS NULL OR app = ?2)
                    ORDER BY app LIMIT ?3
                    """), arguments: [token.description, app?.text, mostNamed])
        guard rows.count < 2 else {
            let apps = rows.map { $0[1] as String }.joined(separator: ", ")
            throw ChatError(
                .ambiguous, "token: belongs to several apps of this relay (\(apps)); name one with app", field: "app")
        }
        return rows.first.map { ($0[0], $0[1]) }
    }

    private static func resolved(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> Place {
        guard let place = try resolve(token, app: app, db) else {
            guard let app else { throw ChatError.notFound("device") }
            throw ChatError(.notFound, "There is no such device of the app \(app)", field: "app")
        }
        return place
    }

    private static func load(_ id: Int64, _ db: Database) throws -> Device {
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT \(DeviceRow.columns) FROM devices d WHERE d.device_id = ?"), arguments: [id]
        )
        guard let row, let device = try DeviceRow.devices([row], db).first else { throw ChatError.notFound("device") }
        return device
    }

    // MARK: - Lists

    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await database.read { db in
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: Self.candidates(filter)),
                arguments: [
                    "after": cursor ?? 0, "user": filter.user?.text, "tag": filter.tag?.text, "app": filter.app?.text,
                    "most": PageScan.window + 1,
                ])
            let scan = try PageScan(rows, limit: limit) { row in
                if let app = filter.app, row[2] as String != app.text { return false }
                if let user = filter.user, row[3] as String? != user.text { return false }
                if let isActive = filter.isActive, (row[8] as String? == nil) != isActive { return false }
                return filter.tag == nil || row[10]
            }
            return Page(items: try DeviceRow.devices(scan.rows, db), next: scan.next)
        }
    }

    /// From the index that says most; the rest of the filter is checked row by row. The last column: whether it has the tag.
    static func candidates(_ filter: DeviceFilter) -> String {
        let hasTag =
            filter.tag == nil
            ? "TRUE" : "EXISTS (SELECT 1 FROM device_tags t WHERE t.tag = :tag AND t.device_id = d.device_id)"
        let select = "SELECT \(DeviceRow.columns),"
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

    /// The chat's pushes are found through the room that the device's member is in now: those of a room that it has left are
    /// not shown. A page looks at ``PageScan/window`` messages of the room.
    package func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { [ids] db in
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: Self.historySQL),
                arguments: [
                    "device": device, "before": cursor ?? Int64.max, "window": PageScan.window,
                    "limit": min(limit, PageScan.window) + 1,
                ])
            let scan = try PageScan(rows, limit: limit)
            return Page(items: scan.rows.map { DeliveryRow.delivery($0, ids) }, next: scan.next)
        }
    }

    /// Merges what ``push_queue_device`` has with the chat's pushes, which go from the device's member to its room, from the
    /// room to its messages, and from each message to its push for the device.
    ///
    /// `bound` says at which message a later page begins: the newest one of which a push stands at the cursor or soon behind
    /// it. Pushes are queued soon after their message, so what stands before the cursor is of that message or an earlier one.
    static let historySQL = """
        WITH bound AS MATERIALIZED (
            SELECT coalesce(max(chat_message), \(Int64.max)) AS newest FROM (
                SELECT chat_message FROM push_queue WHERE message_id >= :before ORDER BY message_id LIMIT :window))
        SELECT \(DeliveryRow.columns) FROM (
            SELECT * FROM (
                SELECT message_id AS entry FROM push_queue
                WHERE device = :device AND chat_message IS NULL AND message_id < :before
                ORDER BY message_id DESC LIMIT :limit)
            UNION ALL
            SELECT * FROM (
                SELECT p.message_id AS entry FROM devices d
                CROSS JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
                CROSS JOIN messages m ON m.secret_code = u.secret_code AND m.message_id <= (SELECT newest FROM bound)
                    AND m.message_id > coalesce(
                        (SELECT e.message_id FROM messages e
                        WHERE e.secret_code = u.secret_code AND e.message_id <= (SELECT newest FROM bound)
                        ORDER BY e.message_id DESC LIMIT 1 OFFSET :window), \(Int64.min))
                CROSS JOIN push_queue p ON p.chat_message = m.message_id AND p.device = d.device_id
                WHERE d.device_id = :device AND p.message_id < :before ORDER BY entry DESC LIMIT :limit)
            ORDER BY entry DESC LIMIT :limit) h
        CROSS JOIN push_queue q ON q.message_id = h.entry ORDER BY h.entry DESC
        """
}
