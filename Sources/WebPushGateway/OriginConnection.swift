import HTTP2Wire
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import Synchronization

/// One HTTP/2 connection to a push service, which carries many requests at the same time.
final class OriginConnection: Sendable {
    static let tlsName = "h2"

    private let channel: any Channel
    private let handler: NIOLoopBound<OriginConnectionHandler>
    private let retired = Atomic(false)

    /// Must be called on the channel's event loop.
    fileprivate init(_ channel: any Channel, _ handler: OriginConnectionHandler) {
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    /// Whether the connection accepts no more requests, so that another one is needed.
    var isRetired: Bool { retired.load(ordering: .relaxed) }
    fileprivate func noteRetired() { retired.store(true, ordering: .relaxed) }

    /// Submits requests. Each request gets its result exactly once, even if the connection is over.
    func submit(_ requests: [WebPushRequest]) {
        channel.eventLoop.execute { [handler] in handler.value.submit(requests) }
    }

    /// Closes the connection after the last response.
    func close() {
        channel.eventLoop.execute { [handler] in handler.value.close() }
    }

    /// Closes the connection at once.
    func stop() {
        channel.eventLoop.execute { [handler] in handler.value.stop() }
    }

    /// Connects, and waits for the service's SETTINGS.
    ///
    /// - Parameters:
    ///   - serverName: The name that the certificate must have. `nil` if the certificate must be for the address.
    ///   - limit: The time limit of the whole connect, and then of each response.
    ///   - concluded: Receives the results, on the connection's event loop.
    /// - Returns: `nil` if the service does not offer HTTP/2.
    static func connect(
        to address: SocketAddress, serverName: String?, tls: NIOSSLContext, limit: TimeAmount, logger: Logger,
        concluded: @escaping @Sendable ([OriginStreams.Concluded]) -> Void
    ) async throws -> OriginConnection? {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let ready = eventLoop.makePromise(of: OriginConnection?.self)
        let connecting = ClientBootstrap(group: eventLoop)
            .connectTimeout(limit)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers(
                        NIOSSLClientHandler(context: tls, serverHostname: serverName),
                        OriginConnectionHandler(ready: ready, limit: limit, logger: logger, concluded: concluded))
                }
            }
            .connect(to: address)
        connecting.whenFailure { ready.fail($0) }
        let timer = eventLoop.scheduleTask(in: limit) { ready.fail(ChannelError.connectTimeout(limit)) }
        ready.futureResult.whenComplete { _ in timer.cancel() }
        ready.futureResult.whenFailure { _ in connecting.whenSuccess { $0.close(promise: nil) } }
        return try await ready.futureResult.get()
    }
}

