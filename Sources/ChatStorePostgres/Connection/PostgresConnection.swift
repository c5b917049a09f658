import CPostgreSQL
import ChatSQL
import Foundation

/// A connection that is always in pipeline mode: statements are sent without waiting, and a sync returns all their
/// results. Use it on one thread at a time. No call waits longer than ``deadline``; a connection that misses it is no
/// longer usable.
final class PostgresConnection {
    /// libpq's codes for the parts of an error.
    enum Field {
        static let state = Int32(UInt8(ascii: "C"))
        static let message = Int32(UInt8(ascii: "M"))
        static let constraint = Int32(UInt8(ascii: "n"))
    }

    private let handle: OpaquePointer
    /// The time until which a call may wait for the server.
    var deadline = ContinuousClock.now
    /// The number of statements sent since the last sync.
    private var sent = 0
    private(set) var isUsable = true
    private var isListening = false
    /// Whether the server's process is the one that this connection was opened to. False behind a pooler, where each
    /// transaction may use another server connection. Also false in PgBouncer's session mode, at the cost of one check
    /// per second.
    private var isDirect = false
    /// Notifications that arrived with results and were not returned yet.
    private var notifications: [PostgresNotification] = []

    /// Defaults for parameters that the URL does not set. With them, a connection whose peer disappears without a
    /// message fails within half a minute.
    private static let defaults = [
        ("connect_timeout", "4"), ("keepalives_idle", "10"), ("keepalives_interval", "5"), ("keepalives_count", "3"),
        ("tcp_user_timeout", "30000"), ("application_name", "pushchat"), ("target_session_attrs", "read-write"),
    ]

    /// Connects. Takes at most a few seconds per host.
    init(url: String) throws(PostgresError) {
        if let missing = libpq_load() {
            throw PostgresError(kind: .unexpected, message: String(cString: missing))
        }
        let trust = ServerTrust(of: url)
        let parameters = Self.defaults + trust.parameters + [("dbname", url), ("client_encoding", "UTF8")]
        let names = parameters.map { strdup($0.0) } + [nil]
        let values = parameters.map { strdup($0.1) } + [nil]
        defer { for text in names + values { free(text) } }
        // The last value of a parameter counts. libpq expands the URL at the position of `dbname`.
        let handle = PQconnectdbParams(names.map { UnsafePointer($0) }, values.map { UnsafePointer($0) }, 1)
        guard let handle else { throw .lost("no memory for a connection") }
        guard PQstatus(handle) == CONNECTION_OK else {
            let message = String(cString: PQerrorMessage(handle))
            PQfinish(handle)
            throw .lost(
                trust.isDefault
                    ? "\(message) (without an sslmode in its URL, a server that is not local must prove its name: docs/postgresql.md)"
                    : message)
        }
        self.handle = handle
        // Without DETAIL and CONTEXT, which contain values of rows.
        _ = PQsetErrorVerbosity(handle, PQERRORS_TERSE)
        // Otherwise libpq writes notices to the standard error.
        _ = PQsetNoticeProcessor(handle, { _, _ in }, nil)
        guard PQsetnonblocking(handle, 1) == 0, PQenterPipelineMode(handle) == 1 else { throw failure() }
    }

    deinit { PQfinish(handle) }

    /// The server's version, for example 150004 for 15.4.
    var serverVersion: Int { Int(PQserverVersion(handle)) }

    private func failure() -> PostgresError {
        isUsable = false
        let message = String(cString: PQerrorMessage(handle))
        return .lost(message.isEmpty ? "the connection was lost" : message)
    }

    // MARK: - Statements

    /// Sends a statement, or buffers it.
    func send(_ sql: String, _ values: [SQLValue]) throws(PostgresError) {
        guard isUsable else { throw .lost("the connection was lost") }
        let texts = values.map(\.sent)
        // PostgreSQL does not allow a NUL in a text, and libpq would cut the text there.
        guard !sql.utf8.contains(0), !texts.contains(where: { $0?.utf8.contains(0) ?? false }) else {
            throw PostgresError(kind: .unexpected, message: "a value has a zero byte")
        }
        let copies = texts.map { text in text.flatMap { strdup($0) } }
        defer { for copy in copies { free(copy) } }
        let isSent = PQsendQueryParams(
            handle, sql, Int32(copies.count), nil, copies.map { UnsafePointer($0) }, nil, nil, 0)
        guard isSent == 1 else { throw failure() }
        sent += 1
    }

