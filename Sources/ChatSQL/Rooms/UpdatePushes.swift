package import ChatDomain

/// Pushes about changes of messages that a transaction has queued: ids of one range, of one or more apps.
package struct QueuedUpdates: Sendable {
    package let range: ClosedRange<Int64>
    package let counts: [AppName: Int]
    package let isBulk: Bool
    /// The time for which they wait. `nil` for none.
    package let notBefore: Timestamp?
}

/// A push about a changed message, for one device.
struct UpdatePush {
    let token: String
    /// The app's configured name.
    let app: AppName
    let device: Int64?
    let member: Int64?
    let update: PushUpdate
    let isSilent: Bool
    let collapseID: String?

    /// Inserts pushes in the order of the list.
    ///
    /// - Parameter message: The message. `nil` if it was deleted.
    static func insert(
        _ pushes: [UpdatePush], of message: MessageID?, isBulk: Bool = false, notBefore: Timestamp? = nil,
        now: Timestamp,
        _ settings: StoreSettings, _ transaction: some SQLTransaction
    ) throws -> QueuedUpdates? {
        var (first, last, counts) = (Int64.max, Int64.min, [AppName: Int]())
        for start in stride(from: 0, to: pushes.count, by: RoomSize.step) {
            let part = pushes[start..<min(start + RoomSize.step, pushes.count)]
            let rows = try transaction.rows(
                insertSQL(transaction.dialect),
                [
                    .texts(part.map(\.token)), .texts(part.map(\.update.payload)), .texts(part.map(\.app.text)),
                    .optionalInts(part.map { $0.update.priority.map(Int64.init) }), .optionalInts(part.map(\.device)),
                    .optionalInts(part.map(\.member)), .optionalTexts(part.map(\.update.pushType)),
                    .optionalTexts(part.map(\.collapseID)), .ints(part.map { $0.isSilent ? 1 : 0 }), .time(now),
                    .optional(message), .optional(settings.expiration(at: now)), .bool(isBulk),
                    .optional(notBefore?.milliseconds),
                ])
            for row in rows {
                let id = try row.int(0)
                (first, last) = (min(first, id), max(last, id))
                counts[AppName(try row.text(1)), default: 0] += 1
            }
        }
        guard first <= last else { return nil }
        transaction.announcement.apps.formUnion(counts.keys.map(\.text))
        return QueuedUpdates(range: first...last, counts: counts, isBulk: isBulk, notBefore: notBefore)
    }

    static func insertSQL(_ dialect: SQLDialect) -> String {
        let table = dialect.table(
            "t",
            [
                "token": "text", "payload": "text", "app": "text", "priority": "bigint", "device": "bigint",
                "member": "bigint", "type": "text", "collapse": "text", "silent": "bigint",
            ])
        return """
            INSERT INTO \(dialect.unsettled) (device_token, payload, time_queued, app, chat_message, expires_at, priority,
                not_before, device, bulk, member, push_type, collapse_id, silent)
            SELECT t.token, t.payload, at($10), t.app, CAST($11 AS bigint), CAST($12 AS bigint), t.priority,
                CAST($14 AS bigint), t.device, \(dialect == .sqlite ? "$13" : "$13::boolean"), t.member, t.type, t.collapse,
                t.silent <> 0
            FROM \(table) ORDER BY t.number
            RETURNING message_id, app
            """
    }
}
