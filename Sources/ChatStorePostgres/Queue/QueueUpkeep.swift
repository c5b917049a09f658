import ChatDomain
import Synchronization

/// The work of the queue besides leases and outcomes. Notices changes by other programs and other relays, frees the
/// leases of relays that have ended, and deletes old pushes.
final class QueueUpkeep: Sendable {
    /// The interval of checks for changes that others may have made.
    private static let interval = Duration.milliseconds(400)
    /// A check uses at most one part in ``share`` of the time, except for very slow ones: the pause is at most
    /// ``longestPause``.
    private static let share = 10
    private static let longestPause = Duration.seconds(10)
    /// The number of rounds after which due pushes are signalled again, even if nothing has changed: another session
    /// may have had them locked before.
    private static let quietRounds = 5
    /// The interval of checks of all leases, whether or not a relay has ended.
    private static let searchInterval = Duration.seconds(30)
    /// The time to wait for this relay's own calls, and the interval of checks.
    private static let callLimit = Duration.seconds(5)
    private static let callInterval = Duration.milliseconds(10)
    /// The maximum number of rows that one transaction changes.
    private static let step = 1000
    /// The number of rows that one transaction reads if no index leads to the matching ones: less than a second.
    private static let window = 50_000
    /// A relay's clock may be behind the clock that set a push's due time.
    private static let clockDifference = Duration.seconds(60)

    private let database: PostgresDatabase
    private let queue: PostgresPushQueue
    private let settings: @Sendable () -> StoreSettings
    private let watch = Mutex(Watch())

    /// The findings of earlier rounds.
    private struct Watch {
        /// The number of ended starts at the last check for their leases.
        var ended: Int64 = -1
        var nextSearch = ContinuousClock.now
        /// The first unleased push of each lane, and the number of rounds since they were signalled.
        var due: Set<Found> = []
        var quietRounds = 0
    }

    /// The first unleased push of a lane of an app.
    private struct Found: Hashable {
        let app: AppName
        let lane: Int
        let isWaiting: Bool
        let floor: QueueLeases.Floor?
    }

    init(
        database: PostgresDatabase, queue: PostgresPushQueue, settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.queue = queue
        self.settings = settings
    }

