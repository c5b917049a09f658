/// A device from an imported file.
package struct DeviceRecord: Sendable, Hashable {
    /// The columns that a file may have, in addition to a device's token and app. If the file lacks a column, a known
    /// device keeps its value, and a new device gets the value of a registration.
    package enum Column: String, Sendable, CaseIterable {
        case user = "user_reference"
        case clientInfo = "client_info"
        case serverInfo = "server_info"
        case tags
        case appVersion = "app_version"
        case osVersion = "os_version"
        case deviceModel = "device_model"
        case created = "created_at"
        case registered = "registered_at"
        case seen = "seen_at"
        case deactivated = "deactivated_at"
        case reason = "deactivated_reason"
    }

    package let token: DeviceToken
    package let app: AppName
    package var user: UserReference?
    package var clientInfo: String?
    package var serverInfo: String?
    package var tags: Set<Tag> = []
    package var client = ClientInfo()
    package var createdAt: Timestamp?
    package var registeredAt: Timestamp?
    package var seenAt: Timestamp?
    package var deactivatedAt: Timestamp?
    package var deactivatedReason: String?

    package init(token: DeviceToken, app: AppName) {
        self.token = token
        self.app = app
    }
}

/// The result of importing devices: the number of devices by effect.
package struct DeviceImportResult: Sendable, Hashable {
    package var created = 0
    /// Known devices that now have the file's values.
    package var updated = 0
    /// Devices that have registered here, or were deactivated, later than the file's data. They stay unchanged.
    package var newer = 0

    package init() {}

    package static func += (left: inout Self, right: Self) {
        left.created += right.created
        left.updated += right.updated
        left.newer += right.newer
    }
}

/// A push that waits in another server's queue.
package struct WaitingPush: Sendable, Hashable {
    /// An id that is always the same for a push, so that it is imported only once. It is marked as a UUID of version 8
    /// (RFC 9562 §5.8).
    package let id: String
    package let token: DeviceToken
    package let payload: String
    package let queuedAt: Timestamp?

    package init(id: String, token: DeviceToken, payload: String, queuedAt: Timestamp?) {
        self.id = id
        self.token = token
        self.payload = payload
        self.queuedAt = queuedAt
    }
}

/// Imports data of other servers and files, for an operator's commands, which work with or without running relays.
/// Members are imported through ``RoomStore``.
package protocol StoreImport: Sendable {
    /// Returns the udids of the members that are or were in a room.
    func knownMembers(of members: [MemberID]) async throws(ChatError) -> Set<String>
    /// Returns the ids (``WaitingPush/id``) of the pushes that were imported before, whatever their state. Includes
    /// only pushes whose rows still exist. Reads the whole queue.
    func importedPushes() async throws(ChatError) -> Set<String>
    /// Imports pushes in one transaction. They keep their order and follow all pushes in the queue.
    func take(_ pushes: [WaitingPush], app: AppName) async throws(ChatError)
    /// Imports devices in one transaction, with the same result as if each had been imported alone. Importing them
    /// twice changes nothing more.
    ///
    /// - Parameter columns: The columns that the file has.
    func take(
        _ devices: [DeviceRecord], columns: Set<DeviceRecord.Column>
    ) async throws(ChatError) -> DeviceImportResult
}
