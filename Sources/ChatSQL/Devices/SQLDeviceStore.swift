package import ChatDomain

/// The part of a device store that is the same in both databases. Registering stays with each of them, because it is the
/// hottest write beside posting: PostgreSQL combines requests in one statement, and SQLite in one transaction. So do the
/// pushes of a device, which PostgreSQL has in partitions.
package protocol SQLDeviceStore: DeviceStore {
    associatedtype Database: SQLDatabase
    var database: Database { get }
    var outcomes: OutcomeCounter { get }
}

extension SQLDeviceStore {
    /// Cancels pushes of notifications and of other programs immediately. Chat pushes are cancelled when they are
    /// leased, because the device no longer exists then. No index leads from a device to chat pushes: it would make
    /// every message more expensive.
    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        try await unregister(token, app: app) { _ in true }
    }

    package func unregister(_ browser: Subscription) async throws(ChatError) -> Bool {
        try await unregister(browser.address, app: .web) { transaction in try transaction.isKnown(browser) }
    }

    /// - Parameter isAdmitted: Returns, in the same transaction, whether the device may be deleted.
    private func unregister(
        _ token: DeviceToken, app: AppName?, if isAdmitted: @escaping @Sendable (Database.Transaction) throws -> Bool
    ) async throws(ChatError) -> Bool {
        let cancelled: [FinalStateCount]? = try await database.write(as: .answerOnce) { [database] transaction in
            guard try isAdmitted(transaction) else { return nil }
            let lock = transaction.dialect.lockedToDelete("devices")
            guard let device = try transaction.find(token, app: app, lock) else { return nil }
            let rows = try transaction.rows(
                Device.cancelSQL(transaction.dialect),
                [.text(PushLifeCycle.unregistered), .time(database.now()), .int(device.id)])
            // A device gets a notification only once, so each of these notifications has exactly one push less.
            for notification in try rows.compactMap({ try $0.optionalInt(1) }).sorted() {
                try transaction.pipeline(
                    "UPDATE notification_counts SET cancelled = cancelled + 1 WHERE notification_id = $1",
                    [.int(notification)])
            }
            try transaction.pipeline(
                """
                UPDATE active_users SET device_token = '0'
                WHERE device_token = $1 AND app = $2 AND device_token <> '0'
                """, [.text(device.token), .text(device.app)])
            try transaction.pipeline("DELETE FROM devices WHERE device_id = $1", [.int(device.id)])
            return try rows.map {
                FinalStateCount(app: AppName(try $0.text(0)), state: .cancelled, reason: PushLifeCycle.unregistered)
            }
        }
        guard let cancelled else { return false }
        outcomes.add(cancelled)
        return true
    }

    package func edit(
        _ token: DeviceToken, app: AppName?, _ edit: DeviceEdit
    ) async throws(ChatError) -> Device {
        try await database.write(as: .answer) { transaction in
            let device = try transaction.require(token, app: app, transaction.dialect.locked("devices"))
            let name = DeviceName(token: device.token, app: device.app)
            if let known = try transaction.knownDevices([name])[name] { try transaction.apply(edit, to: known) }
            return try transaction.device(device.id)
        }
    }

    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await database.read { transaction in try transaction.device(transaction.require(token, app: app, "").id) }
    }

    package func devices(
        _ filter: DeviceFilter, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Device> {
        try await database.read(.administration) { transaction in
            var parameters = SQLParameters()
            let (candidates, key) = filter.candidates(after: cursor ?? 0, transaction.dialect, &parameters)
            let values = parameters.values
            let rest = filter.rest(&parameters)
            let page = try transaction.page(
                Device.columns(transaction.dialect), key: key, of: candidates, values, where: rest,
                Array(parameters.values[values.count...]), limit: limit)
            return Page(items: try page.rows.compactMap { try Device($0) }, next: page.next)
        }
    }
}

