import ChatDomain
import ChatSQL

/// Records the messages that members have fetched and their phones have shown, and the times at which they last wrote.
final class MemberActivity: Sendable {
    /// The number of members that one transaction records.
    private static let step = 500

    private let database: PostgresDatabase
    private let keepsUsage: @Sendable () -> Bool
    private let notes = PendingMemberUpdates()

    /// - Parameter keepsUsage: Returns whether to record devices as seen.
    init(database: PostgresDatabase, keepsUsage: @escaping @Sendable () -> Bool) {
        self.database = database
        self.keepsUsage = keepsUsage
    }

    /// Notes that a member has fetched a message and all earlier ones.
    func fetched(_ message: MessageID, by member: MemberID) {
        notes.fetched(message, by: member, at: database.now())
    }

    /// Notes that a member's phone has shown a message.
    func shown(_ message: MessageID, to member: MemberID) {
        notes.shown(message, to: member, at: database.now())
    }

    /// - Parameter address: The address that the request came from. `nil` if unknown.
    func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        notes.wrote(member, at: time, from: address)
    }

    /// The latest fetch of a member that is not recorded yet. Needed by a transaction that deletes the member's row. A
    /// fetch from another relay is lost if the member leaves within the seconds before that relay records it.
    func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        notes.pendingFetch(of: member)
    }

    /// Writes the pending updates and announces them. If that fails, they stay for the next call.
    /// - Returns: The rooms in which members have fetched messages.
    @discardableResult
    func flush() async throws(ChatError) -> Set<SecretCode> {
        try await notes.flush(step: Self.step) { [database, keepsUsage] notes throws(ChatError) in
            let keepsUsage = keepsUsage()
            return try await database.write(.upkeep, isRepeatable: true) { transaction in
                let rows = try transaction.rows(Self.sql, Self.values(notes))
                let times = Dictionary(notes.map { ($0.member.text, $0.note.seenAt) }) { first, _ in first }
                var (rooms, seen) = (Set<SecretCode>(), [SeenDevice]())
                for row in rows {
                    if try row.bool(4) { rooms.insert(SecretCode(stored: try row.text(1))) }
                    if let token = row.optionalText(3), let time = times[try row.text(0)] ?? nil {
                        seen.append(
                            SeenDevice(token: token, app: try row.text(2), client: ClientInfo(), time: time))
                    }
                }
                if keepsUsage, !seen.isEmpty { try DeviceUsage.saw(seen, transaction) }
                transaction.announcement.read.formUnion(rooms.map(\.text))
                return rooms
            }
        }
    }

    private static func values(_ notes: [(member: MemberID, note: PendingMemberUpdates.Note)]) -> [SQLValue] {
        [
            .texts(notes.map(\.member.text)), .optionalInts(notes.map { $0.note.fetch?.message }),
            .optionalInts(notes.map { $0.note.fetch?.time.milliseconds }),
            .optionalInts(notes.map { $0.note.writing?.time.milliseconds }),
            .optionalTexts(notes.map { $0.note.writing?.address }),
            .optionalInts(notes.map { $0.note.shown?.message }),
        ]
    }

    /// Updates the members' rows that exist, and never overwrites newer values. A member may have left in the meantime,
    /// or may have rejoined, with another row in another room. Also returns rows that it does not change.
    static let sql = """
        WITH known AS (
            SELECT u.member_id, u.udid, u.secret_code, u.app, nullif(u.device_token, '0') AS token,
                n.message > greatest(u.fetched_to, u.history_from) AS has_fetched, n.message, at(n.fetched) AS fetched,
                u.time_joined <= at(n.wrote)
                    AND (u.time_last_message IS NULL OR u.time_last_message < at(n.wrote)) AS has_written,
                at(n.wrote) AS wrote, n.address,
                n.shown > greatest(u.shown_to, u.history_from) AS has_shown, n.shown
            FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
                AS n (udid, message, fetched, wrote, address, shown)
            JOIN active_users u ON u.udid = n.udid
            ORDER BY u.member_id FOR NO KEY UPDATE OF u),
        changed AS (
            UPDATE active_users u SET
                fetched_to = CASE WHEN k.has_fetched THEN k.message ELSE u.fetched_to END,
                time_fetched = CASE WHEN k.has_fetched THEN k.fetched ELSE u.time_fetched END,
                shown_to = CASE WHEN k.has_shown THEN k.shown ELSE u.shown_to END,
                time_last_message = CASE WHEN k.has_written THEN k.wrote ELSE u.time_last_message END,
                ip_address = CASE WHEN k.has_written AND u.time_updated <= k.wrote
                    THEN coalesce(k.address, u.ip_address) ELSE u.ip_address END
            FROM known k WHERE u.member_id = k.member_id AND (k.has_fetched OR k.has_shown OR k.has_written))
        SELECT udid, secret_code, app, token, coalesce(has_fetched, false) FROM known
        """
}
