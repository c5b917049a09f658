import APNSWire
import ChatDomain
import Logging
import NIOCore

/// Always reads, writes what it is given, and performs what ``BinaryConnectionState`` concludes.
final class BinaryConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// How long the gateway has to answer a sentinel before the connection is closed without its proof.
    private static let answerLimit = TimeAmount.seconds(3)
    /// What is added to the settle time where silence has to do instead.
    private static let silenceMargin = TimeAmount.seconds(2)

    /// What the pool sees of it.
    let availability = BinaryConnection.Availability()
    /// Nothing more is written.
    private var isEnding = false
    private var state: BinaryConnectionState
    private let sentinels: SentinelExperience
    private let mailbox: VerdictMailbox
    /// Called when the connection may take pushes again, or never will.
    private let changed: @Sendable () -> Void
    private let logger: Logger
    private let tickInterval: TimeAmount
    private var input = ByteBuffer()
    private var isTicking = false
    private var context: ChannelHandlerContext?
    private var closeReason = "ConnectionClosed"
    /// Closes as soon as silence has settled everything: how a probe ends at a gateway that does not answer sentinels.
    private var closesWhenSettled = false

    init(
        state: BinaryConnectionState, sentinels: SentinelExperience, mailbox: VerdictMailbox, logger: Logger,
        changed: @escaping @Sendable () -> Void
    ) {
        self.state = state
        self.sentinels = sentinels
        self.mailbox = mailbox
        self.logger = logger
        self.changed = changed
        self.tickInterval = max(
            .milliseconds(20), min(.milliseconds(250), .nanoseconds(state.settleTime.nanoseconds / 10)))
    }

    /// What the connection was good for.
    var merit: ReconnectPacing.Merit { state.merit }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func write(_ frames: ByteBuffer, identifiers: ClosedRange<UInt32>, isProbe: Bool) {
        guard let context, context.channel.isActive, state.takesPushes, !isEnding else {
            mailbox.put([Verdict(connection: state.epoch, identifiers: identifiers, outcome: .notProcessed)])
            return
        }
        let last = identifiers.upperBound
        state.willWrite(through: last, now: context.eventLoop.now)
        let written = context.eventLoop.makePromise(of: Void.self)
        context.writeAndFlush(wrapOutboundOut(frames), promise: written)
        written.futureResult.assumeIsolated().whenSuccess { self.noteWritten(through: last) }
        // Numbers that run out end a connection as a probe does: what it carried is asked about, then comes another.
        if isProbe || !state.takesPushes { ask(context) }
        scheduleTick(context)
    }

    /// Ends the connection, after what is in doubt was asked about.
    func drain() {
        guard let context, context.channel.isActive, !state.isFinished else { return }
        if state.isSettled {
            end(context, reason: "Drained")
        } else if !isEnding {
            ask(context)
        }
    }

    /// Wants to know at once what became of everything written; nothing is written after it.
    ///
    /// Bounded: the gateway answers the sentinel, or silence settles, or the connection is closed.
    private func ask(_ context: ChannelHandlerContext) {
        isEnding = true
        availability.end()
        let limit: TimeAmount
        if sentinels.areWorthwhile(now: context.eventLoop.now) {
            var frame = ByteBuffer()
            BinaryNotification.sentinel(identifier: state.willWriteSentinel()).write(to: &frame)
            context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
            limit = Self.answerLimit
        } else {
            closesWhenSettled = true
            limit = state.settleTime + Self.silenceMargin
        }
        context.eventLoop.assumeIsolated().scheduleTask(in: limit) {
            guard !self.state.isFinished else { return }
            self.end(context, reason: "NoAnswer")
        }
    }

    /// Closes; what has no verdict yet gets it now and not when the peer agrees to the end.
    private func end(_ context: ChannelHandlerContext, reason: String) {
        isEnding = true
        availability.end()
        mailbox.put(state.closed(reason: reason))
        changed()
        context.close(promise: nil)
    }

    private func noteWritten(through identifier: UInt32) {
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
            case .settle(let verdict):
                self.mailbox.put([verdict])
            case .giveUp:
                self.logger.warning("gateway takes nothing any more, giving the connection up")
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
                "gateway answered and closes",
                metadata: ["reason": "\(response.status.name)", "identifier": "\(response.identifier)"])
            mailbox.put(state.answered(response))
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
        if state.sentinel != nil {
            if state.isSentinelAnswered {
                sentinels.noteAnswered()
            } else if state.isAnswered {
                sentinels.noteOtherAnswer()
            } else {
                sentinels.noteSilence(now: context.eventLoop.now)
            }
        }
        end(context, reason: closeReason)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        closeReason = "ConnectionLost"
        logger.debug("connection failed", metadata: ["error": "\(error)"])
        context.close(promise: nil)
    }
}
