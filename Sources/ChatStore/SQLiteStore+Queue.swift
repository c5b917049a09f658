package import ChatDomain
import Foundation
import GRDB

extension SQLiteStore: PushQueue {
    /// Delayed entries that one lease promotes to due ones.
    private static let promotionStep = 1000

    /// The lanes go in their order, so that what has made trouble holds nothing up, and what is for very many holds up nobody
    /// else; but the later ones have their turn after each lease that did not come to them, so that a queue that is never
    /// empty does not keep them for ever.
    ///
    /// Where pushes have no ids, what is marked as written need not be on the disk before it is: should a power cut undo that,
    /// it is sent again, as it would be if it stood there. An id has to be the same then.
    package func lease(app: AppName, for slot: ConnectionSlot) async throws(ChatError) -> Lease {
        let (lease, refused) = try await writer.perform(durably: slot.namesPushes, .upkeep) { [self] db in
            let now = clock()
            try promote(app: app, now: now, db)
            var screening = LeaseScreening(slot: slot, now: now, isHurried: writer.isAnswering)
            let turn = turns.withLock { $0[app] ?? LaneTurn() }
            if let lane = turn.next {
                try screen(&screening, "\(Lane.sql) = \(lane.rawValue)", order: "q.message_id", app: app, db)
            }
            let isTurn = !screening.isEmpty
            if !isTurn { try screen(&screening, "TRUE", order: "\(Lane.sql), q.message_id", app: app, db) }
            try write(screening, now: now, db)
            if !screening.lease.needsFreshConnection {
                var next = LaneTurn(last: turn.next ?? turn.last)
                // Not while there is room for one only: then a connection is at its beginning, and may end with it.
                if !isTurn, slot.room > 1 {
                    next.next = try turn.candidates(after: screening.lastLane).first { try hasDue($0, app: app, db) }
                }
                turns.withLock { $0[app] = next }
            }
            return (screening.lease, screening.refused)
        }
        count(refused.map { Ending(app: app, state: $0.state, reason: $0.reason) })
        return lease
    }

    private func hasDue(_ lane: Lane, app: AppName, _ db: Database) throws -> Bool {
        try RawStatement(
            db,
            """
            SELECT 1 FROM push_queue WHERE app = ? AND \(Lane.sql) = ? AND \(Self.isDue) LIMIT 1
            """, app.text, lane.rawValue
        ).step()
    }

    private func screen(
        _ screening: inout LeaseScreening, _ condition: String, order: String, app: AppName, _ db: Database
    ) throws {
        let rows = try RawStatement(
            db,
            """
            SELECT \(DueRow.columns)
            FROM push_queue q
            LEFT JOIN devices d ON d.app = q.app
                -- Another program may have written the token as Apple prints it.
                AND d.device_token = lower(replace(replace(replace(q.device_token, ' ', ''), '<', ''), '>', ''))
            WHERE q.app = ? AND \(Self.isDue) AND \(condition)
            ORDER BY \(order) LIMIT ?
            """, app.text, Int64(screening.slot.room))
        // Many rows of a lease are of the same few notifications.
        var notifications: [NotificationID: LeasedNotification] = [:]
        while try rows.step() {
            let row = DueRow(rows)
            var notification: LeasedNotification?
            if let id = row.notification {
                notification = try notifications[id] ?? LeasedNotification.find(id, db)
                notifications[id] = notification
            }
            guard screening.take(row, of: notification) else { break }
        }
    }

    /// Makes entries due whose time has come. An entry that waits for a repeat is also due when the wait is longer than
    /// any wait there is: then the clock was set back. What is scheduled may lie far ahead, and be much.
    private func promote(app: AppName, now: Timestamp, _ db: Database) throws {
        let beyond = now + settings().retry.longest * 2
        for (isRepeat, condition, time) in [(0, "<=", now), (1, "<=", now), (1, ">", beyond)] {
            try db.cachedStatement(sql: Self.promotionSQL(condition))
                .execute(arguments: [app.text, isRepeat, time.milliseconds, Self.promotionStep])
        }
    }

