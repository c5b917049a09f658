import CPostgreSQL
import Foundation
import Synchronization

/// A connection to a database of ``PostgresServer``, for a program other than the relay. It connects with the first
/// statement, and again after the connection was lost. It runs one statement at a time, each for at most a minute.
package final class PostgresClient: Sendable {
    private let url: String
    private let connection = Mutex<OpaquePointer?>(nil)

    package init(url: String) {
        self.url = url
    }

    deinit { connection.withLock { if let handle = $0 { PQfinish(handle) } } }

    /// Runs a statement, with values for `$1`, `$2`, ….
    /// - Returns: The rows as text, with `nil` for NULL.
    /// - Throws: ``PostgresServer/Failed`` with the server's message.
    @discardableResult
    package func rows(_ sql: String, _ values: [String] = []) throws -> [[String?]] {
        try connection.withLock { connection in
            let copies = values.map { strdup($0) }
            defer { for copy in copies { free(copy) } }
            return try Self.rows(&connection, url) { handle in
                let isSent = PQsendQueryParams(
                    handle, sql, Int32(copies.count), nil, copies.map { UnsafePointer($0) }, nil, nil, 0)
                return isSent == 1 ? PQgetResult(handle) : nil
            }
        }
    }

    /// Runs statements in one call, and then discards the settings that they made in the session.
    /// - Returns: The last statement's rows as text: `|` between columns, line breaks between rows, nothing for NULL.
    /// - Throws: ``PostgresServer/Failed`` with the server's message.
    package func text(_ sql: String) throws -> String {
        try connection.withLock { connection in
            defer { _ = try? Self.rows(&connection, url) { PQexec($0, "DISCARD ALL") } }
            return try Self.rows(&connection, url) { PQexec($0, sql) }
                .map { $0.map { $0 ?? "" }.joined(separator: "|") }.joined(separator: "\n")
        }
    }

    /// Reads all results, of which `run` returns the first. First replaces a connection that has ended since its last
    /// use.
    private static func rows(
        _ connection: inout OpaquePointer?, _ url: String, of run: (OpaquePointer) -> OpaquePointer?
    ) throws -> [[String?]] {
        if let last = connection {
            // The first call reads the server's last message, the second detects the end of the connection.
            for _ in 1...2 { PQconsumeInput(last) }
            forgetLost(&connection)
        }
        let handle = try connection ?? connect(url)
        connection = handle
        defer { forgetLost(&connection) }
        var next = run(handle)
        var (rows, problem) = ([[String?]](), next == nil ? String(cString: PQerrorMessage(handle)) : nil)
        while let result = next {
            switch PQresultStatus(result) {
            case PGRES_COMMAND_OK, PGRES_TUPLES_OK: rows += Self.rows(of: result)
            default: problem = problem ?? String(cString: PQresultErrorMessage(result))
            }
            PQclear(result)
            next = PQgetResult(handle)
        }
        if let problem { throw PostgresServer.Failed(description: problem) }
        return rows
    }

    private static func forgetLost(_ connection: inout OpaquePointer?) {
        guard let handle = connection, PQstatus(handle) != CONNECTION_OK else { return }
        PQfinish(handle)
        connection = nil
    }

    private static func rows(of result: OpaquePointer) -> [[String?]] {
        (0..<PQntuples(result)).map { row in
            (0..<PQnfields(result)).map { column in
                PQgetisnull(result, row, column) == 1 ? nil : String(cString: PQgetvalue(result, row, column))
            }
        }
    }

    private static func connect(_ url: String) throws -> OpaquePointer {
        if let missing = libpq_load() { throw PostgresServer.Failed(description: String(cString: missing)) }
        let parameters = [("dbname", url), ("client_encoding", "UTF8"), ("options", "-c statement_timeout=60s")]
        let names = parameters.map { strdup($0.0) } + [nil]
        let values = parameters.map { strdup($0.1) } + [nil]
        defer { for text in names + values { free(text) } }
        guard let handle = PQconnectdbParams(names.map { UnsafePointer($0) }, values.map { UnsafePointer($0) }, 1)
        else { throw PostgresServer.Failed(description: "no memory for a connection") }
        guard PQstatus(handle) == CONNECTION_OK else {
            let message = String(cString: PQerrorMessage(handle))
            PQfinish(handle)
            throw PostgresServer.Failed(description: message)
        }
        return handle
    }
}
