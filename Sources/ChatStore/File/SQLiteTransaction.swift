package import ChatDomain
package import ChatSQL
import Foundation
package import GRDB

extension SQLiteDatabase: SQLDatabase {
    package func read<Value: Sendable>(
        _ body: @escaping @Sendable (SQLiteTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await read { (db: Database) in try body(SQLiteTransaction(db)) }
    }

    package func write<Value: Sendable>(
        as terms: WriteTerms, _ body: @escaping @Sendable (SQLiteTransaction) throws -> Value,
        committed: @escaping @Sendable (Value) -> Void
    ) async throws(ChatError) -> Value {
        let urgency: BatchingWriter.Urgency =
            switch terms.priority {
            case .answer: .answer
            case .upkeep: .upkeep
            case .background: .background
            }
        return try await writer.perform(durably: terms.isDurable, urgency) { db in
            let transaction = SQLiteTransaction(db)
            return (try body(transaction), transaction.announcement)
        } committed: { [listeners] value, announcement in
            if !announcement.isEmpty { listeners.tell(announcement) }
            committed(value)
        }.0
    }
}

/// A transaction on one of GRDB's connections, for the statements that both databases share. Each statement is prepared
/// once per connection.
package final class SQLiteTransaction: SQLTransaction {
    let db: Database
    package var announcement = Announcement()

    /// - Note: Only ``SQLiteDatabase/write(as:_:committed:)`` reports ``announcement`` to the listeners.
    package init(_ db: Database) {
        self.db = db
    }

    package static var dialect: SQLDialect { .sqlite }

    package func each(_ sql: String, _ values: [SQLValue], _ body: (SQLiteRow) throws -> Bool) throws {
        let rows = try GRDB.Row.fetchCursor(statement(sql, values))
        while let row = try rows.next(), try body(SQLiteRow(row: row)) {}
    }

    package func rows(_ sql: String, _ values: [SQLValue]) throws -> [SQLiteRow] {
        try GRDB.Row.fetchAll(statement(sql, values)).map(SQLiteRow.init)
    }

    package func row(_ sql: String, _ values: [SQLValue]) throws -> SQLiteRow? {
        try GRDB.Row.fetchOne(statement(sql, values)).map(SQLiteRow.init)
    }

    @discardableResult
    package func run(_ sql: String, _ values: [SQLValue]) throws -> Int {
        try statement(sql, values).execute()
        return db.changesCount
    }

    package func pipeline(_ sql: String, _ values: [SQLValue]) throws { try run(sql, values) }

    package func lock(_ locks: [(SQLLock, String)]) {}

    package func collision(with subject: String) -> any Error {
        ChatError(.internalError, "The server made a mistake; nothing was accepted", cause: "\(subject) has changed")
    }

    /// Binds by the parameters' numbers: a statement may use one twice, and in any order.
    private func statement(_ sql: String, _ values: [SQLValue]) throws -> Statement {
        let statement = try db.cachedStatement(sql: sql)
        let named = values.enumerated().map {
            ("\($0.offset + 1)", $0.element.databaseValue as (any DatabaseValueConvertible)?)
        }
        try statement.setArguments(StatementArguments(Dictionary(uniqueKeysWithValues: named)))
        return statement
    }
}

extension SQLValue {
    fileprivate var databaseValue: DatabaseValue {
        switch self {
        case .null: .null
        case .int(let number): number.databaseValue
        case .text(let text): text.databaseValue
        case .bytes(let bytes): Data(bytes).databaseValue
        case .bool(let value): value.databaseValue
        case .time(let time): time.milliseconds.databaseValue
        case .ints(let numbers): JSONValue.array(numbers.map(JSONValue.number)).description.databaseValue
        case .texts(let texts): JSONValue.texts(texts).description.databaseValue
        case .optionalInts(let numbers):
            JSONValue.array(numbers.map { $0.map(JSONValue.number) ?? .null }).description.databaseValue
        case .optionalTexts(let texts):
            JSONValue.array(texts.map { $0.map(JSONValue.string) ?? .null }).description.databaseValue
        }
    }
}

package struct SQLiteRow: SQLRow {
    let row: GRDB.Row

    package func optionalInt(_ column: Int) throws -> Int64? {
        let value: DatabaseValue = row[column]
        if value.isNull { return nil }
        guard let number = Int64.fromDatabaseValue(value) else { throw UnexpectedColumn(column: column) }
        return number
    }

    package func int(_ column: Int) throws -> Int64 {
        guard let number = try optionalInt(column) else { throw UnexpectedColumn(column: column) }
        return number
    }

    package func optionalText(_ column: Int) -> String? { String.fromDatabaseValue(row[column]) }

    package func text(_ column: Int) throws -> String {
        guard let text = optionalText(column) else { throw UnexpectedColumn(column: column) }
        return text
    }

    package func bytes(_ column: Int) throws -> [UInt8] {
        guard let data = Data.fromDatabaseValue(row[column]) else { throw UnexpectedColumn(column: column) }
        return Array(data)
    }

    package func bool(_ column: Int) throws -> Bool { try int(column) != 0 }

    package func copy() -> SQLiteRow { SQLiteRow(row: row.copy()) }
}

extension Database {
    /// Adds the functions that PostgreSQL's schema has: `at` makes a time from milliseconds, and `ms` milliseconds from
    /// a time. A time in another program's format is 0. The schema must not use them, because scripts open the file
    /// without them.
    func addTimeFunctions() {
        add(
            function: DatabaseFunction("at", argumentCount: 1, pure: true) { values in
                Int64.fromDatabaseValue(values[0]).map { Timestamp(milliseconds: $0).sqlText }
            })
        add(
            function: DatabaseFunction("ms", argumentCount: 1, pure: true) { values in
                if values[0].isNull { return nil }
                return String.fromDatabaseValue(values[0]).flatMap(Timestamp.init(sqlText:))?.milliseconds ?? 0
            })
    }
}
