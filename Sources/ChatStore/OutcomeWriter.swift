import ChatDomain
import GRDB

/// Writes down what has become of pushes, in one transaction. What happens was decided before; here it is applied.
struct OutcomeWriter {
    private let app: AppName
    private let now: Timestamp
    private let time: String
    private let db: Database
    /// What came to an end; to be counted after the commit.
    private(set) var endings: [Ending] = []

    /// How many pushes of a notification came to which end.
    private struct Counts {
        var sent = 0
        var failed = 0
        var expired = 0
        var cancelled = 0
    }

    private var counts: [NotificationID: Counts] = [:]

    init(app: AppName, now: Timestamp, _ db: Database) {
        self.app = app
        self.now = now
        self.time = now.sqlText
        self.db = db
    }

    mutating func write(_ settlement: Settlement) throws -> SettledPushes {
        let transition = settlement.transition
        var changed = try change(settlement, from: "pending")
        if changed < settlement.count, settlement.overrulesSilence {
            let recalled = try change(settlement, from: "sent")
            changed += recalled
            if let notification = settlement.notification { counts[notification, default: Counts()].sent -= recalled }
        }
        if changed < settlement.count, case .sent = transition.result {
            // Taken back meanwhile: what was sent, was sent.
            let late = try change(settlement, from: "cancelled")
            changed += late
            if let notification = settlement.notification { counts[notification, default: Counts()].cancelled -= late }
        }
        if changed > 0, let device = transition.device { try apply(device, to: settlement.entries.lowerBound) }
        note(transition, changed, settlement.notification)
        return SettledPushes(count: changed, address: try address(settlement, changed))
    }

    private mutating func note(_ transition: Transition, _ count: Int, _ notification: NotificationID?) {
        guard count > 0, transition.state != .pending else { return }
        endings.append(Ending(app: app, state: transition.state, reason: transition.reason, count: count))
        guard let notification else { return }
        switch transition.state {
        case .sent: counts[notification, default: Counts()].sent += count
        case .failed: counts[notification, default: Counts()].failed += count
        case .expired: counts[notification, default: Counts()].expired += count
        case .cancelled: counts[notification, default: Counts()].cancelled += count
        case .pending: break
        }
    }

    /// A column that another program may have set to anything.
    private static func counted(_ column: String) -> String { "min(max(\(column), 0), \(QueueReader.mostCounted))" }

    /// - Returns: how many rows were in that state and are changed.
    private func change(_ settlement: Settlement, from state: String) throws -> Int {
        let (first, last) = (settlement.entries.lowerBound, settlement.entries.upperBound)
        let added = settlement.transition.added
        let rows = "WHERE message_id BETWEEN ? AND ? AND state = '\(state)'"
        // Its attempt was counted when it became sent.
        let attempts = Int64(state == "sent" ? 0 : added.attempts)
        switch settlement.transition.result {
        case .sent:
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = 'sent', reason = NULL, time_sent = ?, time_settled = ?,
                    attempts = \(Self.counted("attempts")) + ? \(rows)
                """, time, time, attempts, first, last
            ).run()
        case .failed, .expired, .cancelled:
            var hint: String?
            if case .failed(_, let given) = settlement.transition.result { hint = given }
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = ?, reason = ?, hint = ?, time_sent = NULL, time_settled = ?,
                    attempts = \(Self.counted("attempts")) + ?, unanswered = \(Self.counted("unanswered")) + ?, refused = \(Self.counted("refused")) + ?, not_before = NULL \(rows)
                """, settlement.transition.state.rawValue, settlement.transition.reason, hint, time, attempts,
                Int64(added.unanswered), Int64(added.refused), first, last
            ).run()
        case .waiting(let until, let reason):
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = 'pending', reason = ?, not_before = ?, time_sent = NULL,
                    time_settled = NULL, attempts = \(Self.counted("attempts")) + ?, unanswered = \(Self.counted("unanswered")) + ?, refused = \(Self.counted("refused")) + ? \(rows)
                """, reason, until.milliseconds, attempts, Int64(added.unanswered), Int64(added.refused), first, last
            ).run()
        case .due(_, let reason) where state == "sent":
            // It may lie below what the next process looks at: it is found by its time, which has come. And silence was no
            // attempt.
            try RawStatement(
                db,
                """
                UPDATE push_queue SET state = 'pending', reason = coalesce(?, reason), not_before = ?, time_sent = NULL,
                    time_settled = NULL, attempts = max(0, \(Self.counted("attempts")) - 1 + ?), unanswered = \(Self.counted("unanswered")) + ?,
                    refused = \(Self.counted("refused")) + ? \(rows)
                """, reason, now.milliseconds, Int64(added.attempts), Int64(added.unanswered), Int64(added.refused),
                first, last
            ).run()
        case .due(_, let reason):
            try RawStatement(
                db,
                """
                UPDATE push_queue SET reason = coalesce(?, reason), attempts = \(Self.counted("attempts")) + ?,
                    unanswered = \(Self.counted("unanswered")) + ?, refused = \(Self.counted("refused")) + ? \(rows)
                """, reason, attempts, Int64(added.unanswered), Int64(added.refused), first, last
            ).run()
        }
        return db.changesCount
    }

    private func apply(_ effect: Transition.Device, to entry: Int64) throws {
        let isItsDevice = "(device_token, app) IN (SELECT device_token, app FROM push_queue WHERE message_id = ?)"
        switch effect {
        case .deactivate(let since, let reason):
            try db.cachedStatement(
                sql: """
                    UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                    WHERE time_deactivated IS NULL AND time_registered <= ? AND \(isItsDevice)
                    """
            ).execute(arguments: [since.sqlText, reason, since.sqlText, entry])
        case .countRefusal(let reason, let limit):
            try db.cachedStatement(sql: "UPDATE devices SET refusals = refusals + 1 WHERE \(isItsDevice)")
                .execute(arguments: [entry])
            guard let limit else { return }
            try db.cachedStatement(
                sql: """
                    UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                    WHERE refusals >= ? AND time_deactivated IS NULL AND \(isItsDevice)
                    """
            ).execute(arguments: [time, reason, limit, entry])
        }
    }

    /// For the log, where a single push has more to tell than that it was sent.
    private func address(_ settlement: Settlement, _ changed: Int) throws -> String? {
        guard changed == 1, settlement.count == 1, settlement.transition.result != .sent else { return nil }
        let row = try RawStatement(
            db, "SELECT device_token FROM push_queue WHERE message_id = ?", settlement.entries.lowerBound)
        return try row.step() ? row.text(0) : nil
    }

    /// What is written once for all of them.
    mutating func finish(recognized: [(entry: Int64, device: Int64)]) throws {
        for (notification, count) in counts {
            try RawStatement(
                db,
                """
                UPDATE notification_counts SET sent = max(0, sent + ?), failed = failed + ?, expired = expired + ?,
                    cancelled = max(0, cancelled + ?) WHERE notification_id = ?
                """, Int64(count.sent), Int64(count.failed), Int64(count.expired), Int64(count.cancelled), notification
            ).run()
        }
        for (entry, device) in recognized {
            try RawStatement(
                db, "UPDATE push_queue SET device = ? WHERE message_id = ? AND device IS NULL", device, entry
            ).run()
        }
    }
}
