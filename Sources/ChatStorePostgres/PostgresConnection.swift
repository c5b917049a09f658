#if PostgreSQL
import CPostgreSQL
import Foundation

/// One connection, always in pipeline mode: statements are sent without waiting, and answered at a sync. For one thread at a
/// time. Nothing waits for longer than ``deadline``; a connection that was given up then is closed.
final class PostgresConnection {
    /// What libpq calls the parts of an error.
    enum Field {
        static let state = Int32(UInt8(ascii: "C"))
        static let message = Int32(UInt8(ascii: "M"))
        static let constraint = Int32(UInt8(ascii: "n"))
    }

    private let handle: OpaquePointer
    /// Until when a call may wait for the server.
    var deadline = ContinuousClock.now
    /// Statements sent since the last sync.
    private var sent = 0
    private(set) var isUsable = true
    private var isListening = false
    /// False behind a pooler: the server's connection may be another one in each transaction. Also in PgBouncer's session mode,
    /// where that costs a look each second.
    private var isDirect = false
    /// Came with answers, and were not taken yet.
    private var notifications: [PostgresNotification] = []

    /// What the URL does not set itself. A peer that is gone without a word is noticed within half a minute.
    private static let defaults = [
        ("connect_timeout", "4"), ("keepalives_idle", "10"), ("keepalives_interval", "5"), ("keepalives_count", "3"),
        ("tcp_user_timeout", "30000"), ("application_name", "pushchat"), ("target_session_attrs", "read-write"),
    ]

    /// Connects; takes some seconds for each host at the most.
    init(url: String) throws(PostgresError) {
        if let missing = libpq_load() {
            throw PostgresError(kind: .unexpected, message: String(cString: missing))
        }
        let trust = ServerTrust(of: url)
        let parameters = Self.defaults + trust.parameters + [("dbname", url), ("client_encoding", "UTF8")]
        let names = parameters.map { strdup($0.0) } + [nil]
        let values = parameters.map { strdup($0.1) } + [nil]
        defer { for text in names + values { free(text) } }
        // What stands behind another of the same name counts, and the URL is taken apart where it stands.
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
        // Without DETAIL and CONTEXT, which show values of rows.
        _ = PQsetErrorVerbosity(handle, PQERRORS_TERSE)
        // Else they are written to the standard error.
        _ = PQsetNoticeProcessor(handle, { _, _ in }, nil)
        guard PQsetnonblocking(handle, 1) == 0, PQenterPipelineMode(handle) == 1 else { throw failure() }
    }

    deinit { PQfinish(handle) }

    /// 150004 for 15.4.
    var serverVersion: Int { Int(PQserverVersion(handle)) }

    private func failure() -> PostgresError {
        isUsable = false
        let message = String(cString: PQerrorMessage(handle))
        return .lost(message.isEmpty ? "the connection was lost" : message)
    }

    // MARK: - Statements

    /// Sends a statement, or keeps it to be sent.
    func send(_ sql: String, _ values: [PostgresValue]) throws(PostgresError) {
        guard isUsable else { throw .lost("the connection was lost") }
        let texts = values.map(\.sent)
        // The server knows no such character, and libpq would end the text there.
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

    /// Ends what was sent, without waiting for the answers.
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
            // The server may not read on while nobody reads its answers.
            guard PQconsumeInput(handle) == 1 else { throw failure() }
        }
    }

    /// The answers of what was sent before the ``sync()``, in order. The first error ends them, and is thrown with how many
    /// were answered before it.
    func answers() throws(PostgresError) -> [PostgresResult] {
        let count = sent
        sent = 0
        var (results, error) = ([PostgresResult](), PostgresError?.none)
        results.reserveCapacity(count)
        while true {
            guard let next = try result() else {
                // Between two statements; at the end of the connection, too.
                guard PQstatus(handle) == CONNECTION_OK else { throw error ?? failure() }
                continue
            }
            switch PQresultStatus(next) {
            case PGRES_PIPELINE_SYNC:
                PQclear(next)
                let found = taken(provesListening: isDirect)
                // Through a pooler, those of others may come here.
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

    /// One statement in a transaction of its own.
    @discardableResult
    func run(_ sql: String, _ values: [PostgresValue] = []) throws(PostgresError) -> [PostgresRow] {
        try send(sql, values)
        try sync()
        return try answers().last?.rows ?? []
    }

    /// Several statements without parameters, within the transaction that is open. May wait without an end.
    func runScript(_ sql: String) throws(PostgresError) {
        // In pipeline mode libpq takes one statement at a time.
        guard PQexitPipelineMode(handle) == 1, let result = PQexec(handle, sql) else { throw failure() }
        defer { PQclear(result) }
        guard PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK else {
            throw PostgresError(result: result)
        }
        guard PQenterPipelineMode(handle) == 1 else { throw failure() }
    }

    // MARK: - COPY

    /// Begins `COPY … FROM STDIN`, within the transaction that is open. Rows follow, and ``endCopy()``.
    func beginCopy(_ sql: String) throws(PostgresError) { try beginCopy(sql, PGRES_COPY_IN) }

    private func beginCopy(_ sql: String, _ status: ExecStatusType) throws(PostgresError) {
        // In pipeline mode there is no COPY.
        guard isUsable, PQexitPipelineMode(handle) == 1, let result = PQexec(handle, sql) else { throw failure() }
        defer { PQclear(result) }
        guard PQresultStatus(result) == status else { throw PostgresError(result: result) }
    }

    /// Sends rows in COPY's text form, not necessarily whole ones. What the server says of them comes with ``endCopy()``.
    func copy(_ rows: UnsafeRawBufferPointer) throws(PostgresError) {
        let start = rows.bindMemory(to: CChar.self).baseAddress
        while true {
            let sent = PQputCopyData(handle, start, Int32(rows.count))
            guard sent >= 0 else { throw failure() }
            // Else libpq would keep what the server does not take yet.
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

    /// `COPY … TO STDOUT`, within the transaction that is open: calls `row` with each row and its line feed. Where `row` throws,
    /// the connection is of no use any more.
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

    /// From here on notifications in the channel are kept for ``nextNotifications()``.
    func listen(in channel: String) throws(PostgresError) {
        let process = try run("SELECT pg_backend_pid()").first?.optionalText(0)
        isDirect = process == String(PQbackendPID(handle))
        isListening = true
        try run("LISTEN \"\(channel.replacing("\"", with: "\"\""))\"")
    }

    /// Those that have come, also beside answers; where there are none, after waiting for one until the deadline.
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
    /// Whether it proves that notifications reach this connection. Behind a pooler, one that comes with an answer does not: the
    /// transaction happened to get the connection that listens.
    let provesListening: Bool
}
#endif
