package import ChatDomain
import Foundation
import GRDB

/// Opens the database. Sets file modes and the journal, and checks the version.
package struct DatabaseFile: Sendable {
    /// The number of seconds that a statement waits for another process's lock. After that the client has to retry.
    static let busyTimeout: TimeInterval = 3
    /// The number of seconds that a command waits for other processes' writes.
    private static let commandTimeout: TimeInterval = 10
    /// The number of connections for reading history pages and lists. They never wait for the writer.
    static let readers = 4
    /// The page cache of the connection that scans the queue, in kilobytes. It can be small, because a scan goes
    /// through the queue once, from one end to the other.
    static let scannerCache = 500
    /// The number of bytes to which the write-ahead log is cut back after a checkpoint.
    static let journalSize = 64 << 20

    /// The reason why the file cannot be used, as a sentence for the operator.
    package struct Unusable: Error, CustomStringConvertible {
        package let description: String
    }

    package let path: String
    let schema: Schema
    private let isArgument: Bool
    private let freeSpace: @Sendable (_ folder: String) -> Int64?

    /// - Parameter isArgument: Whether an argument names the file, and not the setting `database.path`.
    package init(path: String, schema: Schema = .current, isArgument: Bool = false) {
        self.init(path: path, schema: schema, isArgument: isArgument, freeSpace: DatabaseCopy.freeSpace)
    }

    init(
        path: String, schema: Schema = .current, isArgument: Bool = false,
        freeSpace: @escaping @Sendable (_ folder: String) -> Int64?
    ) {
        self.path = path
        self.schema = schema
        self.isArgument = isArgument
        self.freeSpace = freeSpace
    }

    /// The result of an upgrade.
    struct Upgrade: Sendable {
        let from: Int
        /// The path of the copy that was made before the upgrade.
        let copy: String
    }

    /// Creates the file if it is missing and upgrades it if it is older. Refuses a file that is newer or belongs to
    /// another program. An upgrade first makes a copy beside the file. The copy stays unless the upgrade fails.
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

    /// Refuses a file that needs an upgrade. Only the relay upgrades, because it holds the lock.
    package func requireCurrent() throws {
        guard let version = try outdatedVersion() else { return }
        throw Unusable(
            description: "\(path) has schema version \(version); start pushchat serve once, which upgrades it")
    }

    /// The version of a file that needs an upgrade. `nil` if it needs none.
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
            // An upgrade is impossible while another program writes. Find that out before the copy is made.
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
        // Only after opening: the pool sets NORMAL after `prepareDatabase`, and NORMAL can lose commits in a power cut.
        try pool.writeWithoutTransaction { db in try db.execute(sql: "PRAGMA synchronous = FULL") }
        try schema.bringUpToDate(pool, path: path)
        return pool
    }

    /// Opens another read-only connection to a file that ``open()`` has opened.
    func openScanner() throws -> DatabaseQueue {
        var configuration = Self.configuration("pushchat scanner")
        configuration.readonly = true
        configuration.prepareDatabase { db in try db.execute(sql: "PRAGMA cache_size = -\(Self.scannerCache)") }
        return try DatabaseQueue(path: path, configuration: configuration)
    }

    /// Opens a connection for a command, to a file that exists, of any schema version.
    func openExisting() throws -> DatabaseQueue {
        guard access(path, F_OK) == 0 else {
            throw Unusable(description: "\(path) does not exist; \(advice)")
        }
        try requireNotForeign()
        do {
            return try connect()
        } catch let error as DatabaseError {
            throw unopened(error)
        }
    }

    private func unopened(_ error: any Error) -> Unusable {
        let problem = error.isDiskProblem ? "cannot be opened now" : "cannot be opened as a database"
        return Unusable(description: "\(path) \(problem): \((error as? DatabaseError)?.reason ?? "\(error)")")
    }

    /// Opens a connection for a command.
    /// - Throws: ``Unusable``, and SQLite's own errors.
    func connect() throws -> DatabaseQueue {
        let queue = try DatabaseQueue(
            path: path, configuration: Self.configuration("pushchat queue", busyTimeout: Self.commandTimeout))
        try queue.read(requireOurs)
        return queue
    }

    /// The settings that all connections share.
    static func configuration(_ label: String, busyTimeout: TimeInterval = busyTimeout) -> GRDB.Configuration {
        var configuration = GRDB.Configuration()
        configuration.label = label
        configuration.busyMode = .timeout(busyTimeout)
        configuration.prepareDatabase { db in
            db.addTimeFunctions()
            try db.execute(sql: "PRAGMA temp_store = MEMORY")
            // Overwrites deleted content with zeros. Debian's SQLite does so by default.
            try db.execute(sql: "PRAGMA secure_delete = ON")
        }
        return configuration
    }

    /// Resolves symbolic links in a path. SQLite names the files beside the database after the resolved path.
    package static func resolved(_ path: String) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return String(cString: real)
    }

    static func folder(of path: String) -> String {
        let folder = (path as NSString).deletingLastPathComponent
        return folder.isEmpty ? "." : folder
    }

    /// Refuses an open file that is not a regular file. Root also refuses a file with several hard links, because it
    /// may belong to another user.
    static func requirePlain(_ descriptor: Int32, _ path: String) throws(Unusable) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw unusable("\(path) cannot be inspected") }
        try requirePlain(status, path)
    }

    private static func requirePlain(_ status: stat, _ path: String) throws(Unusable) {
        guard status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1 || FileRights.current.user != 0 else {
            throw Unusable(description: "\(path) is not a file with a single name; remove it, then try again")
        }
    }

    /// Adds the system's description of the error number.
    static func unusable(_ problem: String, _ number: Int32 = errno) -> Unusable {
        Unusable(description: "\(problem): \(String(cString: strerror(number)))")
    }

    /// Refuses a file that is not a database or belongs to another program, by its first bytes. Such a file is not
    /// changed, not even its mode, and no file is created beside it.
    ///
    /// Must be called before this process opens the database, because closing a descriptor of it drops SQLite's locks.
    /// - Throws: ``Unusable``. A missing or empty file is accepted.
    func requireNotForeign() throws(Unusable) {
        // `O_NONBLOCK`: opening a pipe must not block.
        let descriptor = Foundation.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return }
            throw Self.unusable("\(path) cannot be opened")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw Unusable(description: "\(path) is not a file; \(advice)")
        }
        guard status.st_size > 0 else { return }
        // sqlite.org, "Database File Format", sections 1.3 and 1.6: the database header, then the header of the page
        // that lists the tables.
        var head = [UInt8](repeating: 0, count: 108)
        guard pread(descriptor, &head, head.count, 0) == head.count, head.starts(with: "SQLite format 3\0".utf8) else {
            throw Unusable(description: "\(path) cannot be opened as a database: it is a file of another kind")
        }
        let applicationID = head[68..<72].reduce(0) { $0 << 8 | Int($1) }
        let hasTables = head[100] != 0x0D || head[103] != 0 || head[104] != 0
        guard applicationID == Schema.applicationID || (applicationID == 0 && !hasTables) else { throw ofAnother }
        // The first transaction may still be only in the write-ahead log, so let SQLite read it.
        guard applicationID == 0, access(Self.resolved(path) + "-wal", F_OK) == 0 else { return }
        var configuration = Self.configuration("pushchat look")
        configuration.readonly = true
        let isForeign = try? DatabaseQueue(path: path, configuration: configuration).read(Schema.isForeign)
        if isForeign == true { throw ofAnother }
    }

    var ofAnother: Unusable {
        Unusable(description: "\(path) is a database of another program; \(advice)")
    }

    /// The advice to a user who named a wrong file.
    private var advice: String {
        isArgument ? "name a relay's file, or a copy of it" : "name the relay's file with --database or database.path"
    }

    /// Creates the file with mode 0600 before SQLite opens it: the journal's files inherit its mode.
    private func createPrivate() throws {
        let descriptor = FileRights.openOrCreate(path)
        guard descriptor >= 0 else { throw Self.unusable("\(path) cannot be opened") }
        defer { close(descriptor) }
        let real = Self.resolved(path)
        guard fchmod(descriptor, 0o600) == 0 else { throw Self.unusable("the mode of \(real) cannot be set to 0600") }
        for file in [real + "-wal", real + "-shm"] {
            var status = stat()
            guard lstat(file, &status) == 0 else {
                if errno == ENOENT { continue }
                throw Self.unusable("\(file) cannot be inspected")
            }
            try Self.requirePlain(status, file)
            // By name, because closing a descriptor of `-shm` would drop SQLite's locks.
            guard fchmodat(AT_FDCWD, file, 0o600, AT_SYMLINK_NOFOLLOW) == 0 else {
                throw Self.unusable("the mode of \(file) cannot be set to 0600")
            }
        }
    }
}

