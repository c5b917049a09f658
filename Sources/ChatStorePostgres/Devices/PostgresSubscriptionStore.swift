package import ChatDomain

/// The subscriptions of browsers and the VAPID key, in PostgreSQL.
package struct PostgresSubscriptionStore: SubscriptionStore {
    private let database: PostgresDatabase

    init(database: PostgresDatabase) {
        self.database = database
    }

    package func keep(_ subscription: Subscription) async throws(ChatError) {
        let earliest = database.now() - DeviceRegistration.freshness
        let isFresh = try await database.read { transaction in
            try Self.isFresh(subscription, since: earliest, transaction)
        }
        if isFresh { return }
        try await database.write(isRepeatable: true) { [database] transaction in
            _ = try Self.isKnown(subscription, transaction)
            // Another relay may commit the same endpoint at the same time, perhaps with other keys.
            let written = try transaction.run(
                """
                INSERT INTO subscriptions AS s (device_token, endpoint, p256dh, auth, expires_at, time_kept)
                VALUES ($1::text, $2::text, $3::bytea, $4::bytea, $5::bigint, at($6::bigint))
                ON CONFLICT (device_token) DO UPDATE SET expires_at = excluded.expires_at, time_kept = excluded.time_kept
                WHERE s.p256dh = excluded.p256dh AND s.auth = excluded.auth
                """,
                [
                    .text(subscription.address.description), .text(subscription.endpoint),
                    .bytes(subscription.publicKey), .bytes(subscription.secret),
                    .optional(subscription.expiresAt?.seconds), .time(database.now()),
                ])
            // The retry finds the row with the other keys.
            guard written > 0 else { throw PostgresError.collision("the keys of an endpoint") }
        }
    }

    /// Whether the stored subscription is up to date.
    private static func isFresh(
        _ subscription: Subscription, since time: Timestamp, _ transaction: PostgresTransaction
    ) throws -> Bool {
        let row = try transaction.row(
            "SELECT p256dh, auth, expires_at, ms(time_kept) FROM subscriptions WHERE device_token = $1::text",
            [.text(subscription.address.description)])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: row.bytes(0), secret: row.bytes(1))
        return try row.optionalInt(2) == subscription.expiresAt?.seconds && row.time(3) >= time
    }

    /// Whether the endpoint is stored with the same keys.
    /// - Throws: ``ChatError/Code/conflict`` if it is stored with other keys.
    static func isKnown(_ subscription: Subscription, _ transaction: PostgresTransaction) throws -> Bool {
        let row = try transaction.row(
            "SELECT p256dh, auth FROM subscriptions WHERE device_token = $1::text",
            [.text(subscription.address.description)])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: row.bytes(0), secret: row.bytes(1))
        return true
    }

    package func subscriptions(
        _ addresses: [DeviceToken]
    ) async throws(ChatError) -> [DeviceToken: Subscription] {
        let names = Dictionary(addresses.map { ($0.description, $0) }) { first, _ in first }
        return try await database.read { transaction in
            let rows = try transaction.rows(
                """
                SELECT device_token, endpoint, p256dh, auth, expires_at FROM subscriptions
                WHERE device_token = ANY ($1::text[])
                """, [.texts(Array(names.keys))])
            var found: [DeviceToken: Subscription] = [:]
            for row in rows {
                guard let address = names[try row.text(0)] else { continue }
                found[address] = Subscription(
                    address: address, endpoint: try row.text(1), publicKey: try row.bytes(2), secret: try row.bytes(3),
                    expiresAt: try row.optionalInt(4).map { Timestamp(seconds: $0) })
            }
            return found
        }
    }

    package func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String {
        if let key = try await database.read({ try Self.key($0) }) { return key }
        let new = make()
        return try await database.write(isRepeatable: true) { transaction in
            // Waits for another relay that inserts a key at the same time. The other relay's key then counts.
            transaction.pipeline(
                "INSERT INTO vapid_key (id, private_key) VALUES (1, $1::text) ON CONFLICT (id) DO NOTHING", [.text(new)]
            )
            return try Self.key(transaction) ?? new
        }
    }

    package func setVAPIDKey(_ text: String) async throws(ChatError) {
        try await database.write(isRepeatable: true) { transaction in
            transaction.pipeline(
                """
                INSERT INTO vapid_key (id, private_key) VALUES (1, $1::text)
                ON CONFLICT (id) DO UPDATE SET private_key = excluded.private_key
                """, [.text(text)])
        }
    }

    private static func key(_ transaction: PostgresTransaction) throws -> String? {
        try transaction.row("SELECT private_key FROM vapid_key")?.text(0)
    }
}
