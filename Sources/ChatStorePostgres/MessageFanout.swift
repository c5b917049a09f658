#if PostgreSQL
import ChatDomain

/// The pushes of messages: a row for each other member of the room that has a device.
///
/// The rows of a small room are part of the request's transaction (``PostBatch``). A larger room's follow behind the answer, in
/// steps that cover a bounded number of members; how far they have come is kept with the message. Any relay takes a step.
enum MessageFanout: BackgroundStep {
    static let claimSQL = """
        SELECT message_id FROM messages WHERE fanout_after IS NOT NULL AND message_id > $1::bigint
        ORDER BY message_id LIMIT $2::bigint FOR NO KEY UPDATE SKIP LOCKED
        """

    /// Members that are looked at of each message but the step's first: smaller rooms are served together, a larger one when
    /// it is the first.
    private static let most = PushLifeCycle.bulkFrom

    static func step(
        of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> BackgroundProgress {
        // No member is taken away between the look at the room and the end: of whom is taken away, all pushes have lower
        // numbers than the record says.
        transaction.pipeline(
            """
            SELECT pg_advisory_xact_lock_shared(key) FROM (
                SELECT DISTINCT hashtextextended(secret_code, \(RoomLock.fanout.rawValue)) AS key FROM messages
                WHERE message_id = ANY ($1::bigint[]) ORDER BY key) k
            """, [.ints(ids)])
        let rows = try transaction.rows(
            partsSQL,
            [.ints(ids), .int(RoomSize.step), .int(most + 1), .int(PushLifeCycle.bulkFrom + 1), .optional(ids.first)])
        var (pushes, parts, looked) = (ChatPushes(now: now, settings), [Part](), 0)
        for row in rows {
            let part = try Part(row)
            // The first alone may take several steps.
            if !parts.isEmpty, part.next != nil || looked + part.looked > RoomSize.step { break }
            (looked, parts) = (looked + part.looked, parts + [part])
            let upTo = part.next ?? part.until
            for app in part.apps {
                // An app for which nothing fits has no pushes; the others have theirs.
                try? pushes.add(part.alert, app: app, isBulk: part.isBulk, after: part.after, upTo: upTo)
            }
        }
        pushes.queueLater(transaction)
        transaction.pipeline(
            """
            UPDATE messages m SET fanout_after = p.next, fanout_until = CASE WHEN p.next IS NOT NULL THEN m.fanout_until END
            FROM unnest($1::bigint[], $2::bigint[]) AS p (message, next) WHERE m.message_id = p.message
            """, [.ints(parts.map(\.alert.message)), .optionalInts(parts.map(\.next))])
        transaction.announcement.apps.formUnion(pushes.apps)
        return BackgroundProgress(last: parts.last?.alert.message ?? ids.last ?? .max)
    }

    /// What a step finds of a message.
    private struct Part {
        let alert: ChatAlert
        let after: Int64
        let until: Int64
        /// The last member of the step, where there are more.
        let next: Int64?
        let looked: Int
        let apps: [String]
        let isBulk: Bool

        init(_ row: PostgresRow) throws {
            alert = ChatAlert(
                nickname: Nickname(stored: try row.text(2)), text: MessageText(stored: try row.text(3)),
                code: SecretCode(stored: try row.text(1)), message: try row.int(0),
                extras: MessageExtras(
                    storedTitle: row.optionalText(6), link: row.optionalText(7),
                    priority: try row.optionalInt(8).map(UInt8.init(clamping:)), sound: row.optionalText(9)))
            (after, until) = (try row.int(4), try row.int(5))
            looked = Int(try row.int(10))
            next = try row.optionalInt(11)
            apps = row.optionalText(12).map(ChatPushes.apps) ?? []
            isBulk = try row.bool(13)
        }
    }

    /// Of messages `$1` the next members, of the first `$5` up to `$2` and of the others up to `$3`: after the one, up to the
    /// last at the time of the message. Who comes later gets none. Whether the room has more than `$4` members says whether
    /// its pushes let others pass; whether each has a device is not looked at: that would cost more with each member.
    static let partsSQL = """
        SELECT m.message_id, m.secret_code, m.nickname, m.text, m.fanout_after, m.fanout_until, m.title, m.link,
            m.priority, m.sound, p.looked, CASE WHEN p.last < m.fanout_until AND p.looked = p.most THEN p.last END, p.apps,
            EXISTS (
                SELECT 1 FROM active_users u WHERE u.secret_code = m.secret_code ORDER BY u.member_id
                LIMIT 1 OFFSET $4::bigint)
        FROM messages m
        CROSS JOIN LATERAL (
            SELECT count(*) AS looked, max(u.member_id) AS last, max(u.most) AS most,
                string_agg(DISTINCT u.app, E'\\n') FILTER (WHERE u.device_token <> '0') AS apps
            FROM (
                SELECT member_id, app, device_token,
                    CASE WHEN m.message_id = $5::bigint THEN $2::bigint ELSE $3::bigint END AS most
                FROM active_users
                WHERE secret_code = m.secret_code AND member_id > m.fanout_after AND member_id <= m.fanout_until
                ORDER BY member_id LIMIT CASE WHEN m.message_id = $5::bigint THEN $2::bigint ELSE $3::bigint END) u) p
        WHERE m.message_id = ANY ($1::bigint[]) AND m.fanout_after IS NOT NULL ORDER BY m.message_id
        """
}

/// Pushes of messages that are to be queued, for members of their rooms.
struct ChatPushes {
    private let now: Timestamp
    private let settings: StoreSettings
    private var messages: [Int64] = []
    private var storedApps: [String] = []
    private var currentApps: [String] = []
    private var payloads: [String] = []
    private var bulk: [Int64] = []
    private var after: [Int64] = []
    private var upTo: [Int64] = []

