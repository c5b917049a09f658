#if PostgreSQL
import ChatDomain
import EmbeddedFiles

/// The tables, and how older ones come to them. Whichever relay starts first does it; the others wait.
struct PostgresSchema: Sendable {
    let version: Int64
    /// Makes the tables in a schema without any.
    let sql: String
    /// `upgrades[n]` brings version n to n + 1. Every version that was ever released has one.
    let upgrades: [Int64: String]

    static let current = PostgresSchema(version: 1, sql: embedded, upgrades: [:])

    /// Of the first release that is known to have what is used.
    static let oldestServer = 14

    private static var embedded: String {
        let file = embedded_file("schema-postgres.sql")
        return String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
    }

    /// What a database says of itself when it is opened.
    struct Opened: Sendable {
        let idKey: [UInt8]
        /// Where the tables are.
        let schema: String
    }

    /// Waits for other relays that do the same; an upgrade takes as long as it takes.
    /// - Throws: ``PostgresPlace/Unusable``, or ``ChatError``.
    func bringUpToDate(_ place: PostgresPlace) throws -> Opened {
        try open(place, "READ WRITE") { connection in try bringUpToDate(connection, place) }
    }

    /// Of a database that has these tables, of this version: makes and upgrades nothing.
    /// - Throws: ``PostgresPlace/Unusable``, or ``ChatError``.
    func requireCurrent(_ place: PostgresPlace) throws -> Opened {
        try open(place, "READ ONLY") { connection in try requireCurrent(connection, place) }
    }

    /// - Parameter find: says where the tables are, within a transaction.
    private func open(
        _ place: PostgresPlace, _ access: String, find: (PostgresConnection) throws -> String
    ) throws -> Opened {
        do {
            let connection = try Self.connect(place)
            connection.deadline = .now + .seconds(3600)
            try connection.run("BEGIN ISOLATION LEVEL READ COMMITTED \(access)")
            let schema = try find(connection)
            let key = try connection.run("SELECT id_key FROM queue_state").first?.bytes(0)
            try connection.run("COMMIT")
            return Opened(idKey: key ?? [UInt8](repeating: 0, count: 16), schema: schema)
        } catch let error as PostgresError {
            if let reason = Self.lasting(error) { throw PostgresPlace.Unusable(description: reason) }
            throw ChatError(storing: error)
        }
    }

    /// - Throws: ``PostgresPlace/Unusable`` for a server that is too old, or ``PostgresError``.
    static func connect(_ place: PostgresPlace) throws -> PostgresConnection {
        let connection = try PostgresConnection(url: place.url)
        let major = connection.serverVersion / 10_000
        guard major >= Self.oldestServer else {
            throw PostgresPlace.Unusable(
                description: "the database's server is PostgreSQL \(major); at least \(Self.oldestServer) is needed")
        }
        return connection
    }

    /// What waiting does not mend.
    private static func lasting(_ error: PostgresError) -> String? {
        switch error.kind {
        case .refused, .unexpected: error.isServerProblem ? nil : "the database cannot be used: \(error)"
        case .lost, .inDoubt: nil
        }
    }

    /// Within the transaction that is open, until whose end all others wait.
    /// - Returns: where the tables are.
    func bringUpToDate(_ connection: PostgresConnection, _ place: PostgresPlace) throws -> String {
        if let schema = place.schema {
            // Two that make it at the same time would not both succeed.
            try lock(connection, schema)
            // Only who may make schemas may say this, even of one that is there.
            if try connection.run("SELECT 1 FROM pg_namespace WHERE nspname = $1::text", [.text(schema)]).isEmpty {
                try connection.run("CREATE SCHEMA \"\(schema.replacing("\"", with: "\"\""))\"")
            }
        }
        let schema = try enter(connection, place)
        try makeTables(connection, schema)
        return schema
    }

    /// The same of a database in which nothing is to be made or changed.
    @discardableResult
    func requireCurrent(_ connection: PostgresConnection, _ place: PostgresPlace) throws -> String {
        let schema = try enter(connection, place)
        guard try has("relay_schema", connection, schema) else {
            throw PostgresPlace.Unusable(
                description: """
                    schema \(schema) of the database has no relay's tables; start pushchat serve once, which makes them
                    """)
        }
        let found = try foundVersion(connection)
        guard found == version else {
            throw PostgresPlace.Unusable(
                description: "the database has schema version \(found); start pushchat serve once, which upgrades it")
        }
        return schema
    }

    private func enter(_ connection: PostgresConnection, _ place: PostgresPlace) throws -> String {
        if let schema = place.schema {
            try connection.run("SELECT set_config('search_path', quote_ident($1::text), true)", [.text(schema)])
        }
        let row = try connection.run("SELECT current_schema(), current_setting('server_encoding')").first
        if let encoding = try row?.text(1), encoding != "UTF8" {
            throw PostgresPlace.Unusable(
                description: "the database is in the encoding \(encoding); make one with createdb --encoding UTF8")
        }
        guard let schema = row?.optionalText(0) else {
            throw PostgresPlace.Unusable(
                description: place.schema.map { "the database has no schema \($0)" }
                    ?? "the database has no schema for this user's tables: set database.schema")
        }
        try lock(connection, schema)
        return schema
    }

    /// Of the tables that are there.
    /// - Throws: ``PostgresPlace/Unusable`` where they are a newer relay's.
    private func foundVersion(_ connection: PostgresConnection) throws -> Int64 {
        let found = try connection.run("SELECT version FROM relay_schema").first?.int(0) ?? 0
        guard found <= version else {
            throw PostgresPlace.Unusable(
                description: """
                    the database has schema version \(found), this pushchat knows up to \(version): it was last used by a \
                    newer one; run that, or name another in database.url or database.schema
                    """)
        }
        return found
    }

    /// Until the end of the transaction; taken again it does nothing.
    private func lock(_ connection: PostgresConnection, _ schema: String) throws {
        try connection.run(
            "SELECT pg_advisory_xact_lock(hashtextextended('pushchat schema ' || $1::text, 0))", [.text(schema)])
    }

    private func has(_ table: String, _ connection: PostgresConnection, _ schema: String) throws -> Bool {
        try !connection.run(
            "SELECT 1 FROM pg_tables WHERE schemaname = $1::text AND tablename = $2::text",
            [.text(schema), .text(table)]
        ).isEmpty
    }

    private func makeTables(_ connection: PostgresConnection, _ schema: String) throws {
        guard try has("relay_schema", connection, schema) else {
            if try has("push_queue", connection, schema) || has("active_users", connection, schema) {
                throw PostgresPlace.Unusable(
                    description: "schema \(schema) of the database has another program's tables: set database.schema")
            }
            try connection.runScript(sql)
            try connection.run("INSERT INTO relay_schema (id, version) VALUES (1, $1::bigint)", [.int(version)])
            return
        }
        let found = try foundVersion(connection)
        for step in found..<version {
            guard let upgrade = upgrades[step] else {
                throw PostgresPlace.Unusable(
                    description: "the database has schema version \(step), from which there is no upgrade")
            }
            try connection.runScript(upgrade)
            try connection.run("UPDATE relay_schema SET version = $1::bigint", [.int(step + 1)])
        }
    }
}
#endif
