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
        version: 4, sql: String(decoding: PackageResources.schema_sql, as: UTF8.self), upgrades: releasedUpgrades)

    /// In one transaction, so that a crash leaves the old version or the new one.
    func bringUpToDate(_ pool: DatabasePool, path: String) throws {
        // The usual case takes no lock.
        let isCurrent = try pool.read { db in
            try Int.fetchOne(db, sql: "PRAGMA user_version") == version
                && Int.fetchOne(db, sql: "PRAGMA application_id") == Self.applicationID
        }
        if isCurrent { return }
        try pool.writeInTransaction(.exclusive) { db in
            let found = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
            let isEmpty = try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_schema") == 0
            let isOurs = try Int.fetchOne(db, sql: "PRAGMA application_id") == Self.applicationID
            guard isOurs || (isEmpty && found == 0) else {
                throw DatabaseFile.Unusable(
                    description: "\(path) is a database of another program; name another file in database.path")
            }
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
                for step in found..<version {
                    guard let upgrade = upgrades[step] else {
                        throw DatabaseFile.Unusable(
                            description: "\(path) has schema version \(step), from which there is no upgrade")
                    }
                    try db.execute(sql: upgrade)
                }
            }
            try db.execute(sql: "PRAGMA user_version = \(version)")
            return .commit
        }
    }
}
