import ChatDomain
import Foundation
import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import Synchronization
import WebAssets

/// Closes a connection whose client is too slow or sends too much, also when the server stops, and tells a stream when its
/// connection ends. Installs `WriteGuard` for clients that do not read.
///
/// Its times are the event loop's. A request that arrives in one piece costs no timer.
final class ConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let connections: ConnectionCounter
    private var counted: IPAddress?
    private var progress = ReadProgress()
    private var deadline: Scheduled<Void>?
    private var stop = StopProgress()
    /// Of the answer under way; nil when it was told.
    private var onEnd: (@Sendable (ConnectionEnd) -> Void)?
    private var ending: ConnectionEnd?
    private var early: EarlyResponse?
    /// Requests whose answers have not ended. Before the last are those that a client has sent without waiting.
    private var unanswered = 0

    /// An answer that was begun before its request was read whole. The connection ends with both: a proxy may give such a request
    /// up and send the next one in its place (HAProxy 2.6, for clients of HTTP/2), which would be read as the rest of it.
    private enum EarlyResponse {
        case underWay, written
    }

    init(connections: ConnectionCounter) {
        self.connections = connections
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let pipeline = context.pipeline.syncOperations
        if let codec = try? pipeline.context(handlerType: HTTP1ToHTTPServerCodec.self) {
            try? pipeline.addHandler(VersionRules(), position: .before(codec.handler))
            let metrics = connections.metrics
            try? pipeline.addHandler(WriteGuard { metrics.hit(.writeTime) }, position: .first)
        }
        let options = context.channel.syncOptions
        // The buffer for what comes next stays with the connection, also with one that sends nothing any more.
        try? options?.setOption(.recvAllocator, value: HTTPLimits.readBuffer)
        try? options?.setOption(.writeBufferWaterMark, value: HTTPLimits.answerBuffer)
        // Without it Linux keeps up to four megabytes of answers for a client that reads nothing.
        try? options?.setOption(.tcpOption(.init(rawValue: TCP_NOTSENT_LOWAT)), value: HTTPLimits.unsentBytes)
        if context.channel.isActive { begin(context) }
    }

    func channelActive(context: ChannelHandlerContext) {
        begin(context)
        context.fireChannelActive()
    }

    private func begin(_ context: ChannelHandlerContext) {
        guard deadline == nil, counted == nil else { return }
        if let address = context.channel.remoteAddress.flatMap(IPAddress.init), connections.isLimited(address) {
            guard connections.add(address.rateKey) else {
                connections.metrics.hit(.connectionsPerAddress)
                context.close(promise: nil)
                return
            }
            counted = address.rateKey
        }
        startTimer(HTTPLimits.firstHeadTime, context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var data = data
        // What comes after the last request that is still answered is dropped.
        if stop.isStopping || early != nil, !progress.isReading { return }
        switch unwrapInboundIn(data) {
        case .head(var head):
            stopTimer()
            if head.replaceCostlyText() { data = wrapInboundOut(.head(head)) }
            unanswered += 1
            guard unanswered <= HTTPLimits.pipelinedRequests else { return refuse(.pipelinedRequests, context) }
            progress.began()
        case .body(let bytes):
            guard progress.read(bytes.readableBytes) else { return refuse(.body, context) }
        case .end:
            progress.ended()
            if !stop.isStopping { stopTimer() }
        }
        context.fireChannelRead(data)
        closeAfterEarlyResponse(context)
    }

    private func refuse(_ limit: Limit, _ context: ChannelHandlerContext) {
        connections.metrics.hit(limit)
        context.close(promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if progress.isReading, deadline == nil { startTimer(HTTPLimits.requestTime, context) }
        context.fireChannelReadComplete()
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var (data, promise) = (data, promise)
        switch unwrapOutboundIn(data) {
        case .head(let head) where head.status.kind == .informational: break
        case .head(var head):
            stop.isAnswering = true
            if progress.isReading, unanswered == 1 {
                early = .underWay
                head.headerFields[.connection] = "close"
                data = wrapOutboundOut(.head(head))
            }
        case .body: break
        case .end:
            stop.isAnswering = false
            unanswered -= 1
            if early != nil {
                let written = promise ?? context.eventLoop.makePromise()
                written.futureResult.assumeIsolated().whenComplete { _ in
                    self.early = .written
                    self.closeAfterEarlyResponse(context)
                }
                promise = written
            }
        }
        context.write(data, promise: promise)
    }

    private func closeAfterEarlyResponse(_ context: ChannelHandlerContext) {
        if early == .written, !progress.isReading { context.close(promise: nil) }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is ChannelShouldQuiesceEvent {
            stop.isStopping = true
            stopTimer()
            startStopTimer(context)
            ends(.serverStops)
        } else if case ChannelEvent.inputClosed = event {
            ends(.clientLeft)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end()
    }

    /// Calls `act` once, when the client closes its side or the server stops; at once if that has happened.
    fileprivate func whenEnding(_ act: @escaping @Sendable (ConnectionEnd) -> Void) {
        if let ending { act(ending) } else { onEnd = act }
    }

    private func ends(_ reason: ConnectionEnd) {
        ending = ending ?? reason
        onEnd?(reason)
        onEnd = nil
    }

    private func end() {
        ends(.clientLeft)
        stopTimer()
        if let counted { connections.remove(counted) }
        counted = nil
    }

    /// Closes the connection unless ``stopTimer()`` comes first.
    private func startTimer(_ time: Duration, _ context: ChannelHandlerContext) {
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(time)) {
            self.deadline = nil
            // Without a request it is a browser that has connected in advance.
            if self.progress.isReading { self.connections.metrics.hit(.requestTime) }
            context.close(promise: nil)
        }
    }

    /// The connection closes by itself when what was read has its answer; this is for those who do not send or take theirs.
    private func startStopTimer(_ context: ChannelHandlerContext) {
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(HTTPLimits.stopTime)) {
            self.deadline = nil
            if self.progress.isReading || self.stop.isStuck() {
                context.close(promise: nil)
            } else {
                self.startStopTimer(context)
            }
        }
    }

    private func stopTimer() {
        deadline?.cancel()
        deadline = nil
    }
}

