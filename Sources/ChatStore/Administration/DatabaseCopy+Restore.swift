package import ChatDomain
import Foundation
import GRDB

/// Replaces a database with a copy. Apart from the copies, because it carries over records of rooms.
extension DatabaseCopy {
    /// The result of ``restore(_:to:carrying:progress:)``.
    package struct Restored {
        /// The file that was replaced, under its new name. `nil` if there was none.
        package let replaced: String?
        /// The records that were carried over. `nil` if carrying over was not requested.
        package let carried: CarriedOver?
        /// Whether ids that were assigned since the copy may be assigned again, because they could not be read from the
        /// replaced file.
        package let mayRepeatNumbers: Bool
        /// The number of scheduled messages that were due before the restore. The relay may have posted them since the
        /// copy, so they are held.
        package var held = 0
    }

    /// Replaces a database that no relay serves with a copy. The replaced file stays beside it.
    ///
    /// - Parameter carries: Whether to carry over revocations and bans from the replaced file: revoked tokens stay
    ///   revoked, newer bans stay in force, and lifted bans stay lifted.
    /// - Throws: ``DatabaseFile/Unusable``. Everything is then as before.
    package static func restore(
        _ copy: String, to path: String, carrying carries: Bool = true, now: Timestamp = .now(),
        progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) throws -> Restored {
        try FileRights(reading: copy).perform {
            _ = try requireUnchanged(copy)
            try requireWhole(copy)
        }
        let file = DatabaseFile.resolved(path)
        guard DatabaseFile.resolved(copy) != file else {
            throw DatabaseFile.Unusable(description: "\(copy) is the database itself; name a copy of it")
        }
        let rights = FileRights(changing: path)
        return try rights.perform {
            try restore(copy, to: path, file, carries, rights, now, progress)
        }
    }

    private static func restore(
        _ copy: String, to path: String, _ file: String, _ carries: Bool, _ rights: FileRights, _ now: Timestamp,
        _ progress: (_ done: Int, _ total: Int) -> Void
    ) throws -> Restored {
        var status = stat()
        let isMissing = stat(file, &status) != 0
        let hasNothing = isMissing || status.st_size == 0
        if hasNothing {
            try requireNoLog(file)
            guard !carries else { throw CarriedOver.impossible("\(path) does not exist or is empty") }
        }
        let lock = try DatabaseLock(path: path)
        var result = Restored(replaced: nil, carried: nil, mayRepeatNumbers: true)
        do {
            let draft = file + ".restoring"
            defer { unlink(draft) }
            try make(of: copy, to: draft, replaces: true, rights: rights, progress: progress)
            let held = try hold(in: draft, now)
            try giveToOwner(of: file, isMissing: isMissing, draft, lock)
            if hasNothing {
                guard rename(draft, file) == 0 else { throw DatabaseFile.unusable("\(path) cannot be created") }
            } else {
                result = try exchange(path, file, for: draft, carries, now)
            }
            result.held = held
        } catch {
            // The lock has created the file.
            if isMissing { unlink(file) }
            throw error
        }
        try sync(DatabaseFile.folder(of: file))
        // Keeps the lock until here.
        _ = consume lock
        return result
    }

    /// Holds the scheduled messages that are due.
    /// - Returns: The number of held messages.
    private static func hold(in draft: String, _ now: Timestamp) throws -> Int {
        do {
            let target = try DatabaseQueue(path: draft)
            let held = try target.write { db in
                // A copy with an earlier schema version has none.
                guard try db.tableExists("scheduled_messages") else { return 0 }
                try db.execute(
                    sql: "UPDATE scheduled_messages SET is_held = 1 WHERE due <= ? AND NOT is_held",
                    arguments: [now.milliseconds])
                // Events may have been sent since the copy. A webhook may have been deleted, or have another secret.
                if try db.tableExists("webhook_events") {
                    try db.execute(
                        sql: """
                            UPDATE webhook_events SET state = 'held', time_queued = ? WHERE state = 'waiting';
                            UPDATE webhooks SET state = 'paused', reason = 'restored from a copy' WHERE state = 'active';
                            """, arguments: [now.sqlText])
                }
                return try Int.fetchOne(db, sql: "SELECT count(*) FROM scheduled_messages WHERE is_held") ?? 0
            }
            try target.close()
            try sync(draft)
            return held
        } catch let error as DatabaseError {
            throw DatabaseFile.Unusable(description: "\(draft) cannot be written: \(error.reason)")
        }
    }

    /// Replaces a database with a draft. The draft first takes over ids, revocations and bans.
    private static func exchange(
        _ path: String, _ file: String, for draft: String, _ carries: Bool, _ now: Timestamp
    ) throws -> Restored {
        do {
            return try withNobodyElse(path) { db in
                let carried = try keep(of: db, in: draft, carries, now)
                return Restored(replaced: try replace(file, by: draft), carried: carried, mayRepeatNumbers: false)
            }
        } catch let error as Unreadable {
            guard !carries else { throw CarriedOver.impossible("\(path) cannot be read (\(error.reason))") }
            return Restored(
                replaced: try replace(file, by: draft, withLog: true), carried: nil, mayRepeatNumbers: true)
        }
    }

