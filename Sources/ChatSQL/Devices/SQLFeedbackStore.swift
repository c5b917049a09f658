package import ChatDomain

/// The reports of the feedback service.
package struct SQLFeedbackStore<Database: SQLDatabase>: FeedbackStore {
    /// The number of reports that one transaction processes.
    private static var step: Int { 500 }

    private let database: Database

    package init(database: Database) {
        self.database = database
    }

    /// The recorded time is never in the future, so that a device that registers from now on stays active.
    package func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
        guard !reports.isEmpty else { return }
        let now = database.now()
        try await database.write(as: .upkeepOnce) { transaction in
            for report in reports {
                try transaction.pipeline(
                    """
                    INSERT INTO feedback (app, device_token, time_reported, time_received)
                    VALUES ($1, $2, at($3), at($4))
                    """, [.text(app.text), .text(report.token.description), .time(min(report.since, now)), .time(now)])
            }
        }
    }

    package func actOnFeedback() async throws(ChatError) -> FeedbackResult {
        var total = FeedbackResult()
        while true {
            let results = try await database.write(as: .upkeepOnce) { transaction in try Self.actOnSome(transaction) }
            total.deactivated += results.count { $0 == "deactivated" }
            total.kept += results.count { $0 == "kept" }
            total.unknown += results.count { $0 == "unknown" }
            if results.count < Self.step { return total }
        }
    }

    /// Relays that process reports at the same time take different ones. The service counts in whole seconds, so a
    /// registration in the same second as the report is not newer.
    /// - Returns: The results, one for each report.
    private static func actOnSome(_ transaction: Database.Transaction) throws -> [String] {
        let dialect = transaction.dialect
        let registered = dialect.second("d.time_registered")
        let reports = try transaction.rows(
            """
            SELECT f.feedback_id, d.device_id, CASE WHEN d.device_id IS NULL THEN 'unknown'
                WHEN \(registered) <= \(dialect.second("f.time_reported")) THEN 'deactivated' ELSE 'kept' END
            FROM feedback f LEFT JOIN devices d ON d.device_token = f.device_token AND d.app = f.app
            WHERE f.result IS NULL ORDER BY f.feedback_id LIMIT $1 \(dialect.lockedOrSkipped("f"))
            """, [.int(step)])
        var results: [String] = []
        for report in reports {
            let (id, result) = (SQLValue.int(try report.int(0)), try report.text(2))
            results.append(result)
            // The device may register again until its row is locked.
            if result == "deactivated" {
                try transaction.pipeline(
                    """
                    UPDATE devices AS d SET time_deactivated = f.time_reported, deactivated_reason = 'Feedback'
                    FROM feedback f WHERE f.feedback_id = $1 AND d.device_id = $2 AND d.time_deactivated IS NULL
                        AND \(registered) <= \(dialect.second("f.time_reported"))
                    """, [id, .int(try report.int(1))])
            }
            try transaction.pipeline("UPDATE feedback SET result = $1 WHERE feedback_id = $2", [.text(result), id])
        }
        return results
    }
}