extension DeviceFilter {
    /// Uses the most selective index.
    package func candidates(
        after: Int64, _ dialect: SQLDialect, _ parameters: inout SQLParameters
    ) -> (candidates: String, key: String) {
        let after = parameters.add(.int(after))
        if let tag {
            guard user != nil else {
                return (
                    """
                    device_tags w \(dialect.orderedJoin) devices d ON d.device_id = w.device_id
                    WHERE w.tag = \(parameters.text(tag.text)) AND w.device_id > \(after) AND d.device_id > \(after)
                    """, "w.device_id"
                )
            }
        }
        var (index, condition) = ("", "")
        if let user {
            (index, condition) = ("devices_user", "d.user_reference = \(parameters.text(user.text)) AND")
        } else if isActive == false {
            (index, condition) = ("devices_inactive", "d.time_deactivated IS NOT NULL AND")
        } else if let app {
            (index, condition) = ("devices_app", "d.app = \(parameters.text(app.text)) AND")
        }
        return ("devices d \(dialect.indexed(by: index)) WHERE \(condition) d.device_id > \(after)", "d.device_id")
    }

    /// The conditions to check row by row. `nil` if there are none.
    package func rest(_ parameters: inout SQLParameters) -> String? {
        var conditions: [String] = []
        if user != nil, let tag {
            let tag = parameters.text(tag.text)
            conditions.append("EXISTS (SELECT 1 FROM device_tags t WHERE t.tag = \(tag) AND t.device_id = d.device_id)")
        }
        let isNamed = user != nil || tag != nil
        if let app, isNamed || isActive == false { conditions.append("d.app = \(parameters.text(app.text))") }
        if let isActive, isActive || isNamed {
            conditions.append("d.time_deactivated IS \(isActive ? "" : "NOT") NULL")
        }
        return conditions.isEmpty ? nil : conditions.joined(separator: " AND ")
    }
}

extension SQLTransaction {
    /// Returns `nil` if the device is not registered. Finds an Android phone also by the registration token that it had
    /// before its installation id.
    /// - Parameter lock: The end of the statement, with the lock.
    /// - Throws: ``ChatError/Code/ambiguous``.
    fileprivate func find(
        _ token: DeviceToken, app: AppName?, _ lock: String
    ) throws -> (id: Int64, token: String, app: String)? {
        let text = token.description
        let id = DeviceToken.installation(of: text)
        return try find(text, app: app, lock) ?? (id == text ? nil : find(id, app: app, lock))
    }

    private func find(
        _ token: String, app: AppName?, _ lock: String
    ) throws -> (id: Int64, token: String, app: String)? {
        let rows = try rows(
            """
            SELECT device_id, app FROM devices WHERE device_token = $1 AND (CAST($2 AS text) IS NULL OR app = $2)
            ORDER BY app LIMIT $3 \(lock)
            """, [.text(token), .optional(app?.text), .int(Device.mostNamed)])
        guard rows.count < 2 else {
            let apps = try rows.map { try $0.text(1) }.joined(separator: ", ")
            throw ChatError(
                .ambiguous, "token: belongs to several apps of this relay (\(apps)); name one with app", field: "app")
        }
        return try rows.first.map { (try $0.int(0), token, try $0.text(1)) }
    }

    fileprivate func require(
        _ token: DeviceToken, app: AppName?, _ lock: String
    ) throws -> (id: Int64, token: String, app: String) {
        if let device = try find(token, app: app, lock) { return device }
        guard let app else { throw ChatError.notFound("device") }
        throw ChatError(.notFound, "There is no such device of the app \(app)", field: "app")
    }

    fileprivate func device(_ id: Int64) throws -> Device {
        let row = try row("SELECT \(Device.columns(dialect)) FROM devices d WHERE d.device_id = $1", [.int(id)])
        guard let row, let device = try Device(row) else { throw ChatError.notFound("device") }
        return device
    }
}

extension Device {
    /// The maximum number of apps to name in the error that asks for an app.
    fileprivate static let mostNamed: Int64 = 10

    package static func cancelSQL(_ dialect: SQLDialect) -> String {
        """
        UPDATE \(dialect.unsettled) SET state = 'cancelled', reason = $1, time_settled = at($2)
        WHERE device = $3 AND chat_message IS NULL AND state = 'pending' RETURNING app, notification
        """
    }

