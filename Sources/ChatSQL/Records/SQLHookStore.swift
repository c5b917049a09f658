package import ChatDomain

/// The alerts that the senders of webhooks reported as firing: the table `hook_memory`.
package struct SQLHookStore<Database: SQLDatabase>: HookStore {
    private let database: Database

    package init(database: Database) {
        self.database = database
    }

    package func memory(of token: Int64, _ key: MessageKey) async throws(ChatError) -> HookMemory? {
        try await database.read { transaction in
            let row = try transaction.row(
                "SELECT firing, ms(time_used) FROM hook_memory WHERE token_id = $1 AND hook_key = $2",
                [.int(token), .text(key.text)])
            guard let row, let json = (try? JSONValue(parsing: row.text(0)))?.object else { return nil }
            let firing = json.members.compactMap { name, rank in rank.integer.map { (name, Int($0)) } }
            return HookMemory(firing: Dictionary(firing) { $1 }, time: try row.time(1))
        }
    }

    package func remember(_ memory: HookMemory, of token: Int64, _ key: MessageKey) async throws(ChatError) {
        var json = JSONObject()
        for (id, rank) in memory.firing.sorted(by: { $0.key < $1.key }).prefix(HookMemory.alertLimit) {
            json.append(id, .number(rank))
        }
        let firing = JSONValue.object(json).description
        try await database.write(as: .answer) { transaction in
            // Without the condition, a token that has just been revoked would be an error.
            try transaction.run(
                """
                INSERT INTO hook_memory (token_id, hook_key, firing, time_used)
                SELECT token_id, $2, $3, at($4) FROM api_tokens WHERE token_id = $1
                ON CONFLICT (token_id, hook_key) DO UPDATE SET firing = excluded.firing, time_used = excluded.time_used
                """, [.int(token), .text(key.text), .text(firing), .time(memory.time)])
            try transaction.run(
                """
                DELETE FROM hook_memory WHERE token_id = $1 AND hook_key IN (
                    SELECT hook_key FROM hook_memory WHERE token_id = $1
                    ORDER BY time_used DESC, hook_key LIMIT 100 OFFSET $2)
                """, [.int(token), .int(HookMemory.keyLimit)])
        }
    }

    package func forget(_ key: MessageKey, of token: Int64) async throws(ChatError) {
        _ = try await database.write(as: .answer) { transaction in
            try transaction.run(
                "DELETE FROM hook_memory WHERE token_id = $1 AND hook_key = $2", [.int(token), .text(key.text)])
        }
    }

    package func countUnreadable(_ token: Int64, reason: String) async throws(ChatError) {
        try await database.write(as: .answerOnce) { [database] transaction in
            let row = try transaction.row(
                """
                SELECT t.unreadable FROM api_tokens t WHERE t.token_id = $1 \(database.dialect.locked("t"))
                """, [.int(token)])
            let earlier = row?.optionalText(0).flatMap { UnreadableDeliveries(stored: $0) }
            // Another program may have written any number.
            let count = min(max(earlier?.count ?? 0, 0), 1 << 53) + 1
            let now = UnreadableDeliveries(count: count, at: database.now(), reason: reason)
            try transaction.run(
                "UPDATE api_tokens SET unreadable = $2 WHERE token_id = $1",
                [.int(token), .text(JSONValue.object(now.json).description)])
        }
    }

    package func applyRetention() async throws(ChatError) {
        try await database.changeInSteps(
            """
            DELETE FROM hook_memory WHERE (token_id, hook_key) IN (
                SELECT token_id, hook_key FROM hook_memory WHERE time_used < at($1) LIMIT $2)
            """, [.time(database.now() - HookMemory.lifetime)])
    }
}
