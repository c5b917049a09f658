import Foundation

/// A simulated Live Activity and its states over time, encoded as in the response to `GET /activities`.
struct SandboxActivity: Sendable, Hashable, JSONRecord {
    /// The content after one push.
    struct State: Sendable, Hashable, JSONRecord {
        /// The notification's id in the inbox.
        let notification: Int
        let event: ActivityPayload.Event?
        let timestamp: Int?
        let contentState: String?
        let staleDate: Int?
        let dismissalDate: Int?
        /// Whether the device shows this state. It ignores a state that is older than the one it shows.
        let isShown: Bool
        let receivedAt: Date

        var size: Int { contentState?.utf8.count ?? 0 }

        var json: JSONMembers {
            [
                "notification": notification, "event": event, "timestamp": timestamp, "content_state": contentState,
                "stale_date": staleDate, "dismissal_date": dismissalDate, "shown": isShown, "received_at": receivedAt,
            ]
        }
    }

    /// The activity's id: from 1, in the order of creation.
    let id: Int
    /// The token for updates. `nil` if the activity has none: it listens to a channel, or a fault withheld the token.
    let token: [UInt8]?
    /// The push-to-start token that started the activity. `nil` if the app started it.
    let startToken: [UInt8]?
    /// The app's bundle id.
    let app: String
    /// The channel to which the activity listens.
    let channel: String?
    let attributesType: String?
    let attributes: String?
    let startedAt: Date
    /// The time of the end, by a push or by the user. `nil` while the activity is active.
    fileprivate(set) var endedAt: Date?
    /// Whether a fault keeps the token valid after the end.
    fileprivate(set) var keepsToken = false
    /// The newest states, oldest first.
    fileprivate(set) var states: [State] = []
    /// The number of older states that were forgotten.
    fileprivate(set) var dropped = 0

    /// The state on the screen.
    var shown: State? { states.last { $0.isShown } }

    fileprivate var size: Int {
        states.reduce((attributes?.utf8.count ?? 0) + (attributesType?.utf8.count ?? 0)) { $0 + $1.size }
    }

    var json: JSONMembers {
        [
            "id": id, "token": token?.hex, "start_token": startToken?.hex, "app": app, "channel": channel,
            "attributes_type": attributesType, "attributes": attributes, "started_at": startedAt, "ended_at": endedAt,
            "states": states, "dropped": dropped,
        ]
    }
}

/// The Live Activities that pushes or the control API have started. The oldest are forgotten if there are too many.
struct ActivityRegistry: Sendable, PagedList {
    private var activities: [Int: SandboxActivity] = [:]
    private var ids: [[UInt8]: Int] = [:]
    /// The activities of each channel.
    private var listeners: [String: Set<Int>] = [:]
    private var oldest = 1
    private var lastID = 0
    private var bytes = 0

    var count: Int { activities.count }
    private(set) var activeCount = 0

    /// The activity with this update token, even if it has ended.
    subscript(token: [UInt8]) -> SandboxActivity? { ids[token].flatMap { activities[$0] } }

    subscript(id: Int) -> SandboxActivity? { activities[id] }

    /// Returns the ids of the active activities that listen to a channel.
    func listeners(of channel: String) -> [Int] { listeners[channel]?.sorted() ?? [] }

    /// Starts an activity.
    /// - Returns: Its id.
    mutating func start(
        token: [UInt8]?, startToken: [UInt8]? = nil, app: String, channel: String? = nil, attributesType: String? = nil,
        attributes: String? = nil, at now: Date
    ) -> Int {
        lastID += 1
        let activity = SandboxActivity(
            id: lastID, token: token, startToken: startToken, app: app, channel: channel,
            attributesType: attributesType, attributes: attributes, startedAt: now)
        activities[lastID] = activity
        if let token { ids[token] = lastID }
        if let channel { listeners[channel, default: []].insert(lastID) }
        activeCount += 1
        bytes += activity.size
        forget()
        return lastID
    }

    /// Adds the state that a push brings. An activity that has ended ignores it.
    /// - Parameter keepsToken: Whether the token remains valid if the push ends the activity.
    /// - Returns: The mistakes that only the activity shows.
    mutating func receive(
        _ payload: ActivityPayload, notification: Int, for id: Int, keepsToken: Bool = false, at now: Date
    ) -> [String] {
        guard var activity = activities[id] else { return [] }
        guard activity.endedAt == nil else { return ["the activity has ended: the device ignores the push"] }
        var warnings: [String] = []
        let last = activity.shown
        var isShown = payload.timestamp != nil
        if let timestamp = payload.timestamp, let shown = last?.timestamp, timestamp < shown {
            isShown = false
            warnings.append("timestamp \(timestamp) is older than \(shown): the device ignores the push")
        }
        if let before = last?.contentState, payload.contentState != nil,
            let keys = try? JSONSerialization.jsonObject(with: Data(before.utf8)) as? [String: Any],
            Set(keys.keys.map { String($0) }) != payload.keys
        {
            warnings.append("content-state has other members than before: the app may fail to decode it")
        }
        bytes -= activity.size
        activity.states.append(
            .init(
                notification: notification, event: payload.event, timestamp: payload.timestamp,
                contentState: payload.contentState, staleDate: payload.staleDate,
                dismissalDate: payload.dismissalDate, isShown: isShown, receivedAt: now))
        if activity.states.count > ControlLimits.activityStates {
            activity.states.removeFirst()
            activity.dropped += 1
        }
        bytes += activity.size
        activities[id] = activity
        if payload.event == .end, isShown { end(id, keepsToken: keepsToken, at: now) }
        forget()
        return warnings
    }

    /// Ends an activity, as the user does by removing it. Ending twice is not an error.
    /// - Returns: The activity. `nil` if there is none with this id.
    @discardableResult
    mutating func end(_ id: Int, keepsToken: Bool = false, at now: Date) -> SandboxActivity? {
        guard var activity = activities[id] else { return nil }
        guard activity.endedAt == nil else { return activity }
        activity.endedAt = now
        activity.keepsToken = keepsToken
        activities[id] = activity
        activeCount -= 1
        stopListening(activity)
        return activity
    }

    func page(since: Int, limit: Int) -> (items: [SandboxActivity], next: Int) {
        var page: [SandboxActivity] = []
        guard since < lastID else { return (page, lastID) }
        var id = max(since + 1, oldest)
        while id <= lastID, page.count < limit {
            if let activity = activities[id] { page.append(activity) }
            id += 1
        }
        return (page, page.last?.id ?? lastID)
    }

    private mutating func stopListening(_ activity: SandboxActivity) {
        guard let channel = activity.channel else { return }
        listeners[channel]?.remove(activity.id)
        if listeners[channel]?.isEmpty == true { listeners[channel] = nil }
    }

    private mutating func forget() {
        while count > ControlLimits.activities || bytes > ControlLimits.activityBytes && count > 1 {
            if let activity = activities.removeValue(forKey: oldest) {
                bytes -= activity.size
                if activity.endedAt == nil { activeCount -= 1 }
                if let token = activity.token, ids[token] == activity.id { ids[token] = nil }
                stopListening(activity)
            }
            oldest += 1
        }
    }
}
