import NIOCore

/// Every limit on what a client may send or hold, in one place.
enum HTTPLimits {
    /// Bytes of a body, after decompression. Far above the largest valid form (a 4,000-byte text, every byte escaped).
    static let body = 64 * 1024
    /// Bytes of a body of the admin API: a thousand tokens of the greatest length.
    static let adminBody = 512 * 1024
    /// Notifications in one request, and bytes of its body: a kilobyte for each.
    static let batch = 1000
    static let batchBody = 1024 * 1024
    /// Bytes of a refused body that are still read beyond the largest limit, so that the client sees the answer; more
    /// closes the connection.
    static let discardedBody = 1024 * 1024
    /// Fields of a form, known or not, and parts of a multipart body.
    static let fields = 64
    /// Bytes of a field's name as sent.
    static let fieldName = 256
    /// Bytes of a multipart boundary. RFC 2046 §5.1.1 allows 70; some clients send more.
    static let boundary = 200
    /// Lines of header in one part of a multipart body.
    static let partHeaders = 16
    /// Characters of an `Idempotency-Key`.
    static let idempotencyKey = 255
    /// Characters of an `X-Request-Id` that is accepted from the client.
    static let requestID = 128
    /// Messages in one answer of the chat API, items in one answer of the admin API; and how many without a `limit`.
    static let page = 1...500
    /// Messages or notifications of a page that says how far each has come.
    static let reachPage = 100
    static let defaultPage = 100
    /// Proxies that are followed back through `Forwarded` or `X-Forwarded-For`.
    static let forwardedHops = 32
    /// Addresses, and members, whose rate is remembered at a time; the oldest are forgotten first.
    static let rateEntries = 65_536
    /// Joins to codes that nobody uses, of all addresses: so many times those of one address.
    static let joinShares = 20
    /// How often the operator is told that joins are refused.
    static let reports = RateLimit(perSecond: 1.0 / 60, burst: 1)!
    /// How often the operator is told that something cannot be done now, which any number of clients ask for.
    static let refusalReports = Duration.seconds(10)
    /// The interval at which the log repeats that the relay is not ready, or cannot accept connections.
    static let readinessReports = Duration.seconds(60)
    /// Wrong tokens of the admin API from one address that are answered 401; further ones are answered 429.
    static let wrongTokens = RateLimit(perSecond: 10.0 / 60, burst: 30)!
    /// How long a ticket for an event stream is valid, and how many there are at a time: the oldest ends first. The rates of
    /// addresses and members are what keeps one client from using them up.
    static let ticketTime: Duration = .seconds(30)
    static let tickets = 16_384
    /// Between the two events of a probe's stream: far above what a network delays them by.
    static let probeTime: Duration = .seconds(2)
    /// Time from a request's head to the end of its body.
    static let requestTime: Duration = .seconds(30)
    /// Time from the opening of a connection to its first request's head.
    static let firstHeadTime: Duration = .seconds(15)
    /// When the server stops: time for the rest of a request that is being read, and again for its client to take an answer.
    static let stopTime: Duration = .seconds(3)
    /// Connections from one address, for IPv6 from one /64 network; the machine's own and trusted proxies are not counted.
    static let connectionsPerAddress = 256
    /// Time without a request after which a connection is closed. Above the 60 seconds for which the tutorial's client
    /// keeps one, so that it is the client who closes first.
    static let idleTime: Duration = .seconds(75)
    /// Bytes of one header field, and of all together; the fields.
    static let headerField = 16 * 1024
    static let headers = 32 * 1024
    static let headerFields = 100
    /// Bytes of a header field that may have characters outside of ASCII; in longer ones they are replaced.
    static let nonASCIIHeader = 512
    /// Connections that wait to be accepted.
    static let backlog = 1024
    /// Event streams of one address, as of connections: also where a proxy in front brings all of them.
    static let streamsPerAddress = 256
    /// Event streams of one member.
    static let streamsPerMember = 8
    /// Time in which a client must accept what is written to its event stream; after it the connection is closed.
    static let streamWriteTime: Duration = .seconds(20)

    /// Bytes of one write to an event stream, unless a single event has more, and bytes that wait to be sent, above which
    /// the stream has to wait: a client that reads nothing costs no more than both.
    static let streamWrite = 8 * 1024
    static let streamBuffer = ChannelOptions.Types.WriteBufferWaterMark(low: 1024, high: 4096)
    /// Bytes of answers that wait in a connection, above which the next answer waits until the client has read some. The
    /// requests behind it are not read then. One answer may be larger than that.
    static let answerBuffer = ChannelOptions.Types.WriteBufferWaterMark(low: 32 * 1024, high: 64 * 1024)
    /// Bytes of answers that the kernel may hold before it sends them (`TCP_NOTSENT_LOWAT`).
    static let unsentBytes: ChannelOptions.Types.SocketOption.Value = 128 * 1024
    /// Requests of one connection that have no answer yet. SwiftNIO stops reading after a few; more can come in one piece of
    /// 64 KiB, and each takes about a kilobyte.
    static let pipelinedRequests = 500
    /// For what a connection sends next: so many bytes at first, and more where much comes.
    static let readBuffer = AdaptiveRecvByteBufferAllocator(minimum: 256, initial: 512, maximum: 64 * 1024)
}
