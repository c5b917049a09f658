import APNSWire
import ChatDomain
import NIOCore
import NIOPosix
import Synchronization

/// One open connection to the binary gateway, as the pool sees it; what happens on it happens in its handler.
final class BinaryConnection: PooledConnection {
    let epoch: ConnectionEpoch
    private let channel: any Channel
    private let handler: NIOLoopBound<BinaryConnectionHandler>
    private let availability: Availability
    private let options: BinaryGateway.Options
    private let nextIdentifier = Atomic<UInt32>(1)

    /// Whether a connection takes pushes; told by its handler and by its user, and never taken back.
    final class Availability: Sendable {
        private let isOver = Atomic(false)

        var takesPushes: Bool { !isOver.load(ordering: .acquiring) }

        func end() {
            isOver.store(true, ordering: .releasing)
        }
    }

    /// To be called on the channel's event loop.
    init(epoch: ConnectionEpoch, channel: any Channel, handler: BinaryConnectionHandler, options: BinaryGateway.Options)
    {
        self.epoch = epoch
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.availability = handler.availability
        self.options = options
    }

    var slot: ConnectionSlot? {
        guard availability.takesPushes, channel.isActive, channel.isWritable else { return nil }
        let next = nextIdentifier.load(ordering: .acquiring)
        return ConnectionSlot(
            connection: epoch, firstIdentifier: next, room: BinaryGateway.leaseLimit, isFresh: next == 1)
    }

    /// Whether it can be given up for a fresh one: not while it is being asked about what is in doubt.
    var canBeSpared: Bool { availability.takesPushes && nextIdentifier.load(ordering: .acquiring) > 1 }

    /// All connections of a binary gateway are permanent.
    var isSaturated: Bool { false }
    var isHeld: Bool { false }

    /// Frames the pushes into one buffer and hands it to the event loop.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        nextIdentifier.store(last.identifier + 1, ordering: .releasing)
        if lease.isProbe { availability.end() }
        var frames = channel.allocator.buffer(capacity: lease.pushes.reduce(0) { $0 + $1.payload.count + 160 })
        let furthest = now + Self.longestStorage
        for push in lease.pushes {
            let token: DeviceToken
            switch push.address {
            case .token(let known): token = known
            }
            BinaryNotification(
                command: options.command, token: token.bytes, payload: ByteBuffer(bytes: push.payload),
                identifier: push.identifier, expiration: UInt32(clamping: push.expiration ?? furthest.seconds),
                priority: push.priority.map { $0 == 1 ? 5 : $0 }
            ).write(to: &frames)
        }
        let identifiers = lease.slot.firstIdentifier...last.identifier
        let isProbe = lease.isProbe
        let handler = handler
        channel.eventLoop.execute { [frames] in
            handler.value.write(frames, identifiers: identifiers, isProbe: isProbe)
        }
    }

    /// The expiration of a push that has none. Said, because leaving it out is read as 0, "do not store", by some
    /// gateways, and command 1 cannot leave it out (apns-binary.md §4, §5).
    private static let longestStorage = Duration.seconds(30 * 86_400)

    /// Takes no more pushes, asks the gateway about those in doubt, and closes; returns when it is closed.
    func drain() async {
        availability.end()
        let handler = handler
        channel.eventLoop.execute { handler.value.drain() }
        try? await channel.closeFuture.get()
    }

    /// Its successor waits for its end: order is kept better so, and what is in doubt is asked about quickly.
    func retired() async {
        await closed()
    }

    func merit() async -> ReconnectPacing.Merit {
        let handler = handler
        return (try? await channel.eventLoop.submit { handler.value.merit }.get()) ?? .nothing
    }

    func closed() async {
        try? await channel.closeFuture.get()
    }
}