    /// Ensures that no id is assigned twice: clients have seen messages with ids that the copy does not know.
    private static func keep(
        of db: Database, in draft: String, _ carries: Bool, _ now: Timestamp
    ) throws -> CarriedOver? {
        let numbers = try Row.fetchAll(db, sql: "SELECT name, seq FROM sqlite_sequence")
        var carried: CarriedOver?
        do {
            let target = try DatabaseQueue(path: draft)
            let newest = try target.read(CarriedOver.newestRecord)
            let current: CarriedOver.Source?
            do {
                current = carries ? try CarriedOver.Source(db, after: newest) : nil
            } catch let error as DatabaseError {
                throw Unreadable(reason: "\(error)")
            }
            try target.write { copy in
                carried = try current.map { try CarriedOver($0, into: copy, now: now) }
                for row in numbers {
                    let (name, number): (String, Int64) = (row[0], row[1])
                    try copy.execute(
                        sql: "UPDATE sqlite_sequence SET seq = ? WHERE name = ? AND seq < ?",
                        arguments: [number, name, number])
                    // A table has no row in `sqlite_sequence` until its first insert.
                    try copy.execute(
                        sql: """
                            INSERT INTO sqlite_sequence (name, seq) SELECT ?, ?
                            WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?)
                                AND EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)
                            """, arguments: [name, number, name, name])
                }
            }
            try target.close()
        } catch let error as DatabaseError {
            // The copy or the disk is at fault. The database itself is fine.
            throw DatabaseFile.Unusable(description: "\(draft) cannot be written: \(error.reason)")
        }
        try sync(draft)
        return carried
    }

    /// - Parameter withLog: Whether to rename the log along with the file, because the file could not be read and the
    ///   log still has content.
    /// - Returns: The new name of the replaced file.
    private static func replace(_ file: String, by draft: String, withLog: Bool = false) throws -> String {
        let names = sequence(first: 1) { $0 + 1 }.lazy.map { "\(file).replaced-\($0)" }
        guard let name = names.first(where: { access($0, F_OK) != 0 }), link(file, name) == 0 else {
            throw DatabaseFile.unusable("\(file) cannot be kept under another name")
        }
        let logs = withLog ? ["-wal", "-journal"].filter { access(file + $0, F_OK) == 0 } : []
        if withLog { unlink(file + "-shm") }
        // Before the new file: after a power cut, the old one must have its new name, and its log must not be there.
        guard logs.allSatisfy({ rename(file + $0, name + $0) == 0 }), (try? sync(DatabaseFile.folder(of: file))) != nil,
            rename(draft, file) == 0
        else {
            let number = errno
            for log in logs { rename(name + log, file + log) }
            unlink(name)
            throw DatabaseFile.unusable("\(file) cannot be replaced", number)
        }
        return name
    }

    /// Refuses a copy that a relay could not serve afterwards.
    ///
    /// - Parameter pragma: SQLite's check, with the number of problems to report.
    static func requireWhole(_ copy: String, by pragma: String = "quick_check(3)") throws {
        let file = DatabaseFile(path: copy, isArgument: true)
        let queue = try file.openExisting()
        let problems: [String]
        do {
            problems = try queue.read { db in
                _ = try file.knownVersion(db)
                return try String.fetchAll(db, sql: "PRAGMA \(pragma)")
            }
        } catch let error as DatabaseError {
            throw DatabaseFile.Unusable(description: "\(copy) cannot be read: \(error.reason)")
        }
        guard problems == ["ok"] else {
            throw DatabaseFile.Unusable(description: "\(copy) is damaged: \(problems.joined(separator: "; "))")
        }
    }

    /// Moves the content of the write-ahead log into the file, and keeps other programs out while `body` runs.
    /// - Throws: ``Unreadable``, ``DatabaseFile/Unusable``, and the errors of `body`.
    private static func withNobodyElse<Result>(_ path: String, _ body: (Database) throws -> Result) throws -> Result {
        var result: Result?
        do {
            let queue = try DatabaseFile(path: path).connect()
            try queue.writeWithoutTransaction { db in
                // SQLite leaves WAL mode only for the last connection.
                guard try String.fetchOne(db, sql: "PRAGMA journal_mode = DELETE") == "delete" else { throw Busy() }
                try db.inTransaction(.exclusive) {
                    result = try body(db)
                    return .commit
                }
            }
        } catch let error as DatabaseError where !error.isLockProblem {
            throw Unreadable(reason: "\(error)")
        } catch  where error is Busy || error is DatabaseError {
            throw DatabaseFile.Unusable(description: "\(path) is in use by another program; close that first")
        }
        guard let result else { throw DatabaseFile.Unusable(description: "\(path) cannot be replaced") }
        return result
    }

    private struct Busy: Error {}

    /// The database is damaged, or SQLite cannot open it.
    private struct Unreadable: Error {
        let reason: String
    }
}
