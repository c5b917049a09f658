/// The reasons with which Apple rejects broadcasts and requests that manage channels, in Apple's spelling.
///
/// Sources: Apple, "Handling error responses from Apple Push Notification service", as of November 2026. The names marked
/// as observed are not on that page.
package enum BroadcastReason: String, Sendable, Hashable, CaseIterable {
    /// The app does not have the capability, by the documented name.
    case featureNotEnabled = "FeatureNotEnabled"
    /// The app does not have the capability, by the name that the live service was observed to send.
    case broadcastFeatureNotEnabled = "BroadcastFeatureNotEnabled"
    case missingChannelID = "MissingChannelId"
    /// The channel's id has a wrong encoding, or is too long.
    case badChannelID = "BadChannelId"
    case channelNotRegistered = "ChannelNotRegistered"
    /// The JSON has a member that is unknown or has a wrong value.
    case badRequestParams = "BadRequestParams"
    /// The payload cannot be parsed.
    case badRequestPayload = "BadRequestPayload"
    case payloadEmpty = "PayloadEmpty"
    case badMessageID = "BadMessageId"
    case missingPushType = "MissingPushType"
    case invalidPushType = "InvalidPushType"
    /// The app has as many channels as it may have.
    case cannotCreateChannelConfig = "CannotCreateChannelConfig"
    case badExpirationDate = "BadExpirationDate"
    /// The bundle id has a suffix.
    case topicDisallowed = "TopicDisallowed"
    case badPriority = "BadPriority"
    case topicMismatch = "TopicMismatch"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyRequests = "TooManyRequests"
    /// With a blank, unlike the reason of the device path.
    case serviceUnavailable = "Service Unavailable"

    /// The HTTP status of responses with this reason.
    package var status: Int {
        switch self {
        case .topicMismatch: 403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .payloadTooLarge: 413
        case .tooManyRequests: 429
        case .serviceUnavailable: 503
        default: 400
        }
    }

    /// Whether the app does not have the capability to broadcast.
    package var saysFeatureIsMissing: Bool { self == .featureNotEnabled || self == .broadcastFeatureNotEnabled }
}

extension ProviderRefusal {
    package init(broadcast reason: BroadcastReason) {
        self.init(status: reason.status, reason: reason.rawValue)
    }
}

/// The paths and limits of broadcasts and of channel management.
///
/// Sources: Apple, "Sending channel management requests to APNs" and "Sending broadcast push notification requests to
/// APNs", as of November 2026.
package enum BroadcastWire {
    /// The prefix of a broadcast's path. The bundle id follows.
    package static let path = "/4/broadcasts/apps/"
    /// The prefix of the paths that manage channels. The bundle id follows, then ``channels`` or ``allChannels``.
    package static let managementPath = "/1/apps/"
    package static let channels = "channels"
    package static let allChannels = "all-channels"
    /// The maximum size of a broadcast's payload, in bytes.
    package static let payloadLimit = 5120
    /// The maximum number of channels of an app in one environment.
    package static let channelLimit = 10_000
    /// The members of the body that creates a channel.
    package static let policy = "message-storage-policy"
    package static let pushType = "push-type"
    /// The only push type of channels, as the body spells it.
    package static let liveActivity = "LiveActivity"
    /// The maximum time for which a channel with policy 1 keeps its newest message, in seconds.
    package static let storageTime = 8 * 3600
}
