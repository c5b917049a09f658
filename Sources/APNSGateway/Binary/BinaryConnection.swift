import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOPosix
import Synchronization

/// One open connection to the binary gateway, as the pool sees it; what happens on it happens in its handler.
final class BinaryConnection: Sendable {
    let epoch: ConnectionEpoch
    private let channel: any Channel
    private let handler: NIOLoopBound<BinaryConnectionHandler>
    private let command: BinaryCommand
    private let shared: Mutex<Shared>

    private struct Shared {
        var nextIdentifier: UInt32 = 1
        var takesPushes = true
    }

    init(
        epoch: ConnectionEpoch, channel: any Channel, handler: NIOLoopBound<BinaryConnectionHandler>,
        command: BinaryCommand
    ) {
        self.epoch = epoch
        self.channel = channel
        self.handler = handler
        self.command = command
        self.shared = Mutex(Shared())
    }

    /// The slot that this connection offers, if it can take anything now.
    func slot(room: Int, payloadLimit: Int) -> ConnectionSlot? {
        guard channel.isActive, channel.isWritable else { return nil }
        let (next, takesPushes) = shared.withLock { ($0.nextIdentifier, $0.takesPushes) }
        guard takesPushes, next < BinaryConnectionState.lastIdentifier else { return nil }
        return ConnectionSlot(
            connection: epoch, firstIdentifier: next, room: room, isFresh: next == 1, payloadLimit: payloadLimit)
    }

    /// Frames the pushes into one buffer and hands it to the event loop.
    func write(_ lease: Lease) {
        guard let last = lease.pushes.last else { return }
        shared.withLock { shared in
            shared.nextIdentifier = last.identifier + 1
            if lease.isProbe { shared.takesPushes = false }
        }
        var frames = channel.allocator.buffer(capacity: lease.pushes.reduce(0) { $0 + $1.payload.count + 160 })
        for push in lease.pushes {
            BinaryNotification(
                command: command, token: push.token.bytes, payload: ByteBuffer(bytes: push.payload),
                identifier: push.identifier, expiration: push.expiration.map { UInt32(clamping: $0) },
                priority: push.priority
            ).write(to: &frames)
        }
        let identifiers = lease.slot.firstIdentifier...last.identifier
        let isProbe = lease.isProbe
        let handler = handler
        channel.eventLoop.execute { [frames] in
            handler.value.write(frames, identifiers: identifiers, isProbe: isProbe)
        }
    }

    /// Takes no more pushes, asks the gateway about those in doubt, and closes; returns when it is closed.
    func drain() async {
        shared.withLock { $0.takesPushes = false }
        let handler = handler
        channel.eventLoop.execute { handler.value.drain() }
        try? await channel.closeFuture.get()
    }
}

/// Always reads, writes what it is given, and performs what ``BinaryConnectionState`` concludes.
final class BinaryConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// How long the gateway has to answer a sentinel before the connection is closed without its proof.
    private static let drainLimit = TimeAmount.seconds(3)

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

    /// The connection did some good: the next may be opened at once.
    var isProved: Bool { state.isProved }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func write(_ frames: ByteBuffer, identifiers: ClosedRange<UInt32>, isProbe: Bool) {
        guard let context, context.channel.isActive, state.takesPushes else {
            mailbox.put([Verdict(connection: state.epoch, identifiers: identifiers, outcome: .notProcessed)])
            return
        }
        let last = identifiers.upperBound
        state.willWrite(through: last)
        let written = context.eventLoop.makePromise(of: Void.self)
        context.writeAndFlush(wrapOutboundOut(frames), promise: written)
        written.futureResult.assumeIsolated().whenSuccess { self.noteWritten(through: last) }
        if isProbe { ask(context) }
        scheduleTick(context)
    }

    func drain() {
        guard let context, context.channel.isActive else { return }
        guard !state.isSettled else {
            context.close(promise: nil)
            return
        }
        if state.takesPushes { ask(context) }
        context.eventLoop.assumeIsolated().scheduleTask(in: Self.drainLimit) {
            self.closeReason = "Drained"
            context.close(promise: nil)
        }
    }

    /// Wants to know at once what became of everything written; nothing is written after it.
    private func ask(_ context: ChannelHandlerContext) {
        guard sentinels.areWorthwhile else {
            closesWhenSettled = true
            return
        }
        var frame = ByteBuffer()
        BinaryNotification.sentinel(identifier: state.willWriteSentinel()).write(to: &frame)
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
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
        guard let context, context.channel.isActive else { return }
        TCPProgress.read(context.channel).assumeIsolated().whenSuccess { progress in
            switch self.state.tick(progress: progress ?? .unknown, now: context.eventLoop.now) {
            case .settle(let verdict):
                self.mailbox.put([verdict])
            case .giveUp:
                self.logger.warning("gateway takes nothing any more, giving the connection up")
                self.mailbox.put(self.state.closed(reason: "Stalled"))
                context.close(promise: nil)
            case nil:
                break
            }
            if !self.state.isSettled {
                self.scheduleTick(context)
            } else if self.closesWhenSettled {
                context.close(promise: nil)
            }
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        do throws(BinaryErrorResponse.UnexpectedBytes) {
            guard let response = try BinaryErrorResponse.read(from: &input) else { return }
            logger.info(
                "gateway answered and closes",
                metadata: ["reason": "\(response.status.name)", "identifier": "\(response.identifier)"])
            mailbox.put(state.answered(response))
        } catch {
            logger.error("gateway sent bytes that are no answer of the binary protocol; is it another service?")
            mailbox.put(state.closed(reason: "UnexpectedBytes"))
        }
        input.clear()
        changed()
        context.close(promise: nil)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { changed() }
        context.fireChannelWritabilityChanged()
    }

    func channelInactive(context: ChannelHandlerContext) {
        if state.sentinel != nil { sentinels.note(answered: state.isSentinelAnswered, orOtherwise: state.isProved) }
        mailbox.put(state.closed(reason: closeReason))
        changed()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        closeReason = "ConnectionLost"
        logger.debug("connection failed", metadata: ["error": "\(error)"])
        context.close(promise: nil)
    }
}

/// Whether a gateway answers the deliberately bad notification as Apple's did.
///
/// One that closes without a word instead would never prove anything, and what is asked about would be repeated for
/// ever; with such a gateway silence has to do.
final class SentinelExperience: Sendable {
    /// Silent endings in a row after which it is not tried any more, if it has never worked.
    private static let patience = 2

    private let state = Mutex((hasWorked: false, failures: 0))

    var areWorthwhile: Bool { state.withLock { $0.hasWorked || $0.failures < Self.patience } }

    /// - Parameter otherwise: the connection ended with another answer, which says nothing about sentinels.
    func note(answered: Bool, orOtherwise otherwise: Bool) {
        state.withLock { state in
            if answered {
                state.hasWorked = true
            } else if !otherwise {
                state.failures += 1
            }
        }
    }
}

extension TCPProgress {
    /// On a system without the counters: what is written counts as acknowledged.
    static let unknown = TCPProgress(written: 0, acknowledged: 0)
}
