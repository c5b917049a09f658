import Foundation
import PushWire

/// Live Activities and broadcast channels.
extension SandboxState {
    /// The size of a channel's id before it is encoded, in parts of 16 bytes. Apple's ids have 24 characters.
    private static let channelIDParts = 1
    private static let tokenParts = 2
    /// The first version of iOS in which an activity can listen to a channel.
    private static let firstChannelSystem = 18

    // MARK: Pushes to devices

    /// Applies an accepted Live Activity push to the simulated device, and notes the result in the inbox.
    /// - Returns: Mistakes that Apple does not report.
    mutating func updateActivity(
        _ notification: CheckedRequest, on connection: inout SandboxConnection
    ) -> [String] {
        let request = notification.request
        guard let payload = ActivityPayload(json: Data(request.body.readableBytesView)) else {
            let warnings = ["the payload is not a JSON object"]
            inbox.noteActivity(nil, warnings: warnings)
            return warnings
        }
        var warnings = payload.warnings
        let app = SandboxRules.app(of: notification.topic ?? "", .liveactivity)
        let known = activities[request.token]
        var id = known?.id
        if payload.event == .start {
            id = known == nil ? start(payload, app: app, notification, on: &connection, &warnings) : nil
            if known != nil { warnings.append("a start needs a push-to-start token: this is an update token") }
        } else if known == nil {
            if devices[request.token] != nil {
                warnings.append("an update needs an update token: this is a device's token or a push-to-start token")
            } else {
                // The app started the activity, and the sandbox learns of it by this push.
                id = activities.start(token: request.token, app: app, at: notification.receivedAt)
            }
        }
        if let id {
            warnings += activities.receive(
                payload, notification: inbox.lastID, for: id, keepsToken: notification.fault == .keepToken,
                at: notification.receivedAt)
        }
        inbox.noteActivity(id, warnings: warnings)
        return warnings
    }

    /// Starts the activity of a push-to-start push.
    /// - Returns: The activity's id. `nil` if the device does not start it.
    private mutating func start(
        _ payload: ActivityPayload, app: String, _ notification: CheckedRequest,
        on connection: inout SandboxConnection, _ warnings: inout [String]
    ) -> Int? {
        guard payload.attributesType != nil, payload.attributes != nil, payload.contentState != nil else { return nil }
        let token = notification.request.token
        if payload.channel != nil, let system = devices[token]?.system, system < Self.firstChannelSystem {
            warnings.append("iOS \(system) does not start an activity with input-push-channel")
            return nil
        }
        if let channel = payload.channel, channels.channel(channel, of: app) == nil {
            warnings.append("the app has no such input-push-channel: the activity gets no updates")
        }
        // An activity that listens to a channel gets no update token.
        let isSilent = payload.channel != nil || notification.fault == .noUpdateToken
        let id = activities.start(
            token: isSilent ? nil : connection.newBytes(parts: Self.tokenParts), startToken: token, app: app,
            channel: payload.channel, attributesType: payload.attributesType, attributes: payload.attributes,
            at: notification.receivedAt)
        return id
    }

    // MARK: The control API

    /// Starts an activity as an app does. A listener of a channel gets the channel's newest message.
    mutating func startActivity(
        token: [UInt8]?, app: String, channel: String?, at now: Date
    ) throws(LimitReached) -> SandboxActivity? {
        if let token, activities[token] != nil || devices[token] != nil {
            throw LimitReached(text: "token: there is an activity or a device with this token")
        }
        let id = activities.start(token: token, app: app, channel: channel, at: now)
        if let channel, channels.channel(channel, of: app) != nil, let newest = channels.newest(on: channel, at: now) {
            _ = activities.receive(newest.payload, notification: newest.notification, for: id, at: now)
        }
        return activities[id]
    }

    // MARK: Broadcasts

    mutating func checkBroadcast(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection
    ) throws(ProviderRefusal) -> BroadcastRules.Broadcast {
        try authenticate(&notification, on: &connection)
        let broadcast = try rules(notification, connection).checkBroadcast { channels.channel($0, of: $1) }
        notification.topic = broadcast.app
        return broadcast
    }

    /// Delivers an accepted broadcast to the activities that listen to its channel.
    /// - Returns: Mistakes that Apple does not report.
    mutating func deliver(_ broadcast: BroadcastRules.Broadcast, _ notification: CheckedRequest) -> [String] {
        let now = notification.receivedAt
        let latest = now.addingTimeInterval(Double(BroadcastWire.storageTime))
        let expiry = min(Date(timeIntervalSince1970: Double(broadcast.expiration)), latest)
        let message = SandboxChannel.Message(
            payload: broadcast.payload, notification: inbox.lastID, size: notification.request.bodySize,
            expiresAt: expiry > now ? expiry : nil)
        var warnings = broadcast.payload.warnings
        if channels.accept(message, on: broadcast.channel) {
            warnings.append("the channel does not keep the message: all channels together keep too much")
        }
        let held = channels.release(broadcast.channel)
        switch notification.fault {
        case .lose: break
        case .reorder: channels.hold(message, on: broadcast.channel)
        default: warnings += send(message, to: broadcast.channel, at: now)
        }
        if let held { _ = send(held, to: broadcast.channel, at: now) }
        inbox.noteActivity(nil, warnings: warnings)
        return warnings
    }

    /// - Returns: Each mistake once, however many activities show it.
    private mutating func send(_ message: SandboxChannel.Message, to channel: String, at now: Date) -> [String] {
        var warnings: [String] = []
        for id in activities.listeners(of: channel) {
            for warning in activities.receive(message.payload, notification: message.notification, for: id, at: now)
            where !warnings.contains(warning) {
                warnings.append(warning)
            }
        }
        return warnings
    }

    // MARK: Channel management

    /// Checks a management request, performs it, and completes the response.
    mutating func manageChannels(
        _ notification: inout CheckedRequest, on connection: inout SandboxConnection, _ response: inout SandboxResponse
    ) throws(ProviderRefusal) {
        try authenticate(&notification, on: &connection)
        let (call, app) = try rules(notification, connection).checkManagement()
        notification.topic = app
        switch call {
        case .create(let policy):
            guard channels.count(of: app) < configuration.channelLimit, channels.count < ControlLimits.channels else {
                throw ProviderRefusal(broadcast: .cannotCreateChannelConfig)
            }
            let id = Data(connection.newBytes(parts: Self.channelIDParts)).base64EncodedString()
            channels.create(id: id, app: app, policy: policy, at: notification.receivedAt)
            response.status = 201
            response.channel = id
        case .read(let id):
            guard let channel = channels.channel(id, of: app) else {
                throw ProviderRefusal(broadcast: .channelNotRegistered)
            }
            response.body =
                #"{"\#(BroadcastWire.policy)":\#(channel.policy.rawValue),"#
                + #""\#(BroadcastWire.pushType)":"\#(BroadcastWire.liveActivity)"}"#
        case .delete(let id):
            // The live service was observed to answer so. Apple's page has no reason for it.
            guard channels.channel(id, of: app) != nil else { throw ProviderRefusal(broadcast: .badPath) }
            channels.remove(id)
            response.status = 204
        case .list:
            // Base64 needs no escapes in JSON.
            response.body = #"{"channels":[\#(channels.ids(of: app).map { "\"\($0)\"" }.joined(separator: ","))]}"#
        }
    }

    private func rules(_ notification: CheckedRequest, _ connection: SandboxConnection) -> BroadcastRules {
        BroadcastRules(
            request: notification.request, certificate: connection.certificate, configuration: configuration)
    }
}
