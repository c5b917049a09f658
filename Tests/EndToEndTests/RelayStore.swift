import Foundation
import GRDB
import TestStores
import Testing

/// The store of all relays of a run: SQLite files, or PostgreSQL with `STORE=postgres`.
enum StoreKind: String {
    case sqlite, postgres

    static let ofThisRun: StoreKind = {
        guard let name = ProcessInfo.processInfo.environment["STORE"], !name.isEmpty else { return .sqlite }
        guard let kind = StoreKind(rawValue: name) else { fatalError("STORE must be sqlite or postgres, not \(name)") }
        return kind
    }()

    /// Creates an empty store.
    func makeStore(path: String) throws -> any RelayStore {
        switch self {
        case .sqlite: return SQLiteFile(path: path)
        case .postgres: return try PostgresTestDatabase(path: path)
        }
    }
}

extension Trait where Self == ConditionTrait {
    /// Skips the test in a run with PostgreSQL.
    /// - Parameter reason: The property that PostgreSQL lacks, or that no relay takes part.
    static func onlySQLite(_ reason: Comment) -> Self {
        .enabled(reason) { StoreKind.ofThisRun == .sqlite }
    }

    /// Skips the test in a run with SQLite.
    static func onlyPostgreSQL(_ reason: Comment) -> Self {
        .enabled(reason) { StoreKind.ofThisRun == .postgres }
    }
}

/// The store of a relay, for other programs: commands of ours, scripts, and tests that query it.
protocol RelayStore: Sendable {
    /// The database file. With PostgreSQL, the path next to which a relay keeps its own files.
    var path: String { get }
    /// The words before a command that make it and its children use this store. Empty if commands name a file instead.
    var variables: [String] { get }
    /// The flags with which a command of ours uses this store.
    var flags: [String] { get }
    /// A command that runs the SQL statements in its last argument.
    var shell: [String] { get }

    /// - Parameters:
    ///   - sql: A statement that both stores accept.
    ///   - arguments: The values for its `?`.
    @discardableResult
    func query(_ sql: String, _ arguments: [String]) throws -> [StoredRow]
    /// Queries the store while no relay runs, and does not change it.
    func remains(_ sql: String) throws -> [StoredRow]
    /// Registers devices as another program does: in one transaction.
    /// - Parameter since: The time of registration, as `2020-01-01 00:00:00.000`. If `nil`, the current time.
    func register(_ tokens: [String], since: String?) throws
    /// Queues pushes as another program does, in one transaction.
    func queue(_ pushes: [(app: String, token: String, payload: String)]) throws
}

extension RelayStore {
    /// Returns a command of ours on this store, beside a relay or without one.
    func command(_ arguments: [String]) -> [String] {
        variables + [Running.executable.path] + arguments + flags
    }

    /// Runs such a command to its end.
    func pushchat(_ arguments: String..., within limit: Int = 60) async throws -> ClientProgram {
        try await ClientProgram.run(command(arguments), within: limit)
    }

    /// Runs SQL statements as a script does.
    /// - Returns: The program's output.
    @discardableResult
    func script(_ sql: String) async throws -> String { try await tool(shell[0], Array(shell.dropFirst()) + [sql]) }
}

/// A row. Columns count from 0 and are converted to the requested type.
struct StoredRow: Equatable, CustomStringConvertible {
    fileprivate let columns: [String?]

    subscript<Value: LosslessStringConvertible>(_ column: Int) -> Value? { read(column) }

    subscript<Value: LosslessStringConvertible>(_ column: Int) -> Value {
        guard let value: Value = read(column) else { fatalError("column \(column) of \(self) is NULL") }
        return value
    }

    private func read<Value: LosslessStringConvertible>(_ column: Int) -> Value? {
        guard let text = columns[column] else { return nil }
        guard let value = Value(text) else { fatalError("column \(column) of \(self) is no \(Value.self)") }
        return value
    }

    var description: String { columns.map { $0 ?? "NULL" }.joined(separator: "|") }
}

// MARK: - SQLite

struct SQLiteFile: RelayStore {
    let path: String

    var variables: [String] { [] }
    var flags: [String] { ["--database", path] }
    /// The command that docs/database.md recommends to scripts.
    var shell: [String] { ["sqlite3", "-bail", "-cmd", ".timeout 5000", "-cmd", "PRAGMA foreign_keys = ON", path] }

