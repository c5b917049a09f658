package import ChatDomain

/// The reports of the feedback service, in PostgreSQL.
package struct PostgresFeedbackStore: FeedbackStore {
    /// The number of reports that one transaction processes.
    private static let step = 500

    let database: PostgresDatabase

    init(database: PostgresDatabase) {
        self.database = database
    }

    package func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
        guard !reports.isEmpty else { return }
        let now = database.now()
        try await database.write(.upkeep) { transaction in
            transaction.pipeline(
                """
                INSERT INTO feedback (app, device_token, time_reported, time_received)
                SELECT $1::text, r.token, at(r.since), at($4::bigint)
                FROM unnest($2::text[], $3::bigint[]) AS r (token, since)
                """,
                [
                    .text(app.text), .texts(reports.map(\.token.description)),
                    .ints(reports.map(\.since.milliseconds)), .time(now),
                ])
        }
    }

    package func actOnFeedback() async throws(ChatError) -> FeedbackResult {
        var total = FeedbackResult()
        while true {
            let results = try await database.write(.upkeep) { transaction in
                try transaction.rows(Self.actSQL, [.int(Self.step)]).map { try $0.text(0) }
            }
            total.deactivated += results.count { $0 == "deactivated" }
            total.kept += results.count { $0 == "kept" }
            total.unknown += results.count { $0 == "unknown" }
            if results.count < Self.step { return total }
        }
    }

    /// Relays that process reports at the same time take different ones. The service counts in whole seconds, so a
    /// registration in the same second as the report is not newer.
    private static let actSQL = """
        WITH reports AS MATERIALIZED (
            SELECT feedback_id, app, device_token, time_reported FROM feedback
            WHERE result IS NULL ORDER BY feedback_id LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
        judged AS MATERIALIZED (
            SELECT f.feedback_id, f.time_reported, d.device_id, CASE WHEN d.device_id IS NULL THEN 'unknown'
                WHEN date_trunc('second', d.time_registered) <= f.time_reported THEN 'deactivated' ELSE 'kept' END AS result
            FROM reports f LEFT JOIN devices d ON d.device_token = f.device_token AND d.app = f.app),
        gone AS (
            UPDATE devices d SET time_deactivated = j.since, deactivated_reason = 'Feedback'
            FROM (SELECT device_id, min(time_reported) AS since FROM judged WHERE result = 'deactivated'
                GROUP BY device_id ORDER BY device_id) j
            WHERE d.device_id = j.device_id AND d.time_deactivated IS NULL
                AND date_trunc('second', d.time_registered) <= j.since)
        UPDATE feedback f SET result = j.result FROM judged j WHERE f.feedback_id = j.feedback_id RETURNING f.result
        """
}
