package import ChatDomain
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
    private let freeSpace: @Sendable (_ folder: String) -> Int64?

    package init(path: String, schema: Schema = .current) {
        self.init(path: path, schema: schema, freeSpace: DatabaseCopy.freeSpace)
    }

    init(path: String, schema: Schema = .current, freeSpace: @escaping @Sendable (_ folder: String) -> Int64?) {
        self.path = path
        self.schema = schema
        self.freeSpace = freeSpace
    }

    /// What an upgrade did.
    struct Upgrade: Sendable {
        let from: Int
        /// The file as it was before.
        let copy: String
    }

    /// Creates the file if it is missing, upgrades it if it is older, refuses it if it is newer or not ours. Before an upgrade a
    /// copy is made beside it, which stays unless the upgrade fails.
    func open() throws -> (DatabasePool, Upgrade?) {
        try requireNotForeign()
        try createPrivate()
        let upgrade = try outdatedVersion().map { version in
            Upgrade(
                from: version, copy: try DatabaseCopy.beforeUpgrade(of: path, version: version, freeSpace: freeSpace))
        }
        do {
            return (try openUpgrading(), upgrade)
        } catch {
            if let upgrade { unlink(upgrade.copy) }
            throw error
        }
    }

    /// Refuses a file that is to be upgraded: that is for the relay, which holds the lock.
    package func requireCurrent() throws {
        guard let version = try outdatedVersion() else { return }
        throw Unusable(
            description: "\(path) has schema version \(version); start pushchat serve once, which upgrades it")
    }

    /// Nil where nothing is to be upgraded.
    private func outdatedVersion() throws -> Int? {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return nil }
        do {
            let queue = try DatabaseQueue(path: path, configuration: Self.configuration("pushchat version"))
            defer { try? queue.close() }
            let version: Int? = try queue.read { db in
                guard try Int.fetchOne(db, sql: "PRAGMA application_id") == Schema.applicationID else { return nil }
                let version = try knownVersion(db)
                return version < schema.version ? version : nil
            }
            // While another program writes there can be no upgrade: nothing is copied in vain.
            if version != nil { try queue.inTransaction(.immediate) { _ in .commit } }
            return version
        } catch let error as Unusable {
            throw error
        } catch  where error.isDiskProblem {
            throw ChatError(storing: error)
        } catch {
            throw Unusable(description: "\(path) cannot be opened as a database: \(error)")
        }
    }

    private func openUpgrading() throws -> DatabasePool {
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
        configuration.prepareDatabase { db in
            try db.execute(sql: "PRAGMA temp_store = MEMORY")
            // Debian's SQLite does so by itself: the bytes of what is deleted are overwritten with zeros.
            try db.execute(sql: "PRAGMA secure_delete = ON")
        }
        return configuration
    }

    /// Where a name leads to, through symbolic links, as SQLite names the files beside it.
    package static func resolved(_ path: String) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return String(cString: real)
    }

    static func folder(of path: String) -> String {
        let folder = (path as NSString).deletingLastPathComponent
        return folder.isEmpty ? "." : folder
    }

    /// Refuses an open file that is no regular one. Root also refuses one with another name, which may be another user's.
    static func requirePlain(_ descriptor: Int32, _ path: String) throws(Unusable) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw unusable("\(path) cannot be looked at") }
        try requirePlain(status, path)
    }

    private static func requirePlain(_ status: stat, _ path: String) throws(Unusable) {
        guard status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1 || FileRights.current.user != 0 else {
            throw Unusable(description: "\(path) is not a file with a single name; remove it, then try again")
        }
    }

    /// With the system's words.
    static func unusable(_ problem: String, _ number: Int32 = errno) -> Unusable {
        Unusable(description: "\(problem): \(String(cString: strerror(number)))")
    }

    /// Refuses what is no database, or another program's, by its first bytes: nothing of such a file is changed, not even its
    /// mode, and nothing is made beside it.
    ///
    /// To be called before this process has opened the database: closing a descriptor of it drops SQLite's locks.
    /// - Throws: ``Unusable``. A file that is missing or empty is none that belongs to somebody.
    func requireNotForeign() throws(Unusable) {
        // A pipe is not waited for.
        let descriptor = Foundation.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return }
            throw Self.unusable("\(path) cannot be opened")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw Unusable(description: "\(path) is no file; name a file in database.path")
        }
        guard status.st_size > 0 else { return }
        // SQLite's file format, §1.3 and §1.6: the header, then that of the page which lists the tables.
        var head = [UInt8](repeating: 0, count: 108)
        guard pread(descriptor, &head, head.count, 0) == head.count, head.starts(with: "SQLite format 3\0".utf8) else {
            throw Unusable(description: "\(path) cannot be opened as a database: it is a file of another kind")
        }
        let applicationID = head[68..<72].reduce(0) { $0 << 8 | Int($1) }
        let hasTables = head[100] != 0x0D || head[103] != 0 || head[104] != 0
        guard applicationID == Schema.applicationID || (applicationID == 0 && !hasTables) else { throw ofAnother }
        // A first transaction may still be in the write-ahead log: SQLite reads it.
        guard applicationID == 0, access(Self.resolved(path) + "-wal", F_OK) == 0 else { return }
        var configuration = Self.configuration("pushchat look")
        configuration.readonly = true
        let isForeign = try? DatabaseQueue(path: path, configuration: configuration).read(Schema.isForeign)
        if isForeign == true { throw ofAnother }
    }

    var ofAnother: Unusable {
        Unusable(description: "\(path) is a database of another program; name another file in database.path")
    }

    /// The file must exist with mode 0600 before SQLite sees it: the journal's files take their mode from it.
    private func createPrivate() throws {
        let descriptor = Foundation.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Self.unusable("\(path) cannot be opened") }
        defer { close(descriptor) }
        let real = Self.resolved(path)
        guard fchmod(descriptor, 0o600) == 0 else { throw Self.unusable("the mode of \(real) cannot be set to 0600") }
        for file in [real + "-wal", real + "-shm"] {
            var status = stat()
            guard lstat(file, &status) == 0 else {
                if errno == ENOENT { continue }
                throw Self.unusable("\(file) cannot be looked at")
            }
            try Self.requirePlain(status, file)
            // By name: closing a descriptor of `-shm` would drop SQLite's locks.
            guard fchmodat(AT_FDCWD, file, 0o600, AT_SYMLINK_NOFOLLOW) == 0 else {
                throw Self.unusable("the mode of \(file) cannot be set to 0600")
            }
        }
    }
}

