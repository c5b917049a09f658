import ChatDomain
import ChatSQL

/// Records settlements in one transaction. All decisions have been made before; this type only applies them, with one
/// statement for all pushes with the same transition. Changes only pushes that this start has leased, or was the last
/// to lease.
struct SettlementWriter {
    /// The maximum value of a count.
    static let mostCounted: Int64 = 1_000_000

    private let app: AppName
    private let start: Int64
    private let now: Timestamp
    private let transaction: PostgresTransaction
    /// Pushes that reached a final state, to be counted after the commit.
    private(set) var ended: [FinalStateCount] = []
    /// The changes to the counts of notifications, by final state.
    private var counts: [NotificationID: [PushState: Int]] = [:]

    init(app: AppName, start: Int64, now: Timestamp, _ transaction: PostgresTransaction) {
        self.app = app
        self.start = start
        self.now = now
        self.transaction = transaction
    }

    mutating func write(_ settlements: [Settlement]) throws -> [SettledPushes] {
        var settled: [SettledPushes] = []
        var rest = settlements[...]
        while !rest.isEmpty {
            // Settlements of the same push must be written one after the other.
            var seen = IDRanges()
            let group = rest.prefix { settlement in
                defer { seen.insert(settlement.pushIDs) }
                return seen.intersection(settlement.pushIDs).isEmpty
            }
            settled += try writeGroup(Array(group))
            rest = rest.dropFirst(group.count)
        }
        Self.add(counts, transaction)
        return settled
    }

    /// Writes settlements that have no push in common.
    private mutating func writeGroup(_ group: [Settlement]) throws -> [SettledPushes] {
        var changed = [[ChangedRow]](repeating: [], count: group.count)
        for state in [PushState.pending, .sent, .cancelled] {
            let concerned = group.indices.filter { index in
                guard changed[index].count < group[index].count else { return false }
                switch state {
                case .pending: return true
                case .sent: return group[index].overrulesSilence
                // The push was cancelled after it was leased, but it was sent.
                default: return group[index].transition.result == .sent
                }
            }
            for (transition, indices) in Dictionary(grouping: concerned, by: { group[$0].transition }) {
                let rows = try change(indices.map { group[$0].pushIDs }, to: transition, from: state)
                if state == .sent, transition.state == .pending { beginRounds(of: rows.compactMap(\.changed)) }
                for index in indices {
                    let pushIDs = group[index].pushIDs
                    let start = (0..<rows.count).partitioningIndex { rows[$0].id >= pushIDs.lowerBound }
                    let found = rows[start...].prefix { $0.id <= pushIDs.upperBound }
                    changed[index] += found
                    if state != .pending { count(-found.count, state, group[index].notification) }
                }
            }
        }
        for (settlement, rows) in zip(group, changed) where !rows.isEmpty && settlement.transition.state != .pending {
            let transition = settlement.transition
            ended.append(
                FinalStateCount(app: app, state: transition.state, reason: transition.reason, count: rows.count))
            count(rows.count, transition.state, settlement.notification)
        }
        applyToDevices(
            zip(group, changed).compactMap { settlement, rows in
                settlement.transition.device.flatMap { effect in rows.first.map { (effect, $0) } }
            })
        return zip(group, changed).map { settlement, rows in
            // The address for the log, if a single push has an outcome other than sent.
            let isTold = settlement.count == 1 && settlement.transition.result != .sent
            return SettledPushes(count: rows.count, address: isTold ? rows.first?.token : nil)
        }
    }

    private mutating func count(_ added: Int, _ state: PushState, _ notification: NotificationID?) {
        if let notification { counts[notification, default: [:]][state, default: 0] += added }
    }

    // MARK: - Pushes

    private struct ChangedRow {
        let id: Int64
        let token: String
        let app: String
        let device: Int64?
        /// The message of a push whose text a change has removed. Only read if the push was recorded as sent.
        let changed: MessageID?
    }

    private func beginRounds(of messages: [MessageID]) {
        guard !messages.isEmpty else { return }
        transaction.pipeline(
            PushWithdrawal.beginRoundSQL(for: "SELECT unnest($2::bigint[])", now: "$1::bigint"),
            [.int(now.milliseconds), .ints(Set(messages).sorted())])
    }

    /// Adds to the counts of a push, which another program may have set to any value.
    private static let addedCounts = [("attempts", 3), ("unanswered", 4), ("refused", 5)].map { column, place in
        "\(column) = greatest(0, least(greatest(\(column), 0), \(mostCounted)) + $\(place)::bigint)"
    }.joined(separator: ", ")

    /// Selects rows by push id and joins nothing, so that the server has no bad plan to choose, whatever it believes
    /// about the table. A settled push moves to its day, and one that is due again moves to the due rows.
    static func changeSQL(to state: PushState, from earlier: PushState) -> String {
        let changes =
            switch state {
            case .pending:
                """
                reason = coalesce($6::text, reason), not_before = coalesce($7::bigint, not_before), time_sent = NULL,
                time_settled = NULL, lease_start = NULL, settled_on = NULL,
                hint = CASE WHEN $6::text IS NULL THEN hint ELSE $8::text END
                """
            case .sent:
                """
                reason = $6::text, time_sent = at($7::bigint), time_settled = at($7::bigint), settled_on = $8::date,
                hint = NULL
                """
            case .failed, .expired, .cancelled:
                """
                reason = $6::text, time_settled = at($7::bigint), settled_on = $8::date, hint = $9::text,
                not_before = NULL, time_sent = NULL
                """
            }
        return """
            UPDATE push_queue SET state = '\(state.rawValue)', \(addedCounts), \(changes)
            WHERE message_id = ANY ($1::bigint[]) AND lease_start = $2::bigint AND state = '\(earlier.rawValue)'
                \(earlier == .pending ? "AND settled_on IS NULL" : "")
            RETURNING message_id, \(state == .sent ? "'', '', NULL" : "device_token, app, device"),
                \(earlier == .sent ? "CASE WHEN payload = '' THEN chat_message END" : "NULL::bigint")
            """
    }

