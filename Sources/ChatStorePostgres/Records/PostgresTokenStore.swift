package import ChatDomain
import Crypto
import Foundation

/// The API tokens of programs, in PostgreSQL.
package final class PostgresTokenStore: TokenStore {
    private let database: PostgresDatabase
    private let uses = TokenUses()

    init(database: PostgresDatabase) {
        self.database = database
    }

    package func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        let secret = AccessToken.makeSecret()
        let token = try await database.write { [database] transaction in
            let now = database.now()
            let row = try transaction.row(
                """
                INSERT INTO api_tokens (name, hash, scopes, room, audience, time_created, time_expires)
                VALUES ($1::text, $2::bytea, $3::text, $4::text, $5::text, at($6::bigint), at($7::bigint))
                ON CONFLICT (name) DO NOTHING RETURNING token_id
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
            try transaction.row("SELECT \(Self.columns) FROM api_tokens WHERE hash = $1::bytea", [.bytes(hash)])
                .flatMap(Self.token)
        }
        guard let token else { return nil }
        if let end = token.expiresAt, end <= database.now() { return nil }
        return token
    }

    package func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> {
        try await database.read { transaction in
            let page = try transaction.page(
                "SELECT \(Self.columns) FROM api_tokens WHERE token_id > $1::bigint ORDER BY token_id LIMIT $2::bigint",
                [.int(cursor ?? 0), .int(limit + 1)], limit: limit)
            return Page(items: try page.rows.compactMap(Self.token), next: page.next)
        }
    }

    package func revoke(_ id: Int64) async throws(ChatError) -> Nickname? {
        try await database.write { transaction in
            let row = try transaction.row(
                "DELETE FROM api_tokens WHERE token_id = $1::bigint RETURNING name", [.int(id)])
            if row != nil { transaction.announcement.tokens = true }
            return try row.map { Nickname(stored: try $0.text(0)) }
        }
    }

    private static let columns = """
        token_id, name, scopes, room, audience, ms(time_created), ms(time_expires), ms(time_used), used_from
        """

    private static func token(_ row: PostgresRow) throws -> AccessToken? {
        AccessToken(
            id: try row.int(0), name: try row.text(1), scopes: try row.text(2), room: row.optionalText(3),
            audience: row.optionalText(4), createdAt: try row.time(5), expiresAt: try row.optionalTime(6),
            lastUsedAt: try row.optionalTime(7), lastUsedFrom: row.optionalText(8))
    }

    // MARK: - Use

    package func used(_ id: Int64, from address: String?) { uses.add(id, at: database.now(), from: address) }

    /// Records the pending uses, unless another relay has recorded a later one.
    func flush() async throws(ChatError) {
        let all = uses.take()
        if all.isEmpty { return }
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            transaction.pipeline(
                """
                UPDATE api_tokens t SET time_used = at(w.time), used_from = w.address
                FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS w (id, time, address)
                WHERE t.token_id = w.id AND (t.time_used IS NULL OR t.time_used < at(w.time))
                """,
                [
                    .ints(all.map(\.id)), .ints(all.map(\.time.milliseconds)), .optionalTexts(all.map(\.address)),
                ])
        }
    }
}
