import ChatDomain
import GatewayPool
import Logging
import NIOCore
import PushWire
import Synchronization

/// One open connection to the binary gateway, as the pool sees it. The handler does the work on the event loop.
final class BinaryConnection: ChannelConnection {
    let id: ConnectionID
    let channel: any Channel
    let handler: NIOLoopBound<BinaryConnectionHandler>
    private let availability: Availability
    /// Shows whether the gateway responds to sentinels. A sentinel is a notification that is invalid on purpose: the
    /// response to it proves that the gateway has processed all pushes before it.
    private let sentinels: SharedSentinelKnowledge
    private let command: BinaryCommand
    private let nextIdentifier = Atomic<UInt32>(1)

    /// Shows whether a connection accepts pushes. The connection's handler can end this for good, and so does a probe
    /// that is written to the connection.
    final class Availability: Sendable {
        private let isOver = Atomic(false)
        private let waitsForSilence = Atomic(false)

        var takesPushes: Bool { !isOver.load(ordering: .acquiring) }

        /// Whether the connection carries its last lease, and only the gateway's silence can prove that the lease was
        /// accepted.
        var isProvingBySilence: Bool {
            get { waitsForSilence.load(ordering: .acquiring) }
            set { waitsForSilence.store(newValue, ordering: .releasing) }
        }

        func end() {
            isOver.store(true, ordering: .releasing)
        }
    }

    /// Must be called on the channel's event loop.
    init(id: ConnectionID, channel: any Channel, handler: BinaryConnectionHandler, command: BinaryCommand) {
        self.id = id
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.availability = handler.availability
        self.sentinels = handler.sentinels
        self.command = command
    }

    var slot: ConnectionSlot? {
        guard availability.takesPushes, channel.isActive, channel.isWritable else { return nil }
        let next = nextIdentifier.load(ordering: .acquiring)
        return ConnectionSlot(
            connection: id, firstIdentifier: next, capacity: BinaryGateway.leaseLimit, isFresh: next == 1,
            isProvenBySilence: !sentinels.isUseful)
    }

    /// Whether closing this connection would provide a fresh one sooner. `false` while it carries a probe, because the
    /// probe has already ended its availability.
    var isReplaceable: Bool { availability.takesPushes && nextIdentifier.load(ordering: .acquiring) > 1 }

    var isSaturated: Bool { false }
    /// Whether the connection waits until silence has proven its last lease. This takes at least the settle time, so
    /// other pushes should use another connection.
    var isBlocked: Bool { availability.isProvingBySilence }

    /// Frames the pushes into one buffer and submits it to the event loop.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        nextIdentifier.store(last.identifier + 1, ordering: .releasing)
        if lease.isProbe { availability.end() }
        var frames = channel.allocator.buffer(capacity: lease.pushes.reduce(0) { $0 + $1.payload.count + 160 })
        let latestExpiration = now + Self.longestStorage
        for push in lease.pushes {
            // APNSFormat refuses pushes to other addresses.
            guard case .token(let address) = push.address, let token = address.bytes else { continue }
            BinaryNotification(
                command: command, token: token, payload: ByteBuffer(bytes: push.payload),
                identifier: push.identifier, expiration: UInt32(clamping: push.expiration ?? latestExpiration.seconds),
                priority: push.priority.map { $0 == 1 ? 5 : $0 }
            ).write(to: &frames)
        }
        let identifiers = lease.slot.firstIdentifier...last.identifier
        channel.eventLoop.execute { [handler, frames, isProbe = lease.isProbe] in
            handler.value.write(frames, identifiers: identifiers, isProbe: isProbe)
        }
    }

    /// The time from now to the expiration that is sent for a push without one. An expiration must be sent: some
    /// gateways read a missing expiration as 0, "do not store". Command 1 has a fixed field for it (Apple, "Legacy
    /// Notification Format"); in command 2 it is an optional item (Apple, "Binary Provider API").
    private static let longestStorage = Duration.seconds(30 * 86_400)

    /// Returns when the connection is closed. The successor opens only then, which keeps pushes in better order. The
    /// wait is short, because the close soon settles the pushes in doubt.
    func retired() async {
        await closed()
    }
}

