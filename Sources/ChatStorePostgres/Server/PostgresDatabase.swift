package import ChatDomain
package import ChatSQL
import Foundation
package import Logging
import Synchronization

/// The server as the stores use it: connections, a clock, this relay's start. It knows only the relay's own table
/// `relay_starts`.
package final class PostgresDatabase: SQLDatabase {
    /// The priority of a call that writes. Each priority has connections of its own.
    enum Kind: Int, Sendable, CaseIterable {
        case answer
        case upkeep
        case background

        fileprivate var lane: PostgresPool.Lane {
            switch self {
            case .answer: .answer
            case .upkeep: .upkeep
            case .background: .background
            }
        }

        fileprivate var limit: Duration { self == .answer ? PostgresDatabase.answerLimit : .seconds(30) }
    }

    /// A requested transaction.
    private struct Call: Sendable {
        /// `nil` if the call only reads.
        let kind: Kind?
        /// The number of callers that share it.
        let operations: Int
        let isRepeatable: Bool

        var lane: PostgresPool.Lane { kind?.lane ?? .read }
        var limit: Duration { kind?.limit ?? PostgresDatabase.answerLimit }
    }

    /// The time limit of a transaction that a caller waits for.
    static let answerLimit = Duration.seconds(10)
    /// The maximum number of attempts if another transaction conflicts, or the connection is lost.
    private static let attempts = 5

    let configuration: PostgresConfiguration
    /// The wall clock for all stored times except those of ``RelayHeartbeat``.
    package let now: TimeSource
    package let longReads = LongReads()
    let logger: Logger
    /// The key from which the `apns-id`s of pushes are derived.
    let idKey: [UInt8]
    private let channel: AnnouncementChannel
    private let streams = AnnouncementStreams()
    private let pool: PostgresPool
    private let heartbeat: RelayHeartbeat
    let measures = TransactionMeasures()
    /// Whether the server had no space for a write, and none has got space since for all that is known.
    private let isFull = Atomic(false)

    /// Connects, and creates or upgrades the tables. Takes seconds, and longer for an upgrade.
    /// - Parameter makesTables: False if the tables must already exist with the current schema version.
    /// - Throws: ``PostgresConfiguration/Unusable``, or ``ChatError`` if the server is unavailable at the moment.
    package init(
        configuration: PostgresConfiguration, now: @escaping TimeSource, logger: Logger, makesTables: Bool = true
    ) throws {
        self.configuration = configuration
        self.now = now
        self.logger = logger
        let schema = PostgresSchema.current
        let opened = try makesTables ? schema.bringUpToDate(configuration) : schema.requireCurrent(configuration)
        idKey = opened.idKey
        channel = AnnouncementChannel(schema: opened.schema, secret: opened.channelKey)
        pool = PostgresPool(url: configuration.url, connections: configuration.connections)
        heartbeat = RelayHeartbeat(configuration: configuration, channel: channel, streams: streams, logger: logger)
    }

    // MARK: - Calls

    /// Reads in one transaction, on a connection that writers do not use. `body` may run several times.
    package func read<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await perform(Call(kind: nil, operations: 1, isRepeatable: true), body)
    }

    /// Writes in one transaction. `body` may run several times, if another transaction conflicts or the connection is
    /// lost before COMMIT. So it must have no effects outside the database. A ``ChatError`` that it throws rolls the
    /// transaction back.
    /// - Parameters:
    ///   - operations: The number of callers that share it.
    ///   - isRepeatable: Whether to retry even if it is unknown whether the commit succeeded. Otherwise that is
    ///     ``ChatError/Code/unavailable``.
    func write<Value: Sendable>(
        _ kind: Kind = .answer, operations: Int = 1, isRepeatable: Bool = false,
        _ body: @escaping @Sendable (PostgresTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await perform(Call(kind: kind, operations: operations, isRepeatable: isRepeatable), body)
    }

    package func write<Value: Sendable>(
        as terms: WriteTerms, _ body: @escaping @Sendable (PostgresTransaction) throws -> Value,
        committed: @escaping @Sendable (Value) -> Void
    ) async throws(ChatError) -> Value {
        let kind: Kind =
            switch terms.priority {
            case .answer: .answer
            case .upkeep: .upkeep
            case .background: .background
            }
        let value = try await write(kind, isRepeatable: terms.isRepeatable, body)
        committed(value)
        return value
    }

    /// Writes and changes nothing, to find out whether the server accepts writes.
    func tryWriting() async throws(ChatError) {
        // On a full disk, the update still finds room in its page. A new table needs another page.
        let needsSpace = isFull.exchange(false, ordering: .relaxed)
        do throws(ChatError) {
            try await write(isRepeatable: true) { [start] transaction in
                transaction.pipeline(
                    "UPDATE relay_starts SET host = host WHERE start_id = $1::bigint", [.int(start)])
                if needsSpace {
                    transaction.pipeline("CREATE TEMPORARY TABLE pushchat_probe ON COMMIT DROP AS SELECT 1 AS one")
                }
            }
        } catch {
            // A role that may not create temporary tables gets another error. It must not last.
            if needsSpace, error.code == .unavailable { isFull.store(true, ordering: .relaxed) }
            throw error
        }
    }

    private func perform<Value: Sendable>(
        _ call: Call, _ body: @escaping @Sendable (PostgresTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        let result: Result<Value, ChatError> = await withCheckedContinuation { caller in
            pool.submit(call.lane) { worker in
                self.run(worker, call, body) { caller.resume(returning: $0) }
            } refuse: {
                if call.kind != nil { self.measures.refuse(call.operations) }
                caller.resume(returning: .failure($0))
            }
        }
        return try result.get()
    }

    /// Runs on a connection's thread. Calls `answer` once.
    private func run<Value>(
        _ worker: PostgresPool.Worker, _ call: Call, _ body: (PostgresTransaction) throws -> Value,
        answer: (Result<Value, ChatError>) -> Void
    ) {
        let terms = PostgresTransaction.Terms(
            isReading: call.kind == nil, limit: call.limit, schema: configuration.schema)
        let end = ContinuousClock.now + terms.limit
        var attempt = 1
        while true {
            do {
                let connection = try worker.connected()
                let transaction = PostgresTransaction(connection, terms, channel)
                let began = ContinuousClock.now
                func ended() {
                    guard let kind = call.kind else { return }
                    measures.ended(kind, operations: call.operations, after: .now - began)
                }
                do {
                    let value = try body(transaction)
                    if terms.isReading {
                        try transaction.commitLater()
                        answer(.success(value))
                        // If this fails, the connection is not used again.
                        try? transaction.drain()
                    } else {
                        try transaction.commit()
                        ended()
                        streams.send(transaction.announcement)
                        answer(.success(value))
                    }
                    return
                } catch {
                    transaction.rollback()
                    ended()
                    if let error = error as? PostgresError, error.kind == .inDoubt {
                        // The transaction may have been committed, or may still be.
                        channel.forgetOwn()
                        streams.send(.everything)
                    }
                    throw error
                }
            } catch let error as PostgresError
                where attempt < Self.attempts && ContinuousClock.now < end
                && Self.isWorthAnother(error, call.isRepeatable)
            {
                measures.met(error)
                if error.isUniqueViolation(PostgresError.numbers) { try? passNumbers(worker, terms) }
                // A random pause, so that two conflicting transactions do not meet again.
                usleep(UInt32.random(in: 1...5) * 1000 * UInt32(attempt * attempt))
                attempt += 1
            } catch {
                if let error = error as? PostgresError {
                    measures.met(error)
                    if call.kind != nil, error.isServerProblem { measures.gaveUp() }
                    if call.kind != nil, error.isDiskFull { isFull.store(true, ordering: .relaxed) }
                }
                return answer(.failure(ChatError(storing: error)))
            }
        }
    }

    /// Moves the sequence past push ids that another program has chosen ahead of it. Leaves some space, because the
    /// other program may continue to insert.
    private func passNumbers(_ worker: PostgresPool.Worker, _ terms: PostgresTransaction.Terms) throws {
        let transaction = PostgresTransaction(try worker.connected(), terms, channel)
        do {
            try transaction.lock("push_queue_numbers")
            _ = try transaction.rows(
                """
                SELECT setval('push_queue_message_id_seq', d.last + 10000)
                FROM (SELECT max(message_id) AS last FROM push_queue WHERE message_id < \(Int64.max / 4)) d,
                    push_queue_message_id_seq s
                WHERE d.last >= s.last_value
                """)
            try transaction.commit()
        } catch {
            transaction.rollback()
            throw error
        }
    }

    private static func isWorthAnother(_ error: PostgresError, _ isRepeatable: Bool) -> Bool {
        switch error.kind {
        case .lost: true
        case .inDoubt: isRepeatable
        case .refused: error.isCollision
        case .unexpected: false
        }
    }

    /// The cost of transactions so far, and the number of waiting calls.
    var work: StoreWork {
        var work = measures.work
        let load = pool.load
        work.connections = [("busy", load.busy), ("idle", load.idle)]
        work.waitingCalls = load.waiting.map { ("\($0)", $1) }
        return work
    }

    // MARK: - Other relays

    /// A stream of the commits of all relays, one stream per caller. If the server's notifications do not arrive, the
    /// stream has ``Announcement/everything`` once per second.
    func announcements() -> AsyncStream<Announcement> { streams.stream() }

    /// The id of this relay's start, a row of `relay_starts`. 0 before ``beginStart()``.
    var start: Int64 { heartbeat.start }

    /// Whether no other relay can have taken over this relay's leases: its last heartbeat is recent.
    var holdsLeases: Bool { heartbeat.isAlive }

    /// Records this relay's start and begins its heartbeat. Further calls have no effect.
    func beginStart() async throws(ChatError) {
        let result: Result<Void, ChatError> = await withCheckedContinuation { caller in
            heartbeat.begin { caller.resume(returning: $0) }
        }
        try result.get()
    }

    /// Ends the start, which frees its leases immediately, and closes the connections. Calls after this one fail.
    package func close() {
        heartbeat.end()
        pool.close()
        streams.end()
    }
}
