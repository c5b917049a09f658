/// The stored facts about a device, to decide whether a request changes it.
package struct KnownDevice: Sendable {
    package let id: Int64
    private let isActive: Bool
    private let registered: Timestamp
    private let user: String?
    private let clientInfo: String?
    private let serverInfo: String?
    private let client: ClientInfo
    private let tags: Set<String>

    /// Collects the stored values of a device.
    ///
    /// - Parameter tags: The stored tags. May be empty if the request has no tags.
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

    /// Whether a registration changes nothing: the device is active, was registered on the same day and within
    /// ``DeviceRegistration/freshness``, and the edit changes nothing. The first registration of a day is always
    /// stored, because devices are counted by day.
    package func isUnchanged(by edit: DeviceEdit, at now: Timestamp) -> Bool {
        isActive && registered > now - DeviceRegistration.freshness && registered.day >= now.day
            && changes(by: edit) == nil && client.updated(by: edit.client) == client
    }

    /// The changes to store: the texts after the edit, and the tags to add and to remove.
    package struct Changes: Sendable {
        package let user: String?
        package let clientInfo: String?
        package let serverInfo: String?
        package let newTags: Set<String>
        package let oldTags: Set<String>
    }

    /// The changes of an edit. `nil` if it changes nothing. Does not compare the app's report of its version, system
    /// and model.
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

/// The changes to the usage statistics that follow from a device's activity.
package struct DeviceSighting: Sendable {
    /// The app's report after the sighting.
    package let client: ClientInfo
    /// The changes in the day's counts. An empty kind counts all devices. An empty value counts devices that did not
    /// report one.
    package let counts: [(kind: String, value: String, change: Int64)]

    /// Decides what to store. The first sighting of a day and a new report of the app are stored at once, other
    /// sightings only after ``DeviceRegistration/freshness``. `nil` if there is nothing to store.
    package init?(_ client: ClientInfo, at now: Timestamp, last: Timestamp?, _ old: ClientInfo) {
        let new = old.updated(by: client)
        // If the clock was set back, count nothing twice.
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
    /// This report, updated with the values that `new` has. Values that `new` lacks stay. The result has no address.
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
    /// The stored form of all values after the first ``mostValues``. No device can report this value, because texts are
    /// stored without spaces at their ends.
    package static let others = " others"

    /// Reads a row of the table `device_days`.
    package init(day: String, app: String, kind: String, stored value: String, devices: Int) {
        self.init(
            day: day, app: AppName(app), kind: Kind(rawValue: kind),
            value: value.isEmpty ? .nothing : value == Self.others ? .others : .text(value), devices: devices)
    }
}