/// Why a connection ends while an answer is under way.
enum ConnectionEnd: Sendable {
    case clientLeft
    case serverStops
}

extension Channel {
    /// Calls `act` once, on the event loop, when the connection's client closes its side or the server stops; at once if that
    /// has happened. One at a time. A task that waits for it would cost each stream some kilobytes.
    func whenEnding(_ act: @escaping @Sendable (ConnectionEnd) -> Void) {
        eventLoop.execute {
            let handler = try? self.pipeline.syncOperations.handler(type: ConnectionGuard.self)
            guard let handler else { return act(.clientLeft) }
            handler.whenEnding(act)
        }
    }
}

/// How far a connection is when the server stops.
struct StopProgress {
    var isStopping = false
    /// The head of an answer was written, and its end was not.
    var isAnswering = false
    private var wasAnswering = false

    /// Whether the answer under way was so already when this was asked last.
    mutating func isStuck() -> Bool {
        defer { wasAnswering = isAnswering }
        return isAnswering && wasAnswering
    }
}

/// What depends on the version of HTTP/1, which nothing after this handler knows.
///
/// A connection is closed after the answer wherever its client expects that: HTTP/1.0 without `Connection: keep-alive` does
/// (RFC 9112 §9.3), and `Connection: Close` in any spelling. A request without exactly one `Host` has no authority then, so
/// that ``ResponseMiddleware`` refuses it, and its connection is closed, because what stands in front of the relay may have read
/// it in another way (RFC 9112 §3.2). HTTP/1.0 need not have one.
private final class VersionRules: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(var head) = unwrapInboundIn(data) else { return context.fireChannelRead(data) }
        // Such a client does not know the answer (RFC 9110, section 10.1.1).
        let hasExpectation = head.version == .http1_0 && head.headers.contains(name: "Expect")
        if hasExpectation { head.headers.remove(name: "Expect") }
        var hosts = head.headers["Host"].count
        if !hasExpectation, hosts == 1, head.isKeepAlive { return context.fireChannelRead(data) }
        if hosts == 0, head.version == .http1_0 {
            head.headers.add(name: "Host", value: "")
            hosts = 1
        }
        if hosts > 1 { head.headers.remove(name: "Host") }
        if hosts != 1 || !head.isKeepAlive { head.headers.replaceOrAdd(name: "Connection", value: "close") }
        context.fireChannelRead(wrapInboundOut(.head(head)))
    }
}

extension HTTPRequest {
    /// Replaces what would be costly to look at. Texts are compared, split and looked up by their Unicode normal forms, and
    /// that costs the square of the length where combining marks follow each other. An address cannot hold them unescaped
    /// (RFC 3986 §2; the parser sees to it), and a long header has no use for them.
    ///
    /// - Returns: whether anything was replaced.
    mutating func replaceCostlyText() -> Bool {
        var isChanged = false
        if let authority, authority.isCostly {
            self.authority = authority.inASCII
            isChanged = true
        }
        for index in headerFields.indices where headerFields[index].value.isCostly {
            headerFields[index].value = headerFields[index].value.inASCII
            isChanged = true
        }
        return isChanged
    }
}

extension String {
    fileprivate var isCostly: Bool { utf8.count > HTTPLimits.nonASCIIHeader && utf8.contains { $0 >= 128 } }

    fileprivate var inASCII: String { HeaderText.sanitized(self, limit: .max) }
}

/// How much of the current request has been read.
struct ReadProgress {
    private(set) var isReading = false
    private var bytes = 0

    mutating func began() {
        isReading = true
        bytes = 0
    }

    /// Bytes above the limit of a body are read and dropped up to a second limit, because a client that reads nothing while
    /// it sends would else not see why it was refused.
    ///
    /// - Returns: false above the second limit.
    mutating func read(_ count: Int) -> Bool {
        bytes += count
        return bytes <= HTTPLimits.batchBody + HTTPLimits.discardedBody
    }

    mutating func ended() {
        isReading = false
    }
}

/// How many connections each address has open, so that one client cannot take them all.
final class ConnectionCounter: Sendable {
    let metrics: LimitMetrics
    private let limit: Int
    private let trustedProxies: @Sendable () -> [AddressRange]
    private let open = Mutex<[IPAddress: Int]>([:])

    init(
        limit: Int = HTTPLimits.connectionsPerAddress, metrics: LimitMetrics = LimitMetrics(),
        trustedProxies: @escaping @Sendable () -> [AddressRange] = { [] }
    ) {
        self.limit = limit
        self.metrics = metrics
        self.trustedProxies = trustedProxies
    }

    /// False for this machine and for trusted proxies, which connect for many clients.
    func isLimited(_ address: IPAddress) -> Bool {
        !address.isLoopback && !trustedProxies().contains { $0.contains(address) }
    }

    /// Counts a connection; false, and not counted, when there are too many.
    func add(_ address: IPAddress) -> Bool {
        open.withLock { open in
            guard open[address, default: 0] < limit else { return false }
            open[address, default: 0] += 1
            return true
        }
    }

    func remove(_ address: IPAddress) {
        open.withLock { open in
            guard let count = open[address] else { return }
            open[address] = count > 1 ? count - 1 : nil
        }
    }
}
