package import ChatDomain
package import NIOCore

/// The limits of one HTTP/2 connection.
package struct HTTP2Limits: Sendable {
    /// The time in which a stream must get its response.
    package var response = TimeAmount.seconds(30)
    /// The status of accepted pushes. The body is not read then, and the status counts even if the rest of the response
    /// is lost. A rejection without its reason proves nothing, and a retry of it is harmless. If `nil`, each status
    /// counts alone, and the client interprets it.
    package var acceptedStatus: Int? = 200
    /// Whether the connection finds out that its peer is gone or wants no pushes, even while no response is late: it
    /// sends PING, opens fewer streams after refused ones, and is replaced when it may open none for long. If not, late
    /// responses and resets show that the peer is alive.
    package var watchesPeer = true
    /// The time without a byte from the peer, with streams open, after which a PING is sent.
    var silence = TimeAmount.seconds(5)
    /// The time without a byte from the peer, without open streams, after which a PING is sent.
    var idleSilence = TimeAmount.seconds(60)
    /// The time for the response to that PING.
    var ping = TimeAmount.seconds(5)
    /// The time that a drain may take.
    var drain = TimeAmount.seconds(8)
    /// The first pause after the peer has refused streams repeatedly. It doubles up to ``longestPause``.
    var firstPause = TimeAmount.milliseconds(50)
    var longestPause = TimeAmount.seconds(5)
    /// The number of rounds of refused streams in a row, with pauses between them, after which the connection is
    /// retired.
    var streamRefusals = 10
    /// The time for the response to the first push. After it, the pool may open another connection and keeps this one,
    /// which opens further streams.
    var firstResponse = TimeAmount.seconds(1)
    /// The number of responses in a row that reject the credentials, after which a connection that has accepted pushes
    /// is replaced.
    static let credentialRefusals = 3
    /// The number of server errors in a row after which a connection is replaced, because the server behind it may be
    /// sick (pushy#408).
    static let serverErrors = 10
    /// The age from which a connection is replaced for that reason. In an outage, each new one fails like the last one.
    var sickAge = TimeAmount.seconds(5)
    /// The maximum number of open streams until the peer has accepted the credentials. It doubles each time that all of
    /// them get no response for ``firstResponse``.
    var unconfirmedStreams = 1
    /// The number of streams after which a connection is replaced, long before the stream ids run out at 2^30 streams.
    var streams: UInt32 = 1 << 28

    package init() {}

    /// The maximum number of open streams, even if the peer allows more.
    static let openStreams = 2000
    /// The limit of streams if the peer's SETTINGS do not name one. RFC 9113 §6.5.2 recommends that every peer allows
    /// at least this number.
    static let defaultStreams = 100

    /// The shortest time limit, which decides how often the limits are checked.
    var shortest: TimeAmount { min(min(response, silence), min(idleSilence, min(ping, drain))) }
}

package enum HTTP2TickAction: Sendable, Hashable {
    case ping
    case close(reason: String)
}

