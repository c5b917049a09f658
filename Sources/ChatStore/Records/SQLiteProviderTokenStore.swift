package import ChatDomain
import GRDB

/// The signed provider tokens for Apple, in the SQLite file.
package struct SQLiteProviderTokenStore: ProviderTokenStore {
    let database: SQLiteDatabase

    package func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken {
        // The token nearly always exists, so that a read suffices, and the caller does not wait for the writer.
        let known = try await database.read { db in
            try Self.token(key, refused: refused, now: database.now(), db)
        }
        if let known { return known }
        return try await database.writer.perform(.upkeep) { db in
            let now = database.now()
            if let token = try Self.token(key, refused: refused, now: now, db) { return token }
            // The time has whole seconds, as in the token itself.
            let token = IssuedToken(text: try sign(now), issuedAt: Timestamp(seconds: now.seconds))
            try db.run(
                """
                INSERT OR REPLACE INTO provider_tokens (team_id, key_id, key_fingerprint, token, time_issued)
                VALUES (?, ?, ?, ?, ?)
                """, [key.teamID, key.keyID, key.fingerprint, token.text, token.issuedAt.sqlText])
            return token
        }
    }

    /// The stored token. `nil` if there is none that may be used.
    private static func token(
        _ key: ProviderKeyName, refused: String?, now: Timestamp, _ db: Database
    ) throws -> IssuedToken? {
        let row = try db.row(
            "SELECT token, time_issued FROM provider_tokens WHERE team_id = ? AND key_id = ? AND key_fingerprint = ?",
            [key.teamID, key.keyID, key.fingerprint])
        guard let row, let issued = Timestamp(sqlText: row[1]) else { return nil }
        let token = IssuedToken(text: row[0], issuedAt: issued)
        guard token.isUsable(at: now) else { return nil }
        return token.text == refused && token.mayBeReplaced(at: now) ? nil : token
    }
}
