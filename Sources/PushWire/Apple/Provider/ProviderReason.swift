/// The reasons with which the HTTP/2 provider API rejects pushes, in Apple's spelling. ``ProviderRefusal`` judges an
/// unknown reason by its status.
///
/// Source: Apple, "Handling notification responses from APNs", as of November 2026.
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
    /// Another spelling of the same reason, seen in responses of the live gateway.
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

    /// The HTTP status of responses with this reason.
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
        // `forbidden` belongs to this group, because the credentials do not permit this particular push.
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .invalidPushType, .missingDeviceToken, .missingTopic,
            .payloadEmpty, .topicDisallowed, .badPath, .methodNotAllowed, .payloadTooLarge, .forbidden:
            .giveUp
        }
    }
}

/// The action after a rejected push.
///
/// Sources: Apple, "Handling notification responses from APNs", for the reasons that allow a retry; "Establishing a
/// token-based connection to APNs", for token reasons. For 500 and 503, Apple asks to wait 15 minutes.
package enum RefusalAction: Sendable, Hashable, CaseIterable {
    /// The push can never be accepted. It has failed with this reason.
    case giveUp
    /// The device does not accept pushes any more, so the push has failed.
    case deactivate
    /// The device gets too many pushes. Retry after a delay. Other devices are not affected.
    case retryDevice
    /// The service has failed. Retry after a growing delay, and slow down.
    case retryService
    /// The connection ends and the push was not processed. Retry it on another connection.
    case reconnect
    /// The push is valid, but the certificate or provider token is not accepted. Close this connection, and retry the
    /// push on another one with better credentials.
    case waitForCredentials
}
