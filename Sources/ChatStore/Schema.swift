import EmbeddedFiles
import Foundation
import GRDB

/// The schema and how an older file comes to it.
package struct Schema: Sendable {
    /// Marks the file as ours, in the header field that `file(1)` shows: "PCht".
    static let applicationID = 0x5043_6874

    /// What `PRAGMA user_version` says of an up-to-date file.
    let version: Int
    /// Makes an empty file.
    let sql: String
    /// `upgrades[n]` brings version n to n + 1. Every version that was ever released has one.
    let upgrades: [Int: String]

    package init(version: Int, sql: String, upgrades: [Int: String]) {
        self.version = version
        self.sql = sql
        self.upgrades = upgrades
    }

    package static let current = Schema(
        version: 9, sql: embeddedSchema, upgrades: releasedUpgrades)

    private static var embeddedSchema: String {
        let file = embedded_file("schema.sql")
        return String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
    }

    /// In one transaction, so that a crash leaves the old version or the new one.
    func bringUpToDate(_ pool: DatabasePool, path: String) throws {
        // The usual case takes no lock.
        let isCurrent = try pool.read { db in
            try Int.fetchOne(db, sql: "PRAGMA user_version") == version
                && Int.fetchOne(db, sql: "PRAGMA application_id") == Self.applicationID
        }
        if isCurrent { return }
        try pool.writeWithoutTransaction { db in
            // A statement that rewrites a table keeps the pages as they were until it has ended. A large queue has too many for
            // the memory.
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

    /// Another program's: neither ours nor new.
    static func isForeign(_ db: Database) throws -> Bool {
        if try Int.fetchOne(db, sql: "PRAGMA application_id") == applicationID { return false }
        return try !isEmpty(db) || Int.fetchOne(db, sql: "PRAGMA user_version") != 0
    }

    /// The same within a transaction.
    func bringUpToDate(_ db: Database, path: String) throws {
        if try Self.isForeign(db) { throw DatabaseFile(path: path).ofAnother }
        let (found, isEmpty) = try (Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0, Self.isEmpty(db))
        guard found <= version else {
            throw DatabaseFile.Unusable(
                description: """
                    \(path) has schema version \(found), this pushchat knows up to \(version): \
                    it was last used by a newer one; run that, or name another file in database.path
                    """)
        }
        if isEmpty {
            try db.execute(sql: sql)
            try db.execute(sql: "PRAGMA application_id = \(Self.applicationID)")
        } else {
            for step in found..<version { try upgrade(from: step, db, path: path) }
        }
        try db.execute(sql: "PRAGMA user_version = \(version)")
    }

    private func upgrade(from step: Int, _ db: Database, path: String) throws {
        guard let upgrade = upgrades[step] else {
            throw DatabaseFile.Unusable(
                description: "\(path) has schema version \(step), from which there is no upgrade")
        }
        do {
            try db.execute(sql: upgrade)
        } catch let error as DatabaseError {
            guard let obstacle = Obstacle(error) else { throw error }
            throw DatabaseFile.Unusable(
                description: """
                    \(path) cannot be upgraded to schema version \(step + 1) and is unchanged: \(obstacle.what) uses what that \
                    version does not have (\(obstacle.problem)); \(obstacle.remedy), and start again
                    """)
        }
    }

    /// Something of the operator's own that names what an upgrade takes away.
    private struct Obstacle {
        let what: String
        let remedy: String
        /// In SQLite's words.
        let problem: String

        /// SQLite checks all views, triggers and indexes when a column goes: `error in view NAME after drop column: no such
        /// column: …`. Nil for any other error.
        init?(_ error: DatabaseError) {
            let shape = #/error in (view|trigger|index|table) (.+?)(?: after drop column)?: (.+)/#
            guard let match = error.message?.wholeMatch(of: shape)?.output else { return nil }
            problem = String(match.3)
            if match.1 == "table" {
                what = "a column or CHECK that was added to table \(match.2)"
                remedy = "drop that column"
            } else {
                what = "\(match.1) \(match.2)"
                remedy = "drop it, or make it anew without that"
            }
        }
    }
}
