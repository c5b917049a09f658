/// Keeps the devices that registered, and what is known of them.
package protocol DeviceStore: Sendable {
    /// Registers a device of an app. One that was deactivated is active again; an equal repeat costs one read, no write.
    func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration
    /// Forgets a device: pushes to it that wait are cancelled, its member's room keeps the member without a token.
    /// - Parameter app: nil where the token belongs to one app only.
    /// - Returns: whether it was known.
    func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool
    /// Forgets a browser that unregisters itself, if it has the keys under which its endpoint is known.
    /// - Returns: whether it was known.
    /// - Throws: ``ChatError/Code/conflict`` for other keys.
    func unregister(_ browser: Subscription) async throws(ChatError) -> Bool
    /// Changes what is known of a device, without a registration. Throws ``ChatError/Code/notFound``, or
    /// ``ChatError/Code/ambiguous`` where `app` is nil and the token belongs to several.
    func edit(_ token: DeviceToken, app: AppName?, _ edit: DeviceEdit) async throws(ChatError) -> Device
    /// Throws as ``edit(_:app:_:)`` does.
    func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device
    /// Devices in the order of their ids, those after `cursor`. A page may have fewer than `limit`, even none, and
    /// still a next one: each looks at a bounded number of devices.
    func devices(_ filter: DeviceFilter, after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Device>
    /// What was sent to a device and what became of it, newest first, what is older than `cursor`.
    func deliveries(to device: Int64, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Delivery>
}

/// A device says that it is there.
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

/// What a request changes of what is known of a device.
package struct DeviceEdit: Sendable, Hashable {
    package enum Change<Value: Sendable & Hashable>: Sendable, Hashable {
        case keep
        case remove
        case set(Value)
    }

    package var user: Change<UserReference>
    package var clientInfo: Change<String>
    package var serverInfo: Change<String>
    /// What the app says of itself; what it does not say stays as it was. Without an address.
    package var client: ClientInfo
    /// All of the device's tags from now on; nil leaves them.
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

/// Which devices a list shows; nil for any.
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

/// A piece of a list.
package struct Page<Item: Sendable>: Sendable {
    package let items: [Item]
    /// What to ask from next; nil at the end.
    package let next: Int64?

    package init(items: [Item], next: Int64?) {
        self.items = items
        self.next = next
    }
}

/// What a registration has changed.
package enum DeviceRegistration: String, Sendable, Hashable {
    case created
    /// It was known, and is active again, or something of it is new, or it was registered so long ago that the time is
    /// set anew.
    case refreshed
    case unchanged

    /// How old a registration may be when an equal one leaves it as it is. The push service says since when a device is
    /// gone, and that is compared with the last registration: it must not lie far back.
    package static let freshness = Duration.seconds(600)
}
