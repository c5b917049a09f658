import ChatDomain
import Foundation
import GRDB

/// Opens the database: file modes, journal, version.
package struct DatabaseFile: Sendable {
    /// Seconds that a statement waits for another process's lock before the request is told to try again.
    static let busyTimeout: TimeInterval = 3
    /// Reading connections: history pages and lists; they never wait for the writer.
    static let readers = 4
    /// Bytes to which the write-ahead log is cut back after a checkpoint.
    static let journalSize = 64 << 20

    /// Why the file cannot be used, in a sentence for the operator.
    package struct Unusable: Error, CustomStringConvertible {
        package let description: String
    }

    package let path: String
    let schema: Schema

    package init(path: String, schema: Schema = .current) {
        self.path = path
        self.schema = schema
    }

    /// Creates the file if it is missing, upgrades it if it is older, refuses it if it is newer or not ours.
    func open() throws -> DatabasePool {
        try createPrivate()
        var configuration = GRDB.Configuration()
        configuration.label = "pushchat"
        configuration.busyMode = .timeout(Self.busyTimeout)
        configuration.maximumReaderCount = Self.readers
        configuration.prepareDatabase { db in
            try db.execute(sql: "PRAGMA journal_size_limit = \(Self.journalSize)")
            try db.execute(sql: "PRAGMA temp_store = MEMORY")
        }
        let pool: DatabasePool
        do {
            pool = try DatabasePool(path: path, configuration: configuration)
        } catch {
            throw Unusable(description: "\(path) cannot be opened as a database: \(error)")
        }
        // After opening: the pool sets NORMAL once prepareDatabase has run, and that loses commits in a power cut.
        try pool.writeWithoutTransaction { db in try db.execute(sql: "PRAGMA synchronous = FULL") }
        try schema.bringUpToDate(pool, path: path)
        return pool
    }

    /// The file must exist with mode 0600 before SQLite sees it: the journal's files take their mode from it.
    private func createPrivate() throws {
        let descriptor = Foundation.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw Unusable(description: "\(path) cannot be opened: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        for file in [path, path + "-wal", path + "-shm"] where access(file, F_OK) == 0 {
            guard chmod(file, 0o600) == 0 else {
                throw Unusable(
                    description: "the mode of \(file) cannot be set to 0600: \(String(cString: strerror(errno)))")
            }
        }
    }
}
