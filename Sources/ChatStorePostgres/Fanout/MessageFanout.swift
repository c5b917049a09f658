import ChatDomain
import ChatSQL

/// Queues the pushes of messages: one push for each other member of the room that has a device.
///
/// The pushes of a small room are part of the request's transaction (``PostBatch``). Those of a larger room follow
/// after the response, in steps that cover a bounded number of members. The message's row stores the progress, and any
/// relay can perform a step.
enum MessageFanout: BackgroundStep {
    static let claimSQL = """
        SELECT message_id FROM messages WHERE fanout_after IS NOT NULL AND message_id > $1::bigint
        ORDER BY message_id LIMIT $2::bigint FOR NO KEY UPDATE SKIP LOCKED
        """

    /// The maximum number of members to examine for each message except the first of a step. Smaller rooms are thus
    /// served together, and a larger room when its message is the first.
    private static let most = PushLifeCycle.bulkFrom

    static func step(
        of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> BackgroundProgress {
        // No member may be removed between this read and the commit: the record of a removal covers only pushes with
        // lower ids.
        transaction.pipeline(
            """
            SELECT pg_advisory_xact_lock_shared(key) FROM (
                SELECT DISTINCT hashtextextended(secret_code, \(SQLLock.fanout.rawValue)) AS key FROM messages
                WHERE message_id = ANY ($1::bigint[]) ORDER BY key) k
            """, [.ints(ids)])
        let rows = try transaction.rows(
            partsSQL,
            [.ints(ids), .int(RoomSize.step), .int(most + 1), .int(PushLifeCycle.bulkFrom + 1), .optional(ids.first)])
        var (pushes, parts, looked) = (ChatPushes(now: now, settings), [Part](), 0)
        for row in rows {
            let part = try Part(row)
            // Only the first message may take several steps.
            if !parts.isEmpty, part.next != nil || looked + part.looked > RoomSize.step { break }
            (looked, parts) = (looked + part.looked, parts + [part])
            let upTo = part.next ?? part.until
            for app in part.apps {
                // An app whose payload cannot be made gets no pushes. The other apps do.
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

    /// The next part of a message's fan-out.
    private struct Part {
        let alert: ChatAlert
        let after: Int64
        let until: Int64
        /// The last member of this step. `nil` if no members remain after it.
        let next: Int64?
        let looked: Int
        let apps: [String]
        let isBulk: Bool

        init(_ row: PostgresRow) throws {
            (after, until) = (try row.int(0), try row.int(1))
            looked = Int(try row.int(2))
            next = try row.optionalInt(3)
            apps = row.optionalText(4).map(ChatPushes.apps) ?? []
            isBulk = try row.bool(5)
            alert = ChatAlert(of: try MessageRecord(row, from: 6))
        }
    }

    /// Selects the next members for the messages `$1`. These are up to `$2` members for the message `$5`, the first of
    /// the step, and up to `$3` for each other message. They follow `fanout_after`, up to the last one at the time of
    /// the message. Members who join later get no push.
    ///
    /// A room with more than `$4` members is bulk, so that other pushes overtake its pushes. The count includes members
    /// without a device: checking that would cost more with each member.
    static let partsSQL = """
        SELECT m.fanout_after, m.fanout_until, p.looked,
            CASE WHEN p.last < m.fanout_until AND p.looked = p.most THEN p.last END, p.apps,
            EXISTS (
                SELECT 1 FROM active_users u WHERE u.secret_code = m.secret_code ORDER BY u.member_id
                LIMIT 1 OFFSET $4::bigint),
            \(MessageRecord.columns("m."))
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

/// Chat pushes to queue for members of rooms.
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

    /// The apps, by their names in the queue.
    var apps: Set<String> { Set(currentApps) }

    /// Splits names that an SQL statement has joined with line feeds. A name of another program may contain one.
    static func apps(_ text: String) -> [String] {
        let names = text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false)
        return Set(names.map { String($0) }).sorted()
    }

    /// Adds the pushes of a message for an app's members with ids above `after` and up to `upTo`.
    /// - Parameter app: The app as stored with the members.
    /// - Throws: The error for the writer if the payload has no room for a single character.
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

    /// Queues all pushes with the transaction's next statement.
    func queueLater(_ transaction: PostgresTransaction) {
        if !messages.isEmpty { transaction.pipeline(Self.insertSQL, values) }
    }

    /// Queues all pushes.
    /// - Returns: The number of pushes of each message in `ids` that exists.
    func queue(for ids: [Int64], _ transaction: PostgresTransaction) throws -> [Int64: Int] {
        let rows = try transaction.rows(Self.countingSQL, values + [.ints(ids)])
        return try Dictionary(rows.map { (try $0.int(0), Int(try $0.int(1))) }, uniquingKeysWith: +)
    }

    private var values: [SQLValue] {
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
