import ChatDomain
import ChatSQL
import Foundation
import Logging
import Synchronization

/// This relay's start (a row that its leases name), its heartbeat, and the server's notifications, on one connection
/// and one thread.
///
/// All times are the server's. If a start has been silent for longer than ``limit``, any relay may end it that has
/// itself sent heartbeats for as long. An outage of the server, which silences all relays, thus ends none.
final class RelayHeartbeat: Sendable {
    /// The time without a heartbeat after which a start's leases may be taken over.
    static let limit = Duration.seconds(15)
    private static let interval = Duration.seconds(3)
    /// A relay stops relying on its own leases this long before others may take them over.
    private static let margin = Duration.seconds(4)
    /// The time limit of a statement on this connection.
    private static let statementLimit = Duration.seconds(5)
    /// If no notification has proved for this time that notifications arrive, they are assumed not to.
    private static let deafAfter = Duration.seconds(8)
    private static let pollInterval = Duration.seconds(1)

    private struct State {
        var start: Int64 = 0
        /// The time at which the last successful heartbeat was sent. `nil` before the first one.
        var seen: ContinuousClock.Instant?
        /// The time since which all heartbeats have succeeded. `nil` after a failure.
        var seenSince: ContinuousClock.Instant?
        var isEnding = false
        var isRunning = false
        /// Callers that wait for the start.
        var begun: [@Sendable (Result<Void, ChatError>) -> Void] = []
    }

    private let configuration: PostgresConfiguration
    private let channel: AnnouncementChannel
    private let streams: AnnouncementStreams
    private let logger: Logger
    private let state = Mutex(State())
    private let thread = DispatchGroup()

    init(
        configuration: PostgresConfiguration, channel: AnnouncementChannel, streams: AnnouncementStreams, logger: Logger
    ) {
        self.configuration = configuration
        self.channel = channel
        self.streams = streams
        self.logger = logger
    }

    var start: Int64 { state.withLock { $0.start } }

    var isAlive: Bool {
        state.withLock { $0.seen.map { .now - $0 < Self.limit - Self.margin } ?? false }
    }

    /// Starts the thread unless it runs. Calls `answer` when the start is recorded, or cannot be.
    func begin(_ answer: @escaping @Sendable (Result<Void, ChatError>) -> Void) {
        let (isRegistered, isRunning) = state.withLock { state in
            defer { state.isRunning = true }
            if state.start == 0 { state.begun.append(answer) }
            return (state.start != 0, state.isRunning)
        }
        if isRegistered { answer(.success(())) }
        guard !isRunning else { return }
        thread.enter()
        let thread = Thread { [self] in
            run()
            self.thread.leave()
        }
        thread.name = "postgres-start"
        thread.start()
    }

    /// Records the end of this relay, if the server is reachable, and ends the thread.
    func end() {
        state.withLock { $0.isEnding = true }
        thread.wait()
    }

    private var isEnding: Bool { state.withLock { $0.isEnding } }

    // MARK: - The thread

    private func run() {
        var failures = 0
        while !isEnding {
            do throws(PostgresError) {
                let connection = try connect()
                try serve(connection) { failures = 0 }
            } catch {
                state.withLock { $0.seenSince = nil }
                answerBegin(.failure(ChatError(storing: error)))
                if failures == 0 {
                    logger.warning("the database's server is unavailable", metadata: ["error": "\(error)"])
                }
                failures += 1
                streams.send(.everything)
                if !isEnding { Thread.sleep(forTimeInterval: Self.pollInterval / .seconds(1)) }
            }
        }
    }

    private func connect() throws(PostgresError) -> PostgresConnection {
        let connection = try PostgresConnection(url: configuration.url)
        connection.deadline = .now + Self.statementLimit
        try connection.listen(in: channel.name)
        return connection
    }

