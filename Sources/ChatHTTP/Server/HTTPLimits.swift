/// Every bound on what a client may send or hold, in one place.
package enum HTTPLimits {
    /// Bytes of a body, after decompression. Far above the largest valid form (a 4,000-byte text, every byte escaped).
    package static let body = 64 * 1024
    /// Bytes of a body of the provider API: a thousand tokens of the greatest length.
    package static let adminBody = 512 * 1024
    /// Devices or pushes in one answer of the provider API, and how many when the client does not say.
    package static let page = 1...500
    package static let defaultPage = 100
    /// Bytes of a refused body that are still read beyond the largest limit, so that the client sees the answer; more
    /// closes the connection.
    package static let discardedBody = 1024 * 1024
    /// Fields of a form, known or not, and parts of a multipart body.
    package static let fields = 64
    /// Bytes of a field's name as sent.
    package static let fieldName = 256
    /// Bytes of a multipart boundary. RFC 2046 §5.1.1 allows 70; some clients send more.
    package static let boundary = 200
    /// Lines of header in one part of a multipart body.
    package static let partHeaders = 16
    /// Characters of an `Idempotency-Key`.
    package static let idempotencyKey = 255
    /// Characters of an `X-Request-Id` that is taken over from the client.
    package static let requestID = 128
    /// Messages in one answer, and how many when the client does not say.
    package static let messages = 1...500
    package static let defaultMessages = 100
    /// Proxies that are followed back through `Forwarded` or `X-Forwarded-For`.
    package static let forwardedHops = 32
    /// Addresses, and members, whose rate is remembered at a time; the oldest are forgotten first.
    package static let rateEntries = 65_536
    /// Time from a request's head to the end of its body.
    package static let requestTime: Duration = .seconds(30)
    /// Time from the opening of a connection to its first request's head.
    package static let firstHeadTime: Duration = .seconds(15)
    /// Connections from one address, for IPv6 from one /64 network; the machine's own and trusted proxies are not counted.
    package static let connectionsPerAddress = 256
    /// Time without a request after which a connection is closed. Above the 60 seconds for which the tutorial's client
    /// keeps one, so that it is the client who closes first.
    package static let idleTime: Duration = .seconds(75)
    /// Bytes of one header field, and of all together; the fields.
    package static let headerField = 16 * 1024
    package static let headers = 32 * 1024
    package static let headerFields = 100
    /// Connections that wait to be accepted.
    package static let backlog = 1024

    /// Bytes of a body that a request to a path may have.
    static func body(of path: String?) -> Int {
        path?.hasPrefix("/v1/") == true ? adminBody : body
    }
}
