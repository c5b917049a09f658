package import ChatDomain

/// A database that `pushchat migrate` reads or fills in one transaction. Use it only on the thread that runs `body`.
package final class PostgresMigration: MigrationTarget {
    /// Tables and columns that are not copied. Running relays need them for themselves. The partition of a push follows
    /// from its state and time.
    package static let leftOut: Set = [
        "relay_schema", "relay_starts", "push_queue.lease_start", "push_queue.settled_on", "push_queue.in_doubt",
        // Each database has a key of its own.
        "queue_state.channel_key",
    ]

    private let connection: PostgresConnection
    /// Days whose partitions exist.
    private var days: Set<String> = []
    /// Rows that are not sent yet.
    private var waiting: [UInt8] = []
    /// The number of bytes to send together.
    private static let piece = 1 << 16

    private init(connection: PostgresConnection) {
        self.connection = connection
    }

    // MARK: - The transaction

    /// Reads a database with the current schema version on which no relay runs. Other programs cannot write to it at
    /// the same time.
    /// - Throws: ``PostgresConfiguration/Unusable``, and the errors of `body`.
    package static func read<Result>(
        _ configuration: PostgresConfiguration, _ body: (PostgresMigration) throws -> Result
    ) throws -> Result {
        try inTransaction(configuration) { connection in
            try PostgresSchema.current.requireCurrent(connection, configuration)
            let migration = PostgresMigration(connection: connection)
            try migration.lock()
            return try body(migration)
        }
    }

    /// Creates the tables if necessary, and lets `body` fill them. An error rolls everything back. Relays that start at
    /// the same time wait.
    /// - Throws: ``PostgresConfiguration/Unusable``, also if the database is not empty, and the errors of `body`.
    package static func write<Result>(
        _ configuration: PostgresConfiguration, _ body: (PostgresMigration) throws -> Result
    ) throws -> Result {
        try inTransaction(configuration) { connection in
            _ = try PostgresSchema.current.bringUpToDate(connection, configuration)
            let migration = PostgresMigration(connection: connection)
            try migration.lock()
            try migration.requireEmpty()
            let result = try body(migration)
            // Autovacuum does not analyze partitioned tables.
            try connection.run("ANALYZE \(tables)")
            return result
        }
    }

    /// The time to wait for other programs' locks. Relays hold locks only briefly, other migrations for long.
    private static let lockLimit = "10s"

    private static func inTransaction<Result>(
        _ configuration: PostgresConfiguration, _ body: (PostgresConnection) throws -> Result
    ) throws -> Result {
        do {
            let connection = try PostgresSchema.connect(configuration)
            // Statements have no time limit. TCP keepalive detects a server that is gone.
            connection.deadline = .now + .seconds(7 * 86_400)
            try connection.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            try connection.run(
                """
                SELECT set_config(name, setting, true) FROM (VALUES
                    ('statement_timeout', '0'), ('idle_in_transaction_session_timeout', '0'), ('lock_timeout', $1::text),
                    ('timezone', 'UTC'), ('datestyle', 'ISO, YMD'), ('bytea_output', 'hex')) AS s (name, setting)
                """, [.text(lockLimit)])
            let result = try body(connection)
            try commit(connection)
            return result
        } catch let error as PostgresError {
            guard error.state == "55P03" else {
                throw PostgresConfiguration.Unusable(description: "PostgreSQL cannot be used: \(error)")
            }
            throw PostgresConfiguration.Unusable(
                description: "a relay, another migration or another program has the database's tables locked")
        }
    }

    private static func commit(_ connection: PostgresConnection) throws {
        do throws(PostgresError) {
            try connection.run("COMMIT")
        } catch {
            guard error.kind == .lost else { throw error }
            throw PostgresConfiguration.Unusable(
                description: """
                    the response to COMMIT was lost (\(error)): either all data was copied or \
                    none; run it again to find out
                    """)
        }
    }

    private static let tables = MigratedTable.all.map(\.name).joined(separator: ", ")

    /// Prevents writes by others and the start of relays until the end of the transaction.
    private func lock() throws {
        // Check before locking, because the lock would block running relays.
        try requireNoRelay()
        try connection.run("LOCK TABLE relay_starts, \(Self.tables) IN SHARE ROW EXCLUSIVE MODE")
        try requireNoRelay()
    }

    private func requireNoRelay() throws {
        let relays = try connection.run(
            """
            SELECT host FROM relay_starts
            WHERE time_ended IS NULL AND time_seen > clock_timestamp() - $1::bigint * interval '1 ms' ORDER BY start_id
            """, [.int(RelayHeartbeat.limit.milliseconds)]
        ).map { try $0.text(0) }
        guard !relays.isEmpty else { return }
        throw PostgresConfiguration.Unusable(
            description: """
                relays use the database (host and process: \(relays.joined(separator: ", "))); stop them first; one that \
                was killed is forgotten after \(RelayHeartbeat.limit.components.seconds) seconds
                """)
    }

    private func requireEmpty() throws {
        let filled = try MigratedTable.all.filter { table in
            // Every database has its one row.
            guard table.name != "queue_state" else { return false }
            return try !connection.run("SELECT 1 FROM \(table.name) LIMIT 1").isEmpty
        }
        guard !filled.isEmpty else { return }
        throw PostgresConfiguration.Unusable(
            description: """
                the database is not empty (\(filled.map(\.name).joined(separator: ", "))); name another one, or another \
                schema with --schema
                """)
    }

    // MARK: - Rows

    package func read(_ table: MigratedTable, _ row: (UnsafeRawBufferPointer) throws -> Void) throws {
        let columns = table.columns.map(Self.source).joined(separator: ", ")
        // With the table's name, because a source may have the same name as a key.
        let keys = table.columns.prefix(table.keys).map { column in
            "\(table.name).\(column.name)" + (column.kind == .text ? " COLLATE \"C\"" : "")
        }
        try connection.copy(
            "COPY (SELECT \(columns) FROM \(table.rows) ORDER BY \(keys.joined(separator: ", "))) TO STDOUT", row)
    }

    /// A column in the format of ``RowWriter``. A time that this format cannot express is written in one that the
    /// SQLite side refuses.
    private static func source(_ column: MigratedTable.Column) -> String {
        guard column.kind == .time else { return column.source }
        return """
            CASE WHEN isfinite(\(column.source)) AND extract(year FROM \(column.source)) BETWEEN 1 AND 9999
                THEN to_char(\(column.source), 'YYYY-MM-DD HH24:MI:SS.MS') ELSE \(column.source)::text || ' ' END
            """
    }

    package func write(
        _ table: MigratedTable, _ rows: (_ row: (UnsafeRawBufferPointer) throws -> Void) throws -> Void
    ) throws {
        try connection.run("DELETE FROM \(table.name)")
        let partition = QueuePartition(table)
        let columns = table.columns.map(\.name) + (partition == nil ? [] : ["settled_on"])
        let copy = "COPY \(table.name) (\(columns.joined(separator: ", "))) FROM STDIN"
        do {
            try connection.beginCopy(copy)
            try rows { try add($0, partition, copy) }
            try send()
            try connection.endCopy()
        } catch let error as PostgresError where error.kind == .refused {
            throw PostgresConfiguration.Unusable(description: "PostgreSQL refuses a row of \(table.name): \(error)")
        }
    }

    private func add(_ row: UnsafeRawBufferPointer, _ partition: QueuePartition?, _ copy: String) throws {
        if let partition {
            let day = try partition.day(of: row)
            if let day, !days.contains(day) {
                try send()
                try connection.endCopy()
                try connection.run("SELECT push_queue_add_day($1::date)", [.text(day)])
                days.insert(day)
                try connection.beginCopy(copy)
            }
            waiting.append(contentsOf: row.dropLast())
            waiting.append(contentsOf: "\t\(day ?? "\\N")\n".utf8)
        } else {
            waiting.append(contentsOf: row)
        }
        if waiting.count >= Self.piece { try send() }
    }

    private func send() throws {
        try waiting.withUnsafeBytes { try connection.copy($0) }
        waiting.removeAll(keepingCapacity: true)
    }

    /// The partition of a row: that of the day (UTC) on which the push was settled. A push that another program has
    /// settled without a time stays in the partition of due pushes, and a relay moves it.
    private struct QueuePartition {
        private let state: Int
        private let time: Int

        /// Returns `nil` for other tables.
        init?(_ table: MigratedTable) {
            guard table.name == "push_queue", let state = table.index(of: "state"),
                let time = table.index(of: "time_settled")
            else { return nil }
            (self.state, self.time) = (state, time)
        }

        func day(of row: UnsafeRawBufferPointer) throws -> String? {
            var reader = RowReader()
            var isPending = false
            var day: String?
            try reader.read(row) { index, bytes in
                if index == state { isPending = bytes?.elementsEqual("pending".utf8) ?? false }
                if index == time { day = bytes.map { String(decoding: $0.prefix(10), as: UTF8.self) } }
            }
            return isPending ? nil : day
        }
    }

    /// The highest id to accept, 2⁶² - 1. The check on the push ids of `push_queue` has the same limit. It leaves room
    /// for the next id.
    private static let highestNumber: Int64 = 1 << 62 - 1

    package func highestNumber(of table: MigratedTable) throws -> Int64 {
        let key = table.columns[0].name
        let row = try connection.run(
            """
            SELECT greatest(coalesce(pg_sequence_last_value(pg_get_serial_sequence($1::text, $2::text)::regclass), 0),
                (SELECT max(\(key)) FROM \(table.name)))
            """, [.text(table.name), .text(key)]
        ).first
        return try row?.int(0) ?? 0
    }

    package func setHighestNumber(of table: MigratedTable, _ number: Int64) throws {
        guard number <= Self.highestNumber else {
            throw PostgresConfiguration.Unusable(
                description: """
                    the highest id in \(table.name) was \(number), and PostgreSQL's ids end at \(Self.highestNumber): \
                    start pushchat serve once on the file, which gives such pushes other ids
                    """)
        }
        try connection.run(
            """
            SELECT setval(pg_get_serial_sequence($1::text, $2::text), greatest($3::bigint, 1), $3::bigint >= 1)
            """, [.text(table.name), .text(table.columns[0].name), .int(number)])
    }

    package func unknown() throws -> [String] {
        let columns = try connection.run(
            """
            SELECT c.relname::text, a.attname::text FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname, a.attnum
            """
        ).map { (table: try $0.text(0), column: try $0.text(1)) }
        let others = try connection.run(
            """
            SELECT CASE WHEN c.relkind = 'f' THEN 'foreign table ' ELSE 'view ' END || c.relname FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
            WHERE c.relkind IN ('v', 'm', 'f')
            UNION ALL
            SELECT 'trigger ' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
            WHERE NOT t.tgisinternal AND NOT c.relispartition
            ORDER BY 1
            """
        ).map { try $0.text(0) }
        return MigratedTable.unknown(among: columns, leftOut: Self.leftOut) + others
    }
}
