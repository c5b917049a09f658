#if PostgreSQL
package import ChatDomain
import Synchronization

/// The durable queue in the table `push_queue`, shared by relays.
///
/// A lease names the start of the relay that has it, in its row, and ends with it (``RelayHeartbeat``). What is settled moves out of
/// the rows that are due, into its day.
package final class PostgresPushQueue: PushQueue {
    /// Payloads that are kept in memory: some hundred kilobytes.
    private static let mostPayloads = 128

    private let database: PostgresDatabase
    private let outcomes: OutcomeCounter
    private let ids: APNSIDs
    private let signals = Signals()
    private let payloads = Mutex<[NotificationID: [UInt8]]>([:])
    let leases = Mutex(QueueLeases())
    let partitions: QueuePartitions

    init(database: PostgresDatabase, outcomes: OutcomeCounter) {
        self.database = database
        self.outcomes = outcomes
        ids = APNSIDs(key: database.idKey)
        partitions = QueuePartitions(database: database)
    }

    // MARK: - Leases

    package func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        guard limit > 0, !lanes.isEmpty else { return LeasedPushes([]) }
        try requireLife()
        let now = database.now()
        let known = payloads.withLock { $0 }
        // What is leased in the name of a start that has ended meanwhile is nothing.
        let (start, plan) = leases.withLock { leases in
            let start = database.start
            leases.belong(to: start)
            return (start, leases.begin(app))
        }
        do throws(ChatError) {
            let (rows, more, payloads) = try await database.write(.upkeep) { [ids] transaction in
                // A lease that a crash of the server undoes is none.
                transaction.pipeline("SET LOCAL synchronous_commit = off")
                Self.release(plan.returned, start, transaction)
                var reader = QueueReader(
                    app: app, start: start, now: now, ids: ids, plan: plan, payloads: known, transaction)
                let rows = try reader.lease(lanes, limit: limit)
                let isAll = rows.count < limit && lanes.count == PushLane.allCases.count
                return (rows, isAll ? [] : try reader.lanesWithMore(after: rows), reader.payloads)
            }
            // It may have been stopped meanwhile, for longer than others wait.
            try requireLife()
            leases.withLock { $0.finish(plan, rows, app: app, at: .now) }
            keep(payloads)
            return LeasedPushes(rows.map(\.push), lanes: more)
        } catch {
            leases.withLock { $0.fail(plan, app: app, at: .now) }
            throw error
        }
    }

    /// That others do not have this relay's pushes.
    private func requireLife() throws(ChatError) {
        guard !database.holdsLeases else { return }
        throw .unavailable(cause: "the database has not heard this relay for so long that others may have its pushes")
    }

    private func keep(_ read: [NotificationID: [UInt8]]) {
        payloads.withLock { payloads in
            payloads.merge(read) { old, _ in old }
            // The newest are in use.
            let surplus = payloads.count - Self.mostPayloads
            if surplus > 0 { for id in payloads.keys.sorted().prefix(surplus) { payloads[id] = nil } }
        }
    }

    static func release(_ ranges: [ClosedRange<Int64>], _ start: Int64, _ transaction: PostgresTransaction) {
        guard !ranges.isEmpty else { return }
        transaction.pipeline(QueueReader.releaseSQL, [.ints(Array(ranges.joined())), .int(start)])
    }

    /// Remembered, and released with the next lease or by ``QueueUpkeep``.
    package func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        guard !pushIDs.isEmpty else { return }
        leases.withLock { $0.release(pushIDs, app: app) }
        signal([app])
    }

    // MARK: - What waits for its time

    static let nextDueSQL = PushLane.allCases.map { lane in
        """
        (SELECT not_before FROM push_queue_due WHERE app = $1::text AND \(QueueReader.lane) = \(lane.rawValue)
            AND state = 'pending' AND not_before IS NOT NULL AND lease_start IS NULL ORDER BY not_before LIMIT 1)
        """
    }.joined(separator: " UNION ALL ")

    package func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        let now = database.now()
        let next = try await database.read { transaction in
            try transaction.row(
                "SELECT min(not_before) FROM (\(Self.nextDueSQL)) l", [.text(app.text)])?.optionalTime(0)
        }
        // Not later than any repeat waits: what lies beyond may say that the clock was set back.
        return next.map { min(max($0, now), now + PushLifeCycle.longestWait) }
    }

    // MARK: - Outcomes

    package func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes] {
        guard !settlements.isEmpty else { return [] }
        let now = database.now()
        let number = leases.withLock { $0.beginSettling(settlements) }
        do throws(ChatError) {
            try await partitions.add(now)
            let (settled, ended) = try await partitions.move(.upkeep) { [database] transaction, isNumberTaken in
                // By number, whatever the server believes of the table's size.
                transaction.pipeline("SET LOCAL enable_seqscan = off")
                if isNumberTaken { QueuePartitions.renumber(settlements.flatMap(\.pushIDs), transaction) }
                var writer = SettlementWriter(app: app, start: database.start, now: now, transaction)
                let settled = try writer.write(settlements)
                return (settled, writer.ended)
            }
            outcomes.add(ended)
            leases.withLock { $0.settled(number, settlements, app: app) }
            if settlements.contains(where: { $0.transition.state == .pending }) { signal([app]) }
            return settled
        } catch {
            leases.withLock { $0.failedToSettle(number, settlements) }
            throw error
        }
    }

    // MARK: - Arrivals

    package func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation) {
        signals.add(signal, of: app)
    }

    /// Tells everyone who waits for pushes of the apps that there may be some; nil: of any app.
    func signal(_ apps: Set<AppName>? = nil) { signals.send(apps) }
}
#endif