/// Writes requests and performs the decisions of ``OriginStreams``. ``HTTP2Session`` handles frames and the streams
/// handle requests. The handler has the socket and the clock.
private final class OriginConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The number of bytes after which the output is flushed: the size of a TLS record.
    private static let flushSize = 16 << 10

    private let ready: EventLoopPromise<OriginConnection?>
    private let limit: TimeAmount
    private let logger: Logger
    private let concluded: @Sendable ([OriginStreams.Concluded]) -> Void
    private var context: ChannelHandlerContext?
    private var connection: OriginConnection?
    private var session = HTTP2Session()
    private var streams: OriginStreams
    private var isHTTP2 = false
    private var isOver = false

    init(
        ready: EventLoopPromise<OriginConnection?>, limit: TimeAmount, logger: Logger,
        concluded: @escaping @Sendable ([OriginStreams.Concluded]) -> Void
    ) {
        self.ready = ready
        self.limit = limit
        self.logger = logger
        self.concluded = concluded
        streams = OriginStreams(answerLimit: limit, now: .now())
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        ready.fail(ChannelError.eof)
        end()
        self.context = nil
    }

    // MARK: For the connection

    func submit(_ requests: [WebPushRequest]) {
        streams.submit(requests)
        act()
    }

    func close() {
        streams.retire()
        act()
    }

    func stop() { end(reason: "NotReached: the relay is stopping") }

    // MARK: From the service

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted(let agreed) = event as? TLSUserEvent {
            isHTTP2 = agreed == OriginConnection.tlsName
            if isHTTP2 {
                flush(context)
            } else {
                ready.succeed(nil)
                end()
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard isHTTP2, !isOver else { return }
        let now = context.eventLoop.now
        session.feed(unwrapInboundIn(data), now: now)
        do {
            while !isOver, let event = try session.next() { received(event, now: now) }
        } catch {
            logger.info("a push service violated the HTTP/2 protocol", metadata: ["error": "\(error)"])
            ready.fail(error)
            end(code: error.code)
        }
    }

    private func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, let retryAfter, let isLast):
            streams.received(status: status, retryAfter: retryAfter, endsStream: isLast, on: id, now: now)
            if isLast { receivedEnd(of: id) }
        case .data(let id, let bytes, let isLast, _):
            streams.received(body: bytes, endsStream: isLast, on: id, now: now)
            if isLast { receivedEnd(of: id) }
        case .reset(let id, let code):
            streams.received(reset: code, on: id, now: now)
        case .goAway(let last, let code, _):
            logger.debug("received GOAWAY", metadata: ["code": "\(HTTP2Code.name(code))"])
            streams.received(goAwayAfter: last)
        case .settings(let settings):
            streams.received(maxStreams: settings.maxStreams)
            if connection == nil { begin() }
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    /// Handles the end of a response. If the request was not sent completely, its stream must still be reset.
    private func receivedEnd(of id: Int) {
        if session.hasUnsentBody(id) { session.reset(id, .cancel) }
    }

    private func begin() {
        guard let context else { return }
        let connection = OriginConnection(context.channel, self)
        self.connection = connection
        ready.succeed(connection)
        tick()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        act()
        context.fireChannelReadComplete()
    }

    func channelInactive(context: ChannelHandlerContext) {
        ready.fail(ChannelError.eof)
        end()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        ready.fail(error)
        end()
    }

    // MARK: To the service

    /// Opens and resets streams, flushes the output, and delivers the results, as far as that is possible now.
    ///
    /// It does not wait until the channel is writable: the number of requests is limited by the service's window, and
    /// each request has a deadline.
    private func act() {
        guard let context, isHTTP2, !isOver else { return deliver() }
        let now = context.eventLoop.now
        while let (id, request) = streams.open(now: now) {
            do {
                try session.open(id, headers: request.headers, body: request.body)
            } catch {
                logger.error("a push cannot be written", metadata: ["error": "\(error)"])
                return end(code: error.code)
            }
            if session.outputSize >= Self.flushSize { flush(context) }
        }
        for id in streams.takeUnclosed() { session.reset(id, .cancel) }
        flush(context)
        deliver()
        if streams.isRetired, streams.isEmpty { end() }
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard let bytes = session.takeOutput() else { return }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        session.noteSent(bytes, peerIsReading: context.channel.isWritable)
    }

    private func tick() {
        guard let context, !isOver else { return }
        streams.tick(now: context.eventLoop.now)
        act()
        guard !isOver else { return }
        let pause = max(TimeAmount.milliseconds(10), min(.seconds(1), .nanoseconds(limit.nanoseconds / 4)))
        context.eventLoop.assumeIsolated().scheduleTask(in: pause) { self.tick() }
    }

    /// Closes the connection. Requests without a result get one now, before the service has agreed to the close.
    private func end(reason: String = "ConnectionLost", code: HTTP2Code = .noError) {
        guard !isOver else { return }
        isOver = true
        streams.end(reason: reason)
        deliver()
        connection = nil
        guard let context else { return }
        if isHTTP2, context.channel.isActive {
            session.goAway(code)
            flush(context)
        }
        context.close(promise: nil)
    }

    private func deliver() {
        if streams.isRetired { connection?.noteRetired() }
        let results = streams.takeConcluded()
        if !results.isEmpty { concluded(results) }
    }
}