    static func promotionSQL(_ comparison: String) -> String {
        """
        UPDATE push_queue SET not_before = NULL WHERE message_id IN (
            SELECT message_id FROM push_queue
            WHERE app = ? AND (attempts > 0) = ? AND not_before \(comparison) ? AND state = 'pending'
                AND not_before IS NOT NULL
            ORDER BY not_before LIMIT ?)
        """
    }

    /// Marks what was taken and settles what was refused.
    private func write(_ screening: LeaseScreening, now: Timestamp, _ db: Database) throws {
        let text = now.sqlText
        let slot = screening.slot
        let mark = """
            UPDATE push_queue SET state = 'written', connection_epoch = ?, identifier = message_id - ?, time_written = ?,
                attempts = attempts + 1
            """
        // What stands in a row is marked with one statement.
        let marked = try db.cachedStatement(
            sql: mark + (slot.namesPushes ? ", apns_id = coalesce(apns_id, \(DueRow.newIDSQL))" : "")
                + " WHERE message_id BETWEEN ? AND ?")
        let changed = try db.cachedStatement(
            sql: mark + ", device_token = ?, apns_id = coalesce(?, apns_id) WHERE message_id = ?")
        let pushes = screening.pushes
        var start = 0
        while start < pushes.count {
            let first = pushes[start]
            var end = start + 1
            let common: StatementArguments = [
                slot.connection.number, first.entry - Int64(first.identifier), text,
            ]
            if screening.isPlain[start] {
                while end < pushes.count, screening.isPlain[end], pushes[end].entry == pushes[end - 1].entry + 1 {
                    end += 1
                }
                try marked.execute(
                    arguments: common + (slot.namesPushes ? [screening.idPrefix] : [])
                        + [first.entry, pushes[end - 1].entry])
            } else {
                try changed.execute(arguments: common + [first.token.description, first.id, first.entry])
            }
            start = end
        }
        for (entry, device) in screening.recognized {
            try db.cachedStatement(sql: "UPDATE push_queue SET device = ? WHERE message_id = ?")
                .execute(arguments: [device, entry])
        }
        let refused = try db.cachedStatement(
            sql: "UPDATE push_queue SET state = ?, reason = ?, time_settled = ? WHERE message_id = ?")
        for refusal in screening.refused {
            try refused.execute(arguments: [refusal.state.rawValue, refusal.reason, text, refusal.entry])
        }
    }

    /// Starts that are remembered.
    private static let startsKept: Int64 = 100
    /// Numbers of connections between one start and the next: so no number means two of them.
    static let connectionsOfAStart: Int64 = 1_000_000_000

    package func recover() async throws(ChatError) -> Recovery {
        try await writer.perform { [clock] db in
            try db.execute(sql: "INSERT INTO starts (time_started) VALUES (?)", arguments: [clock().sqlText])
            let start = db.lastInsertedRowID
            try db.execute(sql: "DELETE FROM starts WHERE start_id <= ?", arguments: [start - Self.startsKept])
            try db.execute(
                sql: """
                    UPDATE push_queue SET state = 'pending', reason = ?, connection_epoch = NULL, identifier = NULL,
                        attempts = attempts - 1
                    WHERE state = 'written'
                    """, arguments: [LeaseScreening.recovered])
            return Recovery(count: db.changesCount, lastEpoch: ConnectionEpoch(start * Self.connectionsOfAStart))
        }
    }

    package func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        try await read { db in
            try [0, 1].compactMap { isRepeat in
                try Int64.fetchOne(db.cachedStatement(sql: Self.nextDueSQL), arguments: [app.text, isRepeat])
            }.min().map(Timestamp.init(milliseconds:))
        }
    }

    static let nextDueSQL = """
        SELECT min(not_before) FROM push_queue
        WHERE app = ? AND (attempts > 0) = ? AND state = 'pending' AND not_before IS NOT NULL
        """
}
