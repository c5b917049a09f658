package import ChatDomain
import GRDB

/// What the feedback service reported, in the SQLite file.
package final class SQLiteFeedbackStore: FeedbackStore {
    /// Reports that one transaction acts on.
    private static let step = 500

    private let database: SQLiteDatabase

    init(database: SQLiteDatabase) {
        self.database = database
    }

    package func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError) {
        try await database.writer.perform(.upkeep) { [clock = database.clock] db in
            let now = clock().sqlText
            let insert = try db.cachedStatement(
                sql: """
                    INSERT INTO feedback (app, device_token, time_reported, time_received) VALUES (?, ?, ?, ?)
                    """)
            for report in reports {
                try insert.execute(arguments: [app.text, report.token.description, report.since.sqlText, now])
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
        let reports = try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT f.feedback_id, f.app, f.device_token, f.time_reported, d.device_id,
                        -- The service counts in whole seconds: the same second is not before.
                        substr(d.time_registered, 1, 19) <= substr(f.time_reported, 1, 19)
                    FROM feedback f
                    LEFT JOIN devices d ON d.device_token = f.device_token AND d.app = f.app
                    WHERE f.result IS NULL ORDER BY f.feedback_id LIMIT ?
                    """), arguments: [step])
        var result = FeedbackResult()
        for report in reports {
            let outcome: String
            if let device = report[4] as Int64? {
                if report[5] as Bool {
                    try db.cachedStatement(
                        sql: """
                            UPDATE devices SET time_deactivated = ?, deactivated_reason = 'Feedback'
                            WHERE device_id = ? AND time_deactivated IS NULL
                            """
                    ).execute(arguments: [report[3] as String, device])
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
            try db.cachedStatement(sql: "UPDATE feedback SET result = ? WHERE feedback_id = ?")
                .execute(arguments: [outcome, report[0] as Int64])
        }
        return (result, reports.count)
    }
}
