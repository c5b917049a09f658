import HTTP2Wire
import NIOCore

/// What becomes of the requests given to one HTTP/2 connection: which of them wait, which are on streams, and what the service
/// answered.
///
/// A value without a socket. Each request gets exactly one result; results collect until they are taken.
struct OriginStreams: Sendable {
    enum Result: Sendable, Hashable {
        case answer(WebPushResponse)
        /// The service did nothing with it, or has never seen it: it may be sent again.
        case returned
    }

    struct Concluded: Sendable {
        let request: WebPushRequest
        let result: Result
    }

    private struct Stream {
        let request: WebPushRequest
        var status = 0
        var retryAfter: String?
        var body = ByteBuffer()
    }

    /// How long a connection without requests is kept.
    private static let idleLimit = TimeAmount.seconds(60)
    /// Streams after which a connection is replaced, long before their numbers run out.
    private static let lastStreams = 1 << 29
    /// What counts until the service says how many streams it allows (RFC 9113 §6.5.2).
    private static let defaultStreams = 100

    private let answerLimit: TimeAmount
    private var waiting = CircularBuffer<WebPushRequest>()
    private var streams: [Int: Stream] = [:]
    private var lastStream = -1
    /// Nil until the service has sent SETTINGS.
    private var peerLimit: Int?
    /// Streams whose request is concluded, and that the service does not know to be over.
    private var unclosed: [Int] = []
    private var concluded: [Concluded] = []
    private var lastResponse: NIODeadline
    private var lastUse: NIODeadline
    /// Takes no more requests.
    private(set) var isRetired = false

    /// - Parameter answerLimit: how long a request has from its beginning to its deadline.
    init(answerLimit: TimeAmount, now: NIODeadline) {
        self.answerLimit = answerLimit
        (lastResponse, lastUse) = (now, now)
    }

    var hasSettings: Bool { peerLimit != nil }
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }

    // MARK: What we do

    mutating func submit(_ requests: [WebPushRequest]) {
        waiting.append(contentsOf: requests)
        if isRetired { returnWaiting() }
    }

    /// The next request, and the stream that it opens; nil while none may be opened.
    mutating func open(now: NIODeadline) -> (stream: Int, request: WebPushRequest)? {
        guard streams.count < peerLimit ?? 0, let request = waiting.popFirst() else { return nil }
        lastStream += 2
        lastUse = now
        streams[lastStream] = Stream(request: request)
        if lastStream >= Self.lastStreams { retire() }
        return (lastStream, request)
    }

    /// What is on streams ends first; what waits is returned.
    mutating func retire() {
        isRetired = true
        returnWaiting()
    }

    /// The connection is over.
    mutating func end(reason: String) {
        for id in streams.keys.sorted() { conclude(id, otherwise: .answer(.lost(reason))) }
        retire()
    }

    private mutating func returnWaiting() {
        while let request = waiting.popFirst() { concluded.append(Concluded(request: request, result: .returned)) }
    }

    // MARK: What the service does

    /// - Parameter maxStreams: nil where the frame does not name it, and what was stays.
    mutating func received(maxStreams: Int?) {
        peerLimit = maxStreams ?? peerLimit ?? Self.defaultStreams
    }

    /// - Parameter status: nil in trailers; 1xx is not the answer yet.
    mutating func received(status: Int?, retryAfter: String?, endsStream: Bool, on id: Int, now: NIODeadline) {
        if let status, status >= 200 {
            streams[id]?.status = status
            streams[id]?.retryAfter = retryAfter
        }
        if endsStream { answered(id, now: now) }
    }

    /// A piece of an answer's body; what is beyond the limit is not read.
    mutating func received(body: ByteBuffer, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let length = streams[id]?.body.readableBytes else { return }
        var part = body
        if let read = part.readSlice(length: min(WebPushRequest.longestResponse - length, part.readableBytes)) {
            streams[id]?.body.writeImmutableBuffer(read)
        }
        if part.readableBytes > 0, !endsStream { unclosed.append(id) }
        if part.readableBytes > 0 || endsStream { answered(id, now: now) }
    }

    /// The service has ended a stream early.
    mutating func received(reset code: UInt32, on id: Int, now: NIODeadline) {
        let isRefused = code == HTTP2Code.refusedStream.rawValue
        if !isRefused { lastResponse = now }
        conclude(id, otherwise: isRefused ? .returned : .answer(.lost("StreamReset")))
    }

    /// Streams above `last` were not and will not be processed (RFC 9113 §6.8).
    mutating func received(goAwayAfter last: Int) {
        for id in streams.keys.filter({ $0 > last }).sorted() {
            guard let stream = streams.removeValue(forKey: id) else { continue }
            concluded.append(Concluded(request: stream.request, result: .returned))
        }
        retire()
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        lastResponse = now
        conclude(id, otherwise: .answer(.lost("MalformedResponse")))
    }

    /// The status is the answer, whatever becomes of its explanation.
    private mutating func conclude(_ id: Int, otherwise: Result) {
        guard let stream = streams.removeValue(forKey: id) else { return }
        let answer =
            stream.status == 0
            ? otherwise
            : .answer(
                WebPushResponse(
                    UInt(stream.status), retryAfter: stream.retryAfter, body: stream.body, now: stream.request.sentAt))
        concluded.append(Concluded(request: stream.request, result: answer))
    }

    // MARK: Time

    /// Concludes the requests whose time is up. No PING is needed for that: where nothing is answered for the whole time of a
    /// request, the connection is not used any more.
    mutating func tick(now: NIODeadline) {
        let late = streams.filter { $0.value.request.deadline <= now }.keys.sorted()
        for id in late {
            unclosed.append(id)
            conclude(id, otherwise: .answer(.lost("NoResponse")))
        }
        let isWaitingLate = waiting.contains { $0.deadline <= now }
        if isWaitingLate {
            for request in waiting where request.deadline <= now {
                concluded.append(Concluded(request: request, result: .answer(.lost("NoResponse"))))
            }
            waiting.removeAll { $0.deadline <= now }
        }
        if !late.isEmpty || isWaitingLate, now - lastResponse >= answerLimit { retire() }
        if isEmpty, now - lastUse >= Self.idleLimit { retire() }
    }

    // MARK: Results

    mutating func takeConcluded() -> [Concluded] {
        defer { concluded = [] }
        return concluded
    }

    /// To be reset.
    mutating func takeUnclosed() -> [Int] {
        defer { unclosed = [] }
        return unclosed
    }
}
