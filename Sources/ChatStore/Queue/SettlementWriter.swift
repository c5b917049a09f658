import ChatDomain
import ChatSQL
import GRDB

/// Records settlements in one transaction. All decisions have been made before; this type only applies them.
struct SettlementWriter {
    private let app: AppName
    private let now: Timestamp
    private let time: String
    private let db: Database
    /// Pushes that reached a final state, to be counted after the commit.
    private(set) var ended: [FinalStateCount] = []
    /// The changes to the counts of notifications, by final state.
    private var counts: [NotificationID: [PushState: Int]] = [:]

    init(app: AppName, now: Timestamp, _ db: Database) {
        self.app = app
        self.now = now
        self.time = now.sqlText
        self.db = db
    }

    mutating func write(_ settlement: Settlement) throws -> SettledPushes {
        let transition = settlement.transition
        var changed = try change(settlement, from: .pending)
        if changed < settlement.count, settlement.overrulesSilence {
            changed += try changeEnded(settlement, from: .sent)
        }
        if changed < settlement.count, case .sent = transition.result {
            // The push was cancelled after it was leased, but it was sent.
            changed += try changeEnded(settlement, from: .cancelled)
        }
        if changed > 0 {
            if let device = transition.device { try apply(device, to: settlement.pushIDs.lowerBound) }
            if transition.state != .pending {
                ended.append(
                    FinalStateCount(app: app, state: transition.state, reason: transition.reason, count: changed))
                count(changed, transition.state, settlement.notification)
            }
        }
        return SettledPushes(count: changed, address: try address(settlement, changed))
    }

    private mutating func changeEnded(_ settlement: Settlement, from state: PushState) throws -> Int {
        let changed = try change(settlement, from: state)
        if settlement.transition.state == .pending {
            try RawStatement(
                db, Self.beginRound, now.milliseconds, settlement.pushIDs.lowerBound, settlement.pushIDs.upperBound
            ).run()
        }
        #if PLANTED_FAULTS
        if PlantedFault.countedTwice.isPlanted { return changed }
        #endif
        count(-changed, state, settlement.notification)
        return changed
    }

    private static let beginRound = PushWithdrawal.beginRoundSQL(
        for: """
            SELECT chat_message FROM push_queue
            WHERE message_id BETWEEN ?2 AND ?3 AND state = 'pending' AND payload = '' AND chat_message IS NOT NULL
            """, now: "?1")

    private mutating func count(_ added: Int, _ state: PushState, _ notification: NotificationID?) {
        if let notification { counts[notification, default: [:]][state, default: 0] += added }
    }

    /// Adds to the counts of a push: attempts, unanswered, refused. Another program may have set them to any value.
    private static let addedCounts = ["attempts", "unanswered", "refused"]
        .map { "\($0) = \(bounded($0)) + ?" }.joined(separator: ", ")

    /// Sets the reason and its hint, if there is a new reason: reason, reason, hint.
    private static let newReason = "reason = coalesce(?, reason), hint = CASE WHEN ? IS NULL THEN hint ELSE ? END"

    private static func bounded(_ column: String) -> String { "min(max(\(column), 0), \(RawStatement.mostCounted))" }

