package import ChatDomain
package import ChatSQL
import GRDB

/// The queue in a database file, for the command line. Works with or without a running relay.
package typealias QueueFile = SQLQueueAdministration<CommandQueueTable>

extension SQLQueueAdministration where Table == CommandQueueTable {
    /// Opens a file that exists and has the current schema. Never creates or upgrades one.
    /// - Throws: ``DatabaseFile/Unusable``.
    package init(path: String) throws {
        try self.init(path: path, now: Timestamp.now)
    }

    init(path: String, now: @escaping TimeSource) throws {
        let file = DatabaseFile(path: path)
        let queue = try file.openExisting()
        try queue.read(file.requireCurrent)
        self.init(
            table: CommandQueueTable(database: CommandDatabase(queue: queue, now: now)),
            ids: try queue.read(APNSIDs.load))
    }
}

/// A command's connection to a database file that a relay may serve at the same time.
package struct CommandDatabase: SQLDatabase {
    let queue: DatabaseQueue
    package let now: TimeSource
    package let longReads = LongReads()

    package func read<Value: Sendable>(
        _ body: @escaping @Sendable (SQLiteTransaction) throws -> Value
    ) async throws(ChatError) -> Value {
        do {
            return try await queue.read { try body(SQLiteTransaction($0)) }
        } catch {
            throw ChatError(storing: error)
        }
    }

    package func write<Value: Sendable>(
        as terms: WriteTerms, _ body: @escaping @Sendable (SQLiteTransaction) throws -> Value,
        committed: @escaping @Sendable (Value) -> Void
    ) async throws(ChatError) -> Value {
        do {
            let value = try await queue.write { try body(SQLiteTransaction($0)) }
            committed(value)
            return value
        } catch {
            throw ChatError(storing: error)
        }
    }
}

/// The queue's table in a file.
package protocol SQLiteQueueTable: QueueTable where Database.Transaction == SQLiteTransaction {}

extension SQLiteQueueTable {
    // Leases are only in the relay's memory.
    package static var isUnleased: String { "TRUE" }
    package static var isFree: String { "TRUE" }
    package static var retryAssignments: String { "" }

    package func prepare(_ transaction: SQLiteTransaction) {}

    package func add(_ counts: [NotificationID: [PushState: Int]], _ transaction: SQLiteTransaction) throws {
        for (notification, states) in counts {
            for (state, number) in states {
                try transaction.run(
                    "UPDATE notification_counts SET \(state) = \(state) + $1 WHERE notification_id = $2",
                    [.int(number), .int(notification)])
            }
        }
    }

    package func cancel(
        _ notification: NotificationID, isFirst: Bool, at now: Timestamp, _ transaction: SQLiteTransaction
    ) throws -> CancelledPart {
        if isFirst { _ = try NotificationCancellation.begin(notification, now: now, transaction.db) }
        let step = try NotificationCancellation.step(of: notification, now: now, inFlight: leased, transaction.db)
        return step.map { CancelledPart(ended: $0.ended, hasMore: $0.hasMore) } ?? CancelledPart()
    }
}

/// The queue's table as a command uses it. A running relay notices each change.
package struct CommandQueueTable: SQLiteQueueTable {
    package let database: CommandDatabase

    package func leased(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] { [] }
    package func changed(_ change: QueueChange, _ changed: ChangedPushes) {}
    package func pausesChanged(of app: AppName) {}
}