    /// Sends heartbeats and reads notifications, until the relay or the connection ends.
    private func serve(_ connection: PostgresConnection, isServed: () -> Void) throws(PostgresError) {
        var (next, heard, told) = (ContinuousClock.now, ContinuousClock.Instant?.none, ContinuousClock.now)
        var isUnknown = false
        // Announcements that were sent before this connection listened were missed.
        streams.send(.everything)
        while !isEnding {
            if ContinuousClock.now >= next {
                try beat(connection)
                isServed()
                next = .now + Self.interval
            }
            connection.deadline = min(next, .now + .milliseconds(200))
            for notification in try connection.nextNotifications() {
                if notification.provesListening {
                    if heard == nil { streams.send(.everything) }
                    heard = .now
                }
                guard let announcement = channel.announcement(notification.payload) else { continue }
                if announcement.everything { isUnknown = true } else { streams.send(announcement) }
            }
            let isDeaf = heard.map { .now - $0 > Self.deafAfter } ?? true
            // Any role can send unreadable payloads, as often as it likes. They cost no more than hearing nothing.
            if isDeaf || isUnknown, .now - told > Self.pollInterval {
                told = .now
                isUnknown = false
                streams.send(.everything)
            }
        }
        connection.deadline = .now + Self.statementLimit
        try inTransaction(
            connection, "UPDATE relay_starts SET time_ended = now() WHERE start_id = $1::bigint", [.int(start)])
    }

    /// Runs one statement in one transaction, and returns its rows.
    @discardableResult
    private func inTransaction(
        _ connection: PostgresConnection, _ sql: String, _ values: [SQLValue]
    ) throws(PostgresError) -> [PostgresRow] {
        let milliseconds = Self.statementLimit.milliseconds
        try connection.send("BEGIN READ WRITE", [])
        try connection.send("SET LOCAL statement_timeout = \(milliseconds)", [])
        if let schema = configuration.schema {
            try connection.send("SELECT set_config('search_path', quote_ident($1::text), true)", [.text(schema)])
        }
        try connection.send(sql, values)
        // Without a pooler, it proves that notifications arrive.
        for values in channel.values(Announcement()) { try connection.send(AnnouncementChannel.sql, values) }
        try connection.send("COMMIT", [])
        try connection.sync()
        do throws(PostgresError) {
            let answers = try connection.answers()
            return answers.dropLast(2).last?.rows ?? []
        } catch {
            // Open a new connection after any error.
            var error = error
            error.kind = .lost
            throw error
        }
    }

    private func beat(_ connection: PostgresConnection) throws(PostgresError) {
        let began = ContinuousClock.now
        connection.deadline = began + Self.statementLimit
        let own = start
        if own == 0 { return try register(connection, began) }
        let rows = try inTransaction(
            connection,
            "UPDATE relay_starts SET time_seen = now() WHERE start_id = $1::bigint AND time_ended IS NULL RETURNING start_id",
            [.int(own)])
        guard !rows.isEmpty else {
            logger.warning(
                "this relay was silent for so long that others have taken over its pushes: it starts again",
                metadata: ["start": "\(own)"])
            return try register(connection, began)
        }
        let isHeard = state.withLock { state in
            // After a gap of its own (the machine was suspended, for example), this relay draws no conclusions about
            // others.
            if let seen = state.seen, began - seen > Self.limit - Self.margin { state.seenSince = nil }
            state.seen = began
            let since = state.seenSince ?? began
            state.seenSince = since
            return began - since > Self.limit
        }
        if isHeard { try endDeadRelays(connection) }
    }

    private func register(_ connection: PostgresConnection, _ began: ContinuousClock.Instant) throws(PostgresError) {
        let rows = try inTransaction(
            connection, "INSERT INTO relay_starts (host) VALUES ($1::text) RETURNING start_id",
            [.text("\(ProcessInfo.processInfo.hostName) \(getpid())")])
        guard let row = rows.first else { throw .lost("the start was not recorded") }
        do {
            let number = try row.int(0)
            state.withLock { state in
                state.start = number
                state.seen = began
            }
        } catch {
            throw .lost("the start was not recorded")
        }
        answerBegin(.success(()))
        streams.send(.everything)
    }

    private func endDeadRelays(_ connection: PostgresConnection) throws(PostgresError) {
        let silent = try inTransaction(
            connection,
            """
            UPDATE relay_starts SET time_ended = now() WHERE start_id IN (
                SELECT start_id FROM relay_starts
                WHERE time_ended IS NULL AND time_seen < now() - $1::bigint * interval '1 ms' FOR UPDATE SKIP LOCKED)
            RETURNING host
            """, [.int(Self.limit.milliseconds)])
        guard !silent.isEmpty else { return }
        logger.warning(
            "relays sent no heartbeat for \(Self.limit.components.seconds) seconds: their pushes are taken over",
            metadata: ["relays": "\(silent.compactMap { $0.optionalText(0) }.joined(separator: ", "))"])
        streams.send(.everything)
    }

    private func answerBegin(_ result: Result<Void, ChatError>) {
        let waiting = state.withLock { state in
            defer { state.begun = [] }
            return state.begun
        }
        for answer in waiting { answer(result) }
    }
}