    /// Runs until the task is cancelled.
    func run() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.listen() }
            group.addTask {
                while !Task.isCancelled {
                    let began = ContinuousClock.now
                    do throws(ChatError) {
                        try await self.look()
                    } catch  where !Task.isCancelled {
                        self.database.logger.debug(
                            "the queue could not be scanned", metadata: ["error": "\(error)"])
                    } catch {}
                    let pause = min((ContinuousClock.now - began) * Self.share, Self.longestPause)
                    try? await Task.sleep(for: max(Self.interval, pause))
                }
                // Release the remaining pushes now. Otherwise they wait until other relays notice that this one has
                // ended.
                try? await self.releaseReturned()
            }
        }
    }

    private func listen() async {
        for await announcement in database.announcements() {
            if announcement.everything {
                queue.leases.withLock { $0.forgetFloors() }
                queue.signal()
            } else if !announcement.apps.isEmpty {
                queue.signal(Set(announcement.apps.map { AppName($0) }))
            }
        }
    }

    // MARK: - One round

    /// Runs one round. A part that fails does not prevent the others.
    /// - Returns: The apps that have unsettled pushes.
    @discardableResult
    func look() async throws(ChatError) -> Set<AppName> {
        let now = database.now()
        await attempt("the partitions of today and tomorrow", { () throws(ChatError) in try await self.beginDay(now) })
        await attempt("leases of relays that have ended", takeOver)
        await attempt("released pushes", releaseReturned)
        await attempt(
            "pushes that others settled or made due", { () throws(ChatError) in try await self.moveStrays(now) })
        await attempt("due times too far ahead", { () throws(ChatError) in try await self.mendTimes(now) })
        await attempt("the default app's pushes", adopt)
        await attempt("leases that this relay does not know", releaseOrphans)
        return try await findDue()
    }

    private func attempt(_ name: String, _ work: () async throws(ChatError) -> Void) async {
        do throws(ChatError) {
            try await work()
        } catch {
            database.logger.debug(
                "a part of the queue's upkeep failed and will be retried",
                metadata: ["of": "\(name)", "error": "\(error)"])
        }
    }

    /// Creates the partitions of today and tomorrow.
    private func beginDay(_ now: Timestamp) async throws(ChatError) {
        try await queue.partitions.add(now)
        try await queue.partitions.add(now + .seconds(86_400))
    }

    /// Releases leases with push ids above `$1` and up to `$2` whose start has ended or is unknown.
    static let abandonedSQL = """
        UPDATE push_queue_due SET lease_start = NULL, in_doubt = true WHERE ctid = ANY (ARRAY(
            SELECT q.ctid FROM push_queue_due q
            WHERE q.message_id > $1::bigint AND q.message_id <= $2::bigint AND q.lease_start IS NOT NULL
                AND q.state = 'pending' AND NOT EXISTS (
                    SELECT FROM relay_starts s WHERE s.start_id = q.lease_start AND s.time_ended IS NULL)
            FOR UPDATE OF q SKIP LOCKED))
        """

    /// The last push id of a ``window`` that begins after `$1`. Returns no row for the last window.
    static let windowSQL = """
        SELECT message_id FROM push_queue_due WHERE message_id > $1::bigint ORDER BY message_id
        OFFSET \(window - 1) LIMIT 1
        """

    /// Releases the leases of relays that have ended. Runs when a relay has ended, and from time to time.
    func takeOver() async throws(ChatError) {
        queue.leases.withLock { $0.belong(to: database.start) }
        let ended = try await database.read { transaction in
            try transaction.row("SELECT count(*) FROM relay_starts WHERE time_ended IS NOT NULL")?.int(0) ?? 0
        }
        guard watch.withLock({ $0.ended != ended || .now >= $0.nextSearch }) else { return }
        let began = ContinuousClock.now
        var (count, after) = (0, Int64?.some(.min))
        while let start = after {
            let (released, end) = try await database.write(.background, isRepeatable: true) { transaction in
                try transaction.useIndexes()
                let end = try transaction.row(Self.windowSQL, [.int(start)])?.int(0)
                let released = try transaction.run(Self.abandonedSQL, [.int(start), .int(end ?? .max)])
                transaction.announcement.everything = released > 0
                return (released, end)
            }
            (count, after) = (count + released, end)
        }
        watch.withLock { watch in
            watch.ended = ended
            watch.nextSearch = .now + max(Self.searchInterval, (.now - began) * (20 * Self.share))
        }
        guard count > 0 else { return }
        database.logger.notice("pushes of relays that have ended are due again", metadata: ["count": "\(count)"])
        queue.leases.withLock { $0.forgetFloors() }
        queue.signal()
    }

    func releaseReturned() async throws(ChatError) {
        let (start, returned) = queue.leases.withLock { leases in
            let start = database.start
            leases.belong(to: start)
            return (start, leases.takeReturned())
        }
        guard !returned.isEmpty else { return }
        do throws(ChatError) {
            // A repetition could release a push that has been leased again.
            try await database.write(.upkeep, isRepeatable: false) { transaction in
                for (app, ranges) in returned {
                    PostgresPushQueue.release(ranges, start, transaction)
                    transaction.announcement.apps.insert(app.text)
                }
            }
        } catch {
            // The search for leases that the relay does not know finds them if they were not released.
            queue.leases.withLock { $0.doubt(at: .now) }
            throw error
        }
    }

    /// Releases leases in the versions `$3` that the search has found. A row that was released and leased again has another
    /// version: the COMMIT of an earlier release may have arrived late.
    static let orphansSQL = "\(QueueReader.releaseSQL) AND xmin::text = ANY ($3::text[])"

    /// Releases leases of this start that the relay does not know, because the response to their COMMIT was lost.
    private func releaseOrphans() async throws(ChatError) {
        let start = queue.leases.withLock { leases in
            let start = database.start
            leases.belong(to: start)
            return leases.beginSearch(at: .now) ? start : nil
        }
        guard let start else { return }
        var (versions, after) = ([Int64: String](), Int64?.some(.min))
        while let last = after {
            let (own, end) = try await database.read { transaction in
                try transaction.useIndexes()
                let end = try transaction.row(Self.windowSQL, [.int(last)])?.int(0)
                let own = try transaction.rows(
                    """
                    SELECT message_id, xmin::text FROM push_queue_due
                    WHERE message_id > $1::bigint AND message_id <= $2::bigint
                        AND lease_start = $3::bigint AND state = 'pending'
                    """, [.int(last), .int(end ?? .max), .int(start)]
                ).map { (try $0.int(0), try $0.text(1)) }
                return (own, end)
            }
            for (id, version) in own { versions[id] = version }
            after = end
        }
        // Calls in progress may have leased some of these pushes without having recorded it yet. Wait for them.
        let underWay = queue.leases.withLock(\.underWay)
        let end = ContinuousClock.now + Self.callLimit
        while queue.leases.withLock({ !$0.underWay.isDisjoint(with: underWay) }) {
            guard ContinuousClock.now < end, !Task.isCancelled else { return }
            try? await Task.sleep(for: Self.callInterval)
        }
        let orphans = queue.leases.withLock { [found = Array(versions.keys)] in $0.orphans(among: found) }
        guard !orphans.isEmpty else { return queue.leases.withLock { $0.endSearch() } }
        let found = Set(orphans.compactMap { versions[$0] })
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            transaction.pipeline(Self.orphansSQL, [.ints(orphans), .int(start), .texts(Array(found))])
            transaction.announcement.everything = true
        }
        queue.leases.withLock { leases in
            leases.endSearch()
            leases.forgetFloors()
        }
        queue.signal()
    }

    // MARK: - Changes by others

    static let dueStraysSQL = """
        SELECT message_id FROM push_queue WHERE settled_on IS NOT NULL AND state = 'pending'
        LIMIT \(step) FOR UPDATE SKIP LOCKED
        """

    /// Moves pushes that others settled into a day, and pushes that others made due again out of theirs.
    func moveStrays(_ now: Timestamp) async throws(ChatError) {
        var after = Int64.min
        while true {
            let moved = try await queue.partitions.move(.background) { [after] transaction, isNumberTaken in
                let found = try transaction.rows(
                    """
                    SELECT message_id FROM push_queue_due WHERE state <> 'pending' AND message_id > $1::bigint
                    ORDER BY message_id LIMIT $2::bigint FOR UPDATE SKIP LOCKED
                    """, [.int(after), .int(Self.step)]
                ).map { try $0.int(0) }
                guard !found.isEmpty else { return found }
                if isNumberTaken { try QueuePartitions.renumber(found, transaction) }
                try transaction.run(
                    """
                    UPDATE push_queue SET settled_on = $2::date, time_settled = coalesce(time_settled, at($3::bigint))
                    WHERE message_id = ANY ($1::bigint[]) AND settled_on IS NULL AND state <> 'pending'
                    """, [.ints(found), .text(now.day), .time(now)])
                return found
            }
            guard moved.count == Self.step, let last = moved.last else { break }
            after = last
        }
        while true {
            let moved = try await queue.partitions.move(.background) { transaction, isNumberTaken in
                // Use the small index of each day, whatever the server believes about it.
                try transaction.useIndexes()
                let strays = try transaction.rows(Self.dueStraysSQL).map { try $0.int(0) }
                guard !strays.isEmpty else { return 0 }
                if isNumberTaken {
                    // Renumber all of them, because two from different days may have the same id. The next round moves
                    // them.
                    try transaction.run(
                        """
                        UPDATE push_queue SET message_id = nextval('push_queue_message_id_seq')
                        WHERE message_id = ANY ($1::bigint[]) AND settled_on IS NOT NULL AND state = 'pending'
                        """, [.ints(strays)])
                    return Self.step
                }
                return try transaction.run(
                    """
                    UPDATE push_queue SET settled_on = NULL, time_settled = NULL, lease_start = NULL
                    WHERE message_id = ANY ($1::bigint[]) AND settled_on IS NOT NULL AND state = 'pending'
                    """, [.ints(strays)])
            }
            if moved < Self.step { break }
        }
    }

    /// Makes retries due that wait longer than any retry can: the clock has been set back since they were queued.
    private func mendTimes(_ now: Timestamp) async throws(ChatError) {
        while true {
            let mended = try await database.write(.background, isRepeatable: true) { transaction in
                try transaction.run(
                    """
                    UPDATE push_queue_due SET not_before = $1::bigint WHERE ctid = ANY (ARRAY(
                        SELECT ctid FROM push_queue_due
                        WHERE state = 'pending' AND not_before IS NOT NULL AND attempts > 0 AND not_before > $2::bigint
                        LIMIT $3::bigint FOR UPDATE SKIP LOCKED))
                    """,
                    [.time(now), .time(now + PushLifeCycle.longestWait + Self.clockDifference), .int(Self.step)])
            }
            if mended < Self.step { break }
        }
    }

    /// Assigns pushes to the configured default app, if it has another name than `default`. An insert that names no app
    /// gets the app `default`.
    private func adopt() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        var after = Int64.min
        while true {
            let changed = try await database.write(.background, isRepeatable: true) { [after] transaction in
                let found = try transaction.rows(
                    """
                    SELECT message_id FROM push_queue_due
                    WHERE app = 'default' AND state = 'pending' AND message_id > $1::bigint
                    ORDER BY message_id LIMIT $2::bigint FOR UPDATE SKIP LOCKED
                    """, [.int(after), .int(Self.step)]
                ).map { try $0.int(0) }
                guard !found.isEmpty else { return found }
                transaction.pipeline(
                    """
                    UPDATE push_queue_due q SET app = $2::text
                    WHERE q.message_id = ANY ($1::bigint[]) AND NOT EXISTS (
                        SELECT FROM push_queue_due o WHERE o.notification = q.notification AND o.device IS NULL
                            AND q.device IS NULL AND o.app = $2::text AND o.device_token = q.device_token)
                    """, [.ints(found), .text(app.text)])
                transaction.announcement.apps.insert(app.text)
                return found
            }
            guard changed.count == Self.step, let last = changed.last else { return }
            after = last
        }
    }

    // MARK: - Due pushes

    /// Selects each app and lane with unsettled pushes, jumping from one to the next through an index, and the first
    /// unleased push of each.
    static func firstSQL(isWaiting: Bool) -> String {
        let rows = "push_queue_due WHERE state = 'pending' AND not_before IS \(isWaiting ? "NOT NULL" : "NULL")"
        let first = isWaiting ? "not_before, message_id" : "NULL::bigint, message_id"
        return """
            (WITH RECURSIVE lanes (app, lane) AS (
                (SELECT app, \(QueueReader.lane) FROM \(rows) ORDER BY 1, 2 LIMIT 1)
                UNION ALL
                SELECT n.* FROM lanes l, LATERAL (
                    SELECT app, \(QueueReader.lane) FROM \(rows) AND (app, \(QueueReader.lane)) > (l.app, l.lane)
                    ORDER BY 1, 2 LIMIT 1) n)
            SELECT l.app, l.lane, \(isWaiting), f.* FROM lanes l LEFT JOIN LATERAL (
                SELECT \(first) FROM \(rows) AND app = l.app AND \(QueueReader.lane) = l.lane AND lease_start IS NULL
                ORDER BY \(isWaiting ? "not_before, " : "")message_id LIMIT 1) f ON true)
            """
    }

    /// Reads every lane from its beginning, and signals apps with due pushes. Takes longer, and is then done less
    /// often, the longer another session has kept a transaction open.
    private func findDue() async throws(ChatError) -> Set<AppName> {
        let (rows, end) = try await database.read { transaction in
            try transaction.useIndexes()
            // Before the query: pushes that arrive after it may have higher ids.
            let end = try transaction.row("SELECT last_value FROM push_queue_message_id_seq")?.int(0) ?? 0
            let rows = try transaction.rows(
                "\(Self.firstSQL(isWaiting: false)) UNION ALL \(Self.firstSQL(isWaiting: true))"
            ).map { row in
                let time = try row.optionalInt(3)
                return Found(
                    app: AppName(try row.text(0)), lane: Int(try row.int(1)), isWaiting: try row.bool(2),
                    floor: try row.optionalInt(4).map { QueueLeases.Floor(time: time ?? .min, id: $0) })
            }
            return (rows, end)
        }
        queue.leases.withLock { leases in
            for row in rows {
                if row.isWaiting {
                    leases.found(row.app, lane: row.lane, waiting: row.floor)
                } else {
                    leases.found(row.app, lane: row.lane, due: row.floor ?? QueueLeases.Floor(id: end), at: .now)
                }
            }
        }
        let due = Set(rows.filter { $0.floor != nil })
        let isNew = watch.withLock { watch in
            watch.quietRounds += 1
            let isNew = !due.isSubset(of: watch.due) || watch.quietRounds >= Self.quietRounds
            watch.due = due
            if isNew { watch.quietRounds = 0 }
            return isNew && !due.isEmpty
        }
        if isNew { queue.signal(Set(due.map(\.app))) }
        return Set(rows.map(\.app))
    }

    /// Apps with pushes that no dispatcher sends, because the apps are not configured.
    func unconfiguredApps(_ configured: Set<AppName>) async throws(ChatError) -> Set<AppName> {
        try await findDue().subtracting(configured)
    }

    // MARK: - Retention

    /// With this retention or longer, whole day partitions are dropped, up to a day late.
    private static let wholeDays = Duration.seconds(2 * 86_400)

    /// Deletes pushes that were settled longer ago than `age`. Keeps pushes of a notification that is still being
    /// queued, because they prevent a second push for their device.
    /// - Returns: The number of deleted pushes.
    func applyRetention(keeping age: Duration) async throws(ChatError) -> Int {
        let now = database.now()
        try await moveStrays(now)
        var deleted = try await queue.partitions.drop(before: (now - age).day)
        guard age < Self.wholeDays else { return deleted }
        var after = Int64.min
        while true {
            let rows = try await database.write(.background, isRepeatable: true) { [after] transaction in
                try transaction.rows(
                    """
                    WITH old AS (
                        SELECT q.message_id, q.settled_on FROM push_queue q
                        WHERE q.settled_on <= $4::date AND q.message_id > $1::bigint AND q.state <> 'pending'
                            AND q.time_settled < at($2::bigint) AND NOT EXISTS (
                                SELECT FROM notifications n
                                WHERE n.notification_id = q.notification AND n.work = 'queue')
                        ORDER BY q.message_id LIMIT $3::bigint)
                    DELETE FROM push_queue q USING old
                    WHERE q.message_id = old.message_id AND q.settled_on = old.settled_on RETURNING q.message_id
                    """, [.int(after), .time(now - age), .int(Self.step), .text((now - age).day)]
                ).map { try $0.int(0) }
            }
            deleted += rows.count
            guard rows.count == Self.step, let last = rows.max() else { return deleted }
            after = last
        }
    }
}
