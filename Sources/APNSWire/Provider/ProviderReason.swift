/// Why the HTTP/2 provider API refuses a push, in Apple's spelling (apns-http2.md §3). An unknown one is judged by its status,
/// see ``ProviderRefusal``.
///
/// Source: developer.apple.com, "Handling notification responses from APNs", as of November 2026.
package enum ProviderReason: String, Sendable, Hashable, CaseIterable {
    case badCollapseID = "BadCollapseId"
    case badDeviceToken = "BadDeviceToken"
    case badExpirationDate = "BadExpirationDate"
    case badMessageID = "BadMessageId"
    case badPriority = "BadPriority"
    case badTopic = "BadTopic"
    case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
    case duplicateHeaders = "DuplicateHeaders"
    case idleTimeout = "IdleTimeout"
    case invalidPushType = "InvalidPushType"
    case missingDeviceToken = "MissingDeviceToken"
    case missingTopic = "MissingTopic"
    case payloadEmpty = "PayloadEmpty"
    case topicDisallowed = "TopicDisallowed"
    case badCertificate = "BadCertificate"
    case badCertificateEnvironment = "BadCertificateEnvironment"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyIDInToken = "UnrelatedKeyIdInToken"
    case badEnvironmentKeyIDInToken = "BadEnvironmentKeyIdInToken"
    /// The spelling that the live gateway was seen to use for the same thing.
    case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case expiredToken = "ExpiredToken"
    case unregistered = "Unregistered"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
    case tooManyRequests = "TooManyRequests"
    case internalServerError = "InternalServerError"
    case serviceUnavailable = "ServiceUnavailable"
    case shutdown = "Shutdown"

    /// The HTTP status that comes with it.
    package var status: Int {
        switch self {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken,
            .missingTopic, .payloadEmpty, .topicDisallowed:
            400
        case .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .forbidden, .invalidProviderToken,
            .missingProviderToken, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .expiredToken, .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyProviderTokenUpdates, .tooManyRequests: 429
        case .internalServerError: 500
        case .serviceUnavailable, .shutdown: 503
        }
    }

    package var action: RefusalAction {
        switch self {
        case .tooManyRequests: .retryDevice
        case .internalServerError, .serviceUnavailable: .retryService
        case .shutdown, .idleTimeout: .reconnect
        case .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .invalidProviderToken,
            .missingProviderToken, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken,
            .tooManyProviderTokenUpdates:
            .waitForCredentials
        case .expiredToken, .unregistered: .deactivate
        // Also what the credentials may not do (Forbidden): it is this push that wants it.
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .invalidPushType, .missingDeviceToken, .missingTopic,
            .payloadEmpty, .topicDisallowed, .badPath, .methodNotAllowed, .payloadTooLarge, .forbidden:
            .giveUp
        }
    }
}

/// What to do after a refusal (apns-http2.md §4, §5).
package enum RefusalAction: Sendable, Hashable, CaseIterable {
    /// The push can never be taken: it has failed with this reason.
    case giveUp
    /// The device does not want pushes any more; so has the push failed.
    case deactivate
    /// This device gets too much: repeat after a delay. Others are not concerned.
    case retryDevice
    /// The service's trouble: repeat after a delay that grows, and slow down.
    case retryService
    /// The connection ends, the push was not processed: repeat it on another.
    case reconnect
    /// Nothing is wrong with the push: the certificate or provider token does not do. Close this connection, repeat the
    /// push on another that has better ones.
    case waitForCredentials
}
