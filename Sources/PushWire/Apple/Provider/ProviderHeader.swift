/// Names of the HTTP/2 provider API's own headers.
///
/// Source: Apple, "Sending notification requests to APNs", as of November 2026.
package enum ProviderHeader {
    package static let authorization = "authorization"
    package static let topic = "apns-topic"
    package static let pushType = "apns-push-type"
    package static let id = "apns-id"
    package static let expiration = "apns-expiration"
    package static let priority = "apns-priority"
    package static let collapseID = "apns-collapse-id"
    /// Only in responses of the development environment (Apple, "Handling notification responses from APNs").
    package static let uniqueID = "apns-unique-id"
    /// The channel of a broadcast or of a management request (Apple, "Sending channel management requests to APNs").
    package static let channelID = "apns-channel-id"
    /// Takes the place of ``id`` with broadcasts and management requests.
    package static let requestID = "apns-request-id"

    /// The prefix of a provider token in `authorization`.
    package static let bearer = "bearer "
    /// The prefix of a device token in `:path`.
    package static let devicePath = "/3/device/"
    /// The maximum size of a collapse id, in bytes.
    package static let longestCollapseID = 64

    /// Whether a text is a valid ``id``, a UUID: 8-4-4-4-12 hexadecimal digits. Apple asks for lower case and accepts
    /// both cases.
    package static func isID(_ text: String) -> Bool {
        guard text.utf8.count == 36 else { return false }
        for (index, byte) in text.utf8.enumerated() {
            let isDash = index == 8 || index == 13 || index == 18 || index == 23
            guard isDash ? byte == UInt8(ascii: "-") : byte.hexDigit != nil else { return false }
        }
        return true
    }
}
