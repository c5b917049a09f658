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

    /// Checks that the browser has the keys under which its endpoint is known.
    ///
    /// Takes the same time for all keys, because `auth` is a secret.
    /// - Throws: ``ChatError/Code/conflict``.
    package func requireKeys(publicKey: [UInt8], secret: [UInt8]) throws(ChatError) {
        let (known, given) = (publicKey + secret, self.publicKey + self.secret)
        var difference: UInt8 = known.count == given.count ? 0 : 1
        for (known, given) in zip(known, given) { difference |= known ^ given }
        guard difference == 0 else {
            throw ChatError(
                .conflict, "subscription: this endpoint is known with other keys; subscribe anew", field: "subscription"
            )
        }
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
    /// A request names a browser by its token. The token is the hash of the endpoint, so whoever knows the endpoint knows it,
    /// too: only the keys prove that the request comes from the browser.
    package static let browserNeedsSubscription = ChatError(
        .missingField, "Missing subscription: a browser is named by its subscription with keys, not by a token",
        field: "subscription")
}

/// Keeps what it takes to reach browsers.
package protocol SubscriptionStore: Sendable {
    /// Keeps a subscription that a browser brought; to be called before its device is registered.
    /// - Throws: ``ChatError/Code/conflict`` for a known endpoint with other keys: whoever knows an endpoint must not be able to
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
