/// Keeps devices that register by themselves, without being in a room.
package protocol DeviceStore: Sendable {
    /// Registers a device of an app. One whose app was removed is active again; an equal repeat only reads.
    func register(_ token: DeviceToken, app: AppName) async throws(ChatError) -> DeviceRegistration
}

/// What a registration has changed.
package enum DeviceRegistration: String, Sendable, Hashable {
    case created
    /// It was known, and is active again, or was registered so long ago that the time is set anew.
    case refreshed
    case unchanged

    /// How old a registration may be when an equal one leaves it as it is. The push service says since when a device is
    /// gone, and that is compared with the last registration: it must not lie far back.
    package static let freshness = Duration.seconds(600)
}
