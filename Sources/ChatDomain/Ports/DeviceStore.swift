/// Stores registered devices and their data.
package protocol DeviceStore: Sendable {
    /// Registers a device of an app, and reactivates it if it was deactivated. Repeating an equal registration costs
    /// one read and no write.
    func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration
    /// Forgets a device. Its waiting pushes are cancelled. A member with this device stays in its room, without a
    /// token.
    ///
    /// - Parameter app: The app of the device. `nil` if the token belongs to only one app.
    /// - Returns: Whether the device was registered.
    func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool
    /// Forgets a browser that unregisters itself, if it has the keys stored for its endpoint.
    ///
    /// - Returns: Whether the browser was registered.
    /// - Throws: ``ChatError/Code/conflict`` if the keys differ.
    func unregister(_ browser: Subscription) async throws(ChatError) -> Bool
    /// Changes the data of a device without a registration.
    ///
    /// - Throws: ``ChatError/Code/notFound``. ``ChatError/Code/ambiguous`` if `app` is `nil` and the token belongs to
    ///   several apps.
    func edit(_ token: DeviceToken, app: AppName?, _ edit: DeviceEdit) async throws(ChatError) -> Device
    /// Returns a device. Throws the same errors as ``edit(_:app:_:)``.
    func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device
    /// Returns devices with ids above `cursor`, in the order of their ids. A page may have fewer than `limit` devices,
    /// even none, and still have a next page: each call reads a bounded number of devices.
    func devices(_ filter: DeviceFilter, after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Device>
    /// Returns the pushes to a device with ids below `cursor`, newest first.
    func deliveries(to device: Int64, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Delivery>
}

/// A device's request to register.
package struct RegistrationRequest: Sendable, Hashable {
    package var token: DeviceToken
    package var app: AppName
    package var edit: DeviceEdit

    package init(token: DeviceToken, app: AppName, edit: DeviceEdit = DeviceEdit()) {
        self.token = token
        self.app = app
        self.edit = edit
    }
}

/// The changes that a request makes to a device's data.
package struct DeviceEdit: Sendable, Hashable {
    package enum Change<Value: Sendable & Hashable>: Sendable, Hashable {
        case keep
        case remove
        case set(Value)

        /// Returns the stored value after the change.
        ///
        /// - Parameter stored: Returns the value in stored form.
        func result<Stored>(_ old: Stored?, _ stored: (Value) -> Stored) -> Stored? {
            switch self {
            case .keep: old
            case .remove: nil
            case .set(let value): stored(value)
            }
        }
    }

    package var user: Change<UserReference>
    package var clientInfo: Change<String>
    package var serverInfo: Change<String>
    /// The values that the app reports, without an address. Values that it does not report stay unchanged.
    package var client: ClientInfo
    /// The tags that replace the device's tags. `nil` leaves them unchanged.
    package var tags: Set<Tag>?

    package init(
        user: Change<UserReference> = .keep, clientInfo: Change<String> = .keep, serverInfo: Change<String> = .keep,
        client: ClientInfo = ClientInfo(), tags: Set<Tag>? = nil
    ) {
        self.user = user
        self.clientInfo = clientInfo
        self.serverInfo = serverInfo
        self.client = client
        self.tags = tags
    }
}

/// A condition on the devices of a list. `nil` values match any device.
package struct DeviceFilter: Sendable, Hashable {
    package var app: AppName?
    package var user: UserReference?
    package var tag: Tag?
    package var isActive: Bool?

    package init(app: AppName? = nil, user: UserReference? = nil, tag: Tag? = nil, isActive: Bool? = nil) {
        self.app = app
        self.user = user
        self.tag = tag
        self.isActive = isActive
    }
}

/// The effect of a registration.
package enum DeviceRegistration: String, Sendable, Hashable {
    case created
    /// The device was already registered. It was reactivated or changed, or its last registration was older than
    /// ``freshness``.
    case refreshed
    case unchanged

    /// The age up to which an equal registration leaves the stored one unchanged. The feedback service reports since
    /// when a device is gone, and the relay compares this with the time of the last registration. The stored time must
    /// therefore be recent.
    package static let freshness = Duration.seconds(600)
}