    /// - Returns: The pushes that had this state and were changed, by push id.
    private func change(
        _ pushIDs: [ClosedRange<Int64>], to transition: Transition, from state: PushState
    ) throws -> [ChangedRow] {
        let added = transition.added
        // The attempt was counted when the push became sent.
        var attempts = state == .sent ? 0 : added.attempts
        let reason = SQLValue.optional(transition.result == .sent ? nil : transition.reason)
        let rest: [SQLValue]
        switch transition.result {
        case .sent: rest = [.time(now), .text(now.day)]
        case .failed(_, let hint): rest = [.time(now), .text(now.day), .optional(hint)]
        case .expired, .cancelled: rest = [.time(now), .text(now.day), .null]
        case .waiting(let until, _, let hint): rest = [.time(until), .optional(hint)]
        case .due:
            // The silence that was taken for acceptance counted an attempt. Take it back.
            if state == .sent { attempts = added.attempts - 1 }
            rest = [.null, .null]
        }
        return try transaction.rows(
            Self.changeSQL(to: transition.state, from: state),
            [
                .ints(Array(pushIDs.joined())), .int(start), .int(attempts), .int(added.unanswered),
                .int(added.refused),
                reason,
            ] + rest
        ).map { row in
            ChangedRow(
                id: try row.int(0), token: try row.text(1), app: try row.text(2), device: try row.optionalInt(3),
                changed: try row.optionalInt(4))
        }
        .sorted { $0.id < $1.id }
    }

    // MARK: - Devices and notifications

    private func applyToDevices(_ effects: [(effect: Transition.Device, row: ChangedRow)]) {
        var gone: [(row: ChangedRow, since: Timestamp, reason: String)] = []
        var refused: [(row: ChangedRow, limit: Int?, reason: String)] = []
        for (effect, row) in effects {
            switch effect {
            case .deactivate(let since, let reason): gone.append((row, since, reason))
            case .countRefusal(let reason, let limit): refused.append((row, limit, reason))
            }
        }
        func of(_ rows: [ChangedRow]) -> [SQLValue] {
            [.texts(rows.map(\.token)), .texts(rows.map(\.app)), .optionalInts(rows.map(\.device))]
        }
        if !gone.isEmpty {
            transaction.pipeline(
                """
                UPDATE devices d SET time_deactivated = at(e.since), deactivated_reason = e.reason
                FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
                    AS e (token, app, device, since, reason)
                WHERE \(Self.isItsDevice) AND d.time_deactivated IS NULL AND d.time_registered <= at(e.since)
                """, of(gone.map(\.row)) + [.ints(gone.map(\.since.milliseconds)), .texts(gone.map(\.reason))])
        }
        if !refused.isEmpty {
            transaction.pipeline(
                """
                WITH refused AS (
                    SELECT d.device_id, count(*) AS times, min(e.most) AS most, min(e.reason) AS reason
                    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
                        AS e (token, app, device, most, reason), devices d
                    WHERE \(Self.isItsDevice) GROUP BY d.device_id)
                UPDATE devices d SET refusals = d.refusals + r.times,
                    time_deactivated = CASE WHEN d.time_deactivated IS NULL AND d.refusals + r.times >= r.most
                        THEN at($6::bigint) ELSE d.time_deactivated END,
                    deactivated_reason = CASE WHEN d.time_deactivated IS NULL AND d.refusals + r.times >= r.most
                        THEN r.reason ELSE d.deactivated_reason END
                FROM refused r WHERE d.device_id = r.device_id
                """,
                of(refused.map(\.row)) + [
                    .optionalInts(refused.map { $0.limit.map(Int64.init) }), .texts(refused.map(\.reason)), .time(now),
                ])
        }
    }

    /// Matched by the device id as well: the app may have had another name when the device registered.
    private static let isItsDevice = "d.device_token = e.token AND (d.app = e.app OR d.device_id = e.device)"

    /// Adds to the counts of notifications, by final state. Must be the last statement of a transaction, because other
    /// transactions may wait for these rows until the commit.
    static func add(_ counts: [NotificationID: [PushState: Int]], _ transaction: PostgresTransaction) {
        let counts = counts.sorted { $0.key < $1.key }
        guard !counts.isEmpty else { return }
        func added(_ state: PushState) -> SQLValue { .ints(counts.map { Int64($0.value[state] ?? 0) }) }
        transaction.pipeline(
            """
            WITH locked AS (
                SELECT notification_id FROM notification_counts WHERE notification_id = ANY ($1::bigint[])
                ORDER BY notification_id FOR UPDATE)
            UPDATE notification_counts c SET sent = greatest(0, c.sent + a.sent),
                failed = greatest(0, c.failed + a.failed), expired = greatest(0, c.expired + a.expired),
                cancelled = greatest(0, c.cancelled + a.cancelled)
            FROM locked l JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                AS a (id, sent, failed, expired, cancelled) ON a.id = l.notification_id
            WHERE c.notification_id = l.notification_id
            """, [.ints(counts.map(\.key)), added(.sent), added(.failed), added(.expired), added(.cancelled)])
    }
}
