#if PostgreSQL
import ChatDomain

/// Writes settlements down, in one transaction. What happens was decided before; here it is applied, to all rows of one kind in
/// one statement. Only rows change that this start has leased, or had last.
struct SettlementWriter {
    /// As often as anything is counted.
    static let mostCounted: Int64 = 1_000_000

    private let app: AppName
    private let start: Int64
    private let now: Timestamp
    private let transaction: PostgresTransaction
    /// What reached a final state; to be counted after the commit.
    private(set) var ended: [FinalStateCount] = []
    /// What is added to a notification's counts, by final state.
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
            // Where one says something about a row that another has said something about, they are written one after the other.
            var seen = IDRanges()
            let group = rest.prefix { settlement in
                defer { seen.insert(settlement.entries) }
                return seen.intersection(settlement.entries).isEmpty
            }
            settled += try writeGroup(Array(group))
            rest = rest.dropFirst(group.count)
        }
        try writeCounts()
        return settled
    }

    /// Settlements that have no row in common.
    private mutating func writeGroup(_ group: [Settlement]) throws -> [SettledPushes] {
        var changed = [Int](repeating: 0, count: group.count)
        var addresses = [String?](repeating: nil, count: group.count)
        for state in [PushState.pending, .sent, .cancelled] {
            let concerned = group.indices.filter { index in
                guard changed[index] < group[index].count else { return false }
                switch state {
                case .pending: return true
                case .sent: return group[index].overrulesSilence
                // Taken back meanwhile: what was sent, was sent.
                default: return group[index].transition.result == .sent
                }
            }
            guard !concerned.isEmpty else { continue }
            for row in try change(concerned.map { group[$0] }, from: state) {
                let index = concerned[row.index]
                changed[index] += row.count
                addresses[index] = row.address
                if state != .pending { count(-row.count, state, group[index].notification) }
            }
        }
        for (settlement, changed) in zip(group, changed) where changed > 0 {
            let transition = settlement.transition
            guard transition.state != .pending else { continue }
            ended.append(
                FinalStateCount(app: app, state: transition.state, reason: transition.reason, count: changed))
            count(changed, transition.state, settlement.notification)
        }
        applyToDevices(zip(group, changed).filter { $0.1 > 0 }.map(\.0))
        return group.indices.map { index in
            // For the log, where a single push has more to tell than that it was sent.
            let isTold = changed[index] == 1 && group[index].count == 1 && group[index].transition.result != .sent
            return SettledPushes(count: changed[index], address: isTold ? addresses[index] : nil)
        }
    }

    private mutating func count(_ added: Int, _ state: PushState, _ notification: NotificationID?) {
        if let notification { counts[notification, default: [:]][state, default: 0] += added }
    }

    // MARK: - Rows

    /// How a settlement adds to the counts of a row, which another program may have set to anything.
    private static let addedCounts = ["attempts", "unanswered", "refused"].map { column in
        "\(column) = greatest(0, least(greatest(q.\(column), 0), \(mostCounted)) + s.\(column))"
    }.joined(separator: ", ")

    /// `$1` to `$9` say what becomes of which rows; `$10` is the start, `$11` the time, `$12` its day. A row that is settled moves
    /// to its day, one that is due again to where it is due.
    static func changeSQL(from state: PushState) -> String {
        """
        WITH changed AS (
            UPDATE push_queue q SET state = s.state, \(addedCounts),
                reason = CASE s.state WHEN 'pending' THEN coalesce(s.reason, q.reason) ELSE s.reason END,
                hint = CASE WHEN s.state IN ('pending', 'sent') THEN q.hint ELSE s.hint END,
                not_before = CASE s.state WHEN 'pending' THEN coalesce(s.not_before, q.not_before)
                    WHEN 'sent' THEN q.not_before END,
                time_sent = CASE s.state WHEN 'sent' THEN at($11::bigint) END,
                time_settled = CASE WHEN s.state <> 'pending' THEN at($11::bigint) END,
                lease_start = CASE WHEN s.state <> 'pending' THEN q.lease_start END,
                settled_on = CASE WHEN s.state <> 'pending' THEN $12::date END
            FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                $8::bigint[], $9::bigint[]) WITH ORDINALITY
                AS s (first, last, state, reason, hint, not_before, attempts, unanswered, refused, place)
            WHERE q.message_id BETWEEN s.first AND s.last AND q.state = '\(state.rawValue)'
                AND q.lease_start = $10::bigint \(state == .pending ? "AND q.settled_on IS NULL" : "")
            RETURNING s.place, q.device_token)
        SELECT place, count(*), min(device_token) FROM changed GROUP BY place
        """
    }

    /// - Returns: how many rows of each settlement were in that state and are changed, and an address of them.
    private func change(
        _ settlements: [Settlement], from state: PushState
    ) throws -> [(index: Int, count: Int, address: String?)] {
        let changes = settlements.map { change($0, from: state) }
        let rows = try transaction.rows(
            Self.changeSQL(from: state),
            [
                .ints(settlements.map(\.entries.lowerBound)), .ints(settlements.map(\.entries.upperBound)),
                .texts(settlements.map(\.transition.state.rawValue)),
                .optionalTexts(settlements.map { $0.transition.result == .sent ? nil : $0.transition.reason }),
                .optionalTexts(changes.map(\.hint)), .optionalInts(changes.map(\.notBefore)),
                .ints(changes.map(\.attempts)), .ints(settlements.map { Int64($0.transition.added.unanswered) }),
                .ints(settlements.map { Int64($0.transition.added.refused) }), .int(start), .time(now),
                .text(now.day),
            ])
        return try rows.map { (Int(try $0.int(0)) - 1, Int(try $0.int(1)), $0.optionalText(2)) }
    }

    /// What differs with the state that a row is found in.
    private func change(
        _ settlement: Settlement, from state: PushState
    ) -> (hint: String?, notBefore: Int64?, attempts: Int64) {
        let attempts = settlement.transition.added.attempts
        switch settlement.transition.result {
        case .failed(_, let hint): return (hint, nil, Int64(state == .sent ? 0 : attempts))
        // Its attempt was counted when it became sent.
        case .sent, .expired, .cancelled: return (nil, nil, Int64(state == .sent ? 0 : attempts))
        case .waiting(let until, _): return (nil, until.milliseconds, Int64(state == .sent ? 0 : attempts))
        // A push that was taken as sent after a silence gets back the attempt that this counted.
        case .due: return (nil, nil, Int64(state == .sent ? attempts - 1 : attempts))
        }
    }

    // MARK: - What it means beyond the rows

    /// Also by its number: the app may have had another name when the device registered.
    private static let isItsDevice = """
        q.message_id = e.entry AND (q.settled_on IS NULL OR q.settled_on = $2::date)
        AND d.device_token = q.device_token AND (d.app = q.app OR d.device_id = q.device)
        """

    private func applyToDevices(_ settlements: [Settlement]) {
        var gone: [(entry: Int64, since: Timestamp, reason: String)] = []
        var refused: [(entry: Int64, limit: Int?, reason: String)] = []
        for settlement in settlements {
            switch settlement.transition.device {
            case .deactivate(let since, let reason): gone.append((settlement.entries.lowerBound, since, reason))
            case .countRefusal(let reason, let limit): refused.append((settlement.entries.lowerBound, limit, reason))
            case nil: break
            }
        }
        if !gone.isEmpty {
            transaction.later(
                """
                UPDATE devices d SET time_deactivated = at(e.since), deactivated_reason = e.reason
                FROM unnest($1::bigint[], $3::bigint[], $4::text[]) AS e (entry, since, reason), push_queue q
                WHERE \(Self.isItsDevice) AND d.time_deactivated IS NULL AND d.time_registered <= at(e.since)
                """,
                [
                    .ints(gone.map(\.entry)), .text(now.day), .ints(gone.map(\.since.milliseconds)),
                    .texts(gone.map(\.reason)),
                ])
        }
        if !refused.isEmpty {
            transaction.later(
                """
                WITH refused AS (
                    SELECT d.device_id, count(*) AS times, min(e.most) AS most, min(e.reason) AS reason
                    FROM unnest($1::bigint[], $3::bigint[], $4::text[]) AS e (entry, most, reason), push_queue q, devices d
                    WHERE \(Self.isItsDevice) GROUP BY d.device_id ORDER BY d.device_id)
                UPDATE devices d SET refusals = d.refusals + r.times,
                    time_deactivated = CASE WHEN d.time_deactivated IS NULL AND d.refusals + r.times >= r.most
                        THEN at($5::bigint) ELSE d.time_deactivated END,
                    deactivated_reason = CASE WHEN d.time_deactivated IS NULL AND d.refusals + r.times >= r.most
                        THEN r.reason ELSE d.deactivated_reason END
                FROM refused r WHERE d.device_id = r.device_id
                """,
                [
                    .ints(refused.map(\.entry)), .text(now.day), .optionalInts(refused.map { $0.limit.map(Int64.init) }),
                    .texts(refused.map(\.reason)), .time(now),
                ])
        }
    }

    /// Last, because others may wait for these rows until the commit.
    private func writeCounts() throws {
        let counts = counts.sorted { $0.key < $1.key }
        guard !counts.isEmpty else { return }
        func added(_ state: PushState) -> PostgresValue { .ints(counts.map { Int64($0.value[state] ?? 0) }) }
        transaction.later(
            """
            WITH locked AS (
                SELECT notification_id FROM notification_counts WHERE notification_id = ANY ($1::bigint[])
                ORDER BY notification_id FOR UPDATE)
            UPDATE notification_counts c SET sent = greatest(0, c.sent + a.sent), failed = c.failed + a.failed,
                expired = c.expired + a.expired, cancelled = greatest(0, c.cancelled + a.cancelled)
            FROM locked l JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                AS a (id, sent, failed, expired, cancelled) ON a.id = l.notification_id
            WHERE c.notification_id = l.notification_id
            """, [.ints(counts.map(\.key)), added(.sent), added(.failed), added(.expired), added(.cancelled)])
    }
}
#endif
