import APNSWire
import ChatDomain
import NIOCore

/// What one connection of the provider API knows about the pushes given to it, and what follows from what it sees.
///
/// A value without a socket: streams and the pushes on them, what may be opened, GOAWAY, deadlines and signs of life.
/// Each push gets exactly one outcome; outcomes collect until they are taken.
struct ProviderConnectionState: Sendable {
    /// Why a connection takes no more pushes.
    enum Retirement: Sendable, Hashable {
        /// The peer goes; with the reason that it gave.
        case goAway(String)
        /// The peer does not take our certificate or provider token.
        case credentials(ProviderRefusal)
        case tokenAge
        case streamsUsedUp
        /// The peer refuses every stream.
        case refusedStreams
        /// The peer is alive, and answers no push, or opens no room for one.
        case unresponsive
        case idle
        case drained
    }

    struct Stream: Sendable {
        let identifier: UInt32
        let type: String
        let writtenAt: Timestamp
        var status = 0
        var body: [UInt8] = []
        /// Its push has an outcome; the stream itself may still have to be closed.
        var isSettled = false
    }

    /// What the answers since the last look say about the service.
    struct Report: Sendable, Hashable {
        /// Answers that show the service at work.
        var good = 0
        /// Answers that say it is in trouble.
        var troubles = 0
    }

    let limits: ProviderLimits
    private let judge: AnswerJudge
    var streams: [Int: Stream] = [:]
    /// Leased, and not yet on a stream.
    var waiting = CircularBuffer<ProviderRequest>()
    private(set) var lastStream = 0
    var outcomes: [(identifier: UInt32, outcome: Outcome)] = []
    private(set) var report = Report()
    /// Streams whose push is settled and that are not known to be closed.
    private var lingering: [Int] = []

    /// Nil until the peer has said anything.
    private var peerLimit: Int?
    /// What is believed while the peer refuses streams that its limit allows.
    private var believedLimit: Int?
    /// Streams up to here were opened before the belief was last changed.
    private var refusalHorizon = 0
    private var refusals = 0
    private(set) var pausedUntil = NIODeadline.distantPast
    /// The peer has taken our credentials.
    private(set) var isProved = false

    private(set) var retirement: Retirement?
    private(set) var merit = ReconnectPacing.Merit.nothing
    var clock: ProviderConnectionClock

    init(limits: ProviderLimits, judge: AnswerJudge, clock: ProviderConnectionClock) {
        self.limits = limits
        self.judge = judge
        self.clock = clock
    }

    /// The peer speaks HTTP/2.
    var hasSettings: Bool { peerLimit != nil }

    /// Streams that may be open at once.
    ///
    /// Only one, whatever the peer allows, until it has taken a provider token (apns-http2.md §7), or a certificate: what
    /// credentials that are not accepted cost is one push. None before its SETTINGS are there, with which every connection
    /// begins.
    var streamLimit: Int {
        guard let peerLimit else { return 0 }
        let limit = min(peerLimit, believedLimit ?? .max, ProviderLimits.openStreams)
        return isProved ? limit : min(1, limit)
    }

    /// Pushes that may be here at once, on streams and waiting for one: as many again as fit, so that the next are there
    /// when answers come.
    func capacity(at now: NIODeadline) -> Int {
        guard retirement == nil, now >= pausedUntil else { return 0 }
        return isProved ? 2 * streamLimit : streamLimit
    }

