/// When something happened to a device that is known.
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
    /// What of a file's columns a device is to have from it; nil where what is known of the device is of a later time than what
    /// the file has. Where the file says no time, it is the file's.
    package func columns(of columns: Set<Column>, over known: KnownDeviceTimes?) -> Set<Column>? {
        var columns = columns
        // A time that the file leaves empty stays as it is.
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
        // What its app has said since is newer, too.
        if let seen = known.seen, let seenAt, seen > seenAt {
            columns.subtract([.appVersion, .osVersion, .deviceModel, .seen])
        }
        return columns
    }

    /// What a device has from the file that was not known: what the file does not say is as with a registration.
    package func values(keepsUsage: Bool, now: Timestamp) -> Values {
        Values(
            user: user?.text, clientInfo: clientInfo, serverInfo: serverInfo,
            client: keepsUsage ? client : ClientInfo(), created: createdAt ?? registeredAt ?? now,
            registered: registeredAt ?? now, seen: keepsUsage ? seenAt : nil, deactivated: deactivatedAt,
            reason: deactivatedReason)
    }

    /// As a row has them.
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
