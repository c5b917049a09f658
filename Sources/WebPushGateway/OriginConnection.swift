import HTTP2Wire
import Logging
import NIOCore
import NIOHPACK
import NIOPosix
import NIOSSL
import Synchronization

/// One HTTP/2 connection to a push service, which carries many requests at the same time.
final class OriginConnection: Sendable {
    private let channel: any Channel
    private let handler: NIOLoopBound<HTTP2ClientHandler<OriginRequests>>
    private let retired = Atomic(false)

    /// Must be called on the channel's event loop.
    private init(_ channel: any Channel, _ handler: HTTP2ClientHandler<OriginRequests>) {
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    /// Whether the connection accepts no more requests, so that another one is needed.
    var isRetired: Bool { retired.load(ordering: .relaxed) }
    fileprivate func noteRetired() { retired.store(true, ordering: .relaxed) }

    /// Submits requests. Each request gets its result exactly once, even if the connection is over.
    func submit(_ requests: [WebPushRequest]) {
        channel.eventLoop.execute { [handler] in handler.value.update { streams, _ in streams.submit(requests) } }
    }

    /// Closes the connection after the last response.
    func close() {
        channel.eventLoop.execute { [handler] in handler.value.update { streams, _ in streams.retire() } }
    }

    /// Closes the connection at once.
    func stop() {
        channel.eventLoop.execute { [handler] in handler.value.close(reason: "NotReached: the relay is stopping") }
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
            .channelOption(.writeBufferWaterMark, value: .init(low: 64 << 10, high: 256 << 10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let requests = OriginRequests(ready: ready, limit: limit, logger: logger, concluded: concluded)
                    let handler = HTTP2ClientHandler(requests)
                    try channel.pipeline.syncOperations.addHandlers(
                        NIOSSLClientHandler(context: tls, serverHostname: serverName), handler)
                    requests.connection = OriginConnection(channel, handler)
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

/// The requests on one connection to a push service. Performs the decisions of ``OriginStreams``.
private final class OriginRequests: HTTP2Requests {
    /// The connection, until it is over.
    var connection: OriginConnection?
    let shortestLimit: TimeAmount
    private let ready: EventLoopPromise<OriginConnection?>
    private let logger: Logger
    private let concluded: @Sendable ([OriginStreams.Concluded]) -> Void
    private var streams: OriginStreams

    init(
        ready: EventLoopPromise<OriginConnection?>, limit: TimeAmount, logger: Logger,
        concluded: @escaping @Sendable ([OriginStreams.Concluded]) -> Void
    ) {
        self.ready = ready
        self.logger = logger
        self.concluded = concluded
        shortestLimit = limit
        streams = OriginStreams(answerLimit: limit, now: .now())
    }

    func submit(_ requests: [WebPushRequest]) { streams.submit(requests) }
    func retire() { streams.retire() }

    // MARK: To the service

    var isDone: Bool { streams.isRetired && streams.isEmpty }

    func open(now: NIODeadline) -> (stream: Int, headers: HPACKHeaders, body: [UInt8])? {
        streams.open(now: now).map { ($0.stream, $0.request.headers, $0.request.body) }
    }

    func takeUnclosed() -> [Int] { streams.takeUnclosed() }

    func tick(now: NIODeadline) -> HTTP2TickAction? {
        if streams.hasSettings { streams.tick(now: now) }
        return nil
    }

    // MARK: From the service

    func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, let retryAfter, let isLast):
            streams.received(status: status, retryAfter: retryAfter, endsStream: isLast, on: id, now: now)
        case .data(let id, let bytes, let isLast, _):
            streams.received(body: bytes, endsStream: isLast, on: id, now: now)
        case .reset(let id, let code):
            streams.received(reset: code, on: id, now: now)
        case .goAway(let last, let code, _):
            logger.debug("received GOAWAY", metadata: ["code": "\(HTTP2Code.name(code))"])
            streams.received(goAwayAfter: last)
        case .settings(let settings):
            streams.received(maxStreams: settings.maxStreams)
            ready.succeed(connection)
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    func ended(_ end: HTTP2End) {
        switch end {
        case .otherProtocol:
            ready.succeed(nil)
        case .violated(let failure):
            logger.info("a push service violated the HTTP/2 protocol", metadata: ["error": "\(failure)"])
            ready.fail(failure)
        case .unwritable(let failure):
            logger.error("a push cannot be written", metadata: ["error": "\(failure)"])
        case .failed(let error):
            ready.fail(error)
        case .lost, .closed:
            ready.fail(ChannelError.eof)
        }
        streams.end(reason: end.reason)
        connection?.noteRetired()
        connection = nil
    }

    func deliver(now: NIODeadline) {
        if streams.isRetired { connection?.noteRetired() }
        let results = streams.takeConcluded()
        if !results.isEmpty { concluded(results) }
    }
}
