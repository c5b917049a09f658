package import ChatDomain
import Foundation
import GRDB

/// What it takes to reach browsers, in the SQLite file.
package struct SQLiteSubscriptionStore: SubscriptionStore {
    let database: SQLiteDatabase

    package func keep(_ subscription: Subscription) async throws(ChatError) {
        let earliest = (database.clock() - DeviceRegistration.freshness).sqlText
        let isKnown = try await database.read { db in
            try Self.isKnown(subscription, since: earliest, db)
        }
        if isKnown { return }
        try await database.writer.perform { db in
            // Others may have brought it meanwhile.
            _ = try Self.isKnown(subscription, since: earliest, db)
            try db.run(
                """
                INSERT INTO subscriptions (device_token, endpoint, p256dh, auth, expires_at, time_kept)
                VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT (device_token) DO UPDATE SET expires_at = excluded.expires_at, time_kept = excluded.time_kept
                """,
                [
                    subscription.address.description, subscription.endpoint, Data(subscription.publicKey),
                    Data(subscription.secret), subscription.expiresAt?.seconds, database.clock().sqlText,
                ])
        }
    }

    /// Whether there is nothing to write.
    private static func isKnown(_ subscription: Subscription, since time: String, _ db: Database) throws -> Bool {
        let row = try db.row(
            "SELECT p256dh, auth, expires_at, time_kept FROM subscriptions WHERE device_token = ?",
            [subscription.address.description])
        guard let row else { return false }
        guard row[0] as Data == Data(subscription.publicKey), row[1] as Data == Data(subscription.secret) else {
            throw ChatError(
                .conflict, "subscription: this endpoint is known with other keys; subscribe anew", field: "subscription"
            )
        }
        return row[2] as Int64? == subscription.expiresAt?.seconds && row[3] as String >= time
    }

    package func subscriptions(
        _ addresses: [DeviceToken]
    ) async throws(ChatError) -> [DeviceToken: Subscription] {
        guard !addresses.isEmpty else { return [:] }
        let texts = Set(addresses.map(\.description))
        let found = try await database.read { db in
            let marks = texts.map { _ in "?" }.joined(separator: ", ")
            return try db.rows(
                """
                SELECT device_token, endpoint, p256dh, auth, expires_at FROM subscriptions
                WHERE device_token IN (\(marks))
                """, StatementArguments(Array(texts))
            ).compactMap { row -> Subscription? in
                guard let address = try? DeviceToken(parsing: row[0]) else { return nil }
                return Subscription(
                    address: address, endpoint: row[1], publicKey: Array(row[2] as Data), secret: Array(row[3] as Data),
                    expiresAt: (row[4] as Int64?).map { Timestamp(seconds: $0) })
            }
        }
        return Dictionary(found.map { ($0.address, $0) }) { first, _ in first }
    }

    package func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String {
        if let key = try await database.read({ db in try Self.key(db) }) { return key }
        return try await database.writer.perform { db in
            if let key = try Self.key(db) { return key }
            let key = make()
            try db.run("INSERT INTO vapid_key (id, private_key) VALUES (1, ?)", [key])
            return key
        }
    }

    package func setVAPIDKey(_ text: String) async throws(ChatError) {
        _ = try await database.writer.perform { db in
            try db.run("INSERT OR REPLACE INTO vapid_key (id, private_key) VALUES (1, ?)", [text])
        }
    }

    private static func key(_ db: Database) throws -> String? {
        try db.value("SELECT private_key FROM vapid_key")
    }
}
