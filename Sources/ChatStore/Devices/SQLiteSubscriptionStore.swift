package import ChatDomain
import Foundation
import GRDB

/// The subscriptions of browsers and the VAPID key, in the SQLite file.
package struct SQLiteSubscriptionStore: SubscriptionStore {
    let database: SQLiteDatabase

    package func keep(_ subscription: Subscription) async throws(ChatError) {
        let earliest = (database.now() - DeviceRegistration.freshness).sqlText
        let isFresh = try await database.read { db in
            try Self.isFresh(subscription, since: earliest, db)
        }
        if isFresh { return }
        try await database.writer.perform { db in
            // Another request may have stored it in the meantime.
            _ = try Self.isKnown(subscription, db)
            try db.run(
                """
                INSERT INTO subscriptions (device_token, endpoint, p256dh, auth, expires_at, time_kept)
                VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT (device_token) DO UPDATE SET expires_at = excluded.expires_at, time_kept = excluded.time_kept
                """,
                [
                    subscription.address.description, subscription.endpoint, Data(subscription.publicKey),
                    Data(subscription.secret), subscription.expiresAt?.seconds, database.now().sqlText,
                ])
        }
    }

    /// Whether the stored subscription is up to date.
    private static func isFresh(_ subscription: Subscription, since time: String, _ db: Database) throws -> Bool {
        let row = try db.row(
            "SELECT p256dh, auth, expires_at, time_kept FROM subscriptions WHERE device_token = ?",
            [subscription.address.description])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: Array(row[0] as Data), secret: Array(row[1] as Data))
        return row[2] as Int64? == subscription.expiresAt?.seconds && row[3] as String >= time
    }

    /// Whether the endpoint is stored with the same keys.
    /// - Throws: ``ChatError/Code/conflict`` if it is stored with other keys.
    static func isKnown(_ subscription: Subscription, _ db: Database) throws -> Bool {
        let row = try db.row(
            "SELECT p256dh, auth FROM subscriptions WHERE device_token = ?", [subscription.address.description])
        guard let row else { return false }
        try subscription.requireKeys(publicKey: Array(row[0] as Data), secret: Array(row[1] as Data))
        return true
    }

    package func subscriptions(
        _ addresses: [DeviceToken]
    ) async throws(ChatError) -> [DeviceToken: Subscription] {
        try await database.read { db in
            var found: [DeviceToken: Subscription] = [:]
            for address in addresses where found[address] == nil {
                let row = try RawStatement(
                    db, "SELECT endpoint, p256dh, auth, expires_at FROM subscriptions WHERE device_token = ?",
                    address.description)
                guard try row.step() else { continue }
                found[address] = Subscription(
                    address: address, endpoint: row.text(0) ?? "", publicKey: row.bytes(1).map(Array.init) ?? [],
                    secret: row.bytes(2).map(Array.init) ?? [],
                    expiresAt: row.optionalInt(3).map { Timestamp(seconds: $0) })
            }
            return found
        }
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
