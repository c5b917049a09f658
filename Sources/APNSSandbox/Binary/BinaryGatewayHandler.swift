import APNSWire
import Foundation
import Logging
import NIOCore
import NIOSSL

/// Plays the legacy gateway on one connection: reads, asks the world, and only ever writes the one error packet.
///
/// After that packet it goes on reading for a while and throws away what it reads (apns-binary.md §8). To close with
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

    private let world: SandboxWorld
    private let linger: TimeAmount
    private let logger: Logger
    private var session: BinarySession
    private var phase = Phase.handshaking
    private var timer: Scheduled<Void>?
    /// The channel asked for bytes while nothing was to be read.
    private var isReadHeldBack = false
    /// The client will send no more.
    private var isPeerFinished = false
    /// It ended without TLS's farewell, and will not answer ours.
    private var isPeerRagged = false

    init(
        connection: Int, limits: BinaryNotificationParser.Limits, linger: TimeAmount, world: SandboxWorld,
        logger: Logger
    ) {
        self.world = world
        self.linger = linger
        self.logger = logger
        session = BinarySession(peer: BinaryPeer(connection: connection), limits: limits)
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
            // The client closed without TLS's farewell, as many do; what it sent before stands.
            isPeerRagged = true
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

    // MARK: Verdicts

    /// Judges all that is there, and does what the verdict says.
    private func advance(context: ChannelHandlerContext) {
        session.parse()
        let isLogged = logger.logLevel <= .debug
        let now = world.now()
        let (verdict, entries) = world.withState { state in
            let before = state.inbox.lastID
            let verdict = session.judge(in: &state, at: now)
            return (verdict, isLogged ? state.inbox.page(since: before, limit: .max).entries : [])
        }
        for entry in entries { log(entry) }

        switch verdict {
        case .next:
            break
        case .pause(let milliseconds):
            phase = .paused
            if let milliseconds {
                schedule(milliseconds: milliseconds) { self.resume(context: context) }
            }
        case .postpone(let milliseconds):
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
        if isPeerRagged {
            context.closeWithoutTLS()
        } else {
            context.close(promise: nil)
        }
    }

    private func discard(bytes: Int) {
        let notifications = session.discard()
        world.withState { $0.discard(notifications: notifications, bytes: bytes) }
    }

    private func log(_ entry: InboxEntry) {
        logger.debug(
            "Notification",
            metadata: [
                "id": "\(entry.id)", "token": "\(entry.token.hex.prefix(8))…",
                "identifier": "\(entry.identifier.map(String.init) ?? "none")", "answer": "\(entry.answer.name)",
            ])
    }
}
