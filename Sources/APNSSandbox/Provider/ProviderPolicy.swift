import APNSWire

/// The settings that verdicts over HTTP/2 depend on, and the limits of its connections.
struct ProviderPolicy: Sendable {
    /// Bytes of a request's body that are kept: one more than any payload may have.
    static let bodyLimit = PushType.voip.payloadLimit + 1
    /// Bytes of a body after which the request is refused without waiting for its end. Less than a stream's window, which
    /// nobody opens further.
    static let discardLimit = 32 << 10
    /// How far a provider token's time may be off, in seconds, either way.
    static let tokenLifetime: Int64 = 3600
    /// How long a provider token has to be used before another may come on the same connection, in seconds.
    static let tokenUpdateInterval: Double = 20 * 60

    /// The sandbox's app.
    var app: String
    var keys: ProviderKeyring
    /// Bytes of a device token.
    var tokenSizes: ClosedRange<Int>
    var isStrict = false
    /// Streams of an authenticated connection.
    var streamLimit = 1000
    /// Take the limit to 1 after a refusal, until the next success.
    var lowersStreamLimit = false
    /// Nil: a connection may be silent for ever.
    var idleTimeout: Duration?
    /// How long a connection may take to finish its streams after a GOAWAY.
    var linger = Duration.seconds(2)
}
