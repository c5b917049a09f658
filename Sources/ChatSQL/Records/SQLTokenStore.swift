package import ChatDomain
import Crypto
import Foundation

/// The API tokens of programs.
package final class SQLTokenStore<Database: SQLDatabase>: TokenStore {
    private let database: Database
    private let uses = TokenUses()

    package init(database: Database) {
        self.database = database
    }

    package func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?, form: AccessToken.Form
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        let secret = AccessToken.makeSecret(form)
        let token = try await database.write(as: .answerOnce) { [database] transaction in
            let now = database.now()
            let row = try transaction.row(
                """
                INSERT INTO api_tokens (name, hash, scopes, room, audience, hook, time_created, time_expires)
                VALUES ($1, $2, $3, $4, $5, $6, at($7), at($8)) ON CONFLICT (name) DO NOTHING RETURNING token_id
                """,
                [
                    .text(name.text), .bytes(Self.hash(secret)), .text(grant.storedScopes), .optional(grant.room?.text),
                    .optional(grant.audience?.json.description), .optional(grant.hook?.stored), .time(now),
                    .optional(expiresAt),
                ])
            guard let row else {
                throw ChatError(.conflict, "Invalid name: a token with this name exists", field: "name")
            }
            return AccessToken(id: try row.int(0), name: name, grant: grant, createdAt: now, expiresAt: expiresAt)
        }
        return (token, secret)
    }

    static func hash(_ secret: String) -> [UInt8] { Array(SHA256.hash(data: Data(secret.utf8))) }

    /// Reads the database each time, so that a token that another relay has revoked is invalid immediately.
    package func token(of secret: String) async throws(ChatError) -> AccessToken? {
        let hash = Self.hash(secret)
        let token = try await database.read { transaction in
            try transaction.row("SELECT \(Self.columns) FROM api_tokens t WHERE t.hash = $1", [.bytes(hash)])
                .flatMap { try Self.token($0) }
        }
        return token.flatMap { $0.isValid(at: database.now()) ? $0 : nil }
    }

    package func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> {
        try await database.read { transaction in
            let page = try transaction.page(
                "SELECT \(Self.columns) FROM api_tokens t WHERE t.token_id > $1 ORDER BY t.token_id LIMIT $2",
                [.int(cursor ?? 0), .int(limit + 1)], limit: limit)
            return Page(items: try page.rows.compactMap { try Self.token($0) }, next: page.next)
        }
    }

    package func revoke(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Nickname? {
        try await database.write(as: .answerOnce) { [database] transaction in
            // Before the token, as when a room gets a new code.
            try ScheduledMessage.drop(
                where: "author = $1", [.text(MemberID.program(token: id).text)], by: moderator, at: database.now(),
                transaction)
            let row = try transaction.row("DELETE FROM api_tokens WHERE token_id = $1 RETURNING name", [.int(id)])
            if row != nil { transaction.announcement.tokens = true }
            return try row.map { Nickname(stored: try $0.text(0)) }
        }
    }

    /// The columns of a token in a table or alias `t`.
    static var columns: String {
        """
        t.token_id, t.name, t.scopes, t.room, t.audience, ms(t.time_created), ms(t.time_expires), ms(t.time_used),
            t.used_from, t.hook, t.unreadable
        """
    }

    /// - Parameter first: The column of the row at which ``columns`` begin.
    static func token(_ row: some SQLRow, from first: Int = 0) throws -> AccessToken? {
        AccessToken(
            id: try row.int(first), name: try row.text(first + 1), scopes: try row.text(first + 2),
            room: row.optionalText(first + 3), audience: row.optionalText(first + 4),
            hook: row.optionalText(first + 9),
            createdAt: try row.time(first + 5), expiresAt: try row.optionalTime(first + 6),
            lastUsedAt: try row.optionalTime(first + 7), lastUsedFrom: row.optionalText(first + 8),
            unreadable: row.optionalText(first + 10))
    }

    // MARK: - Use

    package func used(_ id: Int64, from address: String?) { uses.add(id, at: database.now(), from: address) }

    /// Records the pending uses, unless another relay has recorded a later one.
    package func flush() async throws(ChatError) {
        try await uses.record(in: "api_tokens", key: "token_id", database)
    }
}

extension TokenUses {
    /// Records the pending uses in the columns `time_used` and `used_from` of a table.
    func record(in table: String, key: String, _ database: some SQLDatabase) async throws(ChatError) {
        let all = take()
        if all.isEmpty { return }
        try await database.write(as: .notes) { transaction in
            for use in all {
                try transaction.pipeline(
                    """
                    UPDATE \(table) SET time_used = at($1), used_from = $2
                    WHERE \(key) = $3 AND (time_used IS NULL OR time_used < at($1))
                    """, [.time(use.time), .optional(use.address), .int(use.id)])
            }
        }
    }
}
