import APNSWire
import ChatDomain
import NIOCore

/// What one HTTP/2 connection allows, and for how long.
struct HTTP2Limits: Sendable {
    /// How long a stream may stay unanswered.
    var answer = TimeAmount.seconds(30)
    /// Time without a byte from the peer, with streams open, after which it is sent a PING.
    var silence = TimeAmount.seconds(5)
    /// The same with none open.
    var idleSilence = TimeAmount.seconds(60)
    /// How long the answer to that PING may take.
    var ping = TimeAmount.seconds(5)
    /// How long a drain may take.
    var drain = TimeAmount.seconds(8)
    /// First pause after the peer has refused streams again and again; doubles up to ``longestPause``.
    var firstPause = TimeAmount.milliseconds(50)
    var longestPause = TimeAmount.seconds(5)
    /// Refusals of streams in a row, each after a pause, that end the connection.
    var streamRefusals = 10
    /// How long the answer to the first push may take until another connection is opened beside this one.
    var firstResponse = TimeAmount.seconds(1)
    /// Answers in a row that refuse the credentials, after which a connection that has accepted pushes is
    /// replaced.
    static let credentialRefusals = 3
    /// Streams that are open at once until the peer has accepted the credentials.
    var unconfirmedStreams = 1
    /// Streams after which a connection is replaced, long before their numbers run out at 2^30.
    var streams: UInt32 = 1 << 28

    /// Streams that are open at once, whatever the peer allows.
    static let openStreams = 2000
    /// What counts until the peer says how many streams it allows: what RFC 9113 asks every peer to allow (§6.5.2).
    static let defaultStreams = 100

    /// How often deadlines are checked.
    var tick: TimeAmount {
        let shortest = min(min(answer, silence), min(idleSilence, min(ping, drain)))
        return max(.milliseconds(10), min(.seconds(1), .nanoseconds(shortest.nanoseconds / 4)))
    }
}

/// Decides what becomes of the pushes given to one HTTP/2 connection: streams and the pushes on them, what may be opened,
/// GOAWAY, deadlines and PING.
///
/// A value without a socket. Each push gets exactly one outcome; outcomes collect until they are taken.
struct HTTP2ConnectionState: Sendable {
    /// Why a connection takes no more pushes.
    enum Retirement: Sendable, Hashable {
        /// With the peer's reason.
        case goAway(String)
        /// The peer does not accept our certificate or provider token.
        case credentials(ProviderRefusal)
        case tokenAge
        case streamsExhausted
        /// The peer refuses every stream.
        case refusedStreams
        /// The peer is alive, and answers no push, or allows no stream for one.
        case unresponsive
        case idle
        case drained
    }

    enum TickAction: Sendable, Hashable {
        case ping
        /// Nothing comes any more, or a drain has taken too long.
        case close(reason: String)
    }

    /// What the answers since the last report say about the service.
    struct Health: Sendable, Hashable {
        /// Answers that show the service at work.
        var successes = 0
        /// Answers that say that it fails.
        var failures = 0
    }

    private struct Stream {
        let identifier: UInt32
        let type: String
        let writtenAt: Timestamp
        var status = 0
        var body: [UInt8] = []
        /// Its push has an outcome; the stream itself may still have to be closed.
        var isConcluded = false

        /// The outcome where the answer has no end. A refusal that lacks its reason proves nothing, and a repeat of it does
        /// no harm.
        func outcomeWithoutEnd(reason: String) -> Outcome {
            status == 200 ? .accepted : .unanswered(reason: reason)
        }
    }

    /// Streams up to `stream` were open by then.
    private struct Mark {
        let stream: Int
        let at: NIODeadline
    }

    let limits: HTTP2Limits
    private let mapping: OutcomeMapping
    private var streams: [Int: Stream] = [:]
    /// Leased, and not yet on a stream.
    private var waiting = CircularBuffer<HTTP2Request>()
    private var lastStream = 0
    private var outcomes: [(identifier: UInt32, outcome: Outcome)] = []
    private var health = Health()
    /// Streams whose push is concluded and that are not known to be closed.
    private var unclosed: [Int] = []