    /// - Returns: The number of pushes in the range that had this state and were changed.
    private func change(_ settlement: Settlement, from state: PushState) throws -> Int {
        let (first, last) = (settlement.pushIDs.lowerBound, settlement.pushIDs.upperBound)
        let added = settlement.transition.added
        let rows = "WHERE message_id BETWEEN ? AND ? AND state = '\(state.rawValue)'"
        // The attempt was counted when the push became sent.
        let attempts = Int64(state == .sent ? 0 : added.attempts)
        let (unanswered, refused) = (Int64(added.unanswered), Int64(added.refused))
        switch settlement.transition.result {
        case .sent:
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = 'sent', reason = NULL, hint = NULL, time_sent = ?, time_settled = ?,
                    attempts = \(Self.bounded("attempts")) + ? \(rows)
                """, time, time, attempts, first, last
            ).run()
        case .failed, .expired, .cancelled:
            var hint: String?
            if case .failed(_, let given) = settlement.transition.result { hint = given }
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = ?, reason = ?, hint = ?, time_sent = NULL, time_settled = ?,
                    \(Self.addedCounts), not_before = NULL \(rows)
                """, settlement.transition.state.rawValue, settlement.transition.reason, hint, time, attempts,
                unanswered, refused, first, last
            ).run()
        case .due where state != .sent:
            let reason = settlement.transition.reason
            try RawStatement(
                db, "UPDATE push_queue SET \(Self.newReason), \(Self.addedCounts) \(rows)", reason, reason,
                String?.none, attempts, unanswered, refused, first, last
            ).run()
        case .waiting, .due:
            // The push needs a time, because the next process only scans ids above `queue_state.settled_to`, and pushes
            // with a time. If a silence was taken for acceptance, the attempt that it counted is taken back.
            var (dueAt, attempts, hint) = (now, Int64(added.attempts) - 1, String?.none)
            if case .waiting(let until, _, let given) = settlement.transition.result {
                (dueAt, attempts, hint) = (until, Int64(state == .sent ? 0 : added.attempts), given)
            }
            let reason = settlement.transition.reason
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = 'pending', \(Self.newReason),
                    not_before = ?, time_sent = NULL, time_settled = NULL, attempts = max(0, \(Self.bounded("attempts")) + ?),
                    unanswered = \(Self.bounded("unanswered")) + ?, refused = \(Self.bounded("refused")) + ? \(rows)
                """, reason, reason, hint, dueAt.milliseconds, attempts, unanswered, refused, first, last
            ).run()
        }
        return db.changesCount
    }

    private func apply(_ effect: Transition.Device, to pushID: Int64) throws {
        // Matched by the device id as well: the app may have had another name when the device registered.
        let isItsDevice = """
            device_id IN (
                SELECT d.device_id FROM push_queue q JOIN devices d ON d.device_token = q.device_token
                WHERE q.message_id = ? AND (d.app = q.app OR d.device_id = q.device))
            """
        switch effect {
        case .deactivate(let since, let reason):
            try db.run(
                """
                UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                WHERE time_deactivated IS NULL AND time_registered <= ? AND \(isItsDevice)
                """, [since.sqlText, reason, since.sqlText, pushID])
        case .countRefusal(let reason, let limit):
            try db.run("UPDATE devices SET refusals = refusals + 1 WHERE \(isItsDevice)", [pushID])
            guard let limit else { return }
            try db.run(
                """
                UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                WHERE refusals >= ? AND time_deactivated IS NULL AND \(isItsDevice)
                """, [time, reason, limit, pushID])
        }
    }

    /// The address for the log, if a single push has an outcome other than sent.
    private func address(_ settlement: Settlement, _ changed: Int) throws -> String? {
        guard changed == 1, settlement.count == 1, settlement.transition.result != .sent else { return nil }
        let row = try RawStatement(
            db, "SELECT device_token FROM push_queue WHERE message_id = ?", settlement.pushIDs.lowerBound)
        return try row.step() ? row.text(0) : nil
    }

    /// Writes the sums of all settlements.
    mutating func finish(recognized: [(id: Int64, device: Int64)]) throws {
        for (notification, counts) in counts {
            func added(_ state: PushState) -> Int64 { Int64(counts[state] ?? 0) }
            try RawStatement(
                db,
                """
                UPDATE notification_counts SET sent = max(0, sent + ?), failed = failed + ?, expired = expired + ?,
                    cancelled = max(0, cancelled + ?) WHERE notification_id = ?
                """, added(.sent), added(.failed), added(.expired), added(.cancelled), notification
            ).run()
        }
        for (pushID, device) in recognized {
            try RawStatement(
                db, "UPDATE push_queue SET device = ? WHERE message_id = ? AND device IS NULL", device, pushID
            ).run()
        }
    }
}
