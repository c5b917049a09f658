package import ChatDomain
import Foundation
import GRDB

/// Checks a copy without restoring it.
extension DatabaseCopy {
    /// The result of ``verify(_:against:)``.
    package struct Verified: Sendable {
        package let file: String
        package let madeAt: Timestamp
        /// Whether the copy has a checksum, which then proves that it has not changed since it was made.
        package let hasChecksum: Bool
        package let tables: [TableCount]
    }

    /// The numbers of rows of one table.
    package struct TableCount: Sendable, Equatable {
        package let name: String
        package let inCopy: Int
        /// `nil` if the database has no such table.
        package let inDatabase: Int?
        /// The number of rows that were in the database before the copy was made, and that the copy lacks.
        package let missing: Int
    }

    /// Checks that a copy is undamaged, and compares its tables with those of the database.
    ///
    /// - Parameter file: The copy, or a folder, whose newest copy is checked.
    /// - Throws: ``DatabaseFile/Unusable`` if the copy is damaged, or if one of the two cannot be read.
    package static func verify(_ file: String, against path: String) throws -> Verified {
        let reading = FileRights(reading: file)
        var isFolder: ObjCBool = false
        let copy =
            FileManager.default.fileExists(atPath: file, isDirectory: &isFolder) && isFolder.boolValue
            ? try reading.perform { try newest(in: file, of: path) } : file
        return try FileRights(reading: copy).perform {
            var status = stat()
            guard stat(copy, &status) == 0 else { throw DatabaseFile.unusable("\(copy) cannot be opened") }
            let hasChecksum = try requireUnchanged(copy)
            try requireWhole(copy, by: "integrity_check(3)")
            let copied = try counts(of: copy)
            let current = try FileRights(reading: path).perform { try counts(of: path, upTo: copied) }
            let tables = copied.keys.sorted().map { name in
                let (inCopy, inDatabase) = (copied[name]?.rows ?? 0, current[name])
                // A relay deletes old rows, and never adds any.
                let missing = max(0, (inDatabase?.old ?? 0) - inCopy)
                return TableCount(name: name, inCopy: inCopy, inDatabase: inDatabase?.rows, missing: missing)
            }
            return Verified(
                file: copy, madeAt: Timestamp(seconds: Int64(status.st_mtim.tv_sec)), hasChecksum: hasChecksum,
                tables: tables)
        }
    }

    private struct Count {
        let rows: Int
        /// The number of rows whose ids the copy had assigned. `nil` in tables whose ids are not assigned in order, or
        /// that other programs write.
        let old: Int?
        /// The last id that was assigned. `nil` if the table has assigned none.
        let last: Int64?
    }

    /// Counts the rows of all tables.
    ///
    /// - Parameter copied: The counts of the copy. `nil` while counting the copy itself.
    private static func counts(of path: String, upTo copied: [String: Count]? = nil) throws -> [String: Count] {
        do {
            return try DatabaseFile(path: path).openExisting().read { db in
                let names = try String.fetchAll(
                    db, sql: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
                return try names.reduce(into: [:]) { counts, name in
                    let last = try Int64.fetchOne(
                        db, sql: "SELECT seq FROM sqlite_sequence WHERE name = ?", arguments: [name])
                    let table = "\"\(name)\""
                    let rows = try Int.fetchOne(db, sql: "SELECT count(*) FROM \(table)") ?? 0
                    var old: Int?
                    // Scripts may insert pushes with ids of their choice.
                    if name != "push_queue", let end = copied?[name]?.last {
                        old = try Int.fetchOne(
                            db, sql: "SELECT count(*) FROM \(table) WHERE rowid <= ?", arguments: [end])
                    }
                    counts[name] = Count(rows: rows, old: old, last: last)
                }
            }
        } catch let error as DatabaseError {
            throw DatabaseFile.Unusable(description: "\(path) cannot be read: \(error.reason)")
        }
    }
}
