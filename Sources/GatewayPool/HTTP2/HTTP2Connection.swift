import ChatDomain
import HTTP2Wire
import NIOCore
import Synchronization

/// One open connection to a push service's HTTP/2 API, as the pool sees it. The handler does the work on the event loop.
final class HTTP2Connection<Client: HTTP2PushClient>: ChannelConnection {
    let id: ConnectionID
    let channel: any Channel
    let handler: NIOLoopBound<HTTP2ClientHandler<HTTP2Pushes<Client>>>
    private let capacity: HTTP2Capacity
    private let retirement: EventLoopFuture<Void>
    private let client: Client
    private let breaker: CircuitBreaker

    /// Must be called on the channel's event loop.
    init(
        id: ConnectionID, channel: any Channel, handler: HTTP2ClientHandler<HTTP2Pushes<Client>>, client: Client,
        breaker: CircuitBreaker
    ) {
        self.id = id
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.capacity = handler.owner.capacity
        self.retirement = handler.owner.retirement.futureResult
        self.client = client
        self.breaker = breaker
    }

    var slot: ConnectionSlot? { channel.isActive ? capacity.slot(on: id) : nil }

    /// Always `false`: the connection is fresh again as soon as all pushes have their responses.
    var isReplaceable: Bool { false }

    var isSaturated: Bool { capacity.isSaturated }
    var isBlocked: Bool { capacity.isBlocked }

    /// Builds the requests and submits them to the event loop. Building them here saves work on the event loop.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        breaker.noteWritten(lease.pushes.count)
        capacity.noteLeased(through: last.identifier, isProbe: lease.isProbe)
        let requests = lease.pushes.map(client.request)
        channel.eventLoop.execute { [handler] in handler.value.enqueue(requests) }
    }

    func retired() async {
        try? await retirement.get()
    }
}

/// The capacity of a connection for pushes. ``HTTP2Pushes`` publishes it on the event loop, and callers that
/// lease pushes read it.
final class HTTP2Capacity: Sendable {
    /// The maximum number of pushes in a lease.
    static let leaseLimit = 1000

    private struct State {
        /// The number of pushes that were leased for the connection.
        var leased: UInt32 = 0
        /// The number of leased pushes that have their outcome.
        var settled: UInt32 = 0
        var limit = 0
        var canBeSaturated = false
        /// Whether the response to the first push is late.
        var isFirstResponseLate = false
        /// Whether the last lease was a probe, which still waits for its outcome.
        var isProbing = false

        var outstanding: Int { Int(leased) - Int(settled) }

        /// The number of pushes that may be leased now. `nil` if it is too small for a separate transaction, or
        /// during a probe.
        var free: Int? {
            guard !isProbing else { return nil }
            let free = min(limit - outstanding, leaseLimit)
            return free >= max(1, min(limit, leaseLimit) / 4) ? free : nil
        }
    }

    private let state = Mutex(State())

    func slot(on connectionID: ConnectionID) -> ConnectionSlot? {
        let (leased, outstanding, free) = state.withLock { ($0.leased, $0.outstanding, $0.free) }
        guard let free else { return nil }
        return ConnectionSlot(
            connection: connectionID, firstIdentifier: leased + 1, capacity: free, isFresh: outstanding <= 0,
            answersEach: true)
    }

    var isSaturated: Bool { state.withLock { $0.canBeSaturated && !$0.isProbing && $0.free == nil } }
    var isBlocked: Bool { state.withLock { $0.isProbing || $0.isFirstResponseLate } }

    func noteLeased(through identifier: UInt32, isProbe: Bool) {
        state.withLock { state in
            state.leased = identifier
            state.isProbing = isProbe
        }
    }

    /// Updates the capacity after outcomes.
    /// - Parameters:
    ///   - settled: The number of further pushes that have their outcome.
    ///   - limit: The maximum number of pushes that the connection may hold.
    /// - Returns: Whether to serve the waiters, because there is capacity or another connection would help.
    func publish(settled: Int, limit: Int, canBeSaturated: Bool, isFirstResponseLate: Bool) -> Bool {
        state.withLock { state in
            state.settled += UInt32(settled)
            state.limit = limit
            let isNews = isFirstResponseLate && !state.isFirstResponseLate
            state.canBeSaturated = canBeSaturated
            state.isFirstResponseLate = isFirstResponseLate
            if state.outstanding <= 0 { state.isProbing = false }
            return state.free != nil || isNews
        }
    }
}