    private func open() throws -> DatabaseQueue {
        var configuration = GRDB.Configuration()
        configuration.busyMode = .timeout(10)
        return try DatabaseQueue(path: path, configuration: configuration)
    }

    private static func rows(_ db: Database, _ sql: String, _ arguments: [String] = []) throws -> [StoredRow] {
        try Row.fetchAll(db, sql: sql, arguments: StatementArguments(arguments)).map { row in
            StoredRow(
                columns: row.databaseValues.map { value in
                    switch value.storage {
                    case .null: nil
                    case .int64(let number): String(number)
                    case .double(let number): String(number)
                    case .string(let text): text
                    case .blob(let bytes): String(decoding: bytes, as: UTF8.self)
                    }
                })
        }
    }

    func query(_ sql: String, _ arguments: [String]) throws -> [StoredRow] {
        try open().write { try Self.rows($0, sql, arguments) }
    }

    /// Queries a copy, so that the next process finds the file unchanged.
    func remains(_ sql: String) throws -> [StoredRow] {
        let folder = try Folder()
        let copy = folder.file("copy.db").path
        for suffix in ["", "-wal"] where FileManager.default.fileExists(atPath: path + suffix) {
            try FileManager.default.copyItem(atPath: path + suffix, toPath: copy + suffix)
        }
        return try DatabaseQueue(path: copy).read { try Self.rows($0, sql) }
    }

    func register(_ tokens: [String], since: String?) throws {
        try open().write { db in
            let time = since == nil ? "strftime('%Y-%m-%d %H:%M:%f', 'now')" : "?2"
            let insert = try db.cachedStatement(
                sql: "INSERT INTO devices (app, device_token, time_registered) VALUES ('default', ?1, \(time))")
            for token in tokens {
                try insert.execute(arguments: StatementArguments([token] + (since.map { [$0] } ?? [])))
            }
        }
    }

    func queue(_ pushes: [(app: String, token: String, payload: String)]) throws {
        try open().write { db in
            let insert = try db.cachedStatement(
                sql: "INSERT INTO push_queue (app, device_token, payload) VALUES (?, ?, ?)")
            for push in pushes { try insert.execute(arguments: [push.app, push.token, push.payload]) }
        }
    }
}

// MARK: - PostgreSQL

/// A database on the PostgreSQL server of these tests. It is dropped with this object.
final class PostgresTestDatabase: RelayStore {
    let path: String
    private let server: PostgresServer
    private let name: String
    private let client: PostgresClient

    init(path: String) throws {
        self.path = path
        server = try PostgresServer.shared()
        name = try server.makeDatabase()
        client = PostgresClient(url: server.url(name))
    }

    deinit { try? server.drop(name) }

    var variables: [String] {
        ["env", "PUSHCHAT_DATABASE_URL=\(server.url(name))", "PUSHCHAT_DATABASE_PATH=\(path)"]
    }
    var flags: [String] { [] }
    var shell: [String] { server.shell(name) }

    func query(_ sql: String, _ arguments: [String]) throws -> [StoredRow] {
        var sql = sql
        for number in 1...max(1, arguments.count) {
            if let place = sql.firstIndex(of: "?") { sql.replaceSubrange(place...place, with: "$\(number)") }
        }
        return try client.rows(sql, arguments).map(StoredRow.init)
    }

    func remains(_ sql: String) throws -> [StoredRow] { try query(sql, []) }

    func register(_ tokens: [String], since: String?) throws {
        try client.rows(
            """
            INSERT INTO devices (app, device_token, time_registered)
            SELECT 'default', token, \(since == nil ? "now()" : "($2 || 'Z')::timestamptz")
            FROM unnest($1::text[]) token
            """, [Self.array(tokens)] + (since.map { [$0] } ?? []))
    }

    func queue(_ pushes: [(app: String, token: String, payload: String)]) throws {
        try client.rows(
            """
            INSERT INTO push_queue (app, device_token, payload)
            SELECT app, token, payload FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY
                AS push (app, token, payload, number) ORDER BY number
            """, [Self.array(pushes.map(\.app)), Self.array(pushes.map(\.token)), Self.array(pushes.map(\.payload))])
    }

    private static func array(_ texts: [String]) -> String {
        let quoted = texts.map { text in
            "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
        }
        return "{" + quoted.joined(separator: ",") + "}"
    }
}
