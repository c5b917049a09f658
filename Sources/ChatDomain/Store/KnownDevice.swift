/// What is known of a device, to tell whether a request changes it.
package struct KnownDevice: Sendable {
    package let id: Int64
    private let isActive: Bool
    private let registered: Timestamp
    private let user: String?
    private let clientInfo: String?
    private let serverInfo: String?
    private let client: ClientInfo
    private let tags: Set<String>

    /// - Parameter tags: empty where the request says none.
    package init(
        id: Int64, isActive: Bool, registered: Timestamp, user: String?, clientInfo: String?, serverInfo: String?,
        client: ClientInfo, tags: Set<String>
    ) {
        self.id = id
        self.isActive = isActive
        self.registered = registered
        self.user = user
        self.clientInfo = clientInfo
        self.serverInfo = serverInfo
        self.client = client
        self.tags = tags
    }

    /// Whether a registration leaves all as it is: the device is active, was registered on the same day and within
    /// ``DeviceRegistration/freshness``, and the edit changes nothing. A day begins with a registration of its own, because
    /// devices are counted by day.
    package func isUnchanged(by edit: DeviceEdit, at now: Timestamp) -> Bool {
        isActive && registered > now - DeviceRegistration.freshness && registered.day >= now.day
            && changes(by: edit) == nil && client.updated(by: edit.client) == client
    }

    /// What is to be written: the texts as they are afterwards, and the tags that come and go.
    package struct Changes: Sendable {
        package let user: String?
        package let clientInfo: String?
        package let serverInfo: String?
        package let newTags: Set<String>
        package let oldTags: Set<String>
    }

    /// Nil where the edit changes nothing. What the app says of itself is not part of it.
    package func changes(by edit: DeviceEdit) -> Changes? {
        let wanted = edit.tags.map { Set($0.map(\.text)) } ?? tags
        let changes = Changes(
            user: edit.user.result(user) { $0.text }, clientInfo: edit.clientInfo.result(clientInfo) { $0 },
            serverInfo: edit.serverInfo.result(serverInfo) { $0 }, newTags: wanted.subtracting(tags),
            oldTags: tags.subtracting(wanted))
        let isSame =
            changes.user == user && changes.clientInfo == clientInfo && changes.serverInfo == serverInfo
            && wanted == tags
        return isSame ? nil : changes
    }
}

extension DeviceEdit.Change {
    /// What is stored afterwards.
    fileprivate func result(_ old: String?, _ text: (Value) -> String) -> String? {
        switch self {
        case .keep: old
        case .remove: nil
        case .set(let value): text(value)
        }
    }
}

/// What a sign of life changes of what is kept of who uses the app.
package struct DeviceSighting: Sendable {
    /// What the app says of itself, afterwards.
    package let client: ClientInfo
    /// What changes in the day's counts; an empty kind is for all devices, an empty value for those that did not say.
    package let counts: [(kind: String, value: String, change: Int64)]

    /// At once for what is said newly, else some minutes coarse: nil where there is nothing to write.
    package init?(_ client: ClientInfo, at now: Timestamp, last: Timestamp?, _ old: ClientInfo) {
        let new = old.updated(by: client)
        // A clock that was set back counts nothing twice.
        let isCounted = last.map { $0.day >= now.day } ?? false
        let isFresh = last.map { $0 > now - DeviceRegistration.freshness } ?? false
        guard !isCounted || !isFresh || new != old else { return nil }
        var counts: [(kind: String, value: String, change: Int64)] = isCounted ? [] : [("", "", 1)]
        for kind in DeviceDay.Kind.allCases {
            let (was, isNow) = (old.value(of: kind), new.value(of: kind))
            guard !isCounted || was != isNow else { continue }
            if isCounted { counts.append((kind.rawValue, was ?? "", -1)) }
            counts.append((kind.rawValue, isNow ?? "", 1))
        }
        self.client = new
        self.counts = counts
    }
}

extension ClientInfo {
    /// What the app says of itself, with what it does not say this time as it was. Without an address.
    package func updated(by new: ClientInfo) -> ClientInfo {
        ClientInfo(
            appVersion: new.appVersion ?? appVersion, osVersion: new.osVersion ?? osVersion,
            deviceModel: new.deviceModel ?? deviceModel)
    }

    fileprivate func value(of kind: DeviceDay.Kind) -> String? {
        switch kind {
        case .appVersion: appVersion
        case .osVersion: osVersion
        case .deviceModel: deviceModel
        }
    }
}

extension DeviceDay {
    /// How all values after the first ``mostValues`` are stored. No device can say it: texts are kept without blanks at their
    /// ends.
    package static let others = " others"

    /// As the table `device_days` has it.
    package init(day: String, app: String, kind: String, stored value: String, devices: Int) {
        self.init(
            day: day, app: AppName(app), kind: Kind(rawValue: kind),
            value: value.isEmpty ? .nothing : value == Self.others ? .others : .text(value), devices: devices)
    }
}
