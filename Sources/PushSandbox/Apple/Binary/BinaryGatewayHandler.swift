import Foundation
import Logging
import NIOCore
import NIOSSL
import PushWire

/// Simulates the legacy gateway on one connection. It reads notifications, gets decisions from the shared state, and
/// writes nothing but the one error packet.
///
/// After that packet it keeps reading for a while, and discards what it reads, as Apple's gateway discards everything
/// after the bad notification ("Binary Provider API"). Closing with unread bytes would reset the connection. A reset
/// destroys the packet before the client has read it.
final class BinaryGatewayHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case handshaking
        case open
        /// A fault delays all later notifications. Nothing is read.
        case paused
        /// The end is decided, but the packet is not written yet. Incoming data is discarded.
        case ending
        /// Everything is written. Incoming data is discarded until the client closes or the linger time is over.
        case lingering
        case closed
    }

    private let state: SharedState
    private let linger: TimeAmount
    private let logger: Logger
    private var session: BinarySession
    private var phase = Phase.handshaking
    private var timer: Scheduled<Void>?
    /// Whether the channel asked for data while reading was paused.
    private var isReadHeldBack = false
    /// Whether the client has finished sending.
    private var isPeerFinished = false
    /// Whether the client ended without TLS's close_notify. It will not respond to ours.
    private var isPeerUnclean = false

    init(
        connection: Int, configuration: SandboxConfiguration, state: SharedState, logger: Logger
    ) {
        self.state = state
        linger = TimeAmount(configuration.linger)
        self.logger = logger
        session = BinarySession(peer: BinaryPeer(connection: connection), limits: configuration.parserLimits)
    }

    // MARK: Events

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        let count = bytes.readableBytes
        session.append(&bytes)
        switch phase {
        case .open: advance(context: context)
        case .ending, .lingering: discard(bytes: count)
        // This is bounded, because nothing more is read from the socket during a pause.
        case .handshaking, .paused, .closed: break
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let client as ClientIdentified:
            session.peer.topic = client.topic
            phase = .open
            logger.info("Gateway connection opened", metadata: ["topic": "\(client.topic ?? "none")"])
        case ChannelEvent.inputClosed:
            isPeerFinished = true
            switch phase {
            case .open: close(context: context)
            case .lingering: context.closeWithoutTLS()
            // Without a timer, the pause would never end.
            case .paused: if timer == nil { close(context: context) }
            case .handshaking, .ending, .closed: break
            }
        default:
            break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if case .uncleanShutdown = error as? NIOSSLError {
            // Many clients close without TLS's close_notify. The data before it is valid.
            isPeerUnclean = true
            return
        }
        if phase != .handshaking {
            logger.debug("Gateway connection failed", metadata: ["error": "\(error)"])
        }
        context.closeWithoutTLS()
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        if phase == .paused { discard(bytes: 0) }
        if phase != .handshaking { logger.debug("Gateway connection closed") }
        phase = .closed
        context.fireChannelInactive()
    }

    func read(context: ChannelHandlerContext) {
        if phase == .paused {
            isReadHeldBack = true
        } else {
            context.read()
        }
    }

    // MARK: Decisions

    /// Decides on all notifications that have arrived, and performs the decision.
    private func advance(context: ChannelHandlerContext) {
        session.parse()
        let decision = state.decide(logger) { state, now in session.decide(in: &state, at: now) }
        switch decision {
        case .next:
            break
        case .pause(nil):
            phase = .paused
        case .pause(let milliseconds?), .postpone(let milliseconds):
            phase = .paused
            schedule(milliseconds: milliseconds) { self.resume(context: context) }
        case .end(let packet, let milliseconds):
            phase = .ending
            discard(bytes: 0)
            if milliseconds > 0 {
                schedule(milliseconds: milliseconds) { self.end(with: packet, context: context) }
            } else {
                end(with: packet, context: context)
            }
        case .reset:
            phase = .lingering
            discard(bytes: 0)
            context.resetConnection()
        }

        func schedule(milliseconds: Int, _ body: @escaping () -> Void) {
            timer = context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds)), body)
        }
    }

    private func resume(context: ChannelHandlerContext) {
        timer = nil
        guard phase == .paused else { return }
        phase = .open
        advance(context: context)
        if phase == .open, isPeerFinished { close(context: context) }
        if phase != .paused, isReadHeldBack {
            isReadHeldBack = false
            context.read()
        }
    }

    /// Writes the packet, if there is one, and closes the sending side. The receiving side is drained for the linger
    /// time.
    private func end(with packet: BinaryErrorResponse?, context: ChannelHandlerContext) {
        phase = .lingering
        if let packet {
            var buffer = context.channel.allocator.buffer(capacity: BinaryErrorResponse.size)
            packet.write(to: &buffer)
            context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
            logger.debug(
                "Error packet written",
                metadata: ["status": "\(packet.status.name)", "identifier": "\(packet.identifier)"])
        }
        if isPeerFinished {
            close(context: context)
        } else {
            context.close(mode: .output, promise: nil)
            timer = context.eventLoop.assumeIsolated().scheduleTask(in: linger) { context.closeWithoutTLS() }
        }
    }

    private func close(context: ChannelHandlerContext) {
        if isPeerUnclean {
            context.closeWithoutTLS()
        } else {
            context.close(promise: nil)
        }
    }

    private func discard(bytes: Int) {
        let notifications = session.discard()
        state.withLock { $0.discard(notifications: notifications, bytes: bytes) }
    }
}

/// The state of one binary connection as a value: received data without a decision, and whether the data is malformed.
///
/// It parses bytes outside the shared state's lock and decides inside it, one read at a time.
private struct BinarySession {
    var peer: BinaryPeer
    private var parser: BinaryNotificationParser
    /// The parsed notifications. Those before ``next`` have been decided.
    private var batch: [BinaryNotification] = []
    private var next = 0
    private var malformed: BinaryNotificationParser.Malformed?
    /// Whether a fault has postponed the next notification of the batch. Faults apply to it only once.
    private var isPostponed = false

    init(peer: BinaryPeer, limits: BinaryNotificationParser.Limits) {
        self.peer = peer
        parser = BinaryNotificationParser(limits: limits)
    }

    mutating func append(_ bytes: inout ByteBuffer) {
        parser.append(&bytes)
    }

    /// Parses all complete notifications that have arrived.
    mutating func parse() {
        guard malformed == nil else { return }
        do throws(BinaryNotificationParser.Malformed) {
            while let notification = try parser.next() { batch.append(notification) }
        } catch {
            malformed = error
        }
    }

    /// Decides on the parsed notifications, up to the first decision other than ``BinaryDecision/next``.
    mutating func decide(in state: inout SandboxState, at now: Date) -> BinaryDecision {
        while next < batch.count {
            let decision = state.decide(batch[next], from: peer, at: now, faults: !isPostponed)
            isPostponed = false
            switch decision {
            case .next:
                next += 1
            case .postpone:
                isPostponed = true
                return decision
            case .pause, .end, .reset:
                next += 1
                return decision
            }
        }
        // Empty the batch now, because its payloads share the parser's storage. The parser can then reuse the storage.
        batch.removeAll(keepingCapacity: true)
        next = 0
        guard let malformed else { return .next }
        return state.decide(malformed, from: peer, at: now)
    }

    /// Discards all received data after the end was decided.
    /// - Returns: The number of complete notifications. Data that follows a malformed frame counts as none.
    mutating func discard() -> Int {
        parse()
        let count = batch.count - next
        batch = []
        next = 0
        return count
    }
}
