import ChatDomain
import Synchronization

/// The partitions of `push_queue`, one per day of settlement. They are created when needed, and retention drops them.
final class QueuePartitions: Sendable {
    /// The time for which a drop waits for other transactions. Transactions that begin in the meantime wait behind it.
    private static let lockLimit = "200ms"
    /// The number of rows up to which a partition is counted. Above it, the server's estimate is used.
    private static let mostCounted: Int64 = 1_000_000

    private let database: PostgresDatabase
    /// Days whose partitions are known to exist.
    private let days = Mutex<Set<String>>([])

    init(database: PostgresDatabase) {
        self.database = database
    }

    /// Creates the partition of a day, unless this relay knows that it exists.
    func add(_ time: Timestamp) async throws(ChatError) {
        let day = time.day
        if days.withLock({ $0.contains(day) }) { return }
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            transaction.pipeline("SELECT push_queue_add_day($1::date)", [.text(day)])
        }
        days.withLock { _ = $0.insert(day) }
    }

    // MARK: - Push ids

    /// Moves pushes between the due rows and the days, in one transaction. A push id is unique only within a partition.
    /// If another program has reused one, `body` runs again with `isNumberTaken`, and has to call ``renumber(_:_:)``
    /// first.
    func move<Value: Sendable>(
        _ kind: PostgresDatabase.Kind,
        _ body: @escaping @Sendable (PostgresTransaction, _ isNumberTaken: Bool) throws -> Value
    ) async throws(ChatError) -> Value {
        let isTaken = Atomic(false)
        return try await database.write(kind, isRepeatable: true) { transaction in
            do {
                return try body(transaction, isTaken.load(ordering: .relaxed))
            } catch let error as PostgresError where error.isNumberTaken {
                isTaken.store(true, ordering: .relaxed)
                throw PostgresError.numberTaken
            } catch let error as PostgresError where error.state == "23514" {
                // Another relay, whose clock is ahead, has dropped a partition, or a failover has lost it.
                self.days.withLock { $0 = [] }
                throw error
            }
        }
    }

    /// Gives settled pushes new ids if a due push has the same id.
    static func renumber(_ numbers: [Int64], _ transaction: PostgresTransaction) throws {
        let isDouble = "EXISTS (SELECT FROM push_queue_due d WHERE d.message_id = q.message_id)"
        _ = try renumber(numbers, where: isDouble, transaction)
    }

    /// Gives the settled pushes `q` that match a condition new ids. Returns these ids.
    static func renumber(
        _ numbers: [Int64], where condition: String, _ transaction: PostgresTransaction
    ) throws -> [Int64] {
        // All pushes of a notification lie between its first and its last one.
        try transaction.rows(
            """
            WITH moved AS (
                UPDATE push_queue q SET message_id = nextval('push_queue_message_id_seq')
                WHERE q.settled_on IS NOT NULL AND q.message_id = ANY ($1::bigint[]) AND \(condition)
                RETURNING q.message_id, q.notification),
            grown AS (
                UPDATE notifications n SET last_push = greatest(n.last_push, m.last)
                FROM (SELECT notification, max(message_id) AS last FROM moved GROUP BY notification) m
                WHERE n.notification_id = m.notification)
            SELECT message_id FROM moved
            """, [.ints(numbers)]
        ).map { try $0.int(0) }
    }

    // MARK: - Retention

    /// Drops the partitions of the days before `day`, with the settled pushes in them. Keeps a partition that has a
    /// push of a notification that is still being queued, because the push prevents a second one for its device. A
    /// partition that is being read is left for the next time.
    /// - Returns: The number of pushes in the dropped partitions.
    func drop(before day: String) async throws(ChatError) -> Int {
        let old = try await database.read { transaction in
            try transaction.rows(
                """
                SELECT c.relname, to_date(substr(c.relname, 12), 'YYYYMMDD')::text, c.reltuples::bigint FROM pg_inherits i
                JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = to_regclass('push_queue') AND c.relname ~ '^push_queue_[0-9]{8}$'
                    AND to_date(substr(c.relname, 12), 'YYYYMMDD') < $1::date ORDER BY c.relname
                """, [.text(day)]
            ).map { (name: try $0.text(0), day: try $0.text(1), estimate: try $0.int(2)) }
        }
        var dropped = 0
        for (name, day, estimate) in old {
            do throws(ChatError) {
                dropped += try await drop(name, day, estimate)
            } catch {
                database.logger.debug(
                    "old pushes could not be deleted and will be retried",
                    metadata: ["day": "\(day)", "error": "\(error)"])
            }
        }
        return dropped
    }

    /// - Parameter name: Made of digits after the prefix, so that it needs no quoting.
    private func drop(_ name: String, _ day: String, _ estimate: Int64) async throws(ChatError) -> Int {
        let rows = try await database.read { transaction -> Int64? in
            let isKept = try transaction.row(
                """
                SELECT EXISTS (SELECT FROM notifications n WHERE n.work = 'queue' AND EXISTS (
                    SELECT FROM \(name) q WHERE q.notification = n.notification_id))
                """)?.bool(0)
            guard isKept == false else { return nil }
            return estimate > Self.mostCounted ? estimate : try transaction.row("SELECT count(*) FROM \(name)")?.int(0)
        }
        guard let rows else { return 0 }
        days.withLock { _ = $0.remove(day) }
        return try await database.write(.background) { transaction in
            transaction.pipeline("SELECT set_config('lock_timeout', $1::text, true)", [.text(Self.lockLimit)])
            // If this relay is suspended here, other relays wait for no longer than this.
            transaction.pipeline("SET LOCAL idle_in_transaction_session_timeout = '1s'")
            transaction.pipeline("LOCK TABLE ONLY push_queue IN ACCESS EXCLUSIVE MODE")
            transaction.pipeline("LOCK TABLE \(name) IN ACCESS EXCLUSIVE MODE")
            // Pushes that another program has just made due again are moved first.
            let isDue = try transaction.row("SELECT EXISTS (SELECT FROM \(name) WHERE state = 'pending')")?.bool(0)
            guard isDue == false else { return 0 }
            transaction.pipeline("DROP TABLE \(name)")
            return Int(rows)
        }
    }
}