    /// Ends the statements sent so far, without waiting for their results.
    func sync() throws(PostgresError) {
        guard isUsable else { throw .lost("the connection was lost") }
        guard PQpipelineSync(handle) == 1 else { throw failure() }
        try flush()
    }

    private func flush() throws(PostgresError) {
        while true {
            switch PQflush(handle) {
            case 0: return
            case 1: try wait(POLLIN | POLLOUT)
            default: throw failure()
            }
            // The server may stop reading as long as the client does not read its results.
            guard PQconsumeInput(handle) == 1 else { throw failure() }
        }
    }

    /// The results of the statements before the ``sync()``, in order. Throws the first error. The server does not
    /// execute the statements after it.
    func answers() throws(PostgresError) -> [PostgresResult] {
        let count = sent
        sent = 0
        var (results, error) = ([PostgresResult](), PostgresError?.none)
        results.reserveCapacity(count)
        while true {
            guard let next = try result() else {
                // libpq returns NULL between two statements, but also when the connection has ended.
                guard PQstatus(handle) == CONNECTION_OK else { throw error ?? failure() }
                continue
            }
            switch PQresultStatus(next) {
            case PGRES_PIPELINE_SYNC:
                PQclear(next)
                let found = taken(provesListening: isDirect)
                // Through a pooler, other clients' notifications may arrive here.
                if isListening { notifications += found }
                guard let error else { return results }
                throw error
            case PGRES_COMMAND_OK, PGRES_TUPLES_OK:
                results.append(PostgresResult(owning: next))
            case PGRES_PIPELINE_ABORTED:
                PQclear(next)
            default:
                error = error ?? PostgresError(result: next)
                PQclear(next)
                if error?.kind == .lost { isUsable = false }
                guard PQstatus(handle) == CONNECTION_OK else {
                    isUsable = false
                    throw error ?? failure()
                }
            }
        }
    }

    private func result() throws(PostgresError) -> OpaquePointer? {
        while PQisBusy(handle) == 1 {
            // TLS may hold bytes for which libpq had no room. The socket does not show them.
            guard PQconsumeInput(handle) == 1 else { throw failure() }
            guard PQisBusy(handle) == 1 else { break }
            try wait(POLLIN)
            guard PQconsumeInput(handle) == 1 else { throw failure() }
        }
        return PQgetResult(handle)
    }

    /// Waits for the socket until the deadline.
    private func wait(_ events: Int32) throws(PostgresError) {
        guard try isReady(events, until: deadline) else {
            isUsable = false
            throw .lost("the server did not answer in time")
        }
    }

    private func isReady(_ events: Int32, until end: ContinuousClock.Instant) throws(PostgresError) -> Bool {
        while true {
            let rest = max(0, (end - .now).milliseconds)
            var descriptor = pollfd(fd: PQsocket(handle), events: Int16(events), revents: 0)
            guard descriptor.fd >= 0 else { throw failure() }
            let ready = poll(&descriptor, 1, Int32(min(rest + 1, 60_000)))
            if ready > 0 { return true }
            if ready < 0, errno != EINTR { throw failure() }
            if ContinuousClock.now >= end { return false }
        }
    }

    // MARK: - Outside of transactions

    /// Runs one statement in a transaction of its own.
    @discardableResult
    func run(_ sql: String, _ values: [SQLValue] = []) throws(PostgresError) -> [PostgresRow] {
        try send(sql, values)
        try sync()
        return try answers().last?.rows ?? []
    }

    /// Runs several statements without parameters in the open transaction. Ignores the deadline, and may wait
    /// indefinitely.
    func runScript(_ sql: String) throws(PostgresError) {
        // In pipeline mode libpq accepts only one statement at a time.
        guard PQexitPipelineMode(handle) == 1, let result = PQexec(handle, sql) else { throw failure() }
        defer { PQclear(result) }
        guard PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK else {
            throw PostgresError(result: result)
        }
        guard PQenterPipelineMode(handle) == 1 else { throw failure() }
    }

