package import ChatDomain

/// The signed provider tokens for Apple, in PostgreSQL. All relays share them.
package struct PostgresProviderTokenStore: ProviderTokenStore {
    private let database: PostgresDatabase

    init(database: PostgresDatabase) {
        self.database = database
    }

    package func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken {
        // The token nearly always exists, so that a read without a lock suffices.
        let known = try await database.read { [database] transaction in
            try Self.token(key, refused: refused, now: database.now(), transaction)
        }
        if let known { return known }
        return try await database.write(.upkeep, isRepeatable: true) { [database] transaction in
            // One relay signs, and the others find its token.
            transaction.pipeline(
                "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))",
                [.text("provider token \(key.teamID) \(key.keyID) \(key.fingerprint)")])
            let now = database.now()
            if let token = try Self.token(key, refused: refused, now: now, transaction) { return token }
            // The time has whole seconds, as in the token itself.
            let token = IssuedToken(text: try sign(now), issuedAt: Timestamp(seconds: now.seconds))
            transaction.pipeline(
                """
                INSERT INTO provider_tokens (team_id, key_id, key_fingerprint, token, time_issued)
                VALUES ($1::text, $2::text, $3::text, $4::text, at($5::bigint))
                ON CONFLICT (team_id, key_id, key_fingerprint)
                    DO UPDATE SET token = excluded.token, time_issued = excluded.time_issued
                """,
                [.text(key.teamID), .text(key.keyID), .text(key.fingerprint), .text(token.text), .time(token.issuedAt)])
            return token
        }
    }

    /// The stored token. `nil` if there is none that may be used.
    private static func token(
        _ key: ProviderKeyName, refused: String?, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> IssuedToken? {
        let row = try transaction.row(
            """
            SELECT token, ms(time_issued) FROM provider_tokens
            WHERE team_id = $1::text AND key_id = $2::text AND key_fingerprint = $3::text
            """, [.text(key.teamID), .text(key.keyID), .text(key.fingerprint)])
        guard let row else { return nil }
        let token = IssuedToken(text: try row.text(0), issuedAt: try row.time(1))
        guard token.isUsable(at: now) else { return nil }
        return token.text == refused && token.mayBeReplaced(at: now) ? nil : token
    }
}