    /// Nil until the peer has sent SETTINGS.
    private var peerLimit: Int?
    /// What is assumed while the peer refuses streams that its limit allows.
    private var assumedLimit: Int?
    /// Streams up to here were opened before ``assumedLimit`` was last lowered.
    private var lastStreamOfRound = 0
    private var streamRefusals = 0
    private var pauses: Backoff
    private(set) var pausedUntil: NIODeadline?
    /// The peer has accepted our credentials.
    private var isConfirmed: Bool
    /// It has accepted a push with them.
    private var hasAccepted = false
    /// Answers in a row that refuse the credentials.
    private var credentialRefusals = 0

    private(set) var retirement: Retirement?
    private var achieved = ConnectionResult.nothing

    /// When the provider token is too old; nil with a certificate.
    private let tokenEnd: NIODeadline?
    /// After how long without a push the connection is closed; nil for one that is kept.
    private let idleLimit: TimeAmount?
    private let createdAt: NIODeadline
    private var lastReceived: NIODeadline
    private var lastResponse = NIODeadline.distantPast
    private var lastOpened: NIODeadline
    /// Since when a stream has been open.
    private var busySince: NIODeadline
    private var waitingSince: NIODeadline
    /// Since when the peer has allowed no stream at all, which RFC 9113 §6.5.2 means for a short while only.
    private var closedSince: NIODeadline?
    private var pingSent: NIODeadline?
    private var drainSince: NIODeadline?
    /// A few dozen at the most: one for each tick within the time for an answer.
    private var marks: [Mark] = []

    init(
        limits: HTTP2Limits, mapping: OutcomeMapping, isConfirmed: Bool = false, tokenEnd: NIODeadline? = nil,
        idleLimit: TimeAmount? = nil, now: NIODeadline
    ) {
        self.limits = limits
        self.mapping = mapping
        self.isConfirmed = isConfirmed
        self.tokenEnd = tokenEnd
        self.idleLimit = idleLimit
        pauses = Backoff(first: Duration(limits.firstPause), longest: Duration(limits.longestPause))
        (createdAt, lastReceived, lastOpened, busySince, waitingSince) = (now, now, now, now, now)
    }