/// Decides the outcomes of the pushes on one HTTP/2 connection, for every gateway: streams and their pushes, when to
/// open the next stream, GOAWAY, deadlines and PING.
///
/// A pure value without a socket. Each push gets exactly one outcome or response. They are kept until they are taken.
package struct HTTP2ConnectionState: Sendable {
    /// The reason why a connection accepts no more pushes.
    enum Retirement: Sendable, Hashable {
        /// The peer sent GOAWAY, or a response asks for a new connection. The value is the peer's reason.
        case goAway(String)
        /// The peer does not accept the credentials.
        case credentials(CredentialsProblem)
        case tokenAge
        case streamsExhausted
        /// The peer refuses every stream.
        case refusedStreams
        /// The peer responds with server errors only.
        case serverErrors
        /// The peer is alive but does not respond to pushes, or allows no streams for them.
        case unresponsive
        case idle
        case drained
    }

    /// The health of the push service, according to the responses since the last report.
    package struct Health: Sendable, Hashable {
        /// The number of responses that show that the service works.
        var successes = 0
        /// The devices whose pushes the service did not accept now, once per response.
        var refused: [Address] = []
        /// The longest time for which the service asked for no pushes. `nil` if it did not ask.
        var pause: Duration?
        /// Whether the service has accepted a push.
        var hasAccepted = false
    }

    private struct Stream {
        let identifier: UInt32
        let address: Address
        let type: String
        let writtenAt: Timestamp
        let deadline: NIODeadline
        var status = 0
        var retryAfter: String?
        var body: [UInt8] = []
        /// Whether the push has its outcome. The stream itself may still have to be closed.
        var isConcluded = false
    }

    let limits: HTTP2Limits
    private let interpret: @Sendable (HTTP2Response) -> HTTP2Answer
    private var streams: [Int: Stream] = [:]
    /// Leased pushes that have no stream yet.
    private var waiting = CircularBuffer<HTTP2Request>()
    private var lastStream = 0
    private var outcomes: [(identifier: UInt32, outcome: Outcome)] = []
    /// The responses whose outcomes the gateway finds itself. ``outcomes`` has a placeholder in the place of each, because
    /// the gateway needs all results in the order of their arrival.
    private var responses: [UInt32: HTTP2Response] = [:]
    private var health = Health()
    /// Streams whose push has its outcome and that are not known to be closed.
    private var unclosed: [Int] = []

    /// The peer's limit of streams. `nil` until it has sent SETTINGS.
    private var peerLimit: Int?
    /// The limit of streams that is assumed while the peer refuses streams that its own limit allows.
    private var assumedLimit: Int?
    /// The last stream that was opened before ``assumedLimit`` was last lowered.
    private var lastStreamOfRound = 0
    private var streamRefusals = 0
    private var pauses: Backoff
    private(set) var pausedUntil: NIODeadline?
    /// Whether the peer has accepted the credentials.
    private var isConfirmed: Bool
    /// The maximum number of open streams until then.
    private var unconfirmedStreams: Int
    /// Whether the peer has accepted a push on this connection.
    private var hasAccepted = false
    /// The number of responses that have rejected the credentials since the last accepted push.
    private var credentialRefusals = 0
    /// The number of server errors since the last response that shows that the service works.
    private var serverErrors = 0

    private(set) var retirement: Retirement?
    private var achieved = ConnectionResult.nothing

    /// The time at which the provider token becomes too old. `nil` with a certificate.
    private let tokenEnd: NIODeadline?
    /// The time without a push after which the connection is closed. `nil` for a permanent connection.
    private let idleLimit: TimeAmount?
    /// The time at which the connection was made, and then the time at which HTTP/2 began.
    private var beganAt: NIODeadline
    private var lastReceived: NIODeadline
    private var lastResponse: NIODeadline
    private var lastOpened: NIODeadline
    /// The time since which at least one stream has been open.
    private var busySince: NIODeadline
    private var waitingSince: NIODeadline
    /// The time since which the peer has allowed no streams. RFC 9113 §6.5.2 intends that for short periods only.
    private var noStreamsSince: NIODeadline?
    private var pingSent: NIODeadline?
    private var drainSince: NIODeadline?

    package init(
        limits: HTTP2Limits, isConfirmed: Bool = false, tokenEnd: NIODeadline? = nil, idleLimit: TimeAmount? = nil,
        now: NIODeadline, interpret: @escaping @Sendable (HTTP2Response) -> HTTP2Answer
    ) {
        self.limits = limits
        self.interpret = interpret
        self.isConfirmed = isConfirmed
        unconfirmedStreams = limits.unconfirmedStreams
        self.tokenEnd = tokenEnd
        self.idleLimit = idleLimit
        pauses = Backoff(first: Duration(limits.firstPause), longest: Duration(limits.longestPause))
        (beganAt, lastReceived, lastResponse) = (now, now, now)
        (lastOpened, busySince, waitingSince) = (now, now, now)
    }

    var hasSettings: Bool { peerLimit != nil }
    var hasWaiting: Bool { !waiting.isEmpty }
    var hasOutcomes: Bool { !outcomes.isEmpty }
    /// Whether every push has its outcome and every stream is closed.
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }
    /// Whether the connection accepts no more pushes.
    package var isRetired: Bool { retirement != nil }
    /// Whether the connection has no pushes and accepts none, so that it is closed.
    var isDone: Bool { isRetired && isEmpty }

    /// The maximum number of open streams.
    ///
    /// It is 0 before the peer's SETTINGS, with which every connection starts. Then it is 1 until the peer has accepted
    /// the credentials, so that rejected credentials concern only one push. It grows while the peer does not respond,
    /// because the devices of the open streams may be the cause. With a provider token, APNs itself allows only one
    /// stream until then (Apple, "Establishing a connection to APNs").
    var streamLimit: Int {
        guard let peerLimit else { return 0 }
        let limit = min(peerLimit, assumedLimit ?? .max, HTTP2Limits.openStreams)
        return isConfirmed ? limit : min(unconfirmedStreams, limit)
    }

    /// Returns the number of pushes that the connection may hold, on streams and waiting for one. It is twice the
    /// number of streams, so that the next pushes are ready when responses arrive.
    func pushLimit(at now: NIODeadline) -> Int {
        guard retirement == nil, now >= pausedUntil ?? now else { return 0 }
        return isConfirmed ? 2 * streamLimit : streamLimit
    }

    /// The result of the connection. If the credentials were never accepted, the next connection will fail like this
    /// one until an operator corrects them. Its result is therefore ``ConnectionResult/nothing``, so that the next one
    /// is delayed.
    var result: ConnectionResult {
        if case .credentials = retirement, !hasAccepted { .nothing } else { achieved }
    }

    /// Whether the connection is ready to send. If it has no free capacity then, the peer's limit is the cause, and
    /// another connection would help.
    var canBeSaturated: Bool { retirement == nil && isConfirmed && peerLimit != nil && pausedUntil == nil }

    /// Whether the response to the first push is late. The push itself may be the cause.
    func isFirstResponseLate(at now: NIODeadline) -> Bool {
        retirement == nil && !isConfirmed && !streams.isEmpty && now - busySince >= limits.firstResponse
    }

    // MARK: Requests

    mutating func enqueue(_ requests: [HTTP2Request], now: NIODeadline) {
        if waiting.isEmpty { waitingSince = now }
        waiting.append(contentsOf: requests)
        if retirement != nil { returnWaiting() }
    }

    /// Returns the next push and the stream that it opens. `nil` if no push waits or no stream may be opened now.
    mutating func open(now: NIODeadline, wall: Timestamp) -> (stream: Int, request: HTTP2Request)? {
        guard retirement == nil, streams.count < streamLimit, now >= pausedUntil ?? now,
            let request = waiting.popFirst()
        else { return nil }
        pausedUntil = nil
        lastStream += lastStream == 0 ? 1 : 2
        if streams.isEmpty { busySince = now }
        lastOpened = now
        streams[lastStream] = Stream(
            identifier: request.identifier, address: request.address, type: request.type, writtenAt: wall,
            deadline: min(request.deadline, now + limits.response))
        if lastStream / 2 + 1 >= limits.streams { retire(.streamsExhausted) }
        return (lastStream, request)
    }

    /// Stops opening streams, and releases the waiting pushes to the queue.
    mutating func retire(_ reason: Retirement) {
        if retirement == nil { retirement = reason }
        if case .credentials = reason { retirement = reason }
        returnWaiting()
    }

    mutating func returnWaiting() {
        for request in waiting { outcomes.append((request.identifier, .notProcessed)) }
        waiting.removeAll()
    }

    /// Starts the time limit of a drain.
    mutating func drain(now: NIODeadline) {
        drainSince = drainSince ?? now
        retire(.drained)
    }

    /// Records that the connection is over. Pushes on streams were written, and their outcome is unknown.
    mutating func end(reason: String) {
        for id in streams.keys { concludeWithoutEnd(id, reason: reason) }
        streams = [:]
        unclosed = []
        retire(.drained)
    }

    // MARK: Events from the peer

    /// Records that bytes of any kind have arrived.
    mutating func receivedBytes(now: NIODeadline) {
        lastReceived = now
        pingSent = nil
    }

    /// Records the peer's SETTINGS.
    /// - Parameter maxStreams: `nil` if the frame does not contain the limit. The previous limit then stays.
    mutating func received(maxStreams: Int?, now: NIODeadline) {
        peerLimit = maxStreams ?? peerLimit ?? HTTP2Limits.defaultStreams
        noStreamsSince = peerLimit == 0 ? noStreamsSince ?? now : nil
    }

    /// Records response headers or trailers.
    /// - Parameter status: `nil` in trailers.
    mutating func received(
        status: Int?, retryAfter: String? = nil, endsStream: Bool, on id: Int, now: NIODeadline
    ) {
        // 1xx is an interim response. A status in trailers is malformed, and does not change the response.
        if let status, status >= 200, streams[id]?.status == 0 {
            streams[id]?.status = status
            streams[id]?.retryAfter = retryAfter
        }
        if endsStream { answered(id, now: now) }
    }

    /// Records a part of a response body. A body beyond the limit is not read and concludes the stream.
    mutating func received(body: ByteBufferView, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        if stream.status != limits.acceptedStatus {
            let room = HTTP2Response.bodyLimit - stream.body.count
            streams[id]?.body += body.prefix(room)
            if body.count > room { return answered(id, now: now) }
        }
        if endsStream { answered(id, now: now) }
    }

    /// Records that the peer has ended a stream early.
    mutating func received(reset isRefused: Bool, on id: Int, now: NIODeadline) {
        if !limits.watchesPeer, !isRefused { lastResponse = now }
        endedEarly(id, isRefused: isRefused, now: now)
    }

    private mutating func endedEarly(_ id: Int, isRefused: Bool, now: NIODeadline) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        if stream.status == limits.acceptedStatus {
            answered(id, now: now)
        } else if isRefused, stream.status == 0 {
            conclude(id, .sentBack(reason: "RefusedStream"))
            streamRefused(id, now: now)
        } else {
            concludeWithoutEnd(id, reason: "StreamReset")
        }
    }

    /// Records that the stream is closed on both sides.
    mutating func closed(_ id: Int, now: NIODeadline) {
        endedEarly(id, isRefused: false, now: now)
        streams[id] = nil
    }

    /// Records a GOAWAY. The peer has not processed the streams above `last` and never will (RFC 9113 §6.8).
    mutating func received(goAwayAfter last: Int, reason: String) {
        #if PLANTED_FAULTS
        let excluded = PlantedFault.excludedStreamsAccepted.isPlanted ? streams.keys.filter { $0 > last } : []
        for id in excluded { conclude(id, .accepted) }
        #endif
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

    /// Concludes a push whose response is incomplete.
    private mutating func concludeWithoutEnd(_ id: Int, reason: String) {
        guard let stream = streams[id], !stream.isConcluded else { return }
        if stream.status > 0, limits.acceptedStatus == nil { return interpret(stream, on: id) }
        conclude(id, stream.status == limits.acceptedStatus ? .accepted : .unanswered(reason: reason))
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        if !limits.watchesPeer { lastResponse = now }
        guard let stream = streams[id], !stream.isConcluded else { return }
        lastResponse = now
        if stream.status == limits.acceptedStatus {
            accepted()
            return conclude(id, .accepted)
        }
        guard stream.status > 0 else { return conclude(id, .unanswered(reason: "MalformedResponse")) }
        interpret(stream, on: id)
    }

    private mutating func interpret(_ stream: Stream, on id: Int) {
        let response = HTTP2Response(
            status: stream.status, retryAfter: stream.retryAfter, body: stream.body, address: stream.address,
            type: stream.type, writtenAt: stream.writtenAt)
        let answer = interpret(response)
        if answer.outcome == nil { responses[stream.identifier] = response }
        conclude(id, answer.outcome ?? .notProcessed)
        if answer.provesCredentials { isConfirmed = true }
        switch answer.subject {
        case .push:
            worked()
            if achieved == .nothing { achieved = .refusal }
        case .device:
            worked()
            achieved = .progress
        case .service:
            health.refused.append(stream.address)
            achieved = .progress
            serverErrors += 1
            retireIfSick(now: lastResponse)
        case .quota(let pause):
            health.refused.append(stream.address)
            health.pause = max(health.pause ?? pause, pause)
            achieved = .progress
        case .connection(let reason): retire(.goAway(reason))
        case .credentials(let problem):
            credentialRefusals += 1
            // If the connection has accepted pushes, the credentials may be wrong for a single push only.
            let mayBeThePush = hasAccepted && credentialRefusals < HTTP2Limits.credentialRefusals
            if !mayBeThePush || problem.endsConnection { retire(.credentials(problem)) }
        }
    }

    /// Records a response that shows that the service works.
    private mutating func worked() {
        health.successes += 1
        serverErrors = 0
    }

    /// Retires the connection if it brings only server errors. Another one may lead to a server that works.
    private mutating func retireIfSick(now: NIODeadline) {
        guard serverErrors >= HTTP2Limits.serverErrors, now - beganAt >= limits.sickAge else { return }
        retire(.serverErrors)
    }

    private mutating func accepted() {
        worked()
        health.hasAccepted = true
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

    /// Halves the limit for each round of refused streams. From the second round on, also pauses for a growing time.
    private mutating func streamRefused(_ id: Int, now: NIODeadline) {
        guard limits.watchesPeer, id > lastStreamOfRound else { return }
        assumedLimit = max(1, min(streamLimit, streams.count) / 2)
        lastStreamOfRound = lastStream
        streamRefusals += 1
        guard streamRefusals > 1 else { return }
        if streamRefusals > limits.streamRefusals { return retire(.refusedStreams) }
        pausedUntil = now + TimeAmount(pauses.delay())
    }

    // MARK: Time

    /// Records the end of the TLS handshake, which has another time limit.
    mutating func began(now: NIODeadline) { beganAt = now }

    /// Checks the deadlines. Closes the connection if the peer sends nothing any more, or a drain has taken too long.
    mutating func tick(now: NIODeadline) -> HTTP2TickAction? {
        concludeUnanswered(now: now)
        if let idleLimit, hasSettings, isEmpty, now - lastOpened >= idleLimit { retire(.idle) }
        guard limits.watchesPeer else { return nil }
        if !isConfirmed, streams.count == unconfirmedStreams, now - lastOpened >= limits.firstResponse {
            unconfirmedStreams *= 2
        }
        if !hasSettings, now - beganAt >= limits.silence + limits.ping { return .close(reason: "ConnectionLost") }
        if let tokenEnd, now >= tokenEnd { retire(.tokenAge) }
        retireIfSick(now: now)
        // The peer allows no streams or reads no bytes. Another connection may do better.
        if !waiting.isEmpty, now - max(lastOpened, waitingSince) >= limits.response { retire(.unresponsive) }
        if let noStreamsSince, now - noStreamsSince >= limits.response { retire(.unresponsive) }
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

    /// Concludes the pushes whose time is up, on streams or waiting for one.
    private mutating func concludeUnanswered(now: NIODeadline) {
        let late = streams.compactMap { id, stream in stream.deadline <= now && !stream.isConcluded ? id : nil }
        for id in late { concludeWithoutEnd(id, reason: "NoResponse") }
        let lateWaiting = waiting.filter { $0.deadline <= now }
        if !lateWaiting.isEmpty { waiting.removeAll { $0.deadline <= now } }
        outcomes += lateWaiting.map { ($0.identifier, .unanswered(reason: "NoResponse")) }
        guard !late.isEmpty || !lateWaiting.isEmpty else { return }
        // The peer has sent no response in all that time, so it will not respond to the next pushes either.
        if now - lastResponse >= limits.response { retire(.unresponsive) }
    }

    // MARK: Results

    package mutating func takeOutcomes() -> [(identifier: UInt32, outcome: Outcome)] {
        defer { outcomes = [] }
        return outcomes
    }

    /// Returns the responses whose outcomes the gateway finds itself (``HTTP2Answer/outcome``). They replace the outcomes of
    /// the same identifiers.
    package mutating func takeResponses() -> [UInt32: HTTP2Response] {
        defer { responses = [:] }
        return responses
    }

    package mutating func takeHealth() -> Health {
        defer { health = Health() }
        return health
    }

    /// Returns the streams that have their outcome and are still open, because the peer responded before the request
    /// was complete, or too late. They must be reset.
    mutating func takeUnclosed() -> [Int] {
        defer { unclosed = [] }
        return unclosed.filter { streams[$0] != nil }
    }
}
