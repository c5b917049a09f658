/// The stored times of a device's events.
package struct KnownDeviceTimes: Sendable {
    fileprivate let registered: Timestamp
    fileprivate let deactivated: Timestamp?
    fileprivate let seen: Timestamp?

    package init(registered: Timestamp, deactivated: Timestamp?, seen: Timestamp?) {
        self.registered = registered
        self.deactivated = deactivated
        self.seen = seen
    }
}

extension DeviceRecord {
    /// The columns to take from an imported file. `nil` if the database has data about the device that are newer than
    /// the file. If the file has no time of registration, its data count as newer.
    package func columns(of columns: Set<Column>, over known: KnownDeviceTimes?) -> Set<Column>? {
        var columns = columns
        // Keep the stored time if the file leaves it empty.
        if createdAt == nil { columns.remove(.created) }
        guard let known else { return columns }
        if let registeredAt {
            if known.registered > registeredAt { return nil }
            if columns.contains(.deactivated), let deactivated = known.deactivated,
                deactivated > max(registeredAt, deactivatedAt ?? registeredAt)
            {
                return nil
            }
        } else {
            columns.remove(.registered)
        }
        // If the database has seen the device later than the file, the app's reports in the database are newer too.
        if let seen = known.seen, let seenAt, seen > seenAt {
            columns.subtract([.appVersion, .osVersion, .deviceModel, .seen])
        }
        return columns
    }

    /// The values of a device that is new in the database. If the file lacks a value, the device gets the value of a
    /// new registration.
    package func values(keepsUsage: Bool, now: Timestamp) -> Values {
        Values(
            user: user?.text, clientInfo: clientInfo, serverInfo: serverInfo,
            client: keepsUsage ? client : ClientInfo(), created: createdAt ?? registeredAt ?? now,
            registered: registeredAt ?? now, seen: keepsUsage ? seenAt : nil, deactivated: deactivatedAt,
            reason: deactivatedReason)
    }

    /// The values as a row stores them.
    package struct Values: Sendable {
        package let user: String?
        package let clientInfo: String?
        package let serverInfo: String?
        package let client: ClientInfo
        package let created: Timestamp
        package let registered: Timestamp
        package let seen: Timestamp?
        package let deactivated: Timestamp?
        package let reason: String?
    }
}
