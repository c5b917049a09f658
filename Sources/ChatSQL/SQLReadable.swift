package import ChatDomain

/// A type that reads itself from a row, so that no statement counts its columns.
package protocol SQLReadable {
    /// The columns for a statement, in the order in which ``init(_:)`` reads them.
    ///
    /// - Parameter table: The table's name in the statement, with a dot behind it. Empty for none.
    static func columns(_ table: String) -> String
    init(_ row: inout SQLRowReader<some SQLRow>) throws
}

extension SQLReadable {
    /// - Parameter first: The first of the type's columns.
    package init(_ row: some SQLRow, from first: Int = 0) throws {
        var reader = SQLRowReader(row, from: first)
        try self.init(&reader)
    }
}

/// Reads the columns of a row in their order.
package struct SQLRowReader<Row: SQLRow> {
    private let row: Row
    private var column: Int

    package init(_ row: Row, from first: Int = 0) {
        self.row = row
        column = first
    }

    private mutating func next() -> Int {
        defer { column += 1 }
        return column
    }

    package mutating func int() throws -> Int64 { try row.int(next()) }
    package mutating func optionalInt() throws -> Int64? { try row.optionalInt(next()) }
    package mutating func text() throws -> String { try row.text(next()) }
    package mutating func optionalText() -> String? { row.optionalText(next()) }
    package mutating func bool() throws -> Bool { try row.bool(next()) }
    package mutating func time() throws -> Timestamp { try row.time(next()) }
    package mutating func optionalTime() throws -> Timestamp? { try row.optionalTime(next()) }
}
