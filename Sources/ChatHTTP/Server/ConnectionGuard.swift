import ChatDomain
import Foundation
import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import Synchronization
import WebAssets

/// Closes a connection whose client is too slow or sends too much, also while the server stops. Notifies a stream when
/// its connection ends. Installs `WriteGuard` for clients that do not read.
///
/// Its timers run on the event loop. A request that arrives in one piece needs no timer.
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
    /// Called once if the connection ends during a response. `nil` after that call.
    private var onEnd: (@Sendable (ConnectionEnd) -> Void)?
    private var ending: ConnectionEnd?
    private var early: EarlyResponse?
    /// The number of requests whose responses have not ended. All but the first are pipelined: the client sent them
    /// without waiting for a response.
    private var openRequests = 0

    /// A response that began before its request was read completely. The connection closes once the request and the
    /// response are complete. A proxy may abandon such a request and send the next one in its place (HAProxy 2.6, for
    /// clients of HTTP/2), which the relay would read as the rest of the first.
    private enum EarlyResponse {
        case inProgress, written
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
        // Every connection keeps its read buffer, even one that sends nothing more.
        try? options?.setOption(.recvAllocator, value: HTTPLimits.readBuffer)
        try? options?.setOption(.writeBufferWaterMark, value: HTTPLimits.responseBuffer)
        // Without this option Linux buffers up to four megabytes of responses for a client that reads nothing.
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
        // Drop everything after the last request that still gets a response.
        if stop.isStopping || early != nil, !progress.isReading { return }
        switch unwrapInboundIn(data) {
        case .head(var head):
            stopTimer()
            if head.replaceCostlyText() { data = wrapInboundOut(.head(head)) }
            openRequests += 1
            guard openRequests <= HTTPLimits.pipelinedRequests else { return reject(.pipelinedRequests, context) }
            progress.began()
        case .body(let bytes):
            guard progress.read(bytes.readableBytes) else { return reject(.body, context) }
        case .end:
            progress.ended()
            if !stop.isStopping { stopTimer() }
        }
        context.fireChannelRead(data)
        closeAfterEarlyResponse(context)
    }

    private func reject(_ limit: Limit, _ context: ChannelHandlerContext) {
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
        case .head(let head) where head.status.kind == .informational && head.status != .switchingProtocols: break
        case .head(var head):
            stop.isResponding = true
            if progress.isReading, openRequests == 1 {
                early = .inProgress
                head.headerFields[.connection] = "close"
                data = wrapOutboundOut(.head(head))
            }
        case .body: break
        case .end:
            stop.isResponding = false
            openRequests -= 1
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

    /// Calls `act` once, when the client closes its side or the server stops; immediately if that has already happened.
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

    /// Closes the connection after `time`, unless ``stopTimer()`` is called first.
    private func startTimer(_ time: Duration, _ context: ChannelHandlerContext) {
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(time)) {
            self.deadline = nil
            // A connection without a request is a browser's preconnection, so it does not count as a hit of the limit.
            if self.progress.isReading { self.connections.metrics.hit(.requestTime) }
            context.close(promise: nil)
        }
    }

    /// A connection closes automatically once every request that was read has its response. The timer closes
    /// connections whose clients stop sending the request or reading the response.
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

/// The reason why a connection ends during a response.
enum ConnectionEnd: Sendable {
    case clientLeft
    case serverStops
}

extension Channel {
    /// Calls `act` once, on the event loop, when the client closes its side or the server stops; immediately if that
    /// has already happened. A connection has at most one such callback. A waiting task instead would cost each stream
    /// some kilobytes.
    func whenEnding(_ act: @escaping @Sendable (ConnectionEnd) -> Void) {
        eventLoop.execute {
            let handler = try? self.pipeline.syncOperations.handler(type: ConnectionGuard.self)
            guard let handler else { return act(.clientLeft) }
            handler.whenEnding(act)
        }
    }
}

/// The progress of a connection's responses while the server stops.
struct StopProgress {
    var isStopping = false
    /// Whether the head of a response has been written and its end has not.
    var isResponding = false
    private var wasResponding = false

    /// Returns whether a response is in progress and already was at the previous call.
    mutating func isStuck() -> Bool {
        defer { wasResponding = isResponding }
        return isResponding && wasResponding
    }
}

/// Applies the rules that depend on the version of HTTP/1, because later handlers do not see the version.
///
/// The connection closes after the response if the client expects that: HTTP/1.0 without `Connection: keep-alive` (RFC
/// 9112 §9.3), or `Connection: close` in any spelling. HTTP/1.1 requires exactly one `Host`. Otherwise the request gets
/// no authority, so ``ResponseMiddleware`` rejects it. The connection then closes, because a proxy in front of the
/// relay may have read the request differently (RFC 9112 §3.2). HTTP/1.0 may omit `Host`.
private final class VersionRules: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(var head) = unwrapInboundIn(data) else { return context.fireChannelRead(data) }
        // An HTTP/1.0 client does not understand a `100 Continue` response (RFC 9110, section 10.1.1).
        let hasExpectation = head.version == .http1_0 && head.headers.contains(name: "Expect")
        if hasExpectation { head.headers.remove(name: "Expect") }
        // HTTP/1.0 has no `Upgrade` (RFC 9110 §7.8). The field stays, because the parser may already treat what follows
        // as another protocol.
        let hasUpgrade = head.version == .http1_0 && head.headers.contains(name: "Upgrade")
        if hasUpgrade { head.headers.replaceOrAdd(name: "Upgrade", value: "none") }
        var hosts = head.headers["Host"].count
        if !hasExpectation, !hasUpgrade, hosts == 1, head.isKeepAlive { return context.fireChannelRead(data) }
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
    /// Replaces non-ASCII characters in long values, because they are costly to process. Swift compares, splits and
    /// hashes strings by their Unicode normal forms. The cost grows with the square of the length of a sequence of
    /// combining marks. An address cannot contain them unescaped (RFC 3986 §2; the parser enforces that), and a long
    /// header does not need them.
    ///
    /// - Returns: Whether anything was replaced.
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

/// Whether a connection is reading a request, and the number of body bytes read so far.
struct ReadProgress {
    private(set) var isReading = false
    private var bytes = 0

    mutating func began() {
        isReading = true
        bytes = 0
    }

    /// Counts body bytes. Bytes above the body limit are read and dropped up to a second limit. Otherwise a client that
    /// reads nothing while it sends would not see why its request was rejected.
    ///
    /// - Returns: `false` above the second limit.
    mutating func read(_ count: Int) -> Bool {
        bytes += count
        return bytes <= HTTPLimits.batchBody + HTTPLimits.discardedBody
    }

    mutating func ended() {
        isReading = false
    }
}

/// Counts the open connections of each address, so that one client cannot use them all.
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

    /// Returns `false` for this machine and for trusted proxies, which connect for many clients.
    func isLimited(_ address: IPAddress) -> Bool {
        !address.isLoopback && !trustedProxies().contains { $0.contains(address) }
    }

    /// Counts a connection. Returns `false`, without counting it, if the address has too many.
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
