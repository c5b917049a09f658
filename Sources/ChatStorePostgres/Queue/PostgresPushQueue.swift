package import ChatDomain
import Synchronization

/// The durable queue in the table `push_queue`, which several relays share.
///
/// A push's lease is in its row. It names the start of the relay that holds it, and ends with that start
/// (``RelayHeartbeat``). Settled pushes move from the due rows into the partition of their day.
package final class PostgresPushQueue: PushQueue {
    /// The maximum number of payloads to keep in memory: a few hundred kilobytes.
    private static let mostPayloads = 128

    private let database: PostgresDatabase
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let ids: APNSIDs
    private let signals = Signals()
    private let payloads = Mutex<[NotificationID: [UInt8]]>([:])
    let leases = Mutex(QueueLeases())
    let partitions: QueuePartitions

    init(
        database: PostgresDatabase, outcomes: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomes = outcomes
        self.settings = settings
        ids = APNSIDs(key: database.idKey)
        partitions = QueuePartitions(database: database)
    }

    // MARK: - Leases

    package func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        try await lease(app: app, lanes: lanes, limit: limit, passing: [])
    }

    /// Lets the server pass over the devices. To lease and release a push costs eight times as much, and two writes.
    package func lease(
        app: AppName, lanes: [PushLane], limit: Int, passing devices: Set<Address>
    ) async throws(ChatError) -> LeasedPushes {
        guard limit > 0, !lanes.isEmpty else { return LeasedPushes([]) }
        try requireLife()
        let now = database.now()
        let countsUnread = settings().format(app).showsUnread
        let known = payloads.withLock { $0 }
        // Leases in the name of a start that has ended are void.
        let plan = leases.withLock { leases in
            leases.belong(to: database.start)
            return leases.begin(app)
        }
        do throws(ChatError) {
            let (rows, more, payloads) = try await database.write(.upkeep) { [ids] transaction in
                // If a crash of the server undoes a lease, it does not matter.
                transaction.pipeline("SET LOCAL synchronous_commit = off")
                Self.release(plan.returned, plan.start, transaction)
                var reader = QueueReader(
                    app: app, start: plan.start, now: now, ids: ids, plan: plan, countsUnread: countsUnread,
                    payloads: known, transaction)
                let rows = try reader.lease(lanes, limit: limit, passing: devices)
                // Any lane may have pushes that were passed over.
                guard devices.isEmpty else { return (rows, Set(lanes), reader.payloads) }
                let isAll = rows.count < limit && lanes.count == PushLane.allCases.count
                return (rows, isAll ? [] : try reader.lanesWithMore(after: rows), reader.payloads)
            }
            // The process may have been suspended in the meantime, for longer than other relays wait. It may even have
            // started again since.
            try requireLife(of: plan.start)
            leases.withLock { $0.finish(plan, rows, app: app, isFromFloors: devices.isEmpty, at: .now) }
            keep(payloads)
            return LeasedPushes(rows.map(\.push), lanes: more)
        } catch {
            leases.withLock { $0.fail(plan, app: app, at: .now) }
            throw error
        }
    }

    /// Throws if other relays may have taken over this relay's pushes, or those of one of its starts.
    private func requireLife(of start: Int64? = nil) throws(ChatError) {
        // In this order: a relay that starts again is alive.
        if database.holdsLeases, start == nil || start == database.start { return }
        throw .unavailable(
            cause: "the database has not heard from this relay for so long that others may have its pushes")
    }

    private func keep(_ read: [NotificationID: [UInt8]]) {
        payloads.withLock { payloads in
            payloads.merge(read) { old, _ in old }
            // Keep the payloads with the highest ids: the newest notifications are in use.
            let surplus = payloads.count - Self.mostPayloads
            if surplus > 0 { for id in payloads.keys.sorted().prefix(surplus) { payloads[id] = nil } }
        }
    }

    static func release(_ ranges: [ClosedRange<Int64>], _ start: Int64, _ transaction: PostgresTransaction) {
        guard !ranges.isEmpty else { return }
        transaction.pipeline(QueueReader.releaseSQL, [.ints(Array(ranges.joined())), .int(start)])
    }

    /// Marks the pushes in memory. The next lease or ``QueueUpkeep`` releases them in the database.
    package func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        guard !pushIDs.isEmpty else { return }
        leases.withLock { $0.release(pushIDs, app: app) }
        signal([app])
    }

    // MARK: - Pushes that wait for a time

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
                "SELECT min(not_before) FROM (\(Self.nextDueSQL)) l WHERE NOT \(QueueReader.isPaused)",
                [.text(app.text)])?.optionalTime(0)
        }
        // Bounded by the longest wait of a retry: a later time may mean that the clock was set back.
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
                // Use the index on the push id, whatever the server believes about the table's size.
                try transaction.useIndexes()
                if isNumberTaken { try QueuePartitions.renumber(settlements.flatMap(\.pushIDs), transaction) }
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

    /// Signals that there may be pushes of the apps, or of any app if `apps` is `nil`.
    func signal(_ apps: Set<AppName>? = nil) { signals.send(apps) }
}