extension DatabaseFile {
    /// What `check` says of a file.
    package struct Inspection: Sendable {
        package let text: String
        /// By app.
        package var pushesToSend: [AppName: Int] = [:]
        package var members: [AppName: Int] = [:]
    }

    /// Looks without changing anything.
    /// - Throws: ``Unusable`` if the relay could not serve it.
    package func inspect() throws -> Inspection {
        guard access(path, F_OK) == 0 else {
            guard access(Self.folder(of: path), W_OK) == 0 else {
                throw Unusable(description: "\(path) is missing and its folder cannot be written")
            }
            return Inspection(text: "\(path) does not exist yet and will be created")
        }
        guard access(path, R_OK | W_OK) == 0 else { throw Self.unusable("\(path) cannot be read and written") }
        try requireNotForeign()
        do {
            var configuration = Self.configuration("pushchat check")
            configuration.readonly = true
            return try DatabaseQueue(path: path, configuration: configuration).read { db in
                try requireOurs(db)
                let found = try knownVersion(db)
                func count(_ table: String) throws -> [AppName: Int] {
                    try db.rows("SELECT app, count(*) FROM \(table) GROUP BY app")
                        .reduce(into: [:]) { $0[AppName($1[0])] = $1[1] }
                }
                let (members, pushes) = try (count("active_users"), count("push_queue WHERE state = 'pending'"))
                let text = """
                    \(path), schema version \(found), \(members.values.reduce(0, +)) members, \
                    \(pushes.values.reduce(0, +)) pushes to send
                    """
                return Inspection(text: text, pushesToSend: pushes, members: members)
            }
        } catch let error as Unusable {
            throw error
        } catch {
            throw Unusable(description: "\(path) cannot be read as a database: \(error)")
        }
    }

    /// Refuses another program's file.
    func requireOurs(_ db: Database) throws {
        guard try Int.fetchOne(db, sql: "PRAGMA application_id") == Schema.applicationID else { throw ofAnother }
    }

    /// The schema version: the current one, or one that the relay can upgrade.
    func knownVersion(_ db: Database) throws -> Int {
        let found = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
        try schema.requireKnown(found, path: path)
        return found
    }

    /// For what neither makes nor upgrades tables.
    func requireCurrent(_ db: Database) throws {
        let found = try knownVersion(db)
        guard found == schema.version else {
            throw Unusable(
                description: "\(path) has schema version \(found); start pushchat serve once, which upgrades it")
        }
    }
}
