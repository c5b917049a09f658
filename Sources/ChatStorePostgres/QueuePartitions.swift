#if PostgreSQL
import ChatDomain
import Synchronization

/// The partitions of `push_queue`, one a day of settling: made when they are needed, dropped by retention.
final class QueuePartitions: Sendable {
    /// How long dropping waits for others' transactions; whoever comes after it waits for it meanwhile.
    private static let lockLimit = "200ms"
    /// Rows of a day up to which they are counted; of more the server's estimate is told.
    private static let mostCounted: Int64 = 1_000_000

    private let database: PostgresDatabase
    /// Days whose partitions are there.
    private let days = Mutex<Set<String>>([])

    init(database: PostgresDatabase) {
        self.database = database
    }

    /// Makes a day's partition, unless this relay knows that it is there.
    func add(_ time: Timestamp) async throws(ChatError) {
        let day = time.day
        if days.withLock({ $0.contains(day) }) { return }
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            transaction.pipeline("SELECT push_queue_add_day($1::date)", [.text(day)])
        }
        days.withLock { _ = $0.insert(day) }
    }

    // MARK: - Numbers

    /// Writes what moves pushes between what is due and the days, in one transaction. In each there is one of a number. Where
    /// another program has used one again, `body` runs once more, and is told so: it ``renumber(_:_:)``s first.
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
            }
        }
    }

    /// Gives settled pushes other numbers, where one that is due has theirs.
    static func renumber(_ numbers: [Int64], _ transaction: PostgresTransaction) {
        transaction.pipeline(
            """
            UPDATE push_queue q SET message_id = nextval('push_queue_message_id_seq')
            WHERE q.settled_on IS NOT NULL AND q.message_id = ANY ($1::bigint[])
                AND EXISTS (SELECT FROM push_queue_due d WHERE d.message_id = q.message_id)
            """, [.ints(numbers)])
    }

    // MARK: - Retention

    /// Takes away days, and with them what was settled. Not one with a push of a notification that is still being queued: it
    /// keeps that from going to a device twice. One that somebody reads just now stays until the next time.
    /// - Returns: how many pushes were in them.
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
                database.logger.debug("old pushes are deleted later", metadata: ["day": "\(day)", "error": "\(error)"])
            }
        }
        return dropped
    }

    /// - Parameter name: made of digits.
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
            // A relay that is stopped here keeps the others waiting.
            transaction.pipeline("SET LOCAL idle_in_transaction_session_timeout = '1s'")
            transaction.pipeline("LOCK TABLE ONLY push_queue IN ACCESS EXCLUSIVE MODE")
            transaction.pipeline("LOCK TABLE \(name) IN ACCESS EXCLUSIVE MODE")
            // What another program has just made due again is moved first.
            let isDue = try transaction.row("SELECT EXISTS (SELECT FROM \(name) WHERE state = 'pending')")?.bool(0)
            guard isDue == false else { return 0 }
            transaction.pipeline("DROP TABLE \(name)")
            return Int(rows)
        }
    }
}
#endif
