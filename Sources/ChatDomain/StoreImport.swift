/// A device as a file has it.
package struct DeviceRecord: Sendable, Hashable {
    /// What a file may say of devices, besides which they are. What it does not say stays, or is as with a registration.
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

/// What an import did with devices.
package struct DeviceImportResult: Sendable, Hashable {
    package var created = 0
    /// They were known, and are as in the file now.
    package var updated = 0
    /// They have registered here, or were deactivated, after the file knew of them: they stay as they are.
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
    /// The same for the same push, so that it is taken over once: a UUID of version 8 (RFC 9562 §5.8), which marks it.
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

/// Takes over what other servers and files have, for an operator's commands: beside running relays, or without one. Members
/// join by ``RoomStore``.
package protocol StoreImport: Sendable {
    /// Which of these are in a room, or were.
    /// - Returns: their udids.
    func knownMembers(of members: [MemberID]) async throws(ChatError) -> Set<String>
    /// The pushes that were taken over before, whatever has become of them, as long as their rows are kept. Reads the whole
    /// queue.
    /// - Returns: their ids, as ``WaitingPush/id`` has them.
    func importedPushes() async throws(ChatError) -> Set<String>
    /// Takes pushes over, all in one transaction, in their order and behind all that are there.
    func take(_ pushes: [WaitingPush], app: AppName) async throws(ChatError)
    /// Takes devices over, all in one transaction and as if each had come alone. The same again changes nothing more.
    /// - Parameter columns: what the file says of devices.
    func take(
        _ devices: [DeviceRecord], columns: Set<DeviceRecord.Column>
    ) async throws(ChatError) -> DeviceImportResult
}