    init(now: Timestamp, _ settings: StoreSettings) {
        self.now = now
        self.settings = settings
    }

    /// The apps as the queue knows them.
    var apps: Set<String> { Set(currentApps) }

    /// What an SQL statement has joined with line feeds.
    static func apps(_ text: String) -> [String] {
        text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false).map { String($0) }
    }

    /// A message as an app's members get it: those who entered the room after the one, up to the other.
    /// - Parameter app: as the members' rows say.
    /// - Throws: what the writer reads where not one character fits.
    mutating func add(
        _ alert: ChatAlert, app: String, isBulk: Bool = false, after: Int64 = 0, upTo: Int64 = .max
    ) throws(ChatError) {
        let current = settings.current(app)
        payloads.append(try settings.format(current).payload(of: alert))
        messages.append(alert.message)
        storedApps.append(app)
        currentApps.append(current.text)
        bulk.append(isBulk ? 1 : 0)
        self.after.append(after)
        self.upTo.append(upTo)
    }

    /// Queues all of them with the transaction's next statement.
    func queueLater(_ transaction: PostgresTransaction) {
        if !messages.isEmpty { transaction.pipeline(Self.insertSQL, values) }
    }

    /// Queues all of them.
    /// - Returns: of those of `ids` that there are, how many pushes each has got.
    func queue(for ids: [Int64], _ transaction: PostgresTransaction) throws -> [Int64: Int] {
        let rows = try transaction.rows(Self.countingSQL, values + [.ints(ids)])
        return try Dictionary(rows.map { (try $0.int(0), Int(try $0.int(1))) }, uniquingKeysWith: +)
    }

    private var values: [PostgresValue] {
        [
            .ints(messages), .texts(storedApps), .texts(currentApps), .texts(payloads), .ints(bulk), .ints(after),
            .ints(upTo), .time(now), .optional(settings.expiration(at: now)),
        ]
    }

    static let insertSQL = """
        INSERT INTO push_queue_due (device_token, payload, time_queued, app, chat_message, expires_at, priority, device,
            bulk, member)
        SELECT u.device_token, p.payload, at($8::bigint), p.current_app, m.message_id, $9::bigint, m.priority, d.device_id,
            p.bulk <> 0, u.member_id
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[])
            AS p (message, app, current_app, payload, bulk, after, up_to)
        JOIN messages m ON m.message_id = p.message
        CROSS JOIN LATERAL (
            SELECT * FROM active_users
            WHERE secret_code = m.secret_code AND member_id > p.after AND member_id <= p.up_to AND app = p.app
                AND udid <> m.udid
            OFFSET 0) u
        LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
        WHERE u.device_token <> '0' AND d.time_deactivated IS NULL
        ORDER BY m.message_id, u.member_id
        """

    static let countingSQL = """
        WITH queued AS (\(insertSQL) RETURNING chat_message)
        SELECT chat_message, count(*) FROM queued GROUP BY chat_message
        UNION ALL
        SELECT message_id, 0 FROM messages WHERE message_id = ANY ($10::bigint[])
        """
}
#endif
