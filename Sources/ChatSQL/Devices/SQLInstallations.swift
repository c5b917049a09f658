package import ChatDomain

/// The two forms of an Android phone's address: a registration token, and the installation id with which the token
/// begins. An app that is updated reports the second instead of the first. The device that registered last counts.
extension SQLTransaction {
    /// Returns the devices that are registered with the other form of their address.
    package func devicesWithOtherForm(_ devices: [(token: DeviceToken, app: AppName)]) throws -> Set<DeviceName> {
        let names = devices.filter { $0.token.kind == .installation }.map { device in
            DeviceName(token: device.token.description, app: device.app.text)
        }
        guard !names.isEmpty else { return [] }
        let rows = try rows(
            """
            WITH w (id) AS (\(dialect.each("$1", "text")))
            SELECT d.device_token, d.app FROM w \(dialect.orderedJoin) devices d
                ON d.device_token >= w.id AND d.device_token < w.id || ';'
            """, [.texts(Array(Set(names.map { DeviceToken.installation(of: $0.token) })))])
        let known = Set(try rows.map { DeviceName(token: try $0.text(0), app: try $0.text(1)) })
        return Set(names.filter { name in known.contains { $0.isOtherForm(of: name) } })
    }

    /// Names phones by the installation ids with which they have registered since a server stored their registration
    /// tokens. A token with which a device is registered stays.
    package func currentForms(of items: ArraySlice<AudienceItem>, app: AppName?) throws -> ArraySlice<AudienceItem> {
        let ids = Dictionary(
            items.compactMap(\.token).map { ($0, DeviceToken.installation(of: $0)) }.filter { $0 != $1 },
            uniquingKeysWith: { first, _ in first })
        guard !ids.isEmpty else { return items }
        let known = Set(
            try rows(
                """
                SELECT device_token FROM devices
                WHERE device_token IN (\(dialect.each("$1", "text"))) AND (CAST($2 AS text) IS NULL OR app = $2)
                """, [.texts(Array(ids.keys) + Set(ids.values)), .optional(app?.text)]
            ).map { try $0.text(0) })
        var current = items
        for index in items.indices {
            guard let token = items[index].token, let id = ids[token], !known.contains(token), known.contains(id)
            else { continue }
            current[index] = .token(id)
        }
        return current
    }

    /// Makes one device of those that have both forms of this address, before it registers.
    /// - Returns: Whether the device was known by the other form.
    @discardableResult
    package func mergeForms(of token: DeviceToken, app: AppName) throws -> Bool {
        let names = try devicesWithOtherForm([(token, app)])
        for name in names { try mergeForms(of: name) }
        return !names.isEmpty
    }

    /// Makes one device of all devices that have the other form of this address, and of the one that has this form.
    ///
    /// The oldest row stays, so that its waiting pushes and its history stay. Pushes that wait for another row find the
    /// device by its address. Members and bans also get the new address.
    package func mergeForms(of name: DeviceName) throws {
        let id = DeviceToken.installation(of: name.token)
        let found = try rows(
            """
            SELECT device_id, device_token FROM devices
            WHERE device_token >= $1 AND device_token < $1 || ';' AND app = $2
            ORDER BY device_id \(dialect.lockedToDelete("devices"))
            """, [.text(id), .text(name.app)]
        ).map { (id: try $0.int(0), name: DeviceName(token: try $0.text(1), app: name.app)) }
            .filter { $0.name == name || $0.name.isOtherForm(of: name) }
        guard let kept = found.first else { return }
        // A later row has the newer values.
        for other in found.dropFirst() { try mergeDevice(other.id, into: kept.id, prefersKept: false) }
        try pipeline("UPDATE devices SET device_token = $1 WHERE device_id = $2", [.text(name.token), .int(kept.id)])
        for old in found where old.name != name {
            try pipeline(
                """
                UPDATE active_users SET device_token = $1
                WHERE device_token = $2 AND device_token <> '0' AND app = $3
                """, [.text(name.token), .text(old.name.token), .text(name.app)])
            try pipeline(
                "UPDATE bans SET device_token = $1 WHERE device_token = $2",
                [.text(name.token), .text(old.name.token)])
        }
    }

    /// Merges a device into another one and deletes it.
    /// - Parameter prefersKept: Whether a value of the kept device wins over one of the other. A value that only one of
    ///   them has stays.
    package func mergeDevice(_ old: Int64, into kept: Int64, prefersKept: Bool) throws {
        let (first, second) = prefersKept ? ("d", "o") : ("o", "d")
        for sql in [
            """
            UPDATE devices AS d SET user_reference = coalesce(\(first).user_reference, \(second).user_reference),
                client_info = coalesce(\(first).client_info, \(second).client_info),
                server_info = coalesce(\(first).server_info, \(second).server_info),
                time_created = CASE WHEN o.time_created < d.time_created THEN o.time_created ELSE d.time_created END
            FROM devices o WHERE o.device_id = $1 AND d.device_id = $2
            """,
            """
            INSERT INTO device_tags (tag, device_id) SELECT tag, CAST($2 AS bigint) FROM device_tags WHERE device_id = $1
            ON CONFLICT DO NOTHING
            """,
            """
            UPDATE push_queue AS q SET device = $2 WHERE q.device = $1 AND q.chat_message IS NULL AND NOT EXISTS (
                SELECT 1 FROM push_queue o WHERE o.notification = q.notification AND o.device = $2)
            """,
        ] {
            try pipeline(sql, [.int(old), .int(kept)])
        }
        try pipeline("DELETE FROM devices WHERE device_id = $1", [.int(old)])
    }
}

extension DeviceName {
    /// Whether both name the same installation, one by its id and one by a registration token.
    fileprivate func isOtherForm(of other: DeviceName) -> Bool {
        let id = DeviceToken.installation(of: token)
        return app == other.app && id == DeviceToken.installation(of: other.token)
            && (token == id) != (other.token == id)
    }
}
