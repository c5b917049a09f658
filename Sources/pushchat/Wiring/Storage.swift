import ChatDomain
import ChatStore
import ChatStorePostgres
import Dispatch
import Logging

/// The configured store, opened: a SQLite file or a PostgreSQL database.
struct Storage: Sendable {
    let ports: Stores
    let imports: any StoreImport
    private let end: @Sendable () throws -> Void

    /// Opens or creates the database. This may take seconds, and longer for an upgrade.
    ///
    /// - Throws: ``ChatError`` if the database is temporarily unavailable. Any other error needs the operator.
    static func open(
        _ database: Configuration.Database, settings: @escaping @Sendable () -> StoreSettings, logger: Logger
    ) async throws -> Storage {
        guard let url = database.url else {
            let stores = try SQLiteStores(file: DatabaseFile(path: database.path), settings: settings, logger: logger)
            return Storage(ports: stores.ports, imports: stores.imports, end: { try stores.close() })
        }
        let postgres = PostgresConfiguration(url: url.text, schema: database.schema, connections: database.connections)
        // This waits for the server.
        return try await withoutCooperation {
            let stores = try PostgresStores(configuration: postgres, settings: settings, logger: logger)
            return Storage(ports: stores.ports, imports: stores.imports, end: { stores.close() })
        }
    }

    /// Calls `body` with the queue of an existing database. Does not create or upgrade the database.
    ///
    /// - Throws: An error that needs the operator, and the errors of `body`.
    static func withQueue<Result>(
        _ database: Configuration.Database, _ body: (any QueueAdministration) async throws -> Result
    ) async throws -> Result {
        guard let url = database.url else { return try await body(QueueFile(path: database.path)) }
        let postgres = PostgresConfiguration(url: url.text, schema: database.schema)
        let queue = try await withoutCooperation { try PostgresQueueAdministration(configuration: postgres) }
        let result: Result
        do {
            result = try await body(queue)
        } catch {
            try? await withoutCooperation { queue.close() }
            throw error
        }
        try? await withoutCooperation { queue.close() }
        return result
    }

    /// The report of `pushchat check` about the database.
    struct Inspection: Sendable {
        let text: String
        var problems: [String] = []
        var pushesToSend: [AppName: Int] = [:]
        var pauses: [QueuePause] = []
        var members: [AppName: Int] = [:]
        /// Members' credentials whose user is unknown.
        var credentialsWithoutUser = 0
        var scheduled = ScheduledMessage.Backlog()
        var webhooks = WebhookTotals()
    }

    /// Inspects the database without changing it.
    ///
    /// - Throws: An error that needs the operator.
    static func inspect(_ database: Configuration.Database) async throws -> Inspection {
        guard let url = database.url else {
            let found = try DatabaseFile(path: database.path).inspect()
            return Inspection(
                text: found.text, pushesToSend: found.pushesToSend, pauses: found.pauses, members: found.members,
                credentialsWithoutUser: found.credentialsWithoutUser, scheduled: found.scheduled,
                webhooks: found.webhooks)
        }
        let postgres = PostgresConfiguration(url: url.text, schema: database.schema)
        let found = try await withoutCooperation { try postgres.inspect() }
        return Inspection(
            text: "\(database.description), \(found.text)", problems: found.problems, pushesToSend: found.pushesToSend,
            pauses: found.pauses, members: found.members, credentialsWithoutUser: found.credentialsWithoutUser,
            scheduled: found.scheduled, webhooks: found.webhooks)
    }

    /// Copies a SQLite file into a PostgreSQL database, or the reverse. The target must be empty or not exist.
    ///
    /// - Parameter isStopped: Called repeatedly. When it returns `true`, the copy ends with an error.
    /// - Throws: An error that needs the operator. The target then keeps nothing.
    static func copy(
        _ from: DatabasePlace, _ to: DatabasePlace, isStopped: @escaping @Sendable () -> Bool
    ) async throws -> [Migration.Copied] {
        switch (from, to) {
        case (.file(let from), .file): throw Failure("two files: copy \(from) with `pushchat backup`")
        case (.postgres, .postgres): throw Failure("two PostgreSQL databases: use pg_dump and pg_restore")
        case (.file(let path), .postgres(let url, let schema)):
            let postgres = PostgresConfiguration(url: url.text, schema: schema)
            return try await withoutCooperation {
                try SQLiteMigration.read(path) { source in
                    try PostgresMigration.write(postgres) { try copy(from: source, to: $0, isStopped) }
                }
            }
        case (.postgres(let url, let schema), .file(let path)):
            let postgres = PostgresConfiguration(url: url.text, schema: schema)
            return try await withoutCooperation {
                try PostgresMigration.read(postgres) { source in
                    try SQLiteMigration.write(
                        path,
                        interrupted: {
                            Output.note("an earlier migration to \(path) was interrupted: starting again")
                        }, { try copy(from: source, to: $0, isStopped) })
                }
            }
        }
    }

    private static func copy(
        from source: any MigrationSource, to target: any MigrationTarget, _ isStopped: () -> Bool
    ) throws -> [Migration.Copied] {
        let unknown = try source.unknown()
        if !unknown.isEmpty {
            Output.note("not the relay's, so not copied: \(unknown.joined(separator: ", ").oneLine)")
        }
        var line = ProgressLine()
        defer { line.end() }
        return try Migration.run(
            from: source, to: target,
            progress: { line.show("\($0.table): \($0.rows) rows \($0.isCheck ? "compared" : "copied")") },
            isStopped: isStopped)
    }

    /// Closes the database. Later calls of the ports fail.
    func close() async throws {
        try await Self.withoutCooperation { [end] in try end() }
    }

    /// Runs blocking work on a thread outside the cooperative pool.
    private static func withoutCooperation<Value: Sendable>(
        _ work: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { caller in
            DispatchQueue.global().async { caller.resume(with: Result(catching: work)) }
        }
    }
}

extension Configuration.Database {
    /// The database for the log: the file, or the URL without its secrets.
    var description: String {
        guard let url = url?.text else { return path }
        // Works on bytes, so that no combining character hides an `@`. A password may contain a `?`. With a `/` in the
        // password, the text is not a valid URL.
        let parts = url.utf8.split(separator: "://".utf8, maxSplits: 1)
        guard let rest = parts.dropFirst().first else { return "PostgreSQL" }
        let (authority, path) = (rest.prefix { $0 != UInt8(ascii: "/") }, rest.drop { $0 != UInt8(ascii: "/") })
        guard !path.contains(UInt8(ascii: "@")) else { return "PostgreSQL" }
        let host = authority.split(separator: UInt8(ascii: "@"), omittingEmptySubsequences: false).last ?? authority
        let address = "\(Substring(host))\(Substring(path))".utf8.prefix { $0 != UInt8(ascii: "?") }
        return "\(Substring(parts[0]))://\(Substring(address))" + (schema.map { " (schema \($0))" } ?? "")
    }
}
