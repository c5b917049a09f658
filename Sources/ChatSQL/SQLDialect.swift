/// The words in which the two databases differ. Statements are the same text otherwise:
///
/// - `$1`, `$2` are the parameters. A parameter that is only compared with NULL needs `CAST($1 AS text)`.
/// - `at($1)` makes a time from milliseconds, and `ms(column)` milliseconds from a time. Compare a column with `at($1)`,
///   so that an index serves. SQLite's schema must not use them, because scripts open the file without them.
package enum SQLDialect: Sendable {
    case sqlite
    case postgres

    /// The values of a list parameter, as a subquery with the column `value`. `type` is the type of PostgreSQL.
    package func each(_ parameter: String, _ type: String) -> String {
        self == .sqlite
            ? "SELECT value FROM json_each(\(parameter))" : "SELECT unnest(\(parameter)::\(type)[]) AS value"
    }

    /// A condition: a value is in a list parameter. `type` is the type of PostgreSQL.
    package func isAny(_ value: String, of parameter: String, _ type: String) -> String {
        self == .sqlite
            ? "\(value) IN (\(each(parameter, type)))" : "\(value) = ANY (\(parameter)::\(type)[])"
    }

    /// Lists of the same length as a table `name`, one column for each of the parameters from `$1` on, and the column
    /// `number`, which counts the rows. The types are PostgreSQL's. SQLite finds a value by counting from the start of its
    /// list: pass at most 500 rows, which take about as long as a statement for each of them.
    package func table(_ name: String, _ columns: KeyValuePairs<String, String>) -> String {
        let parameters = columns.indices.map { "$\($0 + 1)" }
        if self == .postgres {
            let lists = zip(parameters, columns).map { "\($0)::\($1.value)[]" }.joined(separator: ", ")
            let names = columns.map(\.key) + ["number"]
            return "unnest(\(lists)) WITH ORDINALITY AS \(name) (\(names.joined(separator: ", ")))"
        }
        let values = zip(parameters, columns).map { "json_extract(\($0), '$[' || e.key || ']') AS \($1.key)" }
        return "(SELECT \(values.joined(separator: ", ")), e.key AS number FROM json_each($1) e) AS \(name)"
    }

    /// A text as bytes in UTF-8, which may be invalid in SQLite. Empty for NULL.
    package func utf8(_ text: String) -> String {
        self == .sqlite ? "CAST(coalesce(\(text), '') AS BLOB)" : "convert_to(coalesce(\(text), ''), 'UTF8')"
    }

    /// Locks the selected rows of a table until the transaction ends. SQLite has one writer and needs no locks.
    package func locked(_ table: String) -> String { self == .sqlite ? "" : "FOR NO KEY UPDATE OF \(table)" }

    /// Locks rows that the transaction will delete.
    package func lockedToDelete(_ table: String) -> String { self == .sqlite ? "" : "FOR UPDATE OF \(table)" }

    /// Locks like ``locked(_:)``, and leaves out rows that another transaction has locked.
    package func lockedOrSkipped(_ table: String) -> String {
        self == .sqlite ? "" : "FOR UPDATE OF \(table) SKIP LOCKED"
    }

    /// Makes SQLite use an index. PostgreSQL chooses by its statistics. Empty for the primary key.
    package func indexed(by index: String) -> String { self == .sqlite && !index.isEmpty ? "INDEXED BY \(index)" : "" }

    /// Joins in this order in SQLite.
    package var orderedJoin: String { self == .sqlite ? "CROSS JOIN" : "JOIN" }

    /// The values that a subquery selects, as a JSON array of texts. ``SQLRow/texts(_:)`` reads it.
    package func texts(_ column: String, _ rest: String) -> String {
        self == .sqlite
            ? "(SELECT json_group_array(\(column)) \(rest))" : "array_to_json(ARRAY(SELECT \(column) \(rest)))::text"
    }

    /// The table with all pushes that are not settled.
    package var unsettled: String { self == .sqlite ? "push_queue" : "push_queue_due" }

    /// The last id that a row of `messages` or `push_queue` has got.
    package func lastID(of table: String) -> String {
        self == .sqlite
            ? "(SELECT seq FROM sqlite_sequence WHERE name = '\(table)')"
            : "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM \(table)_message_id_seq)"
    }

    /// Whether the table `rooms` has an id left.
    package var hasRoomID: String {
        let last =
            self == .sqlite
            ? "(SELECT seq FROM sqlite_sequence WHERE name = 'rooms')"
            : "pg_sequence_last_value(pg_get_serial_sequence('rooms', 'room_id')::regclass)"
        return "coalesce(\(last), 0) < 2147483647"
    }

    /// A time without its fraction of a second.
    package func second(_ time: String) -> String {
        self == .sqlite ? "substr(\(time), 1, 19)" : "date_trunc('second', \(time))"
    }
}
