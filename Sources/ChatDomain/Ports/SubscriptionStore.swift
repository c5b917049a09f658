/// Reads subscriptions as browsers write them. Implemented by a gateway kind, which knows the services that it can send
/// to.
package protocol SubscriptionReader: Sendable {
    /// The key with which pages subscribe (`applicationServerKey`), in base64url.
    var publicKey: String { get }
    /// Reads and checks a subscription.
    ///
    /// - Parameter text: The subscription as JSON.
    /// - Throws: An error that names the wrong part and the rule.
    func subscription(_ text: String) throws(ChatError) -> Subscription
}

/// Stores browsers' subscriptions and the relay's key for push services.
package protocol SubscriptionStore: Sendable {
    /// Stores a browser's subscription. Call this before registering its device.
    ///
    /// - Throws: ``ChatError/Code/conflict`` for a known endpoint with other keys. Otherwise anyone who knows an
    ///   endpoint could take over the browser.
    func keep(_ subscription: Subscription) async throws(ChatError)
    /// Returns the stored subscriptions by address.
    func subscriptions(_ addresses: [DeviceToken]) async throws(ChatError) -> [DeviceToken: Subscription]
    /// Returns the relay's private key for push services, in base64url.
    ///
    /// - Parameter make: Creates the first key.
    func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String
    /// Replaces the relay's private key. All subscriptions made with the previous key become useless.
    func setVAPIDKey(_ text: String) async throws(ChatError)
}
