package import ChatDomain

/// The signed provider tokens for Apple. All relays of a database share them.
package struct SQLProviderTokenStore<Database: SQLDatabase>: ProviderTokenStore {
    private let database: Database

    package init(database: Database) {
        self.database = database
    }

    package func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken {
        // The token nearly always exists, so that a read suffices, and the caller does not wait for the writer.
        let known = try await database.read { [database] transaction in
            try Self.token(key, refused: refused, now: database.now(), transaction)
        }
        if let known { return known }
        return try await database.write(as: .upkeep) { [database] transaction in
            // One relay signs, and the others find its token.
            try transaction.lock("provider token \(key.teamID) \(key.keyID) \(key.fingerprint)")
            let now = database.now()
            if let token = try Self.token(key, refused: refused, now: now, transaction) { return token }
            // The time has whole seconds, as in the token itself.
            let token = IssuedToken(text: try sign(now), issuedAt: Timestamp(seconds: now.seconds))
            try transaction.pipeline(
                """
                INSERT INTO provider_tokens (team_id, key_id, key_fingerprint, token, time_issued)
                VALUES ($1, $2, $3, $4, at($5))
                ON CONFLICT (team_id, key_id, key_fingerprint)
                    DO UPDATE SET token = excluded.token, time_issued = excluded.time_issued
                """,
                [.text(key.teamID), .text(key.keyID), .text(key.fingerprint), .text(token.text), .time(token.issuedAt)])
            return token
        }
    }

    /// The stored token. `nil` if there is none that may be used.
    private static func token(
        _ key: ProviderKeyName, refused: String?, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> IssuedToken? {
        let row = try transaction.row(
            """
            SELECT token, ms(time_issued) FROM provider_tokens
            WHERE team_id = $1 AND key_id = $2 AND key_fingerprint = $3
            """, [.text(key.teamID), .text(key.keyID), .text(key.fingerprint)])
        guard let row else { return nil }
        let token = IssuedToken(text: try row.text(0), issuedAt: try row.time(1))
        guard token.isUsable(at: now) else { return nil }
        return token.text == refused && token.mayBeReplaced(at: now) ? nil : token
    }
}
