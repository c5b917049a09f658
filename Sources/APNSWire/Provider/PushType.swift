/// What a push is for; the header `apns-push-type` (apns-http2.md §2).
package enum PushType: String, Sendable, Hashable, CaseIterable {
    case alert, background, location, voip, complication, fileprovider, mdm, liveactivity, pushtotalk, widgets, controls

    /// What the topic has after the bundle id. For `mdm` the topic is the certificate's own, without a suffix.
    package var topicSuffix: String {
        switch self {
        case .alert, .background, .mdm: ""
        case .location: ".location-query"
        case .voip: ".voip"
        // One edition of Apple's page prints ".h.complication"; all clients that work send this.
        case .complication: ".complication"
        case .fileprovider: ".pushkit.fileprovider"
        case .liveactivity: ".push-type.liveactivity"
        case .pushtotalk: ".voip-ptt"
        case .widgets: ".push-type.widgets"
        case .controls: ".push-type.controls"
        }
    }

    /// Bytes of a payload.
    package var payloadLimit: Int { self == .voip ? 5120 : 4096 }

    /// Whether Apple accepts it only with a provider token, not with a certificate.
    package var needsProviderToken: Bool { self == .location || self == .liveactivity }

    /// The topic of a push of this type to an app.
    package func topic(bundleID: String) -> String {
        bundleID.hasSuffix(topicSuffix) ? bundleID : bundleID + topicSuffix
    }
}