    /// Every push has its outcome, and every stream is closed.
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }

    /// The peer holds it back, and nothing else does.
    var isSaturated: Bool { retirement == nil && isProved && peerLimit != nil && pausedUntil == .distantPast }

    // MARK: What we do

    mutating func enqueue(_ requests: [ProviderRequest], now: NIODeadline) {
        if waiting.isEmpty { clock.waitingSince = now }
        waiting.append(contentsOf: requests)
        if retirement != nil { handBack() }
    }

    /// The next push, and the stream that it opens; nil while none may be opened.
    mutating func open(now: NIODeadline, wall: Timestamp) -> (stream: Int, request: ProviderRequest)? {
        guard retirement == nil, streams.count < streamLimit, now >= pausedUntil, let request = waiting.popFirst()
        else { return nil }
        if pausedUntil != .distantPast { pausedUntil = .distantPast }
        lastStream += lastStream == 0 ? 1 : 2
        if streams.isEmpty { clock.busySince = now }
        clock.lastOpened = now
        streams[lastStream] = Stream(identifier: request.identifier, type: request.type, writtenAt: wall)
        if lastStream / 2 + 1 >= limits.streams { retire(.streamsUsedUp) }
        return (lastStream, request)
    }

    /// From now on nothing is opened; what waits goes back to the queue.
    mutating func retire(_ reason: Retirement) {
        if retirement == nil { retirement = reason }
        if case .credentials = reason { retirement = reason }
        handBack()
    }

    mutating func handBack() {
        for request in waiting { outcomes.append((request.identifier, .notProcessed)) }
        waiting.removeAll()
    }

    /// The connection is over: what is on streams was written, and nobody knows.
    mutating func end(reason: String) {
        for stream in streams.values where !stream.isSettled {
            outcomes.append((stream.identifier, .unanswered(reason: reason)))
        }
        streams = [:]
        lingering = []
        retire(.drained)
    }

    // MARK: What the peer does

    /// - Parameter maxStreams: nil where the frame does not name it, and what was stays.
    mutating func received(maxStreams: Int?) {
        peerLimit = maxStreams ?? peerLimit ?? ProviderLimits.unstatedStreams
    }

    /// - Parameter status: nil in trailers.
    mutating func received(status: Int?, endsStream: Bool, on id: Int, now: NIODeadline) {
        // 1xx is a word in between.
        if let status, status >= 200 { streams[id]?.status = status }
        if endsStream { answered(id, now: now) }
    }

    /// A piece of an answer's body; what is beyond the limit is not read, and settles the stream.
    mutating func received(body: ByteBufferView, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        if stream.status != 200 {
            let room = ProviderRefusal.bodyLimit - stream.body.count
            streams[id]?.body += body.prefix(room)
            if body.count > room { return answered(id, now: now) }
        }
        if endsStream { answered(id, now: now) }
    }

    /// The peer, or NIOHTTP2 in its stead, has ended a stream early.
    mutating func received(reset isRefused: Bool, on id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        if stream.status == 200 {
            answered(id, now: now)
        } else if isRefused, stream.status == 0 {
            settle(id, .notProcessed)
            noteRefused(id, now: now)
        } else {
            // Also a refusal whose reason is cut off: without it nothing may be concluded, and a repeat does no harm.
            settle(id, .unanswered(reason: "StreamReset"))
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
            if !stream.isSettled { outcomes.append((stream.identifier, .notProcessed)) }
            streams[id] = nil
        }
        retire(.goAway(reason))
    }

    // MARK: What follows

    mutating func takeOutcomes() -> [(identifier: UInt32, outcome: Outcome)] {
        defer { outcomes = [] }
        return outcomes
    }

    mutating func takeReport() -> Report {
        defer { report = Report() }
        return report
    }

    /// Streams that are settled and still open: the peer answered before it had everything, or too late. To be reset.
    mutating func takeUnclosed() -> [Int] {
        defer { lingering = [] }
        return lingering.filter { streams[$0] != nil }
    }

    mutating func settle(_ id: Int, _ outcome: Outcome) {
        guard let stream = streams[id], !stream.isSettled else { return }
        streams[id]?.isSettled = true
        lingering.append(id)
        outcomes.append((stream.identifier, outcome))
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        guard let stream = streams[id], !stream.isSettled else { return }
        clock.lastAnswer = now
        if stream.status == 200 {
            report.good += 1
            noteProgress()
            return settle(id, .accepted)
        }
        guard stream.status > 0 else { return settle(id, .unanswered(reason: "MalformedAnswer")) }
        let refusal = ProviderRefusal(status: stream.status, body: stream.body)
        settle(id, judge.outcome(of: refusal, type: stream.type, writtenAt: stream.writtenAt))
        if refusal.status != 403 { isProved = true }
        switch refusal.remedy {
        case .giveUp:
            report.good += 1
            if merit == .nothing { merit = .refusal }
        case .deactivate, .retryDevice:
            report.good += 1
            merit = .progress
        case .retryService:
            report.troubles += 1
            merit = .progress
        case .reconnect: retire(.goAway(refusal.reason))
        case .mendCredentials:
            // The next connection meets the same, unless somebody does something: it must not come at once.
            merit = .nothing
            retire(.credentials(refusal))
        }
    }

    private mutating func noteProgress() {
        isProved = true
        refusals = 0
        if let believed = believedLimit {
            believedLimit = believed + 1 < peerLimit ?? 0 ? believed + 1 : nil
        }
        if case .credentials = retirement { return }
        merit = .progress
    }

    /// Halves the limit for each round of refused streams; from the second on, with pauses that grow.
    private mutating func noteRefused(_ id: Int, now: NIODeadline) {
        guard id > refusalHorizon else { return }
        believedLimit = max(1, min(streamLimit, streams.count) / 2)
        refusalHorizon = lastStream
        refusals += 1
        guard refusals > 1 else { return }
        if refusals > limits.refusals { return retire(.refusedStreams) }
        let full = limits.firstPause.nanoseconds << Int64(min(refusals - 2, 20))
        pausedUntil = now + .nanoseconds(min(limits.longestPause.nanoseconds, full))
    }
}
