import HTTP2Wire
import NIOCore

/// The requests of one HTTP/2 connection: the waiting ones, those on streams, and the responses.
///
/// A pure value without a socket. Each request gets exactly one result. Results are kept until they are taken.
struct OriginStreams: Sendable {
    enum Result: Sendable, Hashable {
        case response(WebPushResponse)
        /// The service did not process the request or has never seen it, so it may be sent again.
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

    /// The time for which a connection without requests is kept.
    private static let idleLimit = TimeAmount.seconds(60)
    /// The stream at which a connection is replaced, long before the range is exhausted.
    private static let finalStream = 1 << 29
    /// The limit of streams if the service's SETTINGS do not name one (RFC 9113 §6.5.2).
    private static let defaultStreams = 100

    private let answerLimit: TimeAmount
    private var waiting = CircularBuffer<WebPushRequest>()
    private var streams: [Int: Stream] = [:]
    private var lastStream = -1
    /// The service's limit of streams. `nil` until it has sent SETTINGS.
    private var peerLimit: Int?
    /// Streams that the relay must reset: their requests are concluded, but the service has not ended them.
    private var unclosed: [Int] = []
    private var concluded: [Concluded] = []
    private var lastResponse: NIODeadline
    private var lastUse: NIODeadline
    private let beganAt: NIODeadline
    /// The number of server errors since the last other response.
    private var serverErrors = 0
    /// Whether the connection accepts no more requests.
    private(set) var isRetired = false

    /// - Parameter answerLimit: The time from the start of a request to its deadline.
    init(answerLimit: TimeAmount, now: NIODeadline) {
        self.answerLimit = answerLimit
        (lastResponse, lastUse, beganAt) = (now, now, now)
    }

    var hasSettings: Bool { peerLimit != nil }
    var isEmpty: Bool { streams.isEmpty && waiting.isEmpty }

    // MARK: Requests

    mutating func submit(_ requests: [WebPushRequest]) {
        waiting.append(contentsOf: requests)
        if isRetired { returnWaiting() }
    }

    /// Returns the next request and the stream that it opens. `nil` if no request waits or no stream may be opened now.
    mutating func open(now: NIODeadline) -> (stream: Int, request: WebPushRequest)? {
        guard streams.count < peerLimit ?? 0, let request = waiting.popFirst() else { return nil }
        lastStream += 2
        lastUse = now
        streams[lastStream] = Stream(request: request)
        if lastStream >= Self.finalStream { retire() }
        return (lastStream, request)
    }

    /// Stops accepting requests and returns the waiting ones. Requests on streams still get their responses.
    mutating func retire() {
        isRetired = true
        returnWaiting()
    }

    /// Records that the connection has ended.
    mutating func end(reason: String) {
        for id in streams.keys.sorted() { conclude(id, otherwise: .response(.lost(reason))) }
        retire()
    }

    private mutating func returnWaiting() {
        while let request = waiting.popFirst() { concluded.append(Concluded(request: request, result: .returned)) }
    }

    // MARK: Events from the service

    /// Records the service's SETTINGS.
    /// - Parameter maxStreams: `nil` if the frame does not contain the limit. The previous limit then stays.
    mutating func received(maxStreams: Int?) {
        peerLimit = maxStreams ?? peerLimit ?? Self.defaultStreams
    }

    /// Records response headers or trailers.
    /// - Parameter status: `nil` in trailers. 1xx is an interim response. A status in trailers is malformed, and does not
    ///   change the response.
    mutating func received(status: Int?, retryAfter: String?, endsStream: Bool, on id: Int, now: NIODeadline) {
        if let status, status >= 200, streams[id]?.status == 0 {
            streams[id]?.status = status
            streams[id]?.retryAfter = retryAfter
        }
        if endsStream { answered(id, now: now) }
    }

    /// Records a part of a response body. The part beyond the limit is not read.
    mutating func received(body: ByteBuffer, endsStream: Bool, on id: Int, now: NIODeadline) {
        guard let length = streams[id]?.body.readableBytes else { return }
        var part = body
        if let read = part.readSlice(length: min(WebPushRequest.longestResponse - length, part.readableBytes)) {
            streams[id]?.body.writeImmutableBuffer(read)
        }
        if part.readableBytes > 0, !endsStream { unclosed.append(id) }
        if part.readableBytes > 0 || endsStream { answered(id, now: now) }
    }

    /// Records that the service has ended a stream early.
    mutating func received(reset code: UInt32, on id: Int, now: NIODeadline) {
        let isRefused = code == HTTP2Code.refusedStream.rawValue
        if !isRefused { lastResponse = now }
        conclude(id, otherwise: isRefused ? .returned : .response(.lost("StreamReset")))
    }

    /// Records a GOAWAY. The service has not processed the streams above `last` and never will (RFC 9113 §6.8).
    mutating func received(goAwayAfter last: Int) {
        for id in streams.keys.filter({ $0 > last }).sorted() {
            guard let stream = streams.removeValue(forKey: id) else { continue }
            concluded.append(Concluded(request: stream.request, result: .returned))
        }
        retire()
    }

    private mutating func answered(_ id: Int, now: NIODeadline) {
        lastResponse = now
        conclude(id, otherwise: .response(.lost("MalformedResponse")))
    }

    /// Concludes a request. If a status has arrived, it is the response, even if its body is incomplete.
    /// - Parameter otherwise: The result if no status has arrived.
    private mutating func conclude(_ id: Int, otherwise: Result) {
        guard let stream = streams.removeValue(forKey: id) else { return }
        let response =
            stream.status == 0
            ? otherwise
            : .response(
                WebPushResponse(
                    UInt(stream.status), retryAfter: stream.retryAfter, body: stream.body, now: stream.request.sentAt))
        concluded.append(Concluded(request: stream.request, result: response))
        guard case .response(let answer) = response else { return }
        if answer.isMisdirected { retire() }
        serverErrors = stream.status >= 500 ? serverErrors + 1 : stream.status > 0 ? 0 : serverErrors
        if serverErrors >= HTTP2Session.serverErrorLimit, lastResponse - beganAt >= HTTP2Session.sickAge { retire() }
    }

    // MARK: Time

    /// Concludes the requests that are past their deadline. If there are any, and no response has arrived for
    /// `answerLimit`, the connection is retired. This detects a dead connection without PING. Also retires an idle
    /// connection.
    mutating func tick(now: NIODeadline) {
        let late = streams.filter { $0.value.request.deadline <= now }.keys.sorted()
        for id in late {
            unclosed.append(id)
            conclude(id, otherwise: .response(.lost("NoResponse")))
        }
        let isWaitingLate = waiting.contains { $0.deadline <= now }
        if isWaitingLate {
            for request in waiting where request.deadline <= now {
                concluded.append(Concluded(request: request, result: .response(.lost("NoResponse"))))
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

    /// Returns the streams that must be reset.
    mutating func takeUnclosed() -> [Int] {
        defer { unclosed = [] }
        return unclosed
    }
}
