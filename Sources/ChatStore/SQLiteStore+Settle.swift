package import ChatDomain
import GRDB

extension SQLiteStore {
    package func settle(_ verdicts: [Verdict]) async throws(ChatError) -> [Settlement] {
        guard !verdicts.isEmpty else { return [] }
        let (settlements, endings) = try await writer.perform(.upkeep) { [self] db in
            let now = clock()
            var endings: [Ending] = []
            let settlements = try verdicts.map { try settle($0, now: now, &endings, db) }
            return (settlements, endings)
        }
        count(endings)
        if settlements.contains(where: { $0.state == .pending && $0.count > 0 }) { announceArrivals() }
        return settlements
    }

    /// Entries that are still `written` under the verdict's connection and identifiers.
    private static let named = "connection_epoch = ? AND state = 'written' AND identifier BETWEEN ? AND ?"
    /// How far back an answer can overrule silence. A gateway that is later than this is not waited for.
    private static let hindsight = Duration.seconds(3600)

    /// Brings entries that silence made `sent` back to `written`, for the verdict that follows.
    private func recall(_ verdict: Verdict, now: Timestamp, _ db: Database) throws {
        try db.cachedStatement(
            sql: """
                UPDATE push_queue SET state = 'written', time_sent = NULL, time_settled = NULL
                WHERE time_settled >= ? AND state = 'sent' AND connection_epoch = ? AND identifier BETWEEN ? AND ?
                """
        ).execute(arguments: [
            (now - Self.hindsight).sqlText, verdict.connection.number,
            Int64(verdict.identifiers.lowerBound), Int64(verdict.identifiers.upperBound),
        ])
    }

    private func settle(
        _ verdict: Verdict, now: Timestamp, _ endings: inout [Ending], _ db: Database
    ) throws -> Settlement {
        if verdict.overrulesSilence { try recall(verdict, now: now, db) }
        let key: StatementArguments = [
            verdict.connection.number, Int64(verdict.identifiers.lowerBound), Int64(verdict.identifiers.upperBound),
        ]
        func change(_ assignments: String, _ arguments: StatementArguments) throws -> [Row] {
            try Row.fetchAll(
                db.cachedStatement(
                    sql: """
                        UPDATE push_queue SET \(assignments) WHERE \(Self.named)
                        RETURNING message_id, device_token, state, app, reason
                        """), arguments: arguments + key)
        }
        /// The usual outcomes of many at once, which all become the same.
        func changeAll(_ assignments: String, _ arguments: StatementArguments, _ state: PushState) throws -> Settlement
        {
            let app = try String.fetchOne(
                db.cachedStatement(sql: "SELECT app FROM push_queue WHERE \(Self.named) LIMIT 1"), arguments: key)
            guard let app else { return Settlement(verdict: verdict, count: 0, entry: nil, token: nil, state: state) }
            try db.cachedStatement(sql: "UPDATE push_queue SET \(assignments) WHERE \(Self.named)")
                .execute(arguments: arguments + key)
            let count = db.changesCount
            endings.append(Ending(app: AppName(app), state: state, reason: nil, count: count))
            return Settlement(verdict: verdict, count: count, entry: nil, token: nil, state: state)
        }
        func settlement(_ rows: [Row], _ state: PushState) -> Settlement {
            for row in rows {
                guard let state = PushState(rawValue: row[2]) else { continue }
                endings.append(Ending(app: AppName(row[3]), state: state, reason: row[4]))
            }
            let only = verdict.identifiers.count == 1 ? rows.first : nil
            return Settlement(
                verdict: verdict, count: rows.count, entry: only?[0],
                token: only.flatMap { try? DeviceToken(parsing: $0[1]) },
                state: only.flatMap { PushState(rawValue: $0[2]) } ?? state)
        }
        func changeAlike(_ assignments: String, _ arguments: StatementArguments, _ state: PushState) throws
            -> Settlement
        {
            guard verdict.identifiers.count == 1 else { return try changeAll(assignments, arguments, state) }
            return settlement(try change(assignments, arguments), state)
        }
        let time = now.sqlText
        switch verdict.outcome {
        case .accepted:
            return try changeAlike(
                "state = 'sent', reason = NULL, time_sent = ?, time_settled = ?", [time, time], .sent)
        case .rejected(let reason, let hint):
            let rows = try change("state = 'failed', reason = ?, hint = ?, time_settled = ?", [reason, hint, time])
            let result = settlement(rows, .failed)
            if reason == Self.invalidToken, let row = rows.first {
                try noteRefusal(token: row[1], app: row[3], now: now, db)
            }
            return result
        case .unregistered(let since, let reason):
            try db.cachedStatement(
                sql: """
                    UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                    WHERE time_deactivated IS NULL AND time_registered <= ?
                        AND (device_token, app) IN (SELECT device_token, app FROM push_queue WHERE \(Self.named))
                    """
            ).execute(arguments: [since.sqlText, reason, since.sqlText] + key)
            return settlement(
                try change("state = 'failed', reason = ?, time_settled = ?", [reason, time]), .failed)
        case .notProcessed:
            // That was no attempt.
            return try changeAlike("state = 'pending', attempts = attempts - 1", [], .pending)
        case .unanswered(let reason):
            return settlement(
                try change(
                    Self.suspicion("unanswered", spared: LeaseScreening.alone, limit: LeaseScreening.alone + 5),
                    [reason, time, now.milliseconds]), .pending)
        case .notAuthorized(let reason):
            return settlement(
                try change(Self.suspicion("refused", spared: 0, limit: 10), [reason, time, now.milliseconds]), .pending)
        case .sentBack(let reason):
            return settlement(
                try change(Self.suspicion("refused", spared: 3, limit: 30), [reason, time, now.milliseconds]), .pending)
        case .retry(let reason):
            return try retry(verdict, reason: reason, key: key, now: now, &endings, db)
        }
    }

