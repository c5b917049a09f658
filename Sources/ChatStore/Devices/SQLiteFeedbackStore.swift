package import ChatDomain
import GRDB

/// The reports of the feedback service, in the SQLite file.
package struct SQLiteFeedbackStore: FeedbackStore {
    /// The number of reports that one transaction processes.
    private static let step = 500

    let database: SQLiteDatabase

    package func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
        try await database.writer.perform(.upkeep) { db in
            let now = database.now().sqlText
            for report in reports {
                try db.run(
                    "INSERT INTO feedback (app, device_token, time_reported, time_received) VALUES (?, ?, ?, ?)",
                    [app.text, report.token.description, report.since.sqlText, now])
            }
        }
    }

    package func actOnFeedback() async throws(ChatError) -> FeedbackResult {
        var total = FeedbackResult()
        while true {
            let (result, count) = try await database.writer.perform(.upkeep) { db in try Self.actOnSome(db) }
            total.deactivated += result.deactivated
            total.kept += result.kept
            total.unknown += result.unknown
            if count < Self.step { return total }
        }
    }

    private static func actOnSome(_ db: Database) throws -> (FeedbackResult, Int) {
        let reports = try db.rows(
            """
            SELECT f.feedback_id, f.time_reported, d.device_id,
                -- The service counts in whole seconds, so a registration in the same second is not newer.
                substr(d.time_registered, 1, 19) <= substr(f.time_reported, 1, 19)
            FROM feedback f
            LEFT JOIN devices d ON d.device_token = f.device_token AND d.app = f.app
            WHERE f.result IS NULL ORDER BY f.feedback_id LIMIT ?
            """, [step])
        var result = FeedbackResult()
        for report in reports {
            let outcome: String
            if let device = report[2] as Int64? {
                if report[3] as Bool {
                    try db.run(
                        """
                        UPDATE devices SET time_deactivated = ?, deactivated_reason = 'Feedback'
                        WHERE device_id = ? AND time_deactivated IS NULL
                        """, [report[1] as String, device])
                    outcome = "deactivated"
                    result.deactivated += 1
                } else {
                    outcome = "kept"
                    result.kept += 1
                }
            } else {
                outcome = "unknown"
                result.unknown += 1
            }
            try db.run("UPDATE feedback SET result = ? WHERE feedback_id = ?", [outcome, report[0] as Int64])
        }
        return (result, reports.count)
    }
}
