package import ChatDomain
import GRDB
package import Logging
import Synchronization

/// Members, devices, messages and the durable queue in one SQLite file.
///
/// Everything is written through one ``BatchingWriter``; reads have their own connections. The extensions are one
/// port each.
package final class SQLiteStore: Sendable {
    /// What the store must know of the configuration; asked at each use, so that a reload takes effect at once.
    package struct Settings: Sendable {
        /// How a chat message becomes an app's payload.
        package var payload: @Sendable (AppName) -> AlertPayload
        /// How long a chat push is worth sending; nil for ever.
        package var expiration: Duration?
        package var retry: RetryPolicy
        /// Whose entries another program's are, which says nothing of apps.
        package var defaultApp: AppName
        /// The apps that there are; nil for any.
        package var apps: Set<AppName>?

        package init(
            payload: @escaping @Sendable (AppName) -> AlertPayload, expiration: Duration? = nil,
            retry: RetryPolicy = RetryPolicy(), defaultApp: AppName = .default, apps: Set<AppName>? = nil
        ) {
            self.payload = payload
            self.expiration = expiration
            self.retry = retry
            self.defaultApp = defaultApp
            self.apps = apps
        }
    }

    let pool: DatabasePool
    let writer: BatchingWriter
    let settings: @Sendable () -> Settings
    let clock: TimeSource
    let logger: Logger
    /// What is done in steps and under way.
    let works = Mutex<Set<LeftWork>>([])
    /// There is more to do than ``works`` has room for.
    let hasMoreWork = Atomic(false)
    /// What became of pushes since the process began.
    let tally = Mutex(OutcomeTally())
    /// Which lane of each app has its turn with the next lease.
    let turns = Mutex<[AppName: LaneTurn]>([:])
    /// What happens in rooms, for who shows it.
    let changes = RoomChangeLog()
    /// What members were handed out, for the operator.
    let fetches = FetchLog()
    private let subscribers = Mutex<[Int: AsyncStream<Void>.Continuation]>([:])
    private let nextSubscriber = Atomic(0)

    /// Opens or creates the database.
    /// - Throws: ``DatabaseFile/Unusable``, or ``ChatError`` when the disk is in the way just now.
    package init(
        file: DatabaseFile, settings: @escaping @Sendable () -> Settings, clock: @escaping TimeSource = Timestamp.now,
        logger: Logger
    ) throws {
        do {
            self.pool = try file.open()
        } catch  where error.isOfTheDisk {
            throw ChatError(storing: error)
        }
        self.writer = BatchingWriter(pool: pool)
        self.settings = settings
        self.clock = clock
        self.logger = logger
    }

    /// Closes the connections, with everything in the one file. Calls after it fail.
    package func close() throws {
        do {
            try pool.writeWithoutTransaction { db in
                try writer.checkpointer.end(db)
                _ = try db.checkpoint(.truncate)
            }
        } catch {
            // Somebody reads: what is in the write-ahead log is as durable there.
            logger.debug("the write-ahead log stays", metadata: ["error": "\(error)"])
        }
        try pool.close()
    }

    /// Reads beside the writer, from the last commit.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        do {
            return try await pool.read(body)
        } catch {
            throw ChatError(storing: error)
        }
    }

    /// See ``PushQueue/announceArrivals(to:)``.
    package func announceArrivals(to bell: AsyncStream<Void>.Continuation) {
        let number = nextSubscriber.add(1, ordering: .relaxed).newValue
        subscribers.withLock { $0[number] = bell }
        bell.onTermination = { [weak self] _ in
            self?.subscribers.withLock { $0[number] = nil }
        }
    }

    /// Tells everyone who waits for entries that there may be some.
    func announceArrivals() {
        for continuation in subscribers.withLock({ Array($0.values) }) {
            continuation.yield()
        }
    }
}
