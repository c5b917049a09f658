package import ChatDomain

/// The settings that can change while the server runs. They are read for every request.
package struct ChatHTTPSettings: Sendable {
    /// Whether to serve the tutorial's test pages.
    package var isDevelopment: Bool
    /// Whether to reject requests from other sites' web pages, because only this machine should reach the server.
    package var rejectsForeignPages: Bool
    /// The maximum length of a message's text, in bytes.
    package var textLimit: Int
    /// The proxies whose `Forwarded` and `X-Forwarded-For` headers are trusted.
    package var trustedProxies: [AddressRange]
    /// The rate limit of chat API requests per address (for IPv6 per /64 network). `nil` for no limit.
    package var addressRate: RateLimit?
    /// The rate limit of chat API requests per member. `nil` for no limit.
    package var memberRate: RateLimit?
    /// The rate limit of joins per address to codes that no member uses. `nil` for no limit.
    package var joinRate: RateLimit?
    /// The HTTPS address at which browsers reach the relay, without a slash at the end. `nil` if unknown.
    package var publicURL: String?
    /// The administrator's bearer tokens for the admin API. All have the same rights. Empty if none is configured.
    package var adminTokens: [String]
    package var ntfy: NtfySettings
    /// Whether Gotify's paths also exist without `/gotify`.
    package var gotifyAtRoot = false
    /// Whether ntfy's paths also exist without `/ntfy`.
    package var ntfyAtRoot = false

    package init(
        isDevelopment: Bool = false, rejectsForeignPages: Bool = false, textLimit: Int = MessageText.defaultLimit,
        trustedProxies: [AddressRange] = [],
        addressRate: RateLimit? = nil, memberRate: RateLimit? = nil, joinRate: RateLimit? = nil,
        publicURL: String? = nil, adminTokens: [String] = [], ntfy: NtfySettings = NtfySettings()
    ) {
        self.isDevelopment = isDevelopment
        self.rejectsForeignPages = rejectsForeignPages
        self.textLimit = textLimit
        self.trustedProxies = trustedProxies
        self.addressRate = addressRate
        self.memberRate = memberRate
        self.joinRate = joinRate
        self.publicURL = publicURL
        self.adminTokens = adminTokens
        self.ntfy = ntfy
    }
}

/// The settings for ntfy's apps.
package struct NtfySettings: Sendable {
    /// The address of the relay as users type it into ntfy's apps, without a slash at the end. `nil` if unknown.
    package var baseURL: String?
    /// Whether an upstream server tells ntfy's app on iPhones about new messages.
    package var hasUpstream: Bool
    /// Whether ntfy's app for Android may receive the pushes of other apps here.
    package var unifiedPush: Bool

    package init(baseURL: String? = nil, hasUpstream: Bool = false, unifiedPush: Bool = false) {
        self.baseURL = baseURL
        self.hasUpstream = hasUpstream
        self.unifiedPush = unifiedPush
    }
}
