/// The purpose of a push, in the header `apns-push-type`.
///
/// A struct and not an enum, because Apple adds types. A type that is not listed here is kept, with a warning.
package struct PushType: RawRepresentable, Sendable, Hashable {
    package let rawValue: String

    package init(rawValue: String) {
        self.rawValue = rawValue
    }

    package static let alert = PushType(rawValue: "alert")
    package static let background = PushType(rawValue: "background")
    package static let location = PushType(rawValue: "location")
    package static let voip = PushType(rawValue: "voip")
    package static let complication = PushType(rawValue: "complication")
    package static let fileprovider = PushType(rawValue: "fileprovider")
    package static let mdm = PushType(rawValue: "mdm")
    package static let liveactivity = PushType(rawValue: "liveactivity")
    package static let pushtotalk = PushType(rawValue: "pushtotalk")
    package static let widgets = PushType(rawValue: "widgets")
    package static let controls = PushType(rawValue: "controls")
    package static let accessory = PushType(rawValue: "accessory")

    /// Apple's types, each with the suffix of its topic after the bundle id. For `mdm`, the topic is the certificate's
    /// own.
    ///
    /// Sources: Apple, "Sending notification requests to APNs", and for `accessory` (iOS 26.5) "Forwarding
    /// notifications to your accessory using the internet transport type"; read in November 2026.
    package static let documented: KeyValuePairs<PushType, String> = [
        .alert: "", .background: "", .location: ".location-query", .voip: ".voip",
        // One edition of Apple's page prints ".h.complication". The clients Pushy, APNSwift and apns2 send
        // ".complication".
        .complication: ".complication",
        .fileprovider: ".pushkit.fileprovider", .mdm: "", .liveactivity: ".push-type.liveactivity",
        .pushtotalk: ".voip-ptt", .widgets: ".push-type.widgets", .controls: ".push-type.controls",
        .accessory: ".push-type.accessory",
    ]

    /// The maximum size of a type in bytes, far more than any existing type has.
    package static let longest = 64

    package var isDocumented: Bool { Self.documented.contains { $0.key == self } }

    /// Empty for a type that is not documented: its topic is then the app's `topic` unchanged.
    package var topicSuffix: String { Self.documented.first { $0.key == self }?.value ?? "" }

    /// The warning for users of a type that is not documented. `nil` for a documented type.
    package var warning: String? {
        guard !isDocumented else { return nil }
        let known = Self.documented.map(\.key.rawValue).joined(separator: ", ")
        return "push type \(rawValue) is not known; known are \(known)"
    }

    /// The maximum size of a payload, in bytes.
    package var payloadLimit: Int { self == .voip ? 5120 : 4096 }

    /// Whether Apple accepts the type only with a provider token, not with a certificate.
    package var needsProviderToken: Bool { self == .location || self == .liveactivity }

    /// Returns the topic of pushes of this type to an app.
    package func topic(bundleID: String) -> String {
        bundleID.hasSuffix(topicSuffix) ? bundleID : bundleID + topicSuffix
    }
}
