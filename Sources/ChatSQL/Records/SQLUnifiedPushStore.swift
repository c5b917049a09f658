package import ChatDomain
import Synchronization

/// The topics of UnifiedPush and their pushes.
package final class SQLUnifiedPushStore<Database: SQLDatabase>: UnifiedPushStore {
    /// The time after which another use of a topic is recorded.
    private static var recordInterval: Duration { .seconds(3600) }

    private let database: Database
    private let waiting = Mutex(Waiting())

    package init(database: Database) {
        self.database = database
    }

    // MARK: - Topics

    private struct Found {
        var claims: [UnifiedPushTopic: UnifiedPushClaim] = [:]
        /// Topics of the owner whose last use need not be recorded.
        var recent: Set<UnifiedPushTopic> = []
    }

    package func claim(
        _ topics: [UnifiedPushTopic], for owner: UnifiedPushOwner
    ) async throws(ChatError) -> [UnifiedPushTopic: UnifiedPushClaim] {
        guard !topics.isEmpty else { return [:] }
        let now = database.now()
        let known = try await database.read { try Self.find(topics, owner, now: now, $0) }
        if topics.allSatisfy({ known.recent.contains($0) || known.claims[$0].map { $0 != .owned } ?? false }) {
            return known.claims
        }
        let (column, id) = owner.column
        return try await database.write(as: .answer) { transaction in
            try transaction.lock("unifiedpush topics of \(column) \(id)")
            let rooms = try Self.find(topics, owner, now: now, transaction).claims.filter { $0.value == .room }
            for topic in topics where rooms[topic] == nil {
                try transaction.run(
                    """
                    INSERT INTO unifiedpush_topics (topic, \(column), time_used) VALUES ($1, $2, at($3))
                    ON CONFLICT (topic) DO UPDATE SET time_used = excluded.time_used
                    WHERE unifiedpush_topics.\(column) = excluded.\(column)
                    """, [.text(topic.text), .int(id), .time(now)])
            }
            try transaction.run(
                """
                DELETE FROM unifiedpush_topics WHERE \(column) = $1 AND topic NOT IN (
                    SELECT t.topic FROM unifiedpush_topics t WHERE t.\(column) = $1
                    ORDER BY t.time_used DESC, t.topic LIMIT $2)
                """, [.int(id), .int(UnifiedPushLimits.topicsPerOwner)])
            let found = try Self.find(topics, owner, now: now, transaction).claims
            return Dictionary(topics.map { ($0, found[$0] ?? .foreign) }) { first, _ in first }
        }
    }

    package func owned(
        _ topics: [UnifiedPushTopic], by owner: UnifiedPushOwner
    ) async throws(ChatError) -> Set<UnifiedPushTopic> {
        let now = database.now()
        let claims = try await database.read { try Self.find(topics, owner, now: now, $0).claims }
        return Set(claims.filter { $0.value == .owned }.keys)
    }

    /// Returns the topics that have an owner or are rooms.
    private static func find(
        _ topics: [UnifiedPushTopic], _ owner: UnifiedPushOwner, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> Found {
        var found = Found()
        let names = transaction.dialect.each("$1", "text")
        let values: [SQLValue] = [.texts(topics.map(\.text))]
        let (column, id) = owner.column
        let rows = try transaction.rows(
            "SELECT topic, \(column), ms(time_used) FROM unifiedpush_topics WHERE topic IN (\(names))", values)
        for row in rows {
            guard let topic = UnifiedPushTopic(try row.text(0)) else { continue }
            let isOwn = try row.optionalInt(1) == id
            found.claims[topic] = isOwn ? .owned : .foreign
            if isOwn, try row.time(2) > now - recordInterval { found.recent.insert(topic) }
        }
        for row in try transaction.rows("\(rooms) IN (\(names))", values) {
            if let topic = UnifiedPushTopic(try row.text(0)) { found.claims[topic] = .room }
        }
        return found
    }

    /// Selects rooms. Rooms whose members were inserted by a script may have no row in `rooms`.
    private static var rooms: String {
        """
        SELECT code FROM (SELECT secret_code AS code FROM rooms UNION ALL SELECT secret_code FROM active_users) r
        WHERE code
        """
    }

    // MARK: - Pushes

    package func post(_ body: [UInt8], to topic: UnifiedPushTopic) async throws(ChatError) -> UnifiedPushReceipt {
        // The read refuses most strangers without a write transaction.
        guard try await database.read({ try Self.owner(of: topic, $0) }) != nil else { return .noOwner }
        let size = max(body.count, UnifiedPushLimits.smallestSize)
        guard try await reserve(size) else { return .full }
        var receipt: UnifiedPushReceipt?
        defer {
            if case .stored = receipt {} else { waiting.withLock { $0.bytes -= Int64(size) } }
        }
        let stored = try await store(body, size: size, in: topic)
        receipt = stored
        return stored
    }

    private func store(
        _ body: [UInt8], size: Int, in topic: UnifiedPushTopic
    ) async throws(ChatError) -> UnifiedPushReceipt {
        let now = database.now()
        return try await database.write(as: .answerOnce) { transaction -> UnifiedPushReceipt in
            // The ids of pushes increase in the order of their commits: an app confirms all its topics with one id.
            try transaction.lock("unifiedpush")
            guard let owner = try Self.owner(of: topic, transaction) else { return .noOwner }
            try transaction.run(
                """
                DELETE FROM unifiedpush_messages WHERE topic = $1 AND message_id <= (
                    SELECT m.message_id FROM unifiedpush_messages m WHERE m.topic = $1
                    ORDER BY m.message_id DESC LIMIT 1 OFFSET $2)
                """, [.text(topic.text), .int(UnifiedPushLimits.messagesPerTopic - 1)])
            let (column, id) = owner.column
            // A subquery for each topic, because PostgreSQL would read the whole table for a join.
            let ofOwner = try transaction.row(
                """
                SELECT CAST(coalesce(sum(
                    (SELECT coalesce(sum(m.size), 0) FROM unifiedpush_messages m WHERE m.topic = t.topic)), 0) AS bigint)
                FROM unifiedpush_topics t WHERE t.\(column) = $1
                """, [.int(id)])
            guard let ofOwner, try ofOwner.int(0) + Int64(size) <= UnifiedPushLimits.bytesPerOwner else { return .full }
            let message = try transaction.nextMessageID()
            try transaction.run(
                """
                INSERT INTO unifiedpush_messages (message_id, topic, size, time_sent, body)
                VALUES ($1, $2, $3, at($4), $5)
                """, [.int(message), .text(topic.text), .int(size), .time(now), .bytes(body)])
            transaction.announcement.topics.insert(topic.text)
            transaction.announcement.last = message
            return .stored(message)
        }
    }

    /// Returns a topic's owner. `nil` if it has none, or if a room has its name. Looks for a room only after it has found
    /// the owner: the time of a refusal then does not tell a stranger which rooms exist.
    private static func owner(
        of topic: UnifiedPushTopic, _ transaction: Database.Transaction
    ) throws -> UnifiedPushOwner? {
        let name = [SQLValue.text(topic.text)]
        let row = try transaction.row("SELECT member, token FROM unifiedpush_topics WHERE topic = $1", name)
        guard let row, try transaction.row("\(rooms) = $1 LIMIT 1", name) == nil else { return nil }
        return try row.optionalInt(0).map { .member($0) } ?? .token(row.int(1))
    }

    /// The bytes of all pushes that wait. Deletions appear with the next count.
    private struct Waiting {
        var bytes: Int64 = 0
        var countedAt: Timestamp?

        /// Whether the caller has to count now.
        mutating func isDue(at now: Timestamp) -> Bool {
            // The clock may have been set back.
            if let countedAt, countedAt <= now, now < countedAt + UnifiedPushLimits.countInterval { return false }
            countedAt = now
            return true
        }

        mutating func reserve(_ size: Int) -> Bool {
            guard bytes + Int64(size) <= UnifiedPushLimits.totalBytes else { return false }
            bytes += Int64(size)
            return true
        }
    }

    /// Takes bytes of the space for all pushes. Returns whether there was enough.
    private func reserve(_ size: Int) async throws(ChatError) -> Bool {
        if waiting.withLock({ $0.isDue(at: database.now()) }) {
            do throws(ChatError) {
                let bytes = try await database.read { transaction in
                    let sum = "SELECT CAST(coalesce(sum(size), 0) AS bigint) FROM unifiedpush_messages"
                    return try transaction.row(sum)?.int(0) ?? 0
                }
                waiting.withLock { $0.bytes = bytes }
            } catch {
                waiting.withLock { $0.countedAt = nil }
                throw error
            }
        }
        return waiting.withLock { $0.reserve(size) }
    }

    package func messages(
        in topic: UnifiedPushTopic, after: MessageID, limit: Int
    ) async throws(ChatError) -> [UnifiedPushMessage] {
        let oldest = database.now() - UnifiedPushLimits.lifetime
        return try await database.read { transaction in
            try transaction.rows(
                """
                SELECT message_id, body, ms(time_sent) FROM unifiedpush_messages
                WHERE topic = $1 AND message_id > $2 AND time_sent > at($3) ORDER BY message_id LIMIT $4
                """, [.text(topic.text), .int(after), .time(oldest), .int(limit)]
            ).map { row in
                UnifiedPushMessage(id: try row.int(0), body: try row.bytes(1), sentAt: try row.time(2))
            }
        }
    }

    package func lastID() async throws(ChatError) -> MessageID {
        try await database.read { transaction in
            let sql =
                switch transaction.dialect {
                case .postgres: "SELECT last_value FROM messages_message_id_seq"
                case .sqlite: "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
                }
            return try transaction.row(sql)?.int(0) ?? 0
        }
    }

    package func confirm(_ last: MessageID, in topics: [UnifiedPushTopic]) async throws(ChatError) {
        _ = try await database.write(as: .notes) { transaction in
            try transaction.run(
                """
                DELETE FROM unifiedpush_messages
                WHERE topic IN (\(transaction.dialect.each("$1", "text"))) AND message_id <= $2
                """, [.texts(topics.map(\.text)), .int(last)])
        }
    }

    /// Deletes old pushes, and unused topics.
    package func applyRetention() async throws(ChatError) {
        let now = database.now()
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                "DELETE FROM unifiedpush_messages WHERE time_sent <= at($1)",
                [.time(now - UnifiedPushLimits.lifetime)])
            try transaction.run(
                "DELETE FROM unifiedpush_topics WHERE time_used <= at($1)",
                [.time(now - UnifiedPushLimits.topicLifetime)])
        }
    }
}

extension UnifiedPushOwner {
    /// The column with the owner's id, and the id.
    fileprivate var column: (String, Int64) {
        switch self {
        case .member(let id): ("member", id)
        case .token(let id): ("token", id)
        }
    }
}
