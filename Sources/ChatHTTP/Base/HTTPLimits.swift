import NIOCore

/// All limits on what a client may send or hold.
enum HTTPLimits {
    /// The maximum length of a body in bytes, after decompression. Far above the largest valid form (a 4,000-byte text,
    /// every byte escaped).
    static let body = 64 * 1024
    /// The maximum length of an admin API body in bytes. Enough for a thousand tokens of the greatest length.
    static let adminBody = 512 * 1024
    /// The maximum number of notifications in one batch, and the maximum length of its body in bytes: one kilobyte for
    /// each notification.
    static let batch = 1000
    static let batchBody = 1024 * 1024
    /// The maximum number of push ids that one call names.
    static let pushIDs = 1000
    /// The maximum number of parts in which one call changes the queue. Each part reads at most 5,000 pushes and changes
    /// at most 1,000 of them, so a call takes seconds at most.
    static let queueParts = 50
    /// The bytes that the relay still reads beyond the largest limit, without keeping them, so that the client sees the
    /// response. After more bytes, the relay closes the connection. Clients of other servers send files of this size,
    /// the largest that those accept by default.
    static let discardedBody = 15 * 1024 * 1024
    /// The maximum number of form fields, known or not, and of parts in a multipart body.
    static let fields = 64
    /// The maximum length of a field's name as sent, in bytes.
    static let fieldName = 256
    /// The maximum length of a multipart boundary in bytes. RFC 2046 §5.1.1 allows 70; some clients send more.
    static let boundary = 200
    /// The maximum number of header lines in one part of a multipart body.
    static let partHeaders = 16
    /// The maximum length of an `Idempotency-Key` in characters.
    static let idempotencyKey = 255
    /// The maximum length of an accepted `X-Request-Id` in characters.
    static let requestID = 128
    /// The permitted values of `limit`: messages in one chat API response, or items in one admin API response.
    static let page = 1...500
    /// The maximum number of messages or notifications on a page that reports the delivery of each.
    static let reachPage = 100
    /// The number of items on a page if the request has no `limit`.
    static let defaultPage = 100
    /// The maximum number of proxies to follow back through `Forwarded` or `X-Forwarded-For`.
    static let forwardedHops = 32
    /// The maximum number of addresses, and of members, with a remembered rate. The oldest are dropped first.
    static let rateEntries = 65_536
    /// The limit of joins by all addresses together to codes that no member uses, as a multiple of the limit of one
    /// address.
    static let joinShares = 20
    /// The number of requests for which a search counts in its member's rate, because it costs as much as many reads.
    static let searchPrice = 5
    /// The rate of pushes to one topic of UnifiedPush.
    static let pushesPerTopic = RateLimit(perSecond: 1, burst: 60)!
    /// The rate of log lines about rejected joins.
    static let reports = RateLimit(perSecond: 1.0 / 60, burst: 1)!
    /// The interval between log lines about one kind of unavailability, however many clients it affects.
    static let rejectionReports = Duration.seconds(10)
    /// The interval at which the log repeats that the relay is not ready or cannot accept connections.
    static let readinessReports = Duration.seconds(60)
    /// The rate of wrong admin API tokens from one address. A wrong token within the rate gets 401, any more get 429.
    static let wrongTokens = RateLimit(perSecond: 10.0 / 60, burst: 30)!
    /// The rate of rejected calls without a token from one address, for example of apps whose user has not signed in. A
    /// call within the rate gets 401 or 403, any more get 429.
    static let missingTokens = RateLimit(perSecond: 1, burst: 100)!
    /// The rates of log lines about rejected calls: from one address, and from all.
    static let rejectionLines = RateLimit(perSecond: 1.0 / 60, burst: 10)!
    static let allRejectionLines = RateLimit(perSecond: 1, burst: 100)!
    /// The lifetime of an event stream ticket, and the maximum number of tickets; the oldest is dropped first. The rate
    /// limits of addresses and members prevent one client from using up all tickets.
    static let ticketTime: Duration = .seconds(30)
    static let tickets = 16_384
    /// The time between the two events of a probe's stream. Far above any delay in a network.
    static let probeTime: Duration = .seconds(2)
    /// The maximum time from a request's head to the end of its body.
    static let requestTime: Duration = .seconds(30)
    /// The maximum time from the opening of a connection to its first request's head.
    static let firstHeadTime: Duration = .seconds(15)
    /// The time that a stopping server waits for the rest of a request, and again for its client to read the response.
    static let stopTime: Duration = .seconds(3)
    /// The maximum number of connections from one address (for IPv6 from one /64 network). This machine and trusted
    /// proxies are exempt.
    static let connectionsPerAddress = 256
    /// The time without a request after which the relay closes a connection. The tutorial's client keeps a connection
    /// for 60 seconds. The relay waits longer, so that the client closes first.
    static let idleTime: Duration = .seconds(75)
    /// The maximum length of one header field, the maximum length of all fields together, both in bytes, and the
    /// maximum number of fields.
    static let headerField = 16 * 1024
    static let headers = 32 * 1024
    static let headerFields = 100
    /// The maximum length, in bytes, of a header field that may contain non-ASCII characters. In longer fields these
    /// characters are replaced.
    static let nonASCIIHeader = 512
    /// The number of connections that may wait to be accepted.
    static let backlog = 1024
    /// The maximum number of event streams from one address, the same as for connections. It also applies behind a
    /// proxy, to the client's address.
    static let streamsPerAddress = 256
    /// The maximum number of event streams of one member.
    static let streamsPerMember = 8
    /// The maximum number of rooms of one stream.
    static let streamRooms = 100
    /// The bytes that the client of a WebSocket may send, which are discarded. Control frames do not count. Also the
    /// maximum length of one frame.
    static let webSocketInput = 64 * 1024
    /// The time within which a client must accept a whole write to its event stream. After that the connection closes.
    /// `WriteGuard` requires only that a client accepts some bytes now and then, which is too little for a stream.
    static let streamWriteTime: Duration = .seconds(20)

    /// The bytes of one write to an event stream (a single larger event is written whole), and the bytes that may wait
    /// to be sent before the stream pauses. A client that reads nothing costs no more memory than the two together.
    static let streamWrite = 8 * 1024
    static let streamBuffer = ChannelOptions.Types.WriteBufferWaterMark(low: 1024, high: 4096)
    /// The bytes of responses that may wait in a connection. Above this, the next response waits until the client has
    /// read some bytes, and the relay reads no further requests. A single response may be larger.
    static let responseBuffer = ChannelOptions.Types.WriteBufferWaterMark(low: 32 * 1024, high: 64 * 1024)
    /// The bytes of responses that the kernel may hold unsent (`TCP_NOTSENT_LOWAT`).
    static let unsentBytes: ChannelOptions.Types.SocketOption.Value = 128 * 1024
    /// The maximum number of requests of one connection without a response. SwiftNIO stops reading after a few, but one
    /// read of 64 KiB can contain more. Each request takes about a kilobyte.
    static let pipelinedRequests = 500
    /// The size of a connection's read buffer: small at first, larger for a connection that receives much.
    static let readBuffer = AdaptiveRecvByteBufferAllocator(minimum: 256, initial: 512, maximum: 64 * 1024)
}
