#if PostgreSQL
import ChatDomain

/// A transaction on one connection. Statements are queued, and sent together when an answer is wanted; BEGIN goes with the
/// first. For the thread that it was handed to.
final class PostgresTransaction {
    /// How a transaction is begun, and how long it may take.
    struct Terms: Sendable {
        let isReading: Bool
        /// For each statement by the server's clock, and for all by ours.
        let limit: Duration
        let schema: String?
    }

    /// Candidates for a page that are looked at: some milliseconds. So a page costs the same however many rows there are and
    /// however few of them are wanted.
    static let pageWindow = 5000

    private let connection: PostgresConnection
    private let terms: Terms
    private let channel: AnnouncementChannel
    private var isBegun = false
    /// Of a statement that could not even be queued.
    private var failure: PostgresError?
    /// What the commit will tell all relays, in one NOTIFY.
    var announcement = Announcement()

    init(_ connection: PostgresConnection, _ terms: Terms, _ channel: AnnouncementChannel) {
        self.connection = connection
        self.terms = terms
        self.channel = channel
        connection.deadline = .now + terms.limit
    }

    // MARK: - Statements

    /// Sends a statement with what was queued before it and reads its rows.
    func rows(_ sql: String, _ values: [PostgresValue] = []) throws -> [PostgresRow] {
        try result(sql, values).rows
    }

    /// The first row.
    func row(_ sql: String, _ values: [PostgresValue] = []) throws -> PostgresRow? {
        try result(sql, values).rows.first
    }

    /// - Returns: how many rows it changed.
    @discardableResult
    func run(_ sql: String, _ values: [PostgresValue] = []) throws -> Int {
        try result(sql, values).count
    }

    /// Queues a statement whose answer nobody needs: it goes with the next one that is read, or with COMMIT. Its error fails
    /// the transaction.
    func pipeline(_ sql: String, _ values: [PostgresValue] = []) {
        do throws(PostgresError) {
            try begin()
            try connection.send(sql, values)
        } catch {
            failure = failure ?? error
        }
    }

    /// The wanted rows of a page, and the cursor of the next page; nil at the end.
    /// - Parameter sql: candidates in the order of the list, at least one more than `limit` or ``pageWindow``, where there are
    ///   so many. The first column is what the cursor counts by.
    func page(
        _ sql: String, _ values: [PostgresValue], limit: Int, where isWanted: (PostgresRow) -> Bool = { _ in true }
    ) throws -> (rows: [PostgresRow], next: Int64?) {
        var (rows, looked, last) = ([PostgresRow](), 0, Int64?.none)
        for row in try self.rows(sql, values) {
            guard rows.count < limit, looked < Self.pageWindow else { return (rows, last) }
            looked += 1
            last = try row.int(0)
            if isWanted(row) { rows.append(row) }
        }
        return (rows, nil)
    }

    private func result(_ sql: String, _ values: [PostgresValue]) throws(PostgresError) -> PostgresResult {
        try begin()
        try connection.send(sql, values)
        return try answer()
    }

    /// The last statement's.
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
        // A relay that is stopped in the middle keeps its locks no longer than that, and one whose machine is gone no longer than
        // half a minute. Compiling takes longer than most statements run, and the server compiles by an estimate of their cost
        // that is often far too high.
        let milliseconds = String(terms.limit.milliseconds)
        try connection.send(
            """
            SELECT set_config('statement_timeout', $1::text, true),
                set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('jit', 'off', true),
                set_config('tcp_keepalives_idle', '10', true), set_config('tcp_keepalives_interval', '5', true),
                set_config('tcp_keepalives_count', '3', true),
                CASE WHEN $2::text IS NULL THEN NULL ELSE set_config('search_path', quote_ident($2::text), true) END
            """, [.text(milliseconds), .optional(terms.schema)])
    }

    // MARK: - Its end

    /// Commits, with what is queued and what is to be announced. Throws ``PostgresError/Kind/inDoubt`` when nobody knows.
    func commit() throws(PostgresError) {
        guard isBegun else { return }
        if !announcement.isEmpty {
            for values in channel.values(announcement) { pipeline(AnnouncementChannel.sql, values) }
        }
        if let failure { throw failure }
        do throws(PostgresError) {
            try connection.send("COMMIT", [])
            let answer = try answer()
            // What was swallowed has failed the transaction, and COMMIT then says so without an error.
            guard answer.tag == "COMMIT" else {
                throw PostgresError(kind: .unexpected, message: "the transaction had failed before its COMMIT")
            }
        } catch {
            guard error.kind == .lost, !error.isStandby, !terms.isReading else { throw error }
            throw PostgresError(kind: .inDoubt, state: error.state, message: error.message)
        }
        isBegun = false
    }

    /// Ends a reading transaction without waiting for the answer, which ``drain()`` reads.
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

    /// Takes everything back. A connection on which that fails is not usable any more.
    func rollback() {
        guard isBegun, connection.isUsable else { return }
        isBegun = false
        // Apart from what is still queued, which may have failed already.
        try? connection.sync()
        _ = try? connection.answers()
        _ = try? connection.run("ROLLBACK")
    }
}
#endif
