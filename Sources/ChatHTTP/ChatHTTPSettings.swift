import ChatDomain

/// What can be changed while the server runs; asked for anew by every request.
package struct ChatHTTPSettings: Sendable {
    /// Serves the tutorial's test pages.
    package var isDevelopment: Bool
    /// Only this machine is meant to reach the server, so that web pages of others are refused.
    package var refusesForeignPages: Bool
    /// Bytes of a message's text.
    package var textLimit: Int
    /// Only these are believed when they say on whose behalf they ask.
    package var trustedProxies: [AddressRange]
    /// Requests to the chat API from one address (for IPv6, one /64 network); nil for any number.
    package var addressRate: RateLimit?
    /// Requests to the chat API in the name of one member; nil for any number.
    package var memberRate: RateLimit?

    /// The bearer token of the provider API; nil if none is configured.
    package var adminToken: String?

    package init(
        isDevelopment: Bool = false, refusesForeignPages: Bool = false, textLimit: Int = MessageText.defaultLimit,
        trustedProxies: [AddressRange] = [],
        addressRate: RateLimit? = nil, memberRate: RateLimit? = nil, adminToken: String? = nil
    ) {
        self.isDevelopment = isDevelopment
        self.refusesForeignPages = refusesForeignPages
        self.textLimit = textLimit
        self.trustedProxies = trustedProxies
        self.addressRate = addressRate
        self.memberRate = memberRate
        self.adminToken = adminToken
    }
}
