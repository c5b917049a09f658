import Foundation
import PushWire

/// The rules of broadcasts and of channel management, in the order in which they are checked.
///
/// Apple documents the reasons ("Handling error responses from Apple Push Notification service"), but not their order.
/// `docs/sandbox-apple.md` has the rules as a list.
struct BroadcastRules {
    /// A call that manages channels.
    enum Call: Sendable, Hashable {
        case create(SandboxChannel.Policy)
        case read(channel: String)
        case delete(channel: String)
        case list
    }

    /// A broadcast that passed all rules, except those about the channel's state.
    struct Broadcast: Sendable, Hashable {
        let app: String
        let channel: String
        /// Unix seconds. 0 for a message that is not kept.
        let expiration: Int64
        let payload: ActivityPayload
    }

    let request: SandboxRequest
    let certificate: ClientCertificate?
    let configuration: SandboxConfiguration

    // MARK: Broadcasts

    /// Checks everything but the client's identity.
    /// - Parameter channel: Returns the app's channel with an id.
    func checkBroadcast(
        channel: (_ id: String, _ app: String) -> SandboxChannel?
    ) throws(ProviderRefusal) -> Broadcast {
        let app = String(request.path.dropFirst(BroadcastWire.path.utf8.count))
        guard request.path.hasPrefix(BroadcastWire.path), SandboxRules.isTopic(app) else { throw .init(.badPath) }
        guard request.method == "POST" else { throw .init(.methodNotAllowed) }
        try checkApp(app)
        let id = try channelID()
        guard let type = request.pushType else { throw .init(broadcast: .missingPushType) }
        guard type.lowercased() == PushType.liveactivity.rawValue else { throw .init(.invalidPushType) }
        guard let text = request.expiration, let expiration = Int64(text), expiration >= 0, text.first != "+" else {
            throw .init(.badExpirationDate)
        }
        let known = channel(id, app)
        if known?.policy == .storesNothing, expiration != 0 { throw .init(.badExpirationDate) }
        guard let priority = request.priority, ["10", "5", "1"].contains(priority) else { throw .init(.badPriority) }
        guard known != nil else { throw .init(broadcast: .channelNotRegistered) }
        let payload = try object()
        guard let activity = ActivityPayload(json: payload) else { throw .init(broadcast: .badRequestPayload) }
        // A broadcast cannot start an activity. Apple names no reason for it.
        if activity.event == .start { throw .init(broadcast: .badRequestParams) }
        return Broadcast(app: app, channel: id, expiration: expiration, payload: activity)
    }

    // MARK: Management

    /// Checks everything but the client's identity and the channel's existence.
    func checkManagement() throws(ProviderRefusal) -> (Call, app: String) {
        guard request.path.hasPrefix(BroadcastWire.managementPath) else { throw .init(.badPath) }
        let parts = request.path.dropFirst(BroadcastWire.managementPath.utf8.count).split(
            separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, SandboxRules.isTopic(String(parts[0])),
            [BroadcastWire.channels, BroadcastWire.allChannels].contains(String(parts[1]))
        else { throw .init(.badPath) }
        let app = String(parts[0])
        let isList = parts[1] == BroadcastWire.allChannels
        guard (isList ? ["GET"] : ["POST", "GET", "DELETE"]).contains(request.method) else {
            throw .init(.methodNotAllowed)
        }
        try checkApp(app)
        if isList { return (.list, app) }
        switch request.method {
        case "POST": return (.create(try policy()), app)
        case "GET": return (.read(channel: try channelID()), app)
        default: return (.delete(channel: try channelID()), app)
        }
    }

    /// Checks the body of a call that creates a channel.
    private func policy() throws(ProviderRefusal) -> SandboxChannel.Policy {
        let data = try object()
        guard let object = try? JSONSerialization.jsonObject(with: data) as? [String: Any] else {
            throw .init(broadcast: .badRequestPayload)
        }
        guard object.keys.allSatisfy({ $0 == BroadcastWire.policy || $0 == BroadcastWire.pushType }) else {
            throw .init(broadcast: .badRequestParams)
        }
        guard let type = object[BroadcastWire.pushType] else { throw .init(broadcast: .missingPushType) }
        guard (type as? String)?.lowercased() == PushType.liveactivity.rawValue else { throw .init(.invalidPushType) }
        let value = object[BroadcastWire.policy]
        guard !(value is Bool) || value is Int, let policy = (value as? Int).flatMap(SandboxChannel.Policy.init) else {
            throw .init(broadcast: .badRequestParams)
        }
        return policy
    }

    // MARK: Both

    /// Checks the request's id, the bundle id and the app's capability.
    private func checkApp(_ app: String) throws(ProviderRefusal) {
        if let id = request.requestID, !ProviderHeader.isID(id) { throw .init(.badMessageID) }
        let suffixes = PushType.documented.map(\.value).filter { $0.hasPrefix(Self.suffix) }
        if suffixes.contains(where: app.hasSuffix) { throw .init(.topicDisallowed) }
        if let certificate {
            let topics = certificate.topics.isEmpty ? [certificate.topic ?? ""] : certificate.topics
            guard topics.contains(app) else { throw .init(broadcast: .topicMismatch) }
        } else if configuration.strict, app != configuration.topic {
            throw .init(broadcast: .topicMismatch)
        }
        if let reason = configuration.broadcasts.reason { throw .init(broadcast: reason) }
    }

    /// The beginning of the suffixes that no bundle id has.
    private static let suffix = ".push-type."

    private func channelID() throws(ProviderRefusal) -> String {
        guard let id = request.headers[ProviderHeader.channelID], !id.isEmpty else {
            throw .init(broadcast: .missingChannelID)
        }
        guard id.utf8.count <= ControlLimits.channelID, Data(base64Encoded: id) != nil else {
            throw .init(broadcast: .badChannelID)
        }
        return id
    }

    /// Returns the body, if it has a valid size. A body above the limit is not kept, so its size is checked before its
    /// content.
    private func object() throws(ProviderRefusal) -> Data {
        if request.bodySize == 0 { throw .init(.payloadEmpty) }
        if request.bodySize > BroadcastWire.payloadLimit { throw .init(.payloadTooLarge) }
        return Data(request.body.readableBytesView)
    }
}
