package import ChatDomain

/// A transaction of either database. Use it only inside the call that received it.
package protocol SQLTransaction {
    associatedtype Row: SQLRow
    static var dialect: SQLDialect { get }

    /// Passes the rows to `body`, one after another, until it returns false. A row is valid until the next one.
    func each(_ sql: String, _ values: [SQLValue], _ body: (Row) throws -> Bool) throws
    func rows(_ sql: String, _ values: [SQLValue]) throws -> [Row]
    /// The first row. `nil` if there is none.
    func row(_ sql: String, _ values: [SQLValue]) throws -> Row?
    /// - Returns: The number of rows that the statement changed.
    @discardableResult
    func run(_ sql: String, _ values: [SQLValue]) throws -> Int
    /// Runs a statement whose result is not needed. PostgreSQL gets it together with the next statement.
    func pipeline(_ sql: String, _ values: [SQLValue]) throws
    /// Waits for these locks, and holds them until the end. Later statements read the commits of the transactions that
    /// held them before. SQLite has one writer and needs none.
    func lock(_ locks: [(SQLLock, String)]) throws
    /// The changes that the commit reports to the listeners of all relays.
    var announcement: Announcement { get nonmutating set }
    /// An error after which the transaction runs again, because another one has changed a row that it had read. SQLite
    /// has no other one.
    func collision(with subject: String) -> any Error
}

extension SQLTransaction {
    package var dialect: SQLDialect { Self.dialect }

    package func row(_ sql: String) throws -> Row? { try row(sql, []) }

    /// Makes PostgreSQL use the indexes for the rest of the transaction, whatever it believes about the tables' sizes.
    package func useIndexes() throws {
        if dialect == .postgres { try pipeline("SET LOCAL enable_seqscan = off", []) }
    }

    package func lock(_ name: String) throws { try lock([(.named, name)]) }

    package func lock(room: SecretCode) throws { try lock([(.room, room.text)]) }

    /// Takes the id of the next chat message, so that no chat message gets it. For a number that clients of a room compare
    /// with message ids, the caller holds the room's lock: in a room, they grow in the order of the commits.
    package func nextMessageID() throws -> MessageID {
        let row: Row?
        switch dialect {
        case .postgres: row = try self.row("SELECT nextval('messages_message_id_seq')")
        case .sqlite:
            try run(
                """
                INSERT INTO sqlite_sequence (name, seq)
                SELECT 'messages', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'messages')
                """, [])
            row = try self.row("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'messages' RETURNING seq")
        }
        guard let row else { throw ChatError(.internalError, "the database returned no id") }
        return try row.int(0)
    }

    /// The matching rows of a page, and the cursor of the next page. The cursor is `nil` on the last page.
    /// - Parameter sql: Selects candidates in the order of the list. It has to return at least one more than `limit` or
    ///   ``SQLPage/window``, if the table has that many. The first column is the cursor.
    package func page(
        _ sql: String, _ values: [SQLValue], limit: Int, where isWanted: (Row) throws -> Bool = { _ in true }
    ) throws -> (rows: [Row], next: Int64?) {
        var (page, rows) = (SQLPage(limit: limit), [Row]())
        try each(sql, values) { row in
            guard try page.examines(row.int(0), found: rows.count) else { return false }
            if try isWanted(row) { rows.append(row.copy()) }
            return true
        }
        return (rows, page.next)
    }
}

/// Decides where a page of a list ends.
package struct SQLPage {
    /// The number of candidates to examine for one page, which takes a few milliseconds. It bounds the cost of a page,
    /// even if the table has many rows and few of them match.
    package static let window = 5000

    private let limit: Int
    private var examined = 0
    private var last: Int64?
    /// The cursor of the next page. `nil` if the candidates ended before the page was full.
    package private(set) var next: Int64?

    package init(limit: Int) {
        self.limit = limit
    }

    /// - Parameters:
    ///   - cursor: The cursor of the next candidate.
    ///   - found: The number of rows on the page so far.
    /// - Returns: Whether the candidate belongs to this page. Otherwise the page is over.
    package mutating func examines(_ cursor: Int64, found: Int) -> Bool {
        guard found < limit, examined < Self.window else {
            next = last
            return false
        }
        examined += 1
        last = cursor
        return true
    }
}
