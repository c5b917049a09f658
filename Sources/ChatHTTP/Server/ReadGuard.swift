import HTTPTypes
import NIOCore
import NIOHTTPTypes

/// Closes a connection whose client is too slow or sends too much, and lets a client that asks first send its body.
///
/// A request that arrives in one piece costs no timer.
final class ReadGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let time: TimeAmount
    private let firstHeadTime: TimeAmount
    private let census: ConnectionCensus
    private var counted: IPAddress?
    private var progress = ReadProgress()
    private var deadline: Scheduled<Void>?

    /// - Parameters:
    ///   - time: from a request's head to the end of its body.
    ///   - firstHeadTime: from the connection's opening to its first head.
    init(
        census: ConnectionCensus, time: Duration = HTTPLimits.requestTime,
        firstHeadTime: Duration = HTTPLimits.firstHeadTime
    ) {
        self.census = census
        self.time = TimeAmount(time)
        self.firstHeadTime = TimeAmount(firstHeadTime)
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
        if let address = context.channel.remoteAddress.flatMap(IPAddress.init), census.counts(address) {
            guard census.enter(address.rateKey) else {
                context.close(promise: nil)
                return
            }
            counted = address.rateKey
        }
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: firstHeadTime) {
            self.deadline = nil
            context.close(promise: nil)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let action =
            switch unwrapInboundIn(data) {
            case .head(let head): began(head)
            case .body(let bytes): progress.read(bytes.readableBytes)
            case .end: progress.ended()
            }
        if !progress.isReading { stopTimer() }
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

    private func began(_ head: HTTPRequest) -> ReadProgress.Action {
        stopTimer()
        return progress.began(head)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if progress.isReading, deadline == nil {
            deadline = context.eventLoop.assumeIsolated().scheduleTask(in: time) {
                self.deadline = nil
                if self.progress.isReading { context.close(promise: nil) }
            }
        }
        context.fireChannelReadComplete()
    }

    func channelInactive(context: ChannelHandlerContext) {
        stopTimer()
        leave()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        stopTimer()
        leave()
    }

    private func leave() {
        if let counted { census.leave(counted) }
        counted = nil
    }

    private func stopTimer() {
        deadline?.cancel()
        deadline = nil
    }
}

/// How far the request that is being read has come.
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

    /// Bytes past the limit of a body are read and dropped for a while, so that a client that does not listen while
    /// it sends gets to see why it was refused.
    mutating func read(_ count: Int) -> Action {
        bytes += count
        return bytes > HTTPLimits.adminBody + HTTPLimits.discardedBody ? .close : .pass
    }

    mutating func ended() -> Action {
        isReading = false
        return .pass
    }
}
