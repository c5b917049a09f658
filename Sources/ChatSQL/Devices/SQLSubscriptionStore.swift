package import ChatDomain

/// The subscriptions of browsers and the VAPID key.
package struct SQLSubscriptionStore<Database: SQLDatabase>: SubscriptionStore {
    private let database: Database

    package init(database: Database) {
        self.database = database
    }

    package func keep(_ subscription: Subscription) async throws(ChatError) {
        let earliest = database.now() - DeviceRegistration.freshness
        let isFresh = try await database.read { transaction in
            try Self.isFresh(subscription, since: earliest, transaction)
        }
        if isFresh { return }
        try await database.write(as: .answer) { [database] transaction in
            // Another request may have stored it in the meantime.
            _ = try transaction.isKnown(subscription)
            let written = try transaction.run(
                """
                INSERT INTO subscriptions AS s (device_token, endpoint, p256dh, auth, expires_at, time_kept)
                VALUES ($1, $2, $3, $4, $5, at($6))
                ON CONFLICT (device_token) DO UPDATE SET expires_at = excluded.expires_at, time_kept = excluded.time_kept
                WHERE s.p256dh = excluded.p256dh AND s.auth = excluded.auth
                """,
                [
                    .text(subscription.address.description), .text(subscription.endpoint),
                    .bytes(subscription.publicKey), .bytes(subscription.secret),
                    .optional(subscription.expiresAt?.seconds), .time(database.now()),
                ])
            // Another relay has committed the endpoint since the check, with other keys.
            if written == 0 { _ = try transaction.isKnown(subscription) }
        }
    }

    /// Whether the stored subscription is up to date.
    private static func isFresh(
        _ subscription: Subscription, since time: Timestamp, _ transaction: Database.Transaction
    ) throws -> Bool {
        let row = try transaction.row(
            "SELECT p256dh, auth, expires_at, ms(time_kept) FROM subscriptions WHERE device_token = $1",
            [.text(subscription.address.description)])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: row.bytes(0), secret: row.bytes(1))
        return try row.optionalInt(2) == subscription.expiresAt?.seconds && row.time(3) >= time
    }

    package func subscriptions(
        _ addresses: [DeviceToken]
    ) async throws(ChatError) -> [DeviceToken: Subscription] {
        let names = Dictionary(addresses.map { ($0.description, $0) }) { first, _ in first }
        return try await database.read { transaction in
            var found: [DeviceToken: Subscription] = [:]
            try transaction.each(
                """
                SELECT device_token, endpoint, p256dh, auth, expires_at FROM subscriptions
                WHERE device_token IN (\(transaction.dialect.each("$1", "text")))
                """, [.texts(Array(names.keys))]
            ) { row in
                guard let address = names[try row.text(0)] else { return true }
                found[address] = Subscription(
                    address: address, endpoint: try row.text(1), publicKey: try row.bytes(2), secret: try row.bytes(3),
                    expiresAt: try row.optionalInt(4).map { Timestamp(seconds: $0) })
                return true
            }
            return found
        }
    }

    package func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String {
        if let key = try await database.read({ try Self.key($0) }) { return key }
        let new = make()
        return try await database.write(as: .answer) { transaction in
            // Waits for another relay that inserts a key at the same time. The other relay's key then counts.
            try transaction.pipeline(
                "INSERT INTO vapid_key (id, private_key) VALUES (1, $1) ON CONFLICT (id) DO NOTHING", [.text(new)])
            return try Self.key(transaction) ?? new
        }
    }

    package func setVAPIDKey(_ text: String) async throws(ChatError) {
        try await database.write(as: .answer) { transaction in
            try transaction.pipeline(
                """
                INSERT INTO vapid_key (id, private_key) VALUES (1, $1)
                ON CONFLICT (id) DO UPDATE SET private_key = excluded.private_key
                """, [.text(text)])
        }
    }

    private static func key(_ transaction: Database.Transaction) throws -> String? {
        try transaction.row("SELECT private_key FROM vapid_key")?.text(0)
    }
}

extension SQLTransaction {
    /// Whether the endpoint is stored with the same keys.
    /// - Throws: ``ChatError/Code/conflict`` if it is stored with other keys.
    package func isKnown(_ subscription: Subscription) throws -> Bool {
        let row = try row(
            "SELECT p256dh, auth FROM subscriptions WHERE device_token = $1",
            [.text(subscription.address.description)])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: row.bytes(0), secret: row.bytes(1))
        return true
    }
}
