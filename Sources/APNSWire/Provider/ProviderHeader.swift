/// Names of the HTTP/2 provider API's own headers (apns-http2.md §2, §3).
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
}