    /// The columns of the table `devices` as `d`.
    fileprivate static func columns(_ dialect: SQLDialect) -> String {
        """
        d.device_id, d.device_token, d.app, d.user_reference, d.client_info, d.server_info, ms(d.time_created),
        ms(d.time_registered), ms(d.time_deactivated), d.deactivated_reason, d.app_version, d.os_version,
        d.device_model, ms(d.time_seen), \(tags(dialect))
        """
    }

    fileprivate static func tags(_ dialect: SQLDialect) -> String {
        dialect.texts("tag", "FROM device_tags l WHERE l.device_id = d.device_id")
    }

    /// Reads a row with ``columns``. Returns `nil` for a token that another program wrote and that is invalid.
    fileprivate init?(_ row: some SQLRow) throws {
        guard let token = try? DeviceToken(parsing: row.text(1)) else { return nil }
        self.init(
            id: try row.int(0), token: token, app: AppName(try row.text(2)),
            user: row.optionalText(3).map(UserReference.init(stored:)), clientInfo: row.optionalText(4),
            serverInfo: row.optionalText(5),
            client: ClientInfo(
                appVersion: row.optionalText(10), osVersion: row.optionalText(11), deviceModel: row.optionalText(12)),
            tags: try row.texts(14).map(Tag.init(stored:)).sorted(), createdAt: try row.time(6),
            registeredAt: try row.time(7), seenAt: try row.optionalTime(13), deactivatedAt: try row.optionalTime(8),
            deactivatedReason: row.optionalText(9))
    }
}

/// The key of a row of `devices`.
package struct DeviceName: Sendable, Hashable, Comparable {
    package let token: String
    package let app: String

    package init(token: String, app: String) {
        self.token = token
        self.app = app
    }

    package static func < (left: DeviceName, right: DeviceName) -> Bool {
        (left.token, left.app) < (right.token, right.app)
    }
}

extension SQLTransaction {
    /// Reads the devices that are registered, and others with the same tokens.
    /// - Parameter lock: The end of the statement, with the lock.
    package func knownDevices(_ names: [DeviceName], _ lock: String = "") throws -> [DeviceName: KnownDevice] {
        let rows = try rows(
            """
            SELECT d.device_token, d.app, d.device_id, d.time_deactivated IS NULL, ms(d.time_registered),
                d.user_reference, d.client_info, d.server_info, d.app_version, d.os_version, d.device_model,
                \(Device.tags(dialect))
            FROM devices d WHERE d.device_token IN (\(dialect.each("$1", "text"))) ORDER BY d.device_token, d.app \(lock)
            """, [.texts(names.map(\.token))])
        var known: [DeviceName: KnownDevice] = [:]
        for row in rows {
            known[DeviceName(token: try row.text(0), app: try row.text(1))] = KnownDevice(
                id: try row.int(2), isActive: try row.bool(3), registered: try row.time(4), user: row.optionalText(5),
                clientInfo: row.optionalText(6), serverInfo: row.optionalText(7),
                client: ClientInfo(
                    appVersion: row.optionalText(8), osVersion: row.optionalText(9), deviceModel: row.optionalText(10)),
                tags: Set(try row.texts(11)))
        }
        return known
    }

    /// Writes the changes of an edit.
    package func apply(_ edit: DeviceEdit, to device: KnownDevice) throws {
        guard let changes = device.changes(by: edit) else { return }
        try pipeline(
            "UPDATE devices SET user_reference = $1, client_info = $2, server_info = $3 WHERE device_id = $4",
            [
                .optional(changes.user), .optional(changes.clientInfo), .optional(changes.serverInfo), .int(device.id),
            ])
        for tag in changes.oldTags {
            try pipeline("DELETE FROM device_tags WHERE tag = $1 AND device_id = $2", [.text(tag), .int(device.id)])
        }
        for tag in changes.newTags {
            try pipeline(
                "INSERT INTO device_tags (tag, device_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                [.text(tag), .int(device.id)])
        }
    }
}