extension DatabaseFile {
    /// The report of `check` about a file.
    package struct Inspection: Sendable {
        package let text: String
        /// Counts by app.
        package var pushesToSend: [AppName: Int] = [:]
        package var pauses: [QueuePause] = []
        package var members: [AppName: Int] = [:]
        /// Members' credentials whose user is unknown.
        package var credentialsWithoutUser = 0
        package var scheduled = ScheduledMessage.Backlog()
        package var webhooks = WebhookTotals()
    }

    /// Inspects the file without changing it.
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
                let pauses = try db.tableExists("queue_pauses") ? SQLiteTransaction(db).queuePauses() : []
                let unknown: Int? = try found < 11 ? nil : db.value(Credential.countWithoutUserSQL)
                var inspection = Inspection(
                    text: text, pushesToSend: pushes, pauses: pauses, members: members,
                    credentialsWithoutUser: unknown ?? 0)
                if found >= 13, let row = try SQLiteTransaction(db).row(ScheduledMessage.Backlog.sql(at: .now())) {
                    inspection.scheduled = try ScheduledMessage.Backlog(row)
                }
                if found >= 15, let row = try SQLiteTransaction(db).row(WebhookTotals.sql) {
                    inspection.webhooks = try WebhookTotals(row)
                }
                return inspection
            }
        } catch let error as Unusable {
            throw error
        } catch {
            throw unopened(error)
        }
    }

    /// Refuses a file of another program.
    func requireOurs(_ db: Database) throws {
        guard try Int.fetchOne(db, sql: "PRAGMA application_id") == Schema.applicationID else { throw ofAnother }
    }

    /// The schema version of the file: the current one, or one that the relay can upgrade.
    func knownVersion(_ db: Database) throws -> Int {
        let found = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
        try schema.requireKnown(found, path: path)
        return found
    }

    /// Refuses an outdated schema, for commands that neither create nor upgrade tables.
    func requireCurrent(_ db: Database) throws {
        let found = try knownVersion(db)
        guard found == schema.version else {
            throw Unusable(
                description: "\(path) has schema version \(found); start pushchat serve once, which upgrades it")
        }
    }
}
