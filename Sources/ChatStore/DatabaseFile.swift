import ChatDomain
import Foundation
import GRDB

/// Opens the database: file modes, journal, version.
package struct DatabaseFile: Sendable {
    /// Seconds that a statement waits for another process's lock before the request is told to try again.
    static let busyTimeout: TimeInterval = 3
    /// Reading connections: history pages and lists; they never wait for the writer.
    static let readers = 4
    /// Kilobytes of pages that the connection keeps which reads the queue: it goes through it once, from one end to the other.
    static let scannerCache = 500
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
        var configuration = Self.configuration("pushchat")
        configuration.maximumReaderCount = Self.readers
        configuration.prepareDatabase { db in
            try db.execute(sql: "PRAGMA journal_size_limit = \(Self.journalSize)")
        }
        let pool: DatabasePool
        do {
            pool = try DatabasePool(path: path, configuration: configuration)
        } catch  where error.isDiskProblem {
            throw ChatError(storing: error)
        } catch {
            throw Unusable(description: "\(path) cannot be opened as a database: \(error)")
        }
        // After opening: the pool sets NORMAL once prepareDatabase has run, and that loses commits in a power cut.
        try pool.writeWithoutTransaction { db in try db.execute(sql: "PRAGMA synchronous = FULL") }
        try schema.bringUpToDate(pool, path: path)
        return pool
    }

    /// A further connection that reads, of a file that ``open()`` has opened.
    func openScanner() throws -> DatabaseQueue {
        var configuration = Self.configuration("pushchat scanner")
        configuration.readonly = true
        configuration.prepareDatabase { db in try db.execute(sql: "PRAGMA cache_size = -\(Self.scannerCache)") }
        return try DatabaseQueue(path: path, configuration: configuration)
    }

    /// What all connections have.
    static func configuration(_ label: String, busyTimeout: TimeInterval = busyTimeout) -> GRDB.Configuration {
        var configuration = GRDB.Configuration()
        configuration.label = label
        configuration.busyMode = .timeout(busyTimeout)
        configuration.prepareDatabase { db in try db.execute(sql: "PRAGMA temp_store = MEMORY") }
        return configuration
    }

    /// With the system's words.
    static func unusable(_ problem: String, _ number: Int32 = errno) -> Unusable {
        Unusable(description: "\(problem): \(String(cString: strerror(number)))")
    }

    /// The file must exist with mode 0600 before SQLite sees it: the journal's files take their mode from it.
    private func createPrivate() throws {
        let descriptor = Foundation.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Self.unusable("\(path) cannot be opened") }
        defer { close(descriptor) }
        for file in [path, path + "-wal", path + "-shm"] where access(file, F_OK) == 0 {
            guard chmod(file, 0o600) == 0 else { throw Self.unusable("the mode of \(file) cannot be set to 0600") }
        }
    }
}

extension DatabaseFile {
    /// What `check` says of the file, without changing it.
    /// - Throws: ``Unusable`` if the relay could not serve it.
    package func inspect() throws -> String {
        guard access(path, F_OK) == 0 else {
            let folder = (path as NSString).deletingLastPathComponent
            guard access(folder.isEmpty ? "." : folder, W_OK) == 0 else {
                throw Unusable(description: "\(path) is missing and its folder cannot be written")
            }
            return "\(path) does not exist yet and will be created"
        }
        guard access(path, R_OK | W_OK) == 0 else { throw Self.unusable("\(path) cannot be read and written") }
        do {
            var configuration = Self.configuration("pushchat check")
            configuration.readonly = true
            return try DatabaseQueue(path: path, configuration: configuration).read { db in
                try requireOurs(db)
                let found = try knownVersion(db)
                let members = try db.value("SELECT count(*) FROM active_users") ?? 0
                let waiting = try db.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") ?? 0
                return "\(path), schema version \(found), \(members) members, \(waiting) pushes to send"
            }
        } catch let error as Unusable {
            throw error
        } catch {
            throw Unusable(description: "\(path) cannot be read as a database: \(error)")
        }
    }

    /// Refuses another program's file.
    func requireOurs(_ db: Database) throws {
        guard try Int.fetchOne(db, sql: "PRAGMA application_id") == Schema.applicationID else {
            throw Unusable(description: "\(path) is a database of another program")
        }
    }

    /// The schema version, up to the one that this program knows.
    func knownVersion(_ db: Database) throws -> Int {
        let found = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
        guard found <= schema.version else {
            throw Unusable(
                description: "\(path) has schema version \(found), newer than this pushchat knows; run the newer one")
        }
        return found
    }
}
