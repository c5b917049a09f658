/// Names of the HTTP/2 provider API's own headers (apns-http2.md §2, §3).
///
/// Source: developer.apple.com, "Sending notification requests to APNs", as of November 2026.
package enum ProviderHeader {
    package static let authorization = "authorization"
    package static let topic = "apns-topic"
    package static let pushType = "apns-push-type"
    package static let id = "apns-id"
    package static let expiration = "apns-expiration"
    package static let priority = "apns-priority"
    package static let collapseID = "apns-collapse-id"
    /// In answers of the development environment only.
    package static let uniqueID = "apns-unique-id"

    /// What a provider token stands behind in `authorization`.
    package static let bearer = "bearer "
    /// What a device's token stands behind in `:path`.
    package static let devicePath = "/3/device/"
    /// Bytes of a collapse id.
    package static let longestCollapseID = 64

    /// Whether a text can be an ``id``, a UUID: 8-4-4-4-12 hexadecimal digits. Apple asks for lower case, and accepts both.
    package static func isID(_ text: String) -> Bool {
        guard text.utf8.count == 36 else { return false }
        for (index, byte) in text.utf8.enumerated() {
            let isDash = index == 8 || index == 13 || index == 18 || index == 23
            guard isDash ? byte == UInt8(ascii: "-") : byte.hexDigit != nil else { return false }
        }
        return true
    }
}
