import ChatDomain
import NIOCore
import Synchronization

/// One open connection to Apple's HTTP/2 API, as the pool sees it; what happens on it happens in its handler.
final class HTTP2Connection: ChannelConnection {
    let epoch: ConnectionEpoch
    let channel: any Channel
    let handler: NIOLoopBound<HTTP2ConnectionHandler>
    private let capacity: HTTP2Capacity
    private let retirement: EventLoopFuture<Void>
    private let template: HTTP2RequestTemplate
    private let breaker: CircuitBreaker

    /// To be called on the channel's event loop.
    init(
        epoch: ConnectionEpoch, channel: any Channel, handler: HTTP2ConnectionHandler,
        template: HTTP2RequestTemplate, breaker: CircuitBreaker
    ) {
        self.epoch = epoch
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.capacity = handler.capacity
        self.retirement = handler.retirement.futureResult
        self.template = template
        self.breaker = breaker
    }

    var slot: ConnectionSlot? { channel.isActive ? capacity.slot(on: epoch) : nil }

    /// It is fresh again as soon as everything is answered.
    var isReplaceable: Bool { false }

    var isSaturated: Bool { capacity.isSaturated }
    var isBlocked: Bool { capacity.isBlocked }

    /// Builds the requests here, so that the event loop has less to do, and hands them over.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        breaker.noteWritten()
        capacity.noteLeased(through: last.identifier, isProbe: lease.isProbe)
        let requests = lease.pushes.map(template.request)
        channel.eventLoop.execute { [handler] in handler.value.write(requests) }
    }

    func retired() async {
        try? await retirement.get()
    }
}

/// How many pushes a connection can take: its handler says it on the event loop, and those who lease for it read it.
final class HTTP2Capacity: Sendable {
    /// Pushes in one lease.
    static let leaseLimit = 1000

    private struct State {
        /// Pushes that were leased for the connection.
        var leased: UInt32 = 0
        /// Those of them that have their verdict.
        var settled: UInt32 = 0
        var limit = 0
        var canBeSaturated = false
        /// The answer to the first push is late.
        var isFirstAnswerLate = false
        /// What was leased last has to be proved alone.
        var isProbing = false

        var outstanding: Int { Int(leased) - Int(settled) }

        /// What may be leased now; nil while that would be too little for a transaction of its own.
        var room: Int? {
            guard !isProbing else { return nil }
            let room = min(limit - outstanding, leaseLimit)
            return room >= max(1, min(limit, leaseLimit) / 4) ? room : nil
        }
    }

    private let state = Mutex(State())

    func slot(on epoch: ConnectionEpoch) -> ConnectionSlot? {
        let (leased, outstanding, room) = state.withLock { ($0.leased, $0.outstanding, $0.room) }
        guard let room else { return nil }
        return ConnectionSlot(
            connection: epoch, firstIdentifier: leased + 1, room: room, isFresh: outstanding <= 0, answersEach: true)
    }

    var isSaturated: Bool { state.withLock { $0.canBeSaturated && !$0.isProbing && $0.room == nil } }
    var isBlocked: Bool { state.withLock { $0.isProbing || $0.isFirstAnswerLate } }

    func noteLeased(through identifier: UInt32, isProbe: Bool) {
        state.withLock { state in
            state.leased = identifier
            state.isProbing = isProbe
        }
    }

    /// - Parameters:
    ///   - settled: how many more pushes have their verdict.
    ///   - limit: how many may be here at once.
    /// - Returns: whether the waiters are to be served: there is room, or another connection would help.
    func publish(settled: Int, limit: Int, canBeSaturated: Bool, isFirstAnswerLate: Bool) -> Bool {
        state.withLock { state in
            state.settled += UInt32(settled)
            state.limit = limit
            let isNews = isFirstAnswerLate && !state.isFirstAnswerLate
            state.canBeSaturated = canBeSaturated
            state.isFirstAnswerLate = isFirstAnswerLate
            if state.outstanding <= 0 { state.isProbing = false }
            return state.room != nil || isNews
        }
    }
}
