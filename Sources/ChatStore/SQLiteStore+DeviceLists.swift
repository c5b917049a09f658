package import ChatDomain
import GRDB

extension SQLiteStore {
    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await read { db in
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

    package func deliveries(
        to device: Int64, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await read { db in
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: Self.historySQL),
                arguments: [device, cursor ?? Int64.max, min(limit, PageScan.window) + 1])
            let scan = try PageScan(rows, limit: limit)
            return Page(items: scan.rows.map(DeliveryRow.delivery), next: scan.next)
        }
    }

    static let historySQL = """
        SELECT \(DeliveryRow.columns) FROM push_queue q WHERE q.device = ? AND q.message_id < ?
        ORDER BY q.message_id DESC LIMIT ?
        """
}
