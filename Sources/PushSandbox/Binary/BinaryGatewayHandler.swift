import APNSWire
import Foundation
import Logging
import NIOCore
import NIOSSL

/// What a connection has to do after a notification of the binary protocol.
enum BinaryDecision: Sendable, Hashable {
    /// Go on with the next. Success has no bytes.
    case next
    /// Go on with the next, but only after so many milliseconds; nil: never. Nothing is read until then.
    case pause(milliseconds: Int?)
    /// Judge this notification again after so many milliseconds, this time without faults. Nothing is read until then.
    case postpone(milliseconds: Int)
    /// The end: write the packet after so many milliseconds (nil: none, just close), discard all that follows.
    case end(BinaryErrorResponse?, afterMilliseconds: Int)
    /// The end: reset the connection.
    case reset
}

/// Whose notification is decided.
struct BinaryPeer: Sendable, Hashable {
    /// The connection's number, from 1.
    var connection: Int
    /// What the client certificate names.
    var topic: String?
}

/// Plays the legacy gateway on one connection: reads, asks the shared state for decisions, and writes nothing but the one
/// error packet.
///
/// After that packet it goes on reading for a while and discards what it reads (apns-binary.md §8). To close with
/// bytes unread would reset the connection, and a reset destroys the packet before the client has read it.
final class BinaryGatewayHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case handshaking
        case open
        /// A fault holds back what follows; nothing is read.
        case paused
        /// The end is decided, the packet still to be written; what comes is discarded.
        case ending
        /// All is written; what comes is discarded until the client closes or the linger is over.
        case lingering
        case closed
    }

    private let state: SharedState
    private let linger: TimeAmount
    private let logger: Logger
    private var session: BinarySession
    private var phase = Phase.handshaking
    private var timer: Scheduled<Void>?
    /// The channel asked for bytes while nothing was to be read.
    private var isReadHeldBack = false
    /// The client will send no more.
    private var isPeerFinished = false
    /// It ended without TLS's close_notify, and will not answer ours.
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
        // Bounded: nothing more is read from the socket while paused.
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
            // A pause without a timer has no end of its own.
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
            // Many clients close without TLS's close_notify; what they sent before stands.
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

    /// Decides on all that is there, and does what the decision says.
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

    /// Writes the packet, if there is one, and closes the sending side; the receiving side is drained for a while.
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

/// One connection of the binary protocol as a value: what was read and not yet decided, and whether its end is decided.
///
/// Bytes are parsed outside the shared state's lock and decided inside it, a whole read at a time.
private struct BinarySession {
    var peer: BinaryPeer
    private var parser: BinaryNotificationParser
    /// Parsed and not decided yet; decided ones are before ``next``.
    private var batch: [BinaryNotification] = []
    private var next = 0
    private var malformed: BinaryNotificationParser.Malformed?
    /// The first of the batch was postponed by a fault, which applies only once.
    private var isPostponed = false

    init(peer: BinaryPeer, limits: BinaryNotificationParser.Limits) {
        self.peer = peer
        parser = BinaryNotificationParser(limits: limits)
    }

    mutating func append(_ bytes: inout ByteBuffer) {
        parser.append(&bytes)
    }

    /// Makes notifications of all bytes that are there.
    mutating func parse() {
        guard malformed == nil else { return }
        do throws(BinaryNotificationParser.Malformed) {
            while let notification = try parser.next() { batch.append(notification) }
        } catch {
            malformed = error
        }
    }

    /// Decides on what was parsed, up to the first decision other than ``BinaryDecision/next``.
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
        // Emptied at once: its payloads share the parser's storage, which could not be reused otherwise.
        batch.removeAll(keepingCapacity: true)
        next = 0
        guard let malformed else { return .next }
        return state.decide(malformed, from: peer, at: now)
    }

    /// Forgets what is there, after the end was decided.
    /// - Returns: the number of whole notifications forgotten; what follows one that could not be read has no number.
    mutating func discard() -> Int {
        parse()
        let count = batch.count - next
        batch = []
        next = 0
        return count
    }
}
