import EmbeddedFiles
import Foundation
import GRDB

/// The schema of a database file, and the upgrades from older versions.
package struct Schema: Sendable {
    /// Marks the file as ours, in the header field that `file(1)` shows: "PCht".
    static let applicationID = 0x5043_6874

    /// The versions that no release had, and the last commit that upgrades them. It brings a file to version 9.
    private static let unreleased = (versions: 4...7, lastCommit: "6e66b2bb1d75")

    /// The `PRAGMA user_version` of an up-to-date file.
    let version: Int
    /// Creates the tables in an empty file.
    let sql: String
    /// SQL statements by the version that they upgrade. Each upgrade leads to the next version in this dictionary, the last one
    /// to ``version``. Every version that was ever released has one.
    let upgrades: [Int: String]

    package init(version: Int, sql: String, upgrades: [Int: String]) {
        self.version = version
        self.sql = sql
        self.upgrades = upgrades
    }

    package static let current = Schema(
        version: 16, sql: embeddedSchema, upgrades: releasedUpgrades)

    private static var embeddedSchema: String {
        let file = embedded_file("schema.sql")
        return String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
    }

    /// Creates or upgrades the tables in one transaction, so that a crash leaves the old version or the new one.
    func bringUpToDate(_ pool: DatabasePool, path: String) throws {
        // The file is usually current. Checking that takes no lock.
        let isCurrent = try pool.read { db in
            try Int.fetchOne(db, sql: "PRAGMA user_version") == version
                && Int.fetchOne(db, sql: "PRAGMA application_id") == Self.applicationID
        }
        if isCurrent { return }
        try pool.writeWithoutTransaction { db in
            // A statement that rewrites a table keeps the original pages until it ends. A large queue has more of them than
            // fit into memory.
            try db.execute(sql: "PRAGMA temp_store = FILE")
            defer { try? db.execute(sql: "PRAGMA temp_store = MEMORY") }
            try db.inTransaction(.exclusive) {
                try bringUpToDate(db, path: path)
                return .commit
            }
        }
    }

    private static func isEmpty(_ db: Database) throws -> Bool {
        try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_schema") == 0
    }

    /// Whether the file belongs to another program: it lacks our mark and is not new.
    static func isForeign(_ db: Database) throws -> Bool {
        if try Int.fetchOne(db, sql: "PRAGMA application_id") == applicationID { return false }
        return try !isEmpty(db) || Int.fetchOne(db, sql: "PRAGMA user_version") != 0
    }

    /// Creates or upgrades the tables within the caller's transaction.
    func bringUpToDate(_ db: Database, path: String) throws {
        if try Self.isForeign(db) { throw DatabaseFile(path: path).ofAnother }
        if try Self.isEmpty(db) {
            try db.execute(sql: sql)
            try db.execute(sql: "PRAGMA application_id = \(Self.applicationID)")
        } else {
            let found = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
            try requireKnown(found, path: path)
            let steps = upgrades.filter { $0.key >= found }.sorted { $0.key < $1.key }
            for (step, next) in zip(steps, steps.dropFirst().map(\.key) + [version]) {
                try upgrade(to: next, step.value, db, path: path)
            }
        }
        try db.execute(sql: "PRAGMA user_version = \(version)")
    }

    /// Refuses a version that is newer than ``version``, or that has no upgrade.
    func requireKnown(_ found: Int, path: String) throws(DatabaseFile.Unusable) {
        let problem: String
        if found > version {
            problem = """
                newer than this pushchat knows (\(version)): it was last used by a newer one; run that, or name another file
                """
        } else if Self.unreleased.versions.contains(found) {
            problem = """
                which only development versions of 0.4.0 wrote; build commit \(Self.unreleased.lastCommit) of the repository \
                and start it once, which upgrades the file to version 9, then start this version
                """
        } else if found < version, upgrades[found] == nil {
            problem = "from which there is no upgrade"
        } else {
            return
        }
        throw DatabaseFile.Unusable(description: "\(path) has schema version \(found), \(problem)")
    }

    private func upgrade(to next: Int, _ sql: String, _ db: Database, path: String) throws {
        do {
            try db.execute(sql: sql)
        } catch let error as DatabaseError {
            guard let obstacle = Obstacle(error) else { throw error }
            throw DatabaseFile.Unusable(
                description: """
                    \(path) cannot be upgraded to schema version \(next) and is unchanged: \(obstacle.object) uses a column or \
                    table that the new version does not have (\(obstacle.problem)); \(obstacle.remedy), and start again
                    """)
        }
    }

    /// An object that the operator added and that uses a column or table that an upgrade removes.
    private struct Obstacle {
        let object: String
        let remedy: String
        /// SQLite's description of the problem.
        let problem: String

        /// Reads SQLite's error message. SQLite checks all views, triggers and indexes when a column is dropped: `error in view
        /// NAME after drop column: no such column: …`. `nil` for any other error.
        init?(_ error: DatabaseError) {
            let shape = #/error in (view|trigger|index|table) (.+?)(?: after drop column)?: (.+)/#
            guard let match = error.message?.wholeMatch(of: shape)?.output else { return nil }
            problem = String(match.3)
            if match.1 == "table" {
                object = "a column or CHECK that was added to table \(match.2)"
                remedy = "drop that column"
            } else {
                object = "\(match.1) \(match.2)"
                remedy = "drop it, or create it again without that"
            }
        }
    }
}
