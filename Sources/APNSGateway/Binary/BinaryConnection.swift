import APNSWire
import ChatDomain
import Logging
import NIOCore
import Synchronization

/// One open connection to the binary gateway, as the pool sees it; what happens on it happens in its handler.
final class BinaryConnection: ChannelConnection {
    let id: ConnectionID
    let channel: any Channel
    let handler: NIOLoopBound<BinaryConnectionHandler>
    private let availability: Availability
    private let sentinels: SharedSentinelKnowledge
    private let command: BinaryCommand
    private let nextIdentifier = Atomic<UInt32>(1)

    /// Whether a connection takes pushes. Its handler and its user end that for good.
    final class Availability: Sendable {
        private let isOver = Atomic(false)
        private let waitsForSilence = Atomic(false)

        var takesPushes: Bool { !isOver.load(ordering: .acquiring) }

        /// Whether it carries a last lease that silence has to prove.
        var isProvingBySilence: Bool {
            get { waitsForSilence.load(ordering: .acquiring) }
            set { waitsForSilence.store(newValue, ordering: .releasing) }
        }

        func end() {
            isOver.store(true, ordering: .releasing)
        }
    }

    /// To be called on the channel's event loop.
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

    /// Not while it probes a suspected push.
    var isReplaceable: Bool { availability.takesPushes && nextIdentifier.load(ordering: .acquiring) > 1 }

    var isSaturated: Bool { false }
    /// A proof by silence takes at least the settle time, and other pushes need not wait for it.
    var isBlocked: Bool { availability.isProvingBySilence }

    /// Frames the pushes into one buffer and hands it to the event loop.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        nextIdentifier.store(last.identifier + 1, ordering: .releasing)
        if lease.isProbe { availability.end() }
        var frames = channel.allocator.buffer(capacity: lease.pushes.reduce(0) { $0 + $1.payload.count + 160 })
        let latestExpiration = now + Self.longestStorage
        for push in lease.pushes {
            let token: DeviceToken
            switch push.address {
            case .token(let known): token = known
            }
            BinaryNotification(
                command: command, token: token.bytes, payload: ByteBuffer(bytes: push.payload),
                identifier: push.identifier, expiration: UInt32(clamping: push.expiration ?? latestExpiration.seconds),
                priority: push.priority.map { $0 == 1 ? 5 : $0 }
            ).write(to: &frames)
        }
        let identifiers = lease.slot.firstIdentifier...last.identifier
        channel.eventLoop.execute { [handler, frames, isProbe = lease.isProbe] in
            handler.value.write(frames, identifiers: identifiers, isProbe: isProbe)
        }
    }

    /// The expiration of a push that has none. Sent, because some gateways read a missing one as 0, "do not store", and
    /// command 1 cannot leave it out (apns-binary.md §4, §5).
    private static let longestStorage = Duration.seconds(30 * 86_400)

    /// Its successor waits for its end: order is kept better so, and a close settles soon what is in doubt.
    func retired() async {
        await closed()
    }
}

/// Always reads, writes what it is given, and performs what ``BinaryConnectionState`` decides.
final class BinaryConnectionHandler: ConnectionHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// How long the gateway has to answer a sentinel before the connection is closed without it.
    private static let answerLimit = TimeAmount.seconds(3)
    /// The same for a trial, which a successor of a connection waits for.
    private static let trialLimit = TimeAmount.seconds(1)
    /// What is added to the settle time where silence has to mean acceptance instead.
    private static let silenceMargin = TimeAmount.seconds(2)

    let availability = BinaryConnection.Availability()
    /// Nothing more is written.
    private var isEnding = false
    private var state: BinaryConnectionState
    let sentinels: SharedSentinelKnowledge
    private let reports: ReportBuffer
    /// Called when the connection may take pushes again, or never will.
    private let changed: @Sendable () -> Void
    private let logger: Logger
    private let tickInterval: TimeAmount
    private var input = ByteBuffer()
    private var isTicking = false
    private var context: ChannelHandlerContext?
    private var closeReason = "ConnectionClosed"
    private var hasLearned = false
    /// Fulfilled when the trial has its result. `nil` if this connection is none.
    private var trial: EventLoopPromise<Void>?
    /// Closes as soon as silence has settled everything: how a probe ends at a gateway that does not answer sentinels.
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
        // A connection whose identifiers run out ends as a probe does: what it carried is confirmed, then comes another.
        if isProbe || !state.takesPushes { prove(context) }
        scheduleTick(context)
    }

    /// Ends the connection, after the gateway was asked about what is in doubt.
    func drain() {
        availability.end()
        guard let context, context.channel.isActive, !state.isFinished else { return }
        if state.isSettled {
            end(context, reason: "Drained")
        } else if !isEnding {
            prove(context)
        }
    }

    /// Asks the gateway on this connection, which has carried no push, whether it answers sentinels. Closes it then.
    /// - Parameter done: Fulfilled when that is known, which may be long before TLS has agreed to the close.
    func tryOut(_ done: EventLoopPromise<Void>) {
        guard let context, context.channel.isActive, !isEnding else { return done.succeed() }
        trial = done
        sendSentinel(context, answerWithin: Self.trialLimit)
    }

    /// Asks for proof of everything written, at once. Nothing is written after it.
    ///
    /// Bounded: the gateway answers the sentinel, or silence settles, or the connection is closed.
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

    /// Closes; what has no outcome yet gets it now and not when the peer has agreed to the close.
    private func end(_ context: ChannelHandlerContext, reason: String) {
        isEnding = true
        availability.end()
        put(state.closed(reason: reason), now: context.eventLoop.now)
        changed()
        trial?.succeed()
        trial = nil
        context.close(promise: nil)
    }

    /// Reports the connection's last outcomes. Learns from them first, because the next lease depends on both.
    private func put(_ last: [DeliveryReport], now: NIODeadline) {
        if !hasLearned {
            hasLearned = true
            if let result = state.sentinelResult {
                switch sentinels.learn(result, isTrial: state.isTrial, now: now) {
                case true?: logger.notice("gateway answers sentinels")
                case false?: logger.notice("gateway did not understand a sentinel, its silence proves pushes now")
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
                self.logger.warning("gateway reads nothing any more, closing the connection")
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
                "received an error answer, the gateway closes",
                metadata: ["reason": "\(response.status.name)", "identifier": "\(response.identifier)"])
            put(state.answered(response), now: context.eventLoop.now)
            end(context, reason: closeReason)
        } catch {
            logger.error("gateway sent bytes that are no answer of the binary protocol; is it another service?")
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
    /// Pushes that are in doubt.
    fileprivate var lostCount: Int {
        if case .unanswered = outcome { identifiers.count } else { 0 }
    }
}
