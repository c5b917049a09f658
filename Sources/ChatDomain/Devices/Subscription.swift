/// A checked Web Push subscription of a browser (`PushSubscription`).
package struct Subscription: Sendable, Hashable {
    /// The address under which the relay stores the browser: the SHA-256 of the endpoint. The endpoint itself is a
    /// capability: anyone who has it can send to the browser.
    package let address: DeviceToken
    package let endpoint: String
    /// `p256dh`, 65 bytes.
    package let publicKey: [UInt8]
    /// `auth`, 16 bytes.
    package let secret: [UInt8]
    /// The time at which the browser will end the subscription. `nil` if the browser did not report it.
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

    /// Checks that the browser has the keys that are stored for its endpoint.
    ///
    /// Takes the same time for all keys, because `auth` is a secret.
    ///
    /// - Parameters:
    ///   - publicKey: The stored `p256dh`.
    ///   - secret: The stored `auth`.
    /// - Throws: ``ChatError/Code/conflict``.
    package func requireKeys(publicKey: [UInt8], secret: [UInt8]) throws(ChatError) {
        let (known, given) = (publicKey + secret, self.publicKey + self.secret)
        var difference: UInt8 = known.count == given.count ? 0 : 1
        for (known, given) in zip(known, given) { difference |= known ^ given }
        guard difference == 0 else {
            throw ChatError(
                .conflict, "Invalid subscription: this endpoint is stored with other keys; subscribe again",
                field: "subscription")
        }
    }
}

extension ChatError {
    /// The relay has no gateway for browsers.
    package static let noPushesToBrowsers = invalid(
        "subscription", "is not supported: this relay sends no pushes to browsers")
    /// A request identifies a browser by its token. The token is the hash of the endpoint, so anyone who knows the
    /// endpoint also knows the token. Only the keys prove that the request comes from the browser.
    package static let browserNeedsSubscription = ChatError(
        .missingField, "Missing subscription: a browser is identified by its subscription with keys, not by a token",
        field: "subscription")
}
