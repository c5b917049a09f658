#if PostgreSQL
package import ChatDomain
import Foundation
package import Logging
import Synchronization

/// The server as the stores use it: connections, a clock, this relay's start. Knows no table but those of the relay itself.
package final class PostgresDatabase: Sendable {
    /// Who waits for a call that writes. Each has connections of its own.
    enum Kind: Int, Sendable, CaseIterable {
        case answer
        case upkeep
        case background

        fileprivate var lane: ConnectionPool.Lane {
            switch self {
            case .answer: .answer
            case .upkeep: .upkeep
            case .background: .background
            }
        }

        fileprivate var limit: Duration { self == .answer ? PostgresDatabase.answerLimit : .seconds(30) }
    }

    /// A transaction that is wanted.
    private struct Call: Sendable {
        /// Nil: it reads.
        let kind: Kind?
        /// How many callers share it.
        let operations: Int
        let isRepeatable: Bool

        var lane: ConnectionPool.Lane { kind?.lane ?? .read }
        var limit: Duration { kind?.limit ?? PostgresDatabase.answerLimit }
    }

    /// How long a transaction may take that somebody waits for.
    static let answerLimit = Duration.seconds(10)
    /// How often a transaction is begun at the most when another stood in its way, or the connection was lost.
    private static let attempts = 5

    let configuration: PostgresConfiguration
    /// For all times that are written, but those of ``RelayHeartbeat``.
    let now: TimeSource
    let logger: Logger
    /// Of which the pushes' UUIDs are made.
    let idKey: [UInt8]
    private let channel: AnnouncementChannel
    private let streams = AnnouncementStreams()
    private let pool: ConnectionPool
    private let heartbeat: RelayHeartbeat
    let measures = TransactionMeasures()

    /// Connects, and makes the tables or brings them up to date; takes seconds, longer for an upgrade.
    /// - Parameter makesTables: false: they must be there as this version has them.
    /// - Throws: ``PostgresConfiguration/Unusable``, or ``ChatError`` when the server is away just now.
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
        pool = ConnectionPool(url: configuration.url, connections: configuration.connections)
        heartbeat = RelayHeartbeat(configuration: configuration, channel: channel, streams: streams, logger: logger)
    }

    // MARK: - Calls

    /// Reads in one transaction, on a connection that no writer waits for. `body` may run again.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await perform(Call(kind: nil, operations: 1, isRepeatable: true), body)
    }

    /// Writes in one transaction. `body` may run again, when another transaction stood in its way or the connection was lost
    /// before COMMIT: it must have no effects but the database's. A ``ChatError`` that it throws takes everything back.
    /// - Parameters:
    ///   - operations: how many callers share it.
    ///   - isRepeatable: run it again also when nobody knows whether it was committed; else that is
    ///     ``ChatError/Code/unavailable``.
    func write<Value: Sendable>(
        _ kind: Kind = .answer, operations: Int = 1, isRepeatable: Bool = false,
        _ body: @escaping @Sendable (PostgresTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await perform(Call(kind: kind, operations: operations, isRepeatable: isRepeatable), body)
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

    /// On a connection's thread. Answers once.
    private func run<Value>(
        _ worker: ConnectionPool.Worker, _ call: Call, _ body: (PostgresTransaction) throws -> Value,
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
                        // A connection on which this fails is not used again.
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
                        // It may have been committed, or will be in a moment.
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
                // Two that stood in each other's way do not meet again at the same moment.
                usleep(UInt32.random(in: 1...5) * 1000 * UInt32(attempt * attempt))
                attempt += 1
            } catch {
                if let error = error as? PostgresError {
                    measures.met(error)
                    if call.kind != nil, error.isServerProblem { measures.gaveUp() }
                }
                return answer(.failure(ChatError(storing: error)))
            }
        }
    }

    /// Another program has inserted pushes with numbers that were still to come: the sequence goes on after them, with some space,
    /// because it goes on meanwhile.
    private func passNumbers(_ worker: ConnectionPool.Worker, _ terms: PostgresTransaction.Terms) throws {
        let transaction = PostgresTransaction(try worker.connected(), terms, channel)
        do {
            transaction.pipeline("SELECT pg_advisory_xact_lock(hashtextextended('push_queue_numbers', 0))")
            _ = try transaction.rows(
                """
                SELECT setval('push_queue_message_id_seq', d.last + 10000)
                FROM (SELECT max(message_id) AS last FROM push_queue) d, push_queue_message_id_seq s
                WHERE d.last >= s.last_value AND d.last < \(Int64.max / 4)
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

    /// What transactions have cost so far, and who waits for one.
    var work: StoreWork {
        var work = measures.work
        let load = pool.load
        work.connections = [("busy", load.busy), ("idle", load.idle)]
        work.waitingCalls = load.waiting.map { ("\($0)", $1) }
        return work
    }

    // MARK: - Other relays

    /// What was committed by any relay, in a stream for each caller. Where the server's notifications do not come, it is
    /// ``Announcement/everything`` each second.
    func announcements() -> AsyncStream<Announcement> { streams.stream() }

    /// This relay's start: a row of `relay_starts`. 0 before ``beginStart()``.
    var start: Int64 { heartbeat.start }

    /// Whether this relay's leases are its own for certain: its last sign of life is recent.
    var holdsLeases: Bool { heartbeat.isAlive }

    /// Writes down that this relay runs, and begins its signs of life. Once: further calls do nothing.
    func beginStart() async throws(ChatError) {
        let result: Result<Void, ChatError> = await withCheckedContinuation { caller in
            heartbeat.begin { caller.resume(returning: $0) }
        }
        try result.get()
    }

    /// Ends the start, whose leases are free at once, and closes the connections. Calls after it fail.
    package func close() {
        heartbeat.end()
        pool.close()
        streams.end()
    }
}
#endif
