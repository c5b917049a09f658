package import ChatDomain
import ChatSQL
import GRDB

/// The registered devices, in the SQLite file.
package struct SQLiteDeviceStore: SQLDeviceStore {
    package let database: SQLiteDatabase
    package let outcomes: OutcomeCounter
    let ids: APNSIDs
    let settings: @Sendable () -> StoreSettings

    // MARK: - Registration

    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let (token, app) = (request.token.description, request.app)
        let name = DeviceName(token: token, app: app.text)
        var edit = request.edit
        if !settings().keepsUsage { edit.client = ClientInfo() }
        let now = database.now()
        let known = try await database.read { transaction in try transaction.knownDevices([name])[name] }
        if let known, known.isUnchanged(by: edit, at: now) { return .unchanged }
        return try await database.writer.perform { [edit] db in
            // Another request may have registered it in the meantime.
            let transaction = SQLiteTransaction(db)
            let hasNewForm = try transaction.mergeForms(of: request.token, app: app)
            let known = try transaction.knownDevices([name])[name]
            if let known, !hasNewForm, known.isUnchanged(by: edit, at: now) { return .unchanged }
            let device = SeenDevice(token: token, app: app.text, client: edit.client, time: database.now())
            try DeviceUsage.setRegistered([device], keepsUsage: settings().keepsUsage, transaction)
            if let device = try known ?? transaction.knownDevices([name])[name] {
                try transaction.apply(edit, to: device)
            }
            return known == nil ? .created : .refreshed
        }
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
                    "changes": Delivery.changedWindow,
                    "limit": min(limit, SQLPage.window) + 1,
                ], limit: limit)
            return Page(items: try page.rows.map { try Delivery(SQLiteRow(row: $0), ids) }, next: page.next)
        }
    }

    /// Merges the pushes of the index `push_queue_device` with the chat pushes. For those, it goes from the device's
    /// member to its room, from the room to its messages, and from each message to its push for the device.
    ///
    /// `bound` is the message at which a later page begins: the newest one with a push at the cursor or shortly after
    /// it. Pushes are queued soon after their message, so pushes before the cursor belong to that message or an earlier
    /// one. Pushes about changes of earlier messages do not count. Those of the last changed messages are found through
    /// the changes of the room.
    static let historySQL = """
        WITH bound AS MATERIALIZED (
            SELECT coalesce(max(chat_message), \(Int64.max)) AS newest FROM (
                SELECT CASE WHEN NOT \(Delivery.isOfChange) THEN q.chat_message END AS chat_message FROM push_queue q
                WHERE q.message_id >= :before ORDER BY q.message_id LIMIT :window))
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
            UNION
            SELECT * FROM (
                SELECT p.message_id AS push_id FROM devices d
                CROSS JOIN active_users u ON u.device_token = d.device_token AND u.device_token <> '0' AND u.app = d.app
                CROSS JOIN message_states s ON s.secret_code = u.secret_code AND s.change_id IS NOT NULL
                    AND s.change_id > coalesce(
                        (SELECT e.change_id FROM message_states e
                        WHERE e.secret_code = u.secret_code AND e.change_id IS NOT NULL
                        ORDER BY e.change_id DESC LIMIT 1 OFFSET :changes), 0)
                CROSS JOIN push_queue p ON p.chat_message = s.message_id AND p.device = d.device_id
                WHERE d.device_id = :device AND p.message_id < :before ORDER BY push_id DESC LIMIT :limit)
            ORDER BY push_id DESC LIMIT :limit) h
        CROSS JOIN push_queue q ON q.message_id = h.push_id ORDER BY h.push_id DESC
        """
}
