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

        /// What has to be taken for its outcome without the end of the answer. A refusal that lacks its reason proves
        /// nothing, and a repeat of it does no harm.
        func outcomeUnfinished(reason: String) -> Outcome {
            status == 200 ? .accepted : .unanswered(reason: reason)
        }
    }

    /// What the answers since the last look say about the service.
    struct Report: Sendable, Hashable {
        /// Answers that show the service at work.
        var good = 0
        /// Answers that say it is in trouble.
        var troubles = 0
    }

    let limits: ProviderLimits
    let judge: AnswerJudge
    var streams: [Int: Stream] = [:]
    /// Leased, and not yet on a stream.
    var waiting = CircularBuffer<ProviderRequest>()
    private(set) var lastStream = 0
    var outcomes: [(identifier: UInt32, outcome: Outcome)] = []
    var report = Report()
    /// Streams whose push is settled and that are not known to be closed.
    var lingering: [Int] = []

    /// Nil until the peer has said anything.
    var peerLimit: Int?
    /// What is believed while the peer refuses streams that its limit allows.
    var believedLimit: Int?
    /// Streams up to here were opened before the belief was last changed.
    var refusalHorizon = 0
    var refusals = 0
    var pausedUntil = NIODeadline.distantPast
    /// The peer has taken our credentials.
    var isProved: Bool
    /// It has taken a push with them.
    var hasAccepted = false
    /// Answers in a row that say that it does not.
    var unaccepted = 0

    private(set) var retirement: Retirement?
    var good = ReconnectPacing.Merit.nothing
    var clock: ProviderConnectionClock

    init(limits: ProviderLimits, judge: AnswerJudge, isProved: Bool = false, clock: ProviderConnectionClock) {
        self.limits = limits
        self.judge = judge
        self.isProved = isProved
        self.clock = clock
    }

    /// The peer speaks HTTP/2.
    var hasSettings: Bool { peerLimit != nil }

    /// Streams that may be open at once.
    ///
    /// Only one, whatever the peer allows, until it has taken a provider token (apns-http2.md §7), or a certificate: so
    /// credentials that are not accepted concern one push. None before its SETTINGS are there, with which every connection
    /// begins.
    var streamLimit: Int {
        guard let peerLimit else { return 0 }
        let limit = min(peerLimit, believedLimit ?? .max, ProviderLimits.openStreams)
        return isProved ? limit : min(limits.provingStreams, limit)
    }

    /// Pushes that may be here at once, on streams and waiting for one: as many again as fit, so that the next are there
    /// when answers come.
    func capacity(at now: NIODeadline) -> Int {
        guard retirement == nil, now >= pausedUntil else { return 0 }
        return isProved ? 2 * streamLimit : streamLimit
    }

    /// What the connection was good for. Where the credentials were never accepted the next connection meets the same,
    /// unless somebody does something: it must not come at once.
    var merit: ReconnectPacing.Merit {
        if case .credentials = retirement, !hasAccepted { .nothing } else { good }
    }

    /// Every push has its outcome, and every stream is closed.
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }

    /// The peer holds it back, and nothing else does.
    var isSaturated: Bool { retirement == nil && isProved && peerLimit != nil && pausedUntil == .distantPast }

    /// It has not answered its first push at once; that may be the push's doing.
    func hesitates(at now: NIODeadline) -> Bool {
        retirement == nil && !isProved && !streams.isEmpty && now - clock.busySince >= limits.hesitation
    }

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
            outcomes.append((stream.identifier, stream.outcomeUnfinished(reason: reason)))
        }
        streams = [:]
        lingering = []
        retire(.drained)
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
}