    var hasSettings: Bool { peerLimit != nil }
    var hasWaiting: Bool { !waiting.isEmpty }
    var hasOutcomes: Bool { !outcomes.isEmpty }
    /// Every push has its outcome, and every stream is closed.
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }

    /// Streams that may be open at once.
    ///
    /// Only one, whatever the peer allows, until it has accepted a provider token (apns-http2.md §7), or a certificate: so
    /// credentials that are not accepted concern one push. None before its SETTINGS are there, with which every connection
    /// begins.
    var streamLimit: Int {
        guard let peerLimit else { return 0 }
        let limit = min(peerLimit, assumedLimit ?? .max, HTTP2Limits.openStreams)
        return isConfirmed ? limit : min(limits.unconfirmedStreams, limit)
    }

    /// Pushes that may be here at once, on streams and waiting for one: twice as many as fit, so that the next are there when
    /// answers come.
    func pushLimit(at now: NIODeadline) -> Int {
        guard retirement == nil, now >= pausedUntil ?? now else { return 0 }
        return isConfirmed ? 2 * streamLimit : streamLimit
    }

    /// What the connection achieved. Where the credentials were never accepted the next connection meets the same, unless
    /// somebody mends them: it must not come at once.
    var result: ConnectionResult {
        if case .credentials = retirement, !hasAccepted { .nothing } else { achieved }
    }

    /// Ready to send: where it has no free capacity, that is the peer's limit, and another connection would help.
    var canBeSaturated: Bool { retirement == nil && isConfirmed && peerLimit != nil && pausedUntil == nil }

    /// The answer to its first push is late; that may be the push's fault.
    func isFirstResponseLate(at now: NIODeadline) -> Bool {
        retirement == nil && !isConfirmed && !streams.isEmpty && now - busySince >= limits.firstResponse
    }

    // MARK: What we do

    mutating func enqueue(_ requests: [HTTP2Request], now: NIODeadline) {
        if waiting.isEmpty { waitingSince = now }
        waiting.append(contentsOf: requests)
        if retirement != nil { returnWaiting() }
    }

    /// The next push, and the stream that it opens; nil while none may be opened.
    mutating func open(now: NIODeadline, wall: Timestamp) -> (stream: Int, request: HTTP2Request)? {
        guard retirement == nil, streams.count < streamLimit, now >= pausedUntil ?? now,
            let request = waiting.popFirst()
        else { return nil }
        pausedUntil = nil
        lastStream += lastStream == 0 ? 1 : 2
        if streams.isEmpty { busySince = now }
        lastOpened = now
        streams[lastStream] = Stream(identifier: request.identifier, type: request.type, writtenAt: wall)
        if lastStream / 2 + 1 >= limits.streams { retire(.streamsExhausted) }
        return (lastStream, request)
    }

    /// From now on nothing is opened; what waits goes back to the queue.
    mutating func retire(_ reason: Retirement) {
        if retirement == nil { retirement = reason }
        if case .credentials = reason { retirement = reason }
        returnWaiting()
    }

    mutating func returnWaiting() {
        for request in waiting { outcomes.append((request.identifier, .notProcessed)) }
        waiting.removeAll()
    }

    /// Starts the time that a drain may take.
    mutating func drain(now: NIODeadline) {
        drainSince = drainSince ?? now
        retire(.drained)
    }

    /// The connection is over: what is on streams was written, and its outcome is unknown.
    mutating func end(reason: String) {
        for stream in streams.values where !stream.isConcluded {
            outcomes.append((stream.identifier, stream.outcomeWithoutEnd(reason: reason)))
        }
        streams = [:]
        unclosed = []
        retire(.drained)
    }

    // MARK: What the peer does

    /// Bytes of any kind.
    mutating func receivedBytes(now: NIODeadline) {
        lastReceived = now
        pingSent = nil
    }

    /// - Parameter maxStreams: nil where the frame does not name it, and what was stays.
    mutating func received(maxStreams: Int?, now: NIODeadline) {
        peerLimit = maxStreams ?? peerLimit ?? HTTP2Limits.defaultStreams
        closedSince = peerLimit == 0 ? closedSince ?? now : nil
    }

    /// - Parameter status: nil in trailers.
    mutating func received(status: Int?, endsStream: Bool, on id: Int, now: NIODeadline) {
        // 1xx is an interim answer.
        if let status, status >= 200 { streams[id]?.status = status }
        if endsStream { answered(id, now: now) }
    }

    /// A piece of an answer's body; what is beyond the limit is not read, and concludes the stream.
    mutating func received(body: ByteBufferView, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        if stream.status != 200 {
            let room = ProviderRefusal.bodyLimit - stream.body.count
            streams[id]?.body += body.prefix(room)
            if body.count > room { return answered(id, now: now) }
        }
        if endsStream { answered(id, now: now) }
    }

    /// The peer has ended a stream early.
    mutating func received(reset isRefused: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        if stream.status == 200 {
            answered(id, now: now)
        } else if isRefused, stream.status == 0 {
            conclude(id, .sentBack(reason: "RefusedStream"))
            streamRefused(id, now: now)
        } else {
            conclude(id, stream.outcomeWithoutEnd(reason: "StreamReset"))
        }
    }

    /// The stream is closed on both sides.
    mutating func closed(_ id: Int, now: NIODeadline) {
        received(reset: false, on: id, now: now)
        streams[id] = nil
    }

    /// Streams above `last` were not and will not be processed (RFC 9113 §6.8).
    mutating func received(goAwayAfter last: Int, reason: String) {
        for (id, stream) in streams where id > last {
            if !stream.isConcluded { outcomes.append((stream.identifier, .sentBack(reason: "GoAway"))) }
            streams[id] = nil
        }
        retire(.goAway(reason))
    }

    private mutating func conclude(_ id: Int, _ outcome: Outcome) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        streams[id]?.isConcluded = true
        unclosed.append(id)
        outcomes.append((stream.identifier, outcome))
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        lastResponse = now
        if stream.status == 200 {
            accepted()
            return conclude(id, .accepted)
        }
        guard stream.status > 0 else { return conclude(id, .unanswered(reason: "MalformedResponse")) }
        let refusal = ProviderRefusal(status: stream.status, body: stream.body)
        conclude(id, mapping.outcome(of: refusal, type: stream.type, writtenAt: stream.writtenAt))
        if refusal.status != 403 { isConfirmed = true }
        switch refusal.action {
        case .giveUp:
            health.successes += 1
            if achieved == .nothing { achieved = .refusal }
        case .deactivate, .retryDevice:
            health.successes += 1
            achieved = .progress
        case .retryService:
            health.failures += 1
            achieved = .progress
        case .reconnect: retire(.goAway(refusal.reason))
        case .waitForCredentials:
            credentialRefusals += 1
            // Where pushes are accepted, the credentials may be wrong for a single one only.
            let mayBeThePush = hasAccepted && credentialRefusals < HTTP2Limits.credentialRefusals
            let isOfTokenAge =
                refusal.known == .expiredProviderToken || refusal.known == .tooManyProviderTokenUpdates
            if !mayBeThePush || isOfTokenAge { retire(.credentials(refusal)) }
        }
    }

    private mutating func accepted() {
        health.successes += 1
        isConfirmed = true
        hasAccepted = true
        credentialRefusals = 0
        streamRefusals = 0
        pauses.reset()
        if let assumed = assumedLimit {
            assumedLimit = assumed + 1 < peerLimit ?? 0 ? assumed + 1 : nil
        }
        achieved = .progress
    }

    /// Halves the limit for each round of refused streams; from the second on, with pauses that grow.
    private mutating func streamRefused(_ id: Int, now: NIODeadline) {
        guard id > lastStreamOfRound else { return }
        assumedLimit = max(1, min(streamLimit, streams.count) / 2)
        lastStreamOfRound = lastStream
        streamRefusals += 1
        guard streamRefusals > 1 else { return }
        if streamRefusals > limits.streamRefusals { return retire(.refusedStreams) }
        pausedUntil = now + TimeAmount(pauses.delay())
    }

    // MARK: Time

    /// Checks the deadlines; called every ``HTTP2Limits/tick``.
    mutating func tick(now: NIODeadline) -> TickAction? {
        concludeUnanswered(now: now)
        if !hasSettings, now - createdAt >= limits.silence + limits.ping { return .close(reason: "ConnectionLost") }
        if let tokenEnd, now >= tokenEnd { retire(.tokenAge) }
        if let idleLimit, isEmpty, now - lastOpened >= idleLimit { retire(.idle) }
        // The peer allows no streams, or reads no bytes: another connection may do better.
        if !waiting.isEmpty, now - max(lastOpened, waitingSince) >= limits.answer { retire(.unresponsive) }
        if let closedSince, now - closedSince >= limits.answer { retire(.unresponsive) }
        if let drainSince, now - drainSince >= limits.drain { return .close(reason: "NoResponse") }
        if let pingSent {
            return now - pingSent >= limits.ping ? .close(reason: "ConnectionLost") : nil
        }
        let isBusy = !streams.isEmpty
        let silence = now - (isBusy ? max(lastReceived, busySince) : lastReceived)
        guard silence >= (isBusy ? limits.silence : limits.idleSilence) else { return nil }
        pingSent = now
        return .ping
    }

    /// Concludes the streams whose time is up. With a stream's time within a tick of exact, one mark per tick will do.
    private mutating func concludeUnanswered(now: NIODeadline) {
        if lastStream > marks.last?.stream ?? 0 { marks.append(Mark(stream: lastStream, at: now)) }
        guard let due = marks.last(where: { now - $0.at >= limits.answer }) else { return }
        marks.removeAll { $0.stream <= due.stream }
        let late = streams.filter { $0.key <= due.stream && !$0.value.isConcluded }
        guard !late.isEmpty else { return }
        for (id, stream) in late { conclude(id, stream.outcomeWithoutEnd(reason: "NoResponse")) }
        // Not one answer in all that time: it will not answer the next ones either.
        if now - lastResponse >= limits.answer { retire(.unresponsive) }
    }

    // MARK: Results

    mutating func takeOutcomes() -> [(identifier: UInt32, outcome: Outcome)] {
        defer { outcomes = [] }
        return outcomes
    }

    mutating func takeHealth() -> Health {
        defer { health = Health() }
        return health
    }

    /// Streams that are concluded and still open: the peer answered before it had everything, or too late. To be reset.
    mutating func takeUnclosed() -> [Int] {
        defer { unclosed = [] }
        return unclosed.filter { streams[$0] != nil }
    }
}
