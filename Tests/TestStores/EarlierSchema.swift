import Foundation
import GRDB

/// The schemas of earlier versions, which tests upgrade.
package enum EarlierSchema {
    /// Returns the statements that create the tables.
    ///
    /// - Parameter version: `3` for a version of the SQLite file, `postgres-1` for one of PostgreSQL.
    package static func sql(_ version: String) throws -> String {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
        return try String(contentsOf: folder.appending(path: "Schemas/schema-\(version).sql"), encoding: .utf8)
    }

    /// Creates a SQLite file as the release with this schema version created it.
    package static func createFile(at path: String, version: Int) throws {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        try DatabaseQueue(path: path, configuration: configuration).writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA journal_mode = WAL")
            try db.execute(sql: sql("\(version)"))
            try db.execute(sql: "PRAGMA application_id = 0x50436874; PRAGMA user_version = \(version)")
        }
    }
}