    /// Counts in a column what befell an entry, lets it wait for that, and fails it once it is proved that it is the entry
    /// and not the gateway: that it happened `limit` times, and since the attempt before this one another push of the app
    /// was taken. In an outage nothing is taken, and nothing fails.
    ///
    /// The first `spared` times it does not wait; then one second, doubling up to 512. Arguments: the reason, the time, and
    /// the milliseconds of now.
    private static func suspicion(_ column: String, spared: Int, limit: Int) -> String {
        let isProved = """
            \(column) + 1 >= \(limit) AND EXISTS (
                SELECT 1 FROM push_queue AS other WHERE other.state = 'sent' AND other.app = push_queue.app
                    AND other.time_settled >= strftime('%Y-%m-%d %H:%M:%f', push_queue.time_written,
                        '-' || (1 << min(max(push_queue.\(column) - \(spared + 1), 0), 9)) || ' seconds'))
            """
        return """
            \(column) = \(column) + 1, reason = ?,
            state = CASE WHEN \(isProved) THEN 'failed' ELSE 'pending' END,
            time_settled = CASE WHEN \(isProved) THEN ? END,
            not_before = CASE WHEN \(column) + 1 > \(spared) AND NOT (\(isProved))
                THEN ? + (1000 << min(\(column) - \(spared), 9)) END
            """
    }

    /// The binary protocol's status 8. (Not the HTTP/2 provider API's BadDeviceToken: that costs no connection, and may only
    /// mean that the token is one of the other environment.)
    private static let invalidToken = "InvalidToken"
    /// Refusals of a token since it was registered, after which the device is deactivated: each costs the app its
    /// connection, and anyone can join with a token that is none.
    private static let refusalLimit = 5

    /// Counts a refusal of a token, and deactivates its device when it is one too many.
    ///
    /// Only while the gateway accepts other pushes of the app: a certificate of the wrong environment makes every token
    /// look bad. Registering again starts anew.
    private func noteRefusal(token: String, app: String, now: Timestamp, _ db: Database) throws {
        try db.cachedStatement(sql: "UPDATE devices SET refusals = refusals + 1 WHERE device_token = ? AND app = ?")
            .execute(arguments: [token, app])
        try db.cachedStatement(
            sql: """
                UPDATE devices SET time_deactivated = ?, deactivated_reason = ?
                WHERE device_token = ? AND app = ? AND refusals >= ? AND time_deactivated IS NULL AND EXISTS (
                    SELECT 1 FROM push_queue WHERE time_settled >= ? AND state = 'sent' AND push_queue.app = devices.app)
                """
        ).execute(arguments: [
            now.sqlText, Self.invalidToken, token, app, Self.refusalLimit, (now - Self.hindsight).sqlText,
        ])
    }

    /// Each entry by the number of its own attempts.
    private func retry(
        _ verdict: Verdict, reason: String, key: StatementArguments, now: Timestamp, _ endings: inout [Ending],
        _ db: Database
    ) throws -> Settlement {
        let policy = settings().retry
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: "SELECT message_id, device_token, attempts - unanswered, app FROM push_queue WHERE \(Self.named)"),
            arguments: key)
        var state = PushState.pending
        for row in rows {
            // An attempt that nobody answered says nothing about the push.
            let delay = policy.delay(afterAttempts: row[2])
            state = delay == nil ? .failed : .pending
            endings.append(Ending(app: AppName(row[3]), state: state, reason: reason))
            try db.cachedStatement(
                sql: """
                    UPDATE push_queue SET state = ?, reason = ?, not_before = ?, time_settled = ? WHERE message_id = ?
                    """
            ).execute(arguments: [
                state.rawValue, reason, delay.map { (now + $0).milliseconds }, delay == nil ? now.sqlText : nil,
                row[0] as Int64,
            ])
        }
        return Settlement(
            verdict: verdict, count: rows.count, entry: rows.count == 1 ? rows[0][0] : nil,
            token: rows.count == 1 ? try? DeviceToken(parsing: rows[0][1]) : nil, state: state)
    }
}
