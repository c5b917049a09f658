import ChatDomain
import GRDB

/// A row of `notifications`, but for the work that is left.
struct NotificationRecord: Sendable {
    let id: NotificationID
    let request: NotificationRequest
    let devices: Int
    let createdAt: Timestamp
    let cancelledAt: Timestamp?

    private static let columns = """
        notification_id, app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged, idempotency_key,
        devices, time_created, time_cancelled, payload, audience
        """

    private init(_ row: Row) {
        id = row[0]
        request = NotificationRequest(
            audience: Audience(stored: row[13]), app: (row[1] as String?).map(AppName.init), payload: row[12],
            pushType: row[2], expiration: row[3], priority: (row[4] as Int64?).map(UInt8.init(clamping:)),
            collapseID: row[5], notBefore: (row[6] as Int64?).map(Timestamp.init(milliseconds:)),
            skipsUnchanged: row[7], idempotencyKey: row[8])
        devices = row[9]
        createdAt = row.time(10)
        cancelledAt = row.optionalTime(11)
    }

    static func find(_ id: NotificationID, _ db: Database) throws -> NotificationRecord? {
        try Row.fetchOne(
            db.cachedStatement(sql: "SELECT \(columns) FROM notifications WHERE notification_id = ?"), arguments: [id]
        ).map(NotificationRecord.init)
    }

    /// The answer to an earlier request with the same key; nil if there was none, or no key.
    /// - Throws: ``ChatError/Code/idempotencyConflict`` where that was for something else.
    static func earlier(_ request: NotificationRequest, now: Timestamp, _ db: Database) throws -> NotificationReceipt? {
        guard let key = request.idempotencyKey else { return nil }
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT \(columns) FROM notifications WHERE idempotency_key = ?"),
            arguments: [key])
        guard let earlier = row.map(NotificationRecord.init) else { return nil }
        var stored = earlier.request
        // A time that has come since then is none any more, in the repeat.
        if request.notBefore == nil, let time = stored.notBefore, time <= now { stored.notBefore = nil }
        guard stored == request else {
            throw ChatError(
                .idempotencyConflict, "Idempotency-Key was used before, for another notification",
                field: "Idempotency-Key")
        }
        return NotificationReceipt(id: earlier.id, devices: earlier.devices, isRepeat: true)
    }

    /// Writes a notification whose pushes are still to be queued, to devices or members up to `until`.
    /// - Parameter devices: how many there are now.
    static func insert(
        _ request: NotificationRequest, devices: Int, until: Int64, now: Timestamp, _ db: Database
    ) throws -> NotificationID {
        try db.cachedStatement(
            sql: """
                INSERT INTO notifications (app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged,
                    idempotency_key, devices, time_created, work, work_until, payload, audience)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queue', ?, ?, ?)
                """
        ).execute(arguments: [
            request.app?.text, request.pushType, request.expiration, request.priority.map { Int64($0) },
            request.collapseID, request.notBefore?.milliseconds, request.skipsUnchanged, request.idempotencyKey,
            devices, now.sqlText, until, request.payload, request.audience.json.description,
        ])
        let id = db.lastInsertedRowID
        try db.cachedStatement(sql: "INSERT INTO notification_counts (notification_id) VALUES (?)")
            .execute(arguments: [id])
        return id
    }
}

extension Audience {
    /// As ``json`` wrote it.
    init(stored text: String) {
        let object = (try? JSONValue(parsing: text))?.object
        func texts(_ name: String) -> [String]? { object?[name]?.array?.compactMap(\.text) }
        if let tokens = texts("tokens") {
            self = .tokens(tokens.compactMap { try? DeviceToken(parsing: $0) })
        } else if let users = texts("users") {
            self = .users(users.map(UserReference.init(stored:)))
        } else if let tags = texts("tags") {
            self = .tags(tags.map(Tag.init(stored:)))
        } else if let code = object?["room"]?.text {
            self = .room(SecretCode(stored: code))
        } else if object?["all"] == .bool(true) {
            self = .all
        } else {
            // Another program changed the row: nobody, rather than everybody.
            self = .tokens([])
        }
    }

    /// Without names that stand there twice.
    var distinct: Audience {
        func distinct<Name: Hashable>(_ names: [Name]) -> [Name] {
            var seen: Set<Name> = []
            return names.filter { seen.insert($0).inserted }
        }
        return switch self {
        case .tokens(let tokens): .tokens(distinct(tokens))
        case .users(let users): .users(distinct(users))
        case .tags(let tags): .tags(distinct(tags))
        case .room, .all: self
        }
    }
}
