/// What a browser gave a page so that messages reach it (`PushSubscription`), checked.
package struct Subscription: Sendable, Hashable {
    /// What the browser is known by everywhere else: the SHA-256 of the endpoint. The endpoint is a capability: who has it can
    /// send to the browser.
    package let address: DeviceToken
    package let endpoint: String
    /// `p256dh`: 65 bytes.
    package let publicKey: [UInt8]
    /// `auth`: 16 bytes.
    package let secret: [UInt8]
    /// When the browser will end it; nil if it did not say.
    package let expiresAt: Timestamp?

    package init(
        address: DeviceToken, endpoint: String, publicKey: [UInt8], secret: [UInt8], expiresAt: Timestamp? = nil
    ) {
        self.address = address
        self.endpoint = endpoint
        self.publicKey = publicKey
        self.secret = secret
        self.expiresAt = expiresAt
    }
}

/// Reads subscriptions as browsers write them; a gateway kind, which knows what it can send to.
package protocol SubscriptionReader: Sendable {
    /// The key that pages subscribe with (`applicationServerKey`), in base64url.
    var publicKey: String { get }
    /// - Parameter text: JSON.
    /// - Throws: which part of it is wrong, and the rule.
    func subscription(_ text: String) throws(ChatError) -> Subscription
}

extension ChatError {
    /// The relay has no gateway for browsers.
    package static let noPushesToBrowsers = invalid(
        "subscription", "cannot be given here: this relay has no pushes to browsers")
}

/// Keeps what it takes to reach browsers.
package protocol SubscriptionStore: Sendable {
    /// Keeps a subscription that a browser brought; to be called before its device is registered.
    /// - Throws: ``ChatError/Code/conflict`` for a known endpoint with other keys: who knows an endpoint must not be able to
    ///   take the browser over.
    func keep(_ subscription: Subscription) async throws(ChatError)
    /// Those that are known, by their addresses.
    func subscriptions(_ addresses: [DeviceToken]) async throws(ChatError) -> [DeviceToken: Subscription]
    /// The relay's private key for push services, in base64url.
    /// - Parameter make: makes the first one.
    func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String
    /// Another key from now on. What browsers subscribed with the one before is worthless then.
    func setVAPIDKey(_ text: String) async throws(ChatError)
}
