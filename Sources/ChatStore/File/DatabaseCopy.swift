package import ChatDomain
import Foundation
import GRDB

/// Makes copies of a database, for the operator and before an upgrade.
package enum DatabaseCopy {
    /// The number of pages to copy between two progress reports.
    private static let step: CInt = 2048

    /// Makes a consistent copy of a database, with mode 0600, while a relay may use the database. Writes a draft in the
    /// same folder and then renames it. Its checksum is in a file beside it (``checksumFile(of:)``).
    ///
    /// - Parameter progress: Receives the number of pages copied and the total.
    /// - Throws: ``DatabaseFile/Unusable``, also if there is a file of that name.
    package static func make(
        of path: String, to file: String, progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) throws {
        try make(of: path, to: file, replaces: false, rights: FileRights(changing: file), progress: progress)
    }

    /// - Parameters:
    ///   - replaces: Whether an existing file of that name is replaced. Otherwise it is an error. A copy that replaces
    ///     another one has no checksum, because the process itself uses it next.
    ///   - rights: The rights for the folder of the copy.
    static func make(
        of path: String, to file: String, replaces: Bool, rights: FileRights,
        progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) throws {
        guard !file.isEmpty, !file.hasSuffix("/") else {
            throw DatabaseFile.Unusable(description: "\(file) is the name of a folder; name a file in it")
        }
        if !replaces { try requireMissing(file) }
        let reading = FileRights(reading: path)
        let folder = DatabaseFile.folder(of: file)
        guard access(folder, F_OK) == 0 else {
            throw DatabaseFile.Unusable(description: "the folder \(folder) does not exist; create it first")
        }
        let source = try reading.perform { try DatabaseFile(path: path).openExisting() }
        defer { try? reading.perform { try source.close() } }
        try rights.perform {
            try make(of: source, path, reading, to: file, replaces: replaces, progress: progress)
        }
    }

    private static func requireMissing(_ file: String) throws {
        guard access(file, F_OK) != 0 else {
            throw DatabaseFile.Unusable(description: "\(file) exists already; name a file that does not")
        }
    }

    private static func make(
        of source: DatabaseQueue, _ path: String, _ reading: FileRights, to file: String, replaces: Bool,
        progress: (_ done: Int, _ total: Int) -> Void
    ) throws {
        let folder = DatabaseFile.folder(of: file)
        // A copy that is made repeatedly has a fixed draft name, so that interrupted runs leave one draft at most.
        let draft =
            "\(folder)/.\((file as NSString).lastPathComponent)"
            + (replaces ? ".part" : ".\(UUID().uuidString.prefix(8)).part")
        func removeDraft() { for suffix in ["", "-journal", "-wal", "-shm"] { unlink(draft + suffix) } }
        if replaces { removeDraft() }
        let descriptor = Foundation.open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(file) cannot be written") }
        close(descriptor)
        defer { removeDraft() }
        do {
            try copy(source, reading, to: draft, progress)
        } catch let error as DatabaseError {
            throw DatabaseFile.Unusable(description: "\(path) cannot be copied to \(file): \(error.reason)")
        }
        try sync(draft)
        // A copy without a checksum would look like one of an earlier version, so the checksum comes first. The lock
        // keeps out another copy of that name, whose checksum this one would replace.
        let lock = Foundation.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        defer { if lock >= 0 { close(lock) } }
        if !replaces {
            while flock(lock, LOCK_EX) != 0, errno == EINTR {}
            try requireMissing(file)
            try writeChecksum(of: draft, as: file)
        }
        // `rename` is the fallback for a file system without hard links. It is nearly as good.
        let isMade =
            replaces
            ? rename(draft, file) == 0
            : link(draft, file) == 0 || ([EPERM, ENOTSUP, ENOSYS].contains(errno) && rename(draft, file) == 0)
        guard isMade else {
            let number = errno
            if !replaces { unlink(checksumFile(of: file)) }
            throw DatabaseFile.unusable("\(file) cannot be created", number)
        }
        try sync(folder)
    }

    /// Copies within one read transaction, so that the source does not change during the copy, however much others
    /// write.
    private static func copy(
        _ source: DatabaseQueue, _ reading: FileRights, to draft: String,
        _ progress: (_ done: Int, _ total: Int) -> Void
    ) throws {
        let target = try DatabaseQueue(path: draft)
        try source.read { from in
            // Begins the transaction, which opens the last of the source's files.
            _ = try reading.perform { try Int.fetchOne(from, sql: "SELECT count(*) FROM sqlite_schema") }
            try target.writeWithoutTransaction { to in
                try withoutActuallyEscaping(progress) { progress in
                    try from.backup(to: to, pagesPerStep: step) { state in
                        progress(state.completedPageCount, state.totalPageCount)
                    }
                }
                // Keeps the copy a single file, without a log beside it, until a program opens it.
                try to.execute(sql: "PRAGMA journal_mode = DELETE")
            }
        }
        try target.close()
    }

    /// Waits until a file's content, or the names in a folder, are on disk. Some network file systems cannot sync a
    /// folder.
    static func sync(_ path: String) throws {
        let descriptor = Foundation.open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(path) cannot be opened") }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 || [EINVAL, ENOTSUP].contains(errno) else {
            throw DatabaseFile.unusable("\(path) cannot be synced to disk")
        }
    }

    // MARK: Backups by timer

    /// Makes a copy in a folder, named after the database and the time. Removes older copies with such names, except
    /// for the newest.
    ///
    /// - Parameter keep: The number of copies to keep, including the new one.
    /// - Returns: The new copy, and the number of copies that were removed.
    /// - Throws: ``DatabaseFile/Unusable``. If the copy cannot be made, no other is removed.
    package static func make(
        of path: String, in folder: String, keep: Int, now: Timestamp = .now(),
        progress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) throws -> (file: String, removed: Int) {
        let time = now.sqlText.prefix(19).replacing("-", with: "").replacing(":", with: "").replacing(" ", with: "T")
        let prefix = prefix(of: path)
        let file = "\(folder)/\(prefix)\(time)Z.db"
        try make(of: path, to: file, progress: progress)
        let removed = try FileRights(changing: file).perform {
            try removeOld(in: folder, prefix, but: file, keep: keep, now: now)
        }
        return (file, removed)
    }

    /// The start of the names of copies of a database.
    private static func prefix(of path: String) -> String {
        ((path as NSString).lastPathComponent as NSString).deletingPathExtension + "-"
    }

    /// Returns the names of those files that are copies, the oldest first.
    private static func copies(among names: [String], _ prefix: String) -> [String] {
        names.filter {
            $0.hasPrefix(prefix) && $0.dropFirst(prefix.count).wholeMatch(of: #/[0-9]{8}T[0-9]{6}Z\.db/#) != nil
        }.sorted()
    }

    /// Returns the newest copy of a database in a folder.
    ///
    /// - Throws: ``DatabaseFile/Unusable`` if the folder has none.
    static func newest(in folder: String, of path: String) throws -> String {
        do {
            let names = try FileManager.default.contentsOfDirectory(atPath: folder)
            if let name = copies(among: names, prefix(of: path)).last { return "\(folder)/\(name)" }
        } catch {
            throw DatabaseFile.Unusable(description: "\(folder) cannot be read: \(error.localizedDescription)")
        }
        throw DatabaseFile.Unusable(
            description: "\(folder) has no copy of \(path); pushchat backup --keep 7 \(folder) makes one")
    }

    /// - Returns: The number of copies that were removed.
    private static func removeOld(
        in folder: String, _ prefix: String, but file: String, keep: Int, now: Timestamp
    ) throws -> Int {
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
        // The draft of a copy that was killed. A copy that is still being made has written recently.
        for name in names where name.hasPrefix("." + prefix) && name.hasSuffix(".part") {
            var status = stat()
            guard stat("\(folder)/\(name)", &status) == 0 else { continue }
            if Int64(status.st_mtim.tv_sec) < now.seconds - 3600 { unlink("\(folder)/\(name)") }
        }
        // The new copy stays even if the clock was set back.
        let old = copies(among: names, prefix).filter { "\(folder)/\($0)" != file }.dropLast(keep - 1)
        for name in old where unlink("\(folder)/\(name)") != 0 {
            throw DatabaseFile.unusable("\(folder)/\(name) cannot be removed")
        }
        for name in old { unlink(checksumFile(of: "\(folder)/\(name)")) }
        return old.count
    }

    // MARK: Upgrades

    /// Copies a database before its upgrade into the same folder, one copy per version: `pushchat.db.version-3`.
    ///
    /// - Parameter freeSpace: The number of free bytes in a folder. `nil` if unknown.
    /// - Throws: ``ChatError/Code/unavailable`` if there is not enough space.
    static func beforeUpgrade(
        of path: String, version: Int, freeSpace: (_ folder: String) -> Int64?
    ) throws -> String {
        let file = DatabaseFile.resolved(path)
        let size = [file, file + "-wal"].reduce(Int64(0)) { total, name in
            var status = stat()
            return stat(name, &status) == 0 ? total + Int64(status.st_size) : total
        }
        // Room for the copy, and for the pages that the upgrade writes.
        let folder = DatabaseFile.folder(of: file)
        if let free = freeSpace(folder), free < 2 * size {
            throw ChatError.unavailable(
                cause: """
                    \(path) is copied before it is upgraded from schema version \(version): that takes \
                    \(2 * size >> 20) MB of free space beside it, and there are \(free >> 20) MB
                    """)
        }
        let copy = "\(file).version-\(version)"
        try make(of: path, to: copy, replaces: true, rights: FileRights(changing: path))
        return copy
    }

    static func freeSpace(_ folder: String) -> Int64? {
        var status = statvfs()
        guard statvfs(folder, &status) == 0 else { return nil }
        return Int64(clamping: UInt64(status.f_bavail) &* UInt64(status.f_frsize))
    }

    // MARK: Replacing a file

    /// Gives files that root created to the user who runs the relay. Uses descriptors, so that no symbolic link can
    /// redirect it.
    static func giveToOwner(
        of file: String, isMissing: Bool, _ draft: String, _ lock: borrowing DatabaseLock
    ) throws {
        guard FileRights.current.user == 0 else { return }
        var status = stat()
        guard stat(isMissing ? DatabaseFile.folder(of: file) : file, &status) == 0 else {
            throw DatabaseFile.unusable("\(file) cannot be inspected")
        }
        let descriptor = Foundation.open(draft, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(draft) cannot be opened") }
        defer { close(descriptor) }
        try DatabaseFile.requirePlain(descriptor, draft)
        guard fchown(descriptor, status.st_uid, status.st_gid) == 0, lock.give(to: status.st_uid, status.st_gid) else {
            throw DatabaseFile.unusable("\(draft) cannot be given to its owner")
        }
    }

    /// Refuses leftover log files, because SQLite would write an old log into the new file.
    static func requireNoLog(_ file: String) throws {
        for name in [file + "-wal", file + "-journal"] where access(name, F_OK) == 0 {
            throw DatabaseFile.Unusable(
                description: "\(name) belongs to a database that does not exist; move it away, and try again")
        }
    }
}
