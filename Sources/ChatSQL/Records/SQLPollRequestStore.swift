package import ChatDomain
import Synchronization

/// The rooms that ntfy's app has polled, and how far an upstream server knows their messages.
package final class SQLPollRequestStore<Database: SQLDatabase>: PollRequestStore {
    /// The time after which another poll of a room is recorded.
    private static var recordInterval: Duration { .seconds(3600) }
    /// The maximum number of rooms whose last record is in memory.
    private static var maxRooms: Int { 10_000 }

    private let database: Database
    /// The times at which polls were last recorded.
    private let recorded = Mutex<[SecretCode: Timestamp]>([:])

    package init(database: Database) {
        self.database = database
    }

    package func polled(_ room: SecretCode) async throws(ChatError) {
        let now = database.now()
        let isRecorded = recorded.withLock { recorded in
            recorded[room].map { $0 <= now && now < $0 + Self.recordInterval } ?? false
        }
        if isRecorded { return }
        _ = try await database.write(as: .answer) { transaction in
            try transaction.run(
                """
                INSERT INTO polled_rooms (room_id, announced_to, time_polled)
                SELECT r.room_id,
                    (SELECT coalesce(max(m.message_id), 0) FROM messages m WHERE m.secret_code = r.secret_code), at($2)
                FROM rooms r WHERE r.secret_code = $1 AND r.alias IS NOT NULL
                ON CONFLICT (room_id) DO UPDATE SET time_polled = excluded.time_polled
                WHERE polled_rooms.time_polled < excluded.time_polled
                """, [.text(room.text), .time(now)])
        }
        recorded.withLock { recorded in
            if recorded.count >= Self.maxRooms { recorded = [:] }
            recorded[room] = now
        }
    }

    package func lease(limit: Int) async throws(ChatError) -> [PollRequest] {
        // The usual case needs no write transaction.
        let now = database.now()
        let isDue = try await database.read { transaction in
            try !Self.next(limit: 1, now: now, lock: "", transaction).isEmpty
        }
        guard isDue else { return [] }
        return try await database.write(as: .upkeepOnce) { transaction in
            let next = try Self.next(
                limit: limit, now: now, lock: transaction.dialect.lockedOrSkipped("p"), transaction)
            for row in next where row.isExpired {
                // The room's next message is leased in the next call.
                try transaction.run(
                    """
                    UPDATE polled_rooms SET attempts = 0, announced_to = (
                        SELECT max(m.message_id) FROM messages m JOIN rooms r ON r.secret_code = m.secret_code
                        WHERE r.room_id = $1 AND m.message_id >= $2 AND m.time_sent < at($3))
                    WHERE room_id = $1
                    """, [.int(row.request.room), .int(row.request.message), .time(now - PollRequest.lifetime)])
            }
            let requests = next.filter { !$0.isExpired }.map(\.request)
            for request in requests {
                try transaction.pipeline(
                    "UPDATE polled_rooms SET not_before = $2 WHERE room_id = $1",
                    [.int(request.room), .int((now + PollRequest.lease).milliseconds)])
            }
            return requests
        }
    }

    private struct Next {
        let request: PollRequest
        let isExpired: Bool
    }

    private static func next(
        limit: Int, now: Timestamp, lock: String, _ transaction: Database.Transaction
    ) throws -> [Next] {
        try transaction.rows(
            """
            SELECT p.room_id, r.alias, m.message_id, p.attempts, ms(m.time_sent)
            FROM polled_rooms p JOIN rooms r ON r.room_id = p.room_id
                JOIN messages m ON m.message_id = (
                    SELECT min(n.message_id) FROM messages n
                    WHERE n.secret_code = r.secret_code AND n.message_id > p.announced_to)
            WHERE p.not_before <= $1 AND p.time_polled > at($2) AND r.alias IS NOT NULL
            ORDER BY m.message_id LIMIT $3 \(lock)
            """, [.int(now.milliseconds), .time(now - PollRequest.pollLifetime), .int(limit)]
        ).map { row in
            Next(
                request: PollRequest(
                    room: try row.int(0), alias: RoomAlias(stored: try row.text(1)), message: try row.int(2),
                    attempts: Int(try row.int(3))),
                isExpired: try row.time(4) < now - PollRequest.lifetime)
        }
    }

    package func settle(_ request: PollRequest, _ result: PollRequestResult) async throws(ChatError) {
        let (change, value): (String, SQLValue) =
            switch result {
            case .done: ("announced_to = $2, attempts = 0, not_before = $3", 0)
            case .failed(let next): ("attempts = attempts + 1, not_before = $3", .int(next.milliseconds))
            case .released: ("not_before = $3", 0)
            }
        // Another relay may have sent the request, if the lease has expired.
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                "UPDATE polled_rooms SET \(change) WHERE room_id = $1 AND announced_to < $2",
                [.int(request.room), .int(request.message), value])
        }
    }

    /// Deletes rooms that no app polls any more.
    package func applyRetention() async throws(ChatError) {
        let limit = database.now() - PollRequest.pollLifetime
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run("DELETE FROM polled_rooms WHERE time_polled < at($1)", [.time(limit)])
        }
    }
}