/// Reads responses, writes the pushes of leases, and carries out the decisions of ``BinaryConnectionState``.
final class BinaryConnectionHandler: ConnectionHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The time to wait for the response to a sentinel. Then the connection is closed.
    private static let answerLimit = TimeAmount.seconds(3)
    /// The time to wait for the response to a trial's sentinel. It is shorter, because the next connection waits for
    /// the trial.
    private static let trialLimit = TimeAmount.seconds(1)
    /// The time that a connection may stay open beyond the settle time while silence must prove acceptance and has not
    /// done so.
    private static let silenceMargin = TimeAmount.seconds(2)

    let availability = BinaryConnection.Availability()
    /// Whether writing has ended.
    private var isEnding = false
    private var state: BinaryConnectionState
    let sentinels: SharedSentinelKnowledge
    private let reports: ReportBuffer
    /// Called when the connection accepts pushes again, or when it will never accept pushes again.
    private let changed: @Sendable () -> Void
    private let logger: Logger
    private let tickInterval: TimeAmount
    private var input = ByteBuffer()
    private var isTicking = false
    private var context: ChannelHandlerContext?
    private var closeReason = "ConnectionClosed"
    private var hasLearned = false
    /// Fulfilled when the trial has a result. `nil` if this connection is not a trial.
    private var trial: EventLoopPromise<Void>?
    /// Whether the connection closes as soon as silence has settled everything. A probe ends like this if the gateway
    /// does not respond to sentinels.
    private var closesWhenSettled = false

    init(
        state: BinaryConnectionState, sentinels: SharedSentinelKnowledge, reports: ReportBuffer, logger: Logger,
        changed: @escaping @Sendable () -> Void
    ) {
        self.state = state
        self.sentinels = sentinels
        self.reports = reports
        self.logger = logger
        self.changed = changed
        self.tickInterval = max(
            .milliseconds(20), min(.milliseconds(250), .nanoseconds(state.settleTime.nanoseconds / 10)))
    }

    var result: ConnectionResult { state.result }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func write(_ frames: ByteBuffer, identifiers: ClosedRange<UInt32>, isProbe: Bool) {
        guard let context, context.channel.isActive, state.takesPushes, !isEnding else {
            reports.put([
                DeliveryReport(connection: state.connectionID, identifiers: identifiers, outcome: .notProcessed)
            ])
            return
        }
        let last = identifiers.upperBound
        state.willWrite(through: last, now: context.eventLoop.now)
        let written = context.eventLoop.makePromise(of: Void.self)
        context.writeAndFlush(wrapOutboundOut(frames), promise: written)
        written.futureResult.assumeIsolated().whenSuccess { self.wrote(through: last) }
        // A connection that runs out of identifiers ends like a probe: its pushes are confirmed, and then a successor
        // is opened.
        if isProbe || !state.takesPushes { prove(context) }
        scheduleTick(context)
    }

    /// Requests proof of the pushes in doubt, and then closes the connection.
    func drain() {
        availability.end()
        guard let context, context.channel.isActive, !state.isFinished else { return }
        if state.isSettled {
            end(context, reason: "Drained")
        } else if !isEnding {
            prove(context)
        }
    }

    /// Tests whether the gateway responds to sentinels, and then closes the connection. The connection has carried no
    /// push.
    /// - Parameter done: Fulfilled when the result is known. That may be long before the peer has agreed to the TLS
    ///   close.
    func tryOut(_ done: EventLoopPromise<Void>) {
        guard let context, context.channel.isActive, !isEnding else { return done.succeed() }
        trial = done
        sendSentinel(context, answerWithin: Self.trialLimit)
    }

    /// Requests the proof of all written pushes immediately. No push is written afterwards.
    ///
    /// The duration is bounded: the gateway responds to the sentinel, silence settles the pushes, or the connection is
    /// closed.
    private func prove(_ context: ChannelHandlerContext) {
        guard !sentinels.isUseful else { return sendSentinel(context, answerWithin: Self.answerLimit) }
        isEnding = true
        availability.end()
        closesWhenSettled = true
        endUnlessFinished(context, in: state.settleTime + Self.silenceMargin)
        availability.isProvingBySilence = true
        changed()
    }

    private func sendSentinel(_ context: ChannelHandlerContext, answerWithin limit: TimeAmount) {
        isEnding = true
        availability.end()
        var frame = ByteBuffer()
        BinaryNotification.sentinel(identifier: state.willWriteSentinel()).write(to: &frame)
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
        endUnlessFinished(context, in: limit)
    }

    private func endUnlessFinished(_ context: ChannelHandlerContext, in limit: TimeAmount) {
        context.eventLoop.assumeIsolated().scheduleTask(in: limit) {
            guard !self.state.isFinished else { return }
            self.end(context, reason: "NoResponse")
        }
    }

    /// Closes the connection. Reports the remaining outcomes first, without waiting until the peer agrees to the close.
    private func end(_ context: ChannelHandlerContext, reason: String) {
        isEnding = true
        availability.end()
        put(state.closed(reason: reason), now: context.eventLoop.now)
        changed()
        trial?.succeed()
        trial = nil
        context.close(promise: nil)
    }

    /// Reports the connection's last outcomes. Records the sentinel's result first, because the next lease depends on
    /// that result.
    private func put(_ last: [DeliveryReport], now: NIODeadline) {
        if !hasLearned {
            hasLearned = true
            if let result = state.sentinelResult {
                switch sentinels.learn(result, isTrial: state.isTrial, now: now) {
                case true?: logger.notice("gateway answers sentinels")
                case false?: logger.notice("gateway did not understand a sentinel; silence now counts as acceptance")
                case nil: break
                }
            } else if last.reduce(0, { $0 + $1.lostCount }) >= ProbeWindow.smallestLoss {
                sentinels.lostPushes(now: now)
            }
        }
        reports.put(last)
    }

    private func wrote(through identifier: UInt32) {
        guard let context else { return }
        TCPProgress.read(context.channel).assumeIsolated().whenSuccess { progress in
            self.state.didWrite(through: identifier, progress: progress ?? .unknown, now: context.eventLoop.now)
        }
    }

    private func scheduleTick(_ context: ChannelHandlerContext) {
        guard !isTicking else { return }
        isTicking = true
        context.eventLoop.assumeIsolated().scheduleTask(in: tickInterval) { self.tick() }
    }

    private func tick() {
        isTicking = false
        guard let context, context.channel.isActive, !state.isFinished else { return }
        TCPProgress.read(context.channel).assumeIsolated().whenSuccess { progress in
            switch self.state.tick(progress: progress, now: context.eventLoop.now) {
            case .settle(let report):
                self.reports.put([report])
            case .close:
                self.logger.warning("gateway stopped reading, closing the connection")
                self.end(context, reason: "Stalled")
            case nil:
                break
            }
            if !self.state.isSettled {
                self.scheduleTick(context)
            } else if self.closesWhenSettled, !self.state.isFinished {
                self.end(context, reason: "Drained")
            }
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        guard !state.isFinished else { return }
        input.writeBuffer(&bytes)
        do throws(BinaryErrorResponse.UnexpectedBytes) {
            guard let response = try BinaryErrorResponse.read(from: &input) else { return }
            logger.info(
                "received an error response, the gateway closes the connection",
                metadata: ["reason": "\(response.status.name)", "identifier": "\(response.identifier)"])
            put(state.answered(response), now: context.eventLoop.now)
            end(context, reason: closeReason)
        } catch {
            logger.error("gateway sent bytes that are not a response of the binary protocol; is it another service?")
            end(context, reason: "UnexpectedBytes")
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { changed() }
        context.fireChannelWritabilityChanged()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end(context, reason: closeReason)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        closeReason = "ConnectionLost"
        logger.debug("connection failed", metadata: ["error": "\(error)"])
        context.close(promise: nil)
    }
}

extension DeliveryReport {
    /// The number of pushes in doubt.
    fileprivate var lostCount: Int {
        if case .unanswered = outcome { identifiers.count } else { 0 }
    }
}
