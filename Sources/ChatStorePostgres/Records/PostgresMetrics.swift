package import ChatDomain
import ChatSQL
import Synchronization

/// The metrics of the store and its queue. They cover the whole database, except for outcomes, which are only this
/// relay's.
package final class PostgresMetrics: RelayMetrics {
    private let database: PostgresDatabase
    private let outcomeCounter: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let depths = SharedCount<[QueueDepth]>()
    private let counted = SharedCount<StoreTotals>()

    init(
        database: PostgresDatabase, outcomeCounter: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomeCounter = outcomeCounter
        self.settings = settings
    }

    package func queueDepths() async throws(ChatError) -> [QueueDepth] {
        let now = database.now()
        let depths = try await depths.value(at: now) { [database] () throws(ChatError) in
            try await database.read(.metrics) { transaction in
                try transaction.rows(Self.depthsSQL, [.time(now)]).map { row in
                    QueueDepth(
                        app: AppName(try row.text(0)), due: Int(try row.int(1)), delayed: Int(try row.int(2)),
                        written: Int(try row.int(3)), oldest: try row.optionalTime(4))
                }
            }
        }
        // Read each time, because an operator looks at them right after a change.
        return QueueDepth.list(depths, try await database.read { try $0.queuePauses() })
    }

    static let depthsSQL = """
        SELECT app, count(*) FILTER (WHERE lease_start IS NULL AND coalesce(not_before, 0) <= $1::bigint),
            count(*) FILTER (WHERE lease_start IS NULL AND not_before > $1::bigint),
            count(*) FILTER (WHERE lease_start IS NOT NULL),
            ms(min(time_queued) FILTER (WHERE lease_start IS NULL AND coalesce(not_before, 0) <= $1::bigint))
        FROM push_queue_due WHERE state = 'pending' GROUP BY app
        """

    package func totals() async throws(ChatError) -> StoreTotals {
        try await counted.value(at: database.now()) { [database] () throws(ChatError) in
            try await database.read(.metrics) { try $0.totals() }
        }
    }

    package func usage(since day: String) async throws(ChatError) -> [DeviceDay]? {
        guard settings().keepsUsage else { return nil }
        return try await database.read(.administration) { try $0.usage(since: day) }
    }

    package func outcomes() -> [OutcomeCount] { outcomeCounter.outcomes }

    package func work() -> StoreWork { database.work }
}

/// A count that takes the server long. Only one count runs at a time, and concurrent callers share its result. The
/// result or error is reused for a while.
private final class SharedCount<Value: Sendable>: Sendable {
    /// Counting uses at most one part in ``share`` of the time, except for very slow counts.
    private static var share: Int { 20 }
    /// The time for which a result is reused. An error is reused for the shortest time.
    private static var ages: (shortest: Duration, longest: Duration) { (.milliseconds(200), .seconds(5)) }
    /// If the wall clock has jumped by more than this, the count is repeated.
    private static var clockJump: Duration { .milliseconds(500) }

    private struct Count {
        let task: Task<Result<Value, ChatError>, Never>
        let time: Timestamp
        let began: ContinuousClock.Instant
        /// `nil` while the count runs.
        var end: ContinuousClock.Instant?

        func isTold(at now: Timestamp) -> Bool {
            let passed = (ContinuousClock.now - began).milliseconds
            let isSet = abs(now.milliseconds - time.milliseconds - passed) > SharedCount.clockJump.milliseconds
            return end.map { .now < $0 && !isSet } ?? true
        }
    }

    private let last = Mutex<Count?>(nil)

    /// - Parameter now: The wall clock time that `count` uses.
    func value(
        at now: Timestamp, _ count: @escaping @Sendable () async throws(ChatError) -> Value
    ) async throws(ChatError) -> Value {
        let task = last.withLock { last in
            if let last, last.isTold(at: now) { return last.task }
            let began = ContinuousClock.now
            let task = Task { [self] in
                let result: Result<Value, ChatError>
                var age = Self.ages.shortest
                do throws(ChatError) {
                    result = .success(try await count())
                    age = min(max(age, (.now - began) * Self.share), Self.ages.longest)
                } catch {
                    result = .failure(error)
                }
                let end = ContinuousClock.now + age
                self.last.withLock { $0?.end = end }
                return result
            }
            last = Count(task: task, time: now, began: began)
            return task
        }
        return try await task.value.get()
    }
}
