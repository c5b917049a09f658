import Foundation
import GRDB

extension QueueFile {
    /// Pages that are copied between two reports.
    private static let backupStep: CInt = 2048

    /// A consistent copy of a database while a relay uses it, mode 0600. Never overwrites a file: it is written beside and then
    /// linked to its name.
    ///
    /// - Parameter progress: told of pages.
    /// - Throws: ``DatabaseFile/Unusable``.
    package static func backup(
        _ path: String, to file: String, progress: (_ done: Int, _ total: Int) -> Void
    ) throws {
        guard !file.isEmpty, !file.hasSuffix("/") else {
            throw DatabaseFile.Unusable(description: "\(file) is the name of a folder; name a file in it")
        }
        guard access(file, F_OK) != 0 else {
            throw DatabaseFile.Unusable(description: "\(file) exists already; name a file that does not")
        }
        let source = try open(path)
        let draft = (file as NSString).deletingLastPathComponent
            .appending(file.contains("/") ? "/" : "")
            .appending(".\((file as NSString).lastPathComponent).\(UUID().uuidString.prefix(8)).part")
        let descriptor = Foundation.open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(draft) cannot be written") }
        close(descriptor)
        defer {
            for suffix in ["", "-journal", "-wal", "-shm"] { unlink(draft + suffix) }
        }
        do {
            try copy(source, to: draft, progress)
        } catch let error as DatabaseError {
            throw DatabaseFile.Unusable(description: "\(path) cannot be copied to \(file): \(error)")
        }
        try sync(draft)
        // A file system without hard links: nearly as good.
        let isMade = link(draft, file) == 0 || ([EPERM, ENOTSUP, ENOSYS].contains(errno) && rename(draft, file) == 0)
        guard isMade else { throw DatabaseFile.unusable("\(file) cannot be made") }
        let folder = (file as NSString).deletingLastPathComponent
        try sync(folder.isEmpty ? "." : folder)
    }

    /// In one read transaction, in which the source stands still however much is written meanwhile.
    private static func copy(
        _ source: DatabaseQueue, to draft: String, _ progress: (_ done: Int, _ total: Int) -> Void
    ) throws {
        let target = try DatabaseQueue(path: draft)
        try source.read { from in
            _ = try Int.fetchOne(from, sql: "SELECT count(*) FROM sqlite_schema")
            try target.writeWithoutTransaction { to in
                try withoutActuallyEscaping(progress) { progress in
                    try from.backup(to: to, pagesPerStep: backupStep) { state in
                        progress(state.completedPageCount, state.totalPageCount)
                    }
                }
                // One file, with nothing beside it, until somebody opens it.
                try to.execute(sql: "PRAGMA journal_mode = DELETE")
            }
        }
        try target.close()
    }

    private static func sync(_ path: String) throws {
        let descriptor = Foundation.open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(path) cannot be opened") }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 else { throw DatabaseFile.unusable("\(path) cannot be brought to the disk") }
    }
}
