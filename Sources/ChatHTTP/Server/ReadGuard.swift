import ChatDomain
import HTTPTypes
import NIOCore
import NIOHTTPTypes
import Synchronization

/// Closes a connection whose client is too slow or sends too much, and answers `Expect: 100-continue`.
///
/// Its times are the event loop's. A request that arrives in one piece costs no timer.
final class ReadGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let connections: ConnectionCounter
    private var counted: IPAddress?
    private var progress = ReadProgress()
    private var deadline: Scheduled<Void>?

    init(connections: ConnectionCounter) {
        self.connections = connections
    }

    func handlerAdded(context: ChannelHandlerContext) {
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
                context.close(promise: nil)
                return
            }
            counted = address.rateKey
        }
        startTimer(HTTPLimits.firstHeadTime, context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let action: ReadProgress.Action
        switch unwrapInboundIn(data) {
        case .head(let head):
            stopTimer()
            action = progress.began(head)
        case .body(let bytes): action = progress.read(bytes.readableBytes)
        case .end:
            progress.ended()
            stopTimer()
            action = .pass
        }
        switch action {
        case .pass: break
        case .passAndContinue:
            let head = HTTPResponse(status: .continue)
            context.writeAndFlush(wrapOutboundOut(.head(head)), promise: nil)
        case .close:
            context.close(promise: nil)
            return
        }
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if progress.isReading, deadline == nil { startTimer(HTTPLimits.requestTime, context) }
        context.fireChannelReadComplete()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end()
    }

    private func end() {
        stopTimer()
        if let counted { connections.remove(counted) }
        counted = nil
    }

    /// Closes the connection unless ``stopTimer()`` comes first.
    private func startTimer(_ time: Duration, _ context: ChannelHandlerContext) {
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(time)) {
            self.deadline = nil
            context.close(promise: nil)
        }
    }

    private func stopTimer() {
        deadline?.cancel()
        deadline = nil
    }
}

/// How much of the current request has been read.
struct ReadProgress {
    enum Action: Equatable {
        case pass
        /// The client waits for `100 Continue` before it sends the body.
        case passAndContinue
        case close
    }

    private(set) var isReading = false
    private var bytes = 0

    mutating func began(_ head: HTTPRequest) -> Action {
        isReading = true
        bytes = 0
        guard let expect = head.headerFields.first(.expect), expect.lowercased() == "100-continue" else {
            return .pass
        }
        // A body that will be refused is not asked for: the client sees the answer instead.
        let declared = head.headerFields.first(.contentLength).flatMap { Int($0) }
        return (declared ?? 0) > HTTPLimits.body(of: head.path) ? .pass : .passAndContinue
    }

    /// Bytes above the limit of a body are read and dropped up to a second limit, because a client that reads nothing while
    /// it sends would else not see why it was refused.
    mutating func read(_ count: Int) -> Action {
        bytes += count
        return bytes > HTTPLimits.adminBody + HTTPLimits.discardedBody ? .close : .pass
    }

    mutating func ended() {
        isReading = false
    }
}

/// How many connections each address has open, so that one client cannot take them all.
final class ConnectionCounter: Sendable {
    private let limit: Int
    private let trustedProxies: @Sendable () -> [AddressRange]
    private let open = Mutex<[IPAddress: Int]>([:])

    init(
        limit: Int = HTTPLimits.connectionsPerAddress, trustedProxies: @escaping @Sendable () -> [AddressRange] = { [] }
    ) {
        self.limit = limit
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