    // MARK: - COPY

    /// Begins `COPY … FROM STDIN` in the open transaction. Send rows afterwards, then call ``endCopy()``.
    func beginCopy(_ sql: String) throws(PostgresError) { try beginCopy(sql, PGRES_COPY_IN) }

    private func beginCopy(_ sql: String, _ status: ExecStatusType) throws(PostgresError) {
        // libpq does not support COPY in pipeline mode.
        guard isUsable, PQexitPipelineMode(handle) == 1, let result = PQexec(handle, sql) else { throw failure() }
        defer { PQclear(result) }
        guard PQresultStatus(result) == status else { throw PostgresError(result: result) }
    }

    /// Sends rows in COPY's text format. A call may end in the middle of a row. ``endCopy()`` reports the server's
    /// errors.
    func copy(_ rows: UnsafeRawBufferPointer) throws(PostgresError) {
        let start = rows.bindMemory(to: CChar.self).baseAddress
        while true {
            let sent = PQputCopyData(handle, start, Int32(rows.count))
            guard sent >= 0 else { throw failure() }
            // Otherwise libpq would buffer all data that the server has not read yet.
            try flush()
            if sent == 1 { return }
        }
    }

    func endCopy() throws(PostgresError) {
        while true {
            let sent = PQputCopyEnd(handle, nil)
            guard sent >= 0 else { throw failure() }
            try flush()
            if sent == 1 { return try finishCopy() }
        }
    }

    private func finishCopy() throws(PostgresError) {
        var error: PostgresError?
        while let result = try result() {
            if PQresultStatus(result) != PGRES_COMMAND_OK { error = error ?? PostgresError(result: result) }
            PQclear(result)
        }
        if let error { throw error }
        guard PQenterPipelineMode(handle) == 1 else { throw failure() }
    }

    /// Runs `COPY … TO STDOUT` in the open transaction. Calls `row` with each row and its line feed. If `row` throws,
    /// the connection is no longer usable.
    func copy(_ sql: String, _ row: (UnsafeRawBufferPointer) throws -> Void) throws {
        try beginCopy(sql, PGRES_COPY_OUT)
        while true {
            var start: UnsafeMutablePointer<CChar>?
            let count = PQgetCopyData(handle, &start, 1)
            if let start {
                defer { PQfreemem(start) }
                do {
                    try row(UnsafeRawBufferPointer(start: start, count: Int(count)))
                } catch {
                    isUsable = false
                    throw error
                }
                continue
            }
            switch count {
            case 0:
                try wait(POLLIN)
                guard PQconsumeInput(handle) == 1 else { throw failure() }
            case -1: return try finishCopy()
            default: throw failure()
            }
        }
    }

    // MARK: - Notifications

    /// Listens on a channel. Its notifications are kept for ``nextNotifications()`` from now on.
    func listen(in channel: String) throws(PostgresError) {
        let process = try run("SELECT pg_backend_pid()").first?.optionalText(0)
        isDirect = process == String(PQbackendPID(handle))
        isListening = true
        try run("LISTEN \"\(channel.replacing("\"", with: "\"\""))\"")
    }

    /// The notifications that have arrived, including those that came with results. If there are none, waits for one
    /// until the deadline.
    func nextNotifications() throws(PostgresError) -> [PostgresNotification] {
        defer { notifications = [] }
        guard notifications.isEmpty, try isReady(POLLIN, until: deadline) else { return notifications }
        guard PQconsumeInput(handle) == 1 else { throw failure() }
        return taken(provesListening: true)
    }

    private func taken(provesListening: Bool) -> [PostgresNotification] {
        var taken: [PostgresNotification] = []
        while let notification = PQnotifies(handle) {
            let payload = String(cString: notification.pointee.extra)
            taken.append(PostgresNotification(payload: payload, provesListening: provesListening))
            PQfreemem(notification)
        }
        return taken
    }
}

struct PostgresNotification: Sendable {
    let payload: String
    /// Whether it proves that notifications reach this connection. Behind a pooler, one that arrives with results
    /// proves nothing: the transaction happened to use the server connection that listens.
    let provesListening: Bool
}
