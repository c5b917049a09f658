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
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        let secret = AccessToken.makeSecret()
        let token = try await database.write(as: .answerOnce) { [database] transaction in
            let now = database.now()
            let row = try transaction.row(
                """
                INSERT INTO api_tokens (name, hash, scopes, room, audience, time_created, time_expires)
                VALUES ($1, $2, $3, $4, $5, at($6), at($7)) ON CONFLICT (name) DO NOTHING RETURNING token_id
                """,
                [
                    .text(name.text), .bytes(Self.hash(secret)), .text(grant.storedScopes), .optional(grant.room?.text),
                    .optional(grant.audience?.json.description), .time(now), .optional(expiresAt),
                ])
            guard let row else {
                throw ChatError(.conflict, "Invalid name: a token with this name exists", field: "name")
            }
            return AccessToken(id: try row.int(0), name: name, grant: grant, createdAt: now, expiresAt: expiresAt)
        }
        return (token, secret)
    }

    private static func hash(_ secret: String) -> [UInt8] { Array(SHA256.hash(data: Data(secret.utf8))) }

    /// Reads the database each time, so that a token that another relay has revoked is invalid immediately.
    package func token(of secret: String) async throws(ChatError) -> AccessToken? {
        let hash = Self.hash(secret)
        let token = try await database.read { transaction in
            try transaction.row("SELECT \(Self.columns) FROM api_tokens WHERE hash = $1", [.bytes(hash)])
                .flatMap(Self.token)
        }
        guard let token else { return nil }
        if let end = token.expiresAt, end <= database.now() { return nil }
        return token
    }

    package func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> {
        try await database.read { transaction in
            let page = try transaction.page(
                "SELECT \(Self.columns) FROM api_tokens WHERE token_id > $1 ORDER BY token_id LIMIT $2",
                [.int(cursor ?? 0), .int(limit + 1)], limit: limit)
            return Page(items: try page.rows.compactMap(Self.token), next: page.next)
        }
    }

    package func revoke(_ id: Int64) async throws(ChatError) -> Nickname? {
        try await database.write(as: .answerOnce) { transaction in
            let row = try transaction.row("DELETE FROM api_tokens WHERE token_id = $1 RETURNING name", [.int(id)])
            if row != nil { transaction.announce(.tokens) }
            return try row.map { Nickname(stored: try $0.text(0)) }
        }
    }

    private static var columns: String {
        "token_id, name, scopes, room, audience, ms(time_created), ms(time_expires), ms(time_used), used_from"
    }

    private static func token(_ row: some SQLRow) throws -> AccessToken? {
        AccessToken(
            id: try row.int(0), name: try row.text(1), scopes: try row.text(2), room: row.optionalText(3),
            audience: row.optionalText(4), createdAt: try row.time(5), expiresAt: try row.optionalTime(6),
            lastUsedAt: try row.optionalTime(7), lastUsedFrom: row.optionalText(8))
    }

    // MARK: - Use

    package func used(_ id: Int64, from address: String?) { uses.add(id, at: database.now(), from: address) }

    /// Records the pending uses, unless another relay has recorded a later one.
    package func flush() async throws(ChatError) {
        let all = uses.take()
        if all.isEmpty { return }
        try await database.write(as: .notes) { transaction in
            for use in all.sorted(by: { $0.id < $1.id }) {
                try transaction.pipeline(
                    """
                    UPDATE api_tokens SET time_used = at($1), used_from = $2
                    WHERE token_id = $3 AND (time_used IS NULL OR time_used < at($1))
                    """, [.time(use.time), .optional(use.address), .int(use.id)])
            }
        }
    }
}
