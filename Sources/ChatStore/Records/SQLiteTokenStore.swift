package import ChatDomain
import Crypto
import Foundation
import GRDB

/// The API tokens of programs, in the SQLite file.
package final class SQLiteTokenStore: TokenStore {
    private let database: SQLiteDatabase
    private let uses = TokenUses()

    init(database: SQLiteDatabase) {
        self.database = database
    }

    package func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        let secret = AccessToken.makeSecret()
        let token = try await database.writer.perform { [database] db in
            let now = database.now()
            let count = try db.run(
                """
                INSERT INTO api_tokens (name, hash, scopes, room, audience, time_created, time_expires)
                VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING
                """,
                [
                    name.text, Self.hash(secret), grant.storedScopes, grant.room?.text,
                    grant.audience?.json.description, now.sqlText, expiresAt?.sqlText,
                ])
            guard count == 1 else {
                throw ChatError(.conflict, "Invalid name: a token with this name exists", field: "name")
            }
            return AccessToken(
                id: db.lastInsertedRowID, name: name, grant: grant, createdAt: now, expiresAt: expiresAt)
        }
        return (token, secret)
    }

    private static func hash(_ secret: String) -> Data { Data(SHA256.hash(data: Data(secret.utf8))) }

    package func token(of secret: String) async throws(ChatError) -> AccessToken? {
        let hash = Self.hash(secret)
        let token = try await database.read { db in
            try db.row("SELECT \(Self.columns) FROM api_tokens WHERE hash = ?", [hash]).flatMap(Self.token)
        }
        guard let token else { return nil }
        if let end = token.expiresAt, end <= database.now() { return nil }
        return token
    }

    package func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> {
        try await database.read { db in
            let page = try db.page(
                "SELECT \(Self.columns) FROM api_tokens WHERE token_id > ? ORDER BY token_id LIMIT ?",
                [cursor ?? 0, limit + 1], limit: limit)
            return Page(items: page.rows.compactMap(Self.token), next: page.next)
        }
    }

    package func revoke(_ id: Int64) async throws(ChatError) -> Nickname? {
        try await database.writer.perform { db in
            try db.row("DELETE FROM api_tokens WHERE token_id = ? RETURNING name", [id]).map { Nickname(stored: $0[0]) }
        }
    }

    private static let columns = """
        token_id, name, scopes, room, audience, time_created, time_expires, time_used, used_from
        """

    private static func token(_ row: Row) -> AccessToken? {
        AccessToken(
            id: row[0], name: row[1], scopes: row[2], room: row[3], audience: row[4], createdAt: row.time(5),
            expiresAt: (row[6] as String?).map { _ in row.time(6) }, lastUsedAt: row.optionalTime(7),
            lastUsedFrom: row[8])
    }

    // MARK: - Use

    package func used(_ id: Int64, from address: String?) { uses.add(id, at: database.now(), from: address) }

    /// Records the pending uses.
    func flush() async throws(ChatError) {
        let all = uses.take()
        if all.isEmpty { return }
        try await database.writer.perform(durably: false, .upkeep) { db in
            for use in all {
                try db.run(
                    "UPDATE api_tokens SET time_used = ?, used_from = ? WHERE token_id = ?",
                    [use.time.sqlText, use.address, use.id])
            }
        }
    }
}
