import ChatDomain
package import ChatSQL

/// A transaction on one connection. Statements are queued and sent together when the caller reads a result. BEGIN goes
/// with the first one. Use it only on the connection's thread.
package final class PostgresTransaction: SQLTransaction {
    /// The mode and the time limit of a transaction.
    struct Terms: Sendable {
        let isReading: Bool
        /// The server enforces it for each statement, and the relay for the whole transaction.
        let limit: Duration
        let schema: String?
    }

    package static var dialect: SQLDialect { .postgres }
    private let connection: PostgresConnection
    private let terms: Terms
    private let channel: AnnouncementChannel
    private var isBegun = false
    /// The error of a statement that could not be queued.
    private var failure: PostgresError?
    /// The commit sends it to all relays, in one NOTIFY.
    package var announcement = Announcement()

    init(_ connection: PostgresConnection, _ terms: Terms, _ channel: AnnouncementChannel) {
        self.connection = connection
        self.terms = terms
        self.channel = channel
        connection.deadline = .now + terms.limit
    }

    // MARK: - Statements

    package func each(_ sql: String, _ values: [SQLValue], _ body: (PostgresRow) throws -> Bool) throws {
        for row in try rows(sql, values) where try !body(row) { return }
    }

    /// Sends the queued statements and this one, and returns its rows.
    package func rows(_ sql: String, _ values: [SQLValue] = []) throws -> [PostgresRow] {
        try result(sql, values).rows
    }

    /// Returns the first row of ``rows(_:_:)``. `nil` if there is none.
    package func row(_ sql: String, _ values: [SQLValue] = []) throws -> PostgresRow? {
        try result(sql, values).rows.first
    }

    /// - Returns: The number of rows that it changed.
    @discardableResult
    package func run(_ sql: String, _ values: [SQLValue] = []) throws -> Int {
        try result(sql, values).count
    }

    /// Queues a statement whose result is not needed. It is sent with the next statement whose result is read, or with
    /// COMMIT. Its error fails the transaction.
    package func pipeline(_ sql: String, _ values: [SQLValue] = []) {
        do throws(PostgresError) {
            try begin()
            try connection.send(sql, values)
        } catch {
            failure = failure ?? error
        }
    }

    package func lock(_ locks: [(SQLLock, String)]) {
        guard !locks.isEmpty else { return }
        pipeline(
            """
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended(name, kind) AS key FROM unnest($1::text[], $2::bigint[]) AS l (name, kind)
                ORDER BY key) k
            """, [.texts(locks.map(\.1)), .ints(locks.map(\.0.rawValue))])
    }

    /// Waits until no transaction is banning this client address. Joins from it do not wait for each other.
    func lockShared(address: String?) {
        guard let address = BannedAddress.text(of: address) else { return }
        pipeline(
            "SELECT pg_advisory_xact_lock_shared(hashtextextended($1::text, \(SQLLock.address.rawValue)))",
            [.text(address)])
    }

    package func collision(with subject: String) -> any Error { PostgresError.collision(subject) }

    private func result(_ sql: String, _ values: [SQLValue]) throws(PostgresError) -> PostgresResult {
        try begin()
        try connection.send(sql, values)
        return try answer()
    }

    /// The result of the last statement.
    private func answer() throws(PostgresError) -> PostgresResult {
        if let failure { throw failure }
        try connection.sync()
        guard let last = try connection.answers().last else { throw .lost("the server did not answer") }
        return last
    }

    private func begin() throws(PostgresError) {
        guard !isBegun else { return }
        isBegun = true
        try connection.send(
            "BEGIN ISOLATION LEVEL READ COMMITTED \(terms.isReading ? "READ ONLY" : "READ WRITE")", [])
        // Bound the time for which locks are held: `limit` if the relay stops in the middle, and half a minute if its
        // machine is gone. Turn JIT off: compilation takes longer than most statements run, and the server decides on
        // it by a cost estimate that is often far too high.
        let milliseconds = String(terms.limit.milliseconds)
        try connection.send(
            """
            SELECT set_config('statement_timeout', $1::text, true),
                set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('jit', 'off', true),
                set_config('lock_timeout', '0', true), set_config('bytea_output', 'hex', true),
                set_config('tcp_keepalives_idle', '10', true), set_config('tcp_keepalives_interval', '5', true),
                set_config('tcp_keepalives_count', '3', true),
                CASE WHEN $2::text IS NULL THEN NULL ELSE set_config('search_path', quote_ident($2::text), true) END
            """, [.text(milliseconds), .optional(terms.schema)])
    }

    // MARK: - Commit and rollback

    /// Commits, after sending the queued statements and the announcement. Throws ``PostgresError/Kind/inDoubt`` if it
    /// is unknown whether the commit succeeded.
    func commit() throws(PostgresError) {
        guard isBegun else { return }
        if !announcement.isEmpty {
            for values in channel.values(announcement) { pipeline(AnnouncementChannel.sql, values) }
        }
        if let failure { throw failure }
        do throws(PostgresError) {
            try connection.send("COMMIT", [])
            let answer = try answer()
            // If an earlier error was caught, the transaction has failed, and COMMIT rolls back without an error.
            guard answer.tag == "COMMIT" else {
                throw PostgresError(kind: .unexpected, message: "the transaction had failed before its COMMIT")
            }
        } catch {
            guard error.kind == .lost, !error.isStandby, !terms.isReading else { throw error }
            throw PostgresError(kind: .inDoubt, state: error.state, message: error.message)
        }
        isBegun = false
    }

    /// Sends the commit of a reading transaction without waiting for its result. ``drain()`` reads it.
    func commitLater() throws(PostgresError) {
        guard isBegun else { return }
        if let failure { throw failure }
        try connection.send("COMMIT", [])
        try connection.sync()
    }

    func drain() throws(PostgresError) {
        guard isBegun else { return }
        isBegun = false
        _ = try connection.answers()
    }

    /// Rolls back. If that fails, the connection is no longer usable.
    func rollback() {
        guard isBegun, connection.isUsable else { return }
        isBegun = false
        // Separate from queued statements, which may have failed already.
        try? connection.sync()
        _ = try? connection.answers()
        _ = try? connection.run("ROLLBACK")
    }
}
