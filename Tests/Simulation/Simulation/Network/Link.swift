import CSimulation
import NIOCore

/// The other side of a connection. Everything happens on the world's side, so it survives the relay.
protocol Peer: AnyObject {
    /// TLS is up.
    func connected()
    func received(_ bytes: ByteBuffer)
    /// The relay has closed the connection, or the network has lost it. The peer may send nothing any more.
    func ended()
    /// The relay writes bytes, which may never arrive. The peer itself cannot know yet, but its service must.
    func relayWrites(_ bytes: ByteBufferView)
    /// The relay closes now, and reads nothing any more. The peer itself cannot know yet, but its service must.
    func relayCloses()
}

extension Peer {
    func relayWrites(_ bytes: ByteBufferView) {}
    func relayCloses() {}
}

/// The network between a socket of the relay and a peer: a stream of bytes in each direction, with delays and limited
/// buffers.
final class Link: CustomStringConvertible {
    enum End { case orderly, reset }

    /// Called when the relay has read the bytes, or has not and never will. Not called if the relay dies while they are on
    /// the way.
    typealias Fate = (_ wasRead: Bool) -> Void

    private enum Parcel {
        case bytes(ByteBuffer, Fate?)
        case end(End)
    }

    private unowned let world: World
    private let dice: Dice
    private let number: Int
    /// The name of the server.
    var host = ""
    private let latency: ClosedRange<Duration>
    /// The time that the handshake takes. `nil` if the peer never responds to it.
    let handshake: Duration?
    /// The relay's socket. `nil` once the relay has closed it or died.
    private var channel: SimulatedChannel? { hasRelayClosed ? nil : socket }
    var socket: SimulatedChannel!
    var peer: (any Peer)?

    // To the peer
    private let sendLimit: Int
    private let receiveLimit: Int
    private var output = ByteBuffer()
    private var isCarryingOutput = false
    /// The bytes that the peer's system has received, and the peer has not read.
    private var unread = ByteBuffer()
    // They include the bytes of the handshake.
    private var written = 600
    private var sent = 600
    private var acknowledged = 600
    private var isEstablished = false
    private var hasRelayClosed = false
    private(set) var isRelayDead = false
    /// Whether the network has lost the connection without notice.
    private(set) var hasVanished = false
    private var hasEnded = false

    // To the relay
    private var parcels = CircularBuffer<Parcel>()
    private var isCarryingInput = false
    private var input = CircularBuffer<(bytes: ByteBuffer, fate: Fate?)>()
    private(set) var inputEnd: End?
    private var isIgnored = false
    private var hasPeerClosed = false

    init(_ world: World, number: Int, latency: ClosedRange<Duration>, handshake: Duration?) {
        (self.world, self.number, self.latency, self.handshake) = (world, number, latency, handshake)
        dice = world.dice
        sendLimit = dice.among([4 << 10, 64 << 10, 1 << 20])
        receiveLimit = dice.among([4 << 10, 64 << 10])
    }

    var description: String { "link \(number)" }

    // MARK: - For the relay's socket

    var hasInput: Bool { !input.isEmpty || inputEnd != nil }
    var counts: (written: Int, sent: Int, acknowledged: Int) { (written, sent, acknowledged) }

    /// Takes bytes into the system's buffer.
    /// - Returns: The number of bytes that it had room for.
    func write(_ bytes: ByteBuffer) -> Int {
        let count = min(bytes.readableBytes, sendLimit - output.readableBytes)
        guard count > 0 else { return 0 }
        written += count
        output.writeBytes(bytes.readableBytesView.prefix(count))
        peer?.relayWrites(bytes.readableBytesView.prefix(count))
        carryOutput()
        return count
    }

    func takeInput(upTo count: Int) -> ByteBuffer? {
        guard !input.isEmpty else { return nil }
        let first = input.startIndex
        let bytes = input[first].bytes.readSlice(length: min(count, input[first].bytes.readableBytes))
        if input[first].bytes.readableBytes == 0 { input.removeFirst().fate?(!isIgnored) }
        return bytes
    }

    func established() {
        world.log("\(self): TLS is up")
        later {
            guard !self.hasPeerClosed else { return }
            self.isEstablished = true
            self.peer?.connected()
            self.peerReads()
        }
    }

    /// The relay reads on, but only for the end of TLS.
    func relayIgnoresInput() {
        guard !isIgnored else { return }
        isIgnored = true
        peer?.relayCloses()
    }

    func relayCloses() {
        world.log("\(self): the relay closes")
        relayIgnoresInput()
        // A system resets a connection if its process has not read everything.
        endRelaySide(loses: hasInput || dice.chance(10))
        for parcel in input { parcel.fate?(false) }
        input = []
    }

    /// The relay's process dies. Its system may send what the process had written.
    func relayDies() {
        guard !hasRelayClosed else { return }
        // A relay that closes has given up the responses already.
        isRelayDead = !isIgnored
        if isIgnored { for parcel in input { parcel.fate?(false) } }
        (parcels, input) = ([], [])
        endRelaySide(loses: dice.chance(50))
    }

    private func endRelaySide(loses: Bool) {
        hasRelayClosed = true
        if loses { output.moveWriterIndex(to: output.readerIndex + dice.below(output.readableBytes + 1)) }
        carryOutput()
    }

    // MARK: - For the peer

    /// Whether the peer reads. Otherwise the relay's bytes wait in both systems' buffers.
    var isReading = true { didSet { peerReads() } }
    var isOpen: Bool { !hasPeerClosed && !hasEnded }
    /// Whether both sides have closed.
    var isOver: Bool { hasRelayClosed && !isOpen }

    /// Takes what the peer's system has received, and the peer has not read.
    func takeUnread() -> ByteBuffer {
        defer { unread.clear() }
        return unread
    }

    func send(_ bytes: ByteBuffer, fate: Fate? = nil) {
        guard isOpen, !hasRelayClosed, !hasVanished else { return fate?(false) ?? () }
        // A network may split anything.
        guard bytes.readableBytes > 1, dice.chance(10) else { return add(.bytes(bytes, fate)) }
        var bytes = bytes
        add(.bytes(bytes.readSlice(length: dice.within(1...bytes.readableBytes - 1))!, nil))
        add(.bytes(bytes, fate))
    }

    func close() { end(.orderly) }
    /// Closes without care for what is on the way.
    func reset() { end(.reset) }

    private func end(_ end: End) {
        guard isOpen else { return }
        world.log("\(self): the peer ends the connection: \(end)")
        if case .reset = end, dice.chance(50) {
            dropParcels()
        }
        hasPeerClosed = true
        add(.end(end))
    }

    /// The network loses the connection.
    /// - Parameter isSilent: Whether neither side is told.
    func lose(isSilent: Bool) {
        guard isOpen else { return }
        world.log("\(self): lost\(isSilent ? " without notice" : "")")
        output.clear()
        (hasVanished, hasPeerClosed) = (isSilent, true)
        dropParcels()
        if !isSilent { add(.end(.reset)) }
        hasEnded = true
        peer?.ended()
        unread.clear()
    }

    // MARK: - The way of the bytes

    private func later(_ body: @escaping () -> Void) {
        simulation_world.run(after: dice.within(latency), body)
    }

    private func carryOutput() {
        let room = receiveLimit - unread.readableBytes
        guard !isCarryingOutput, !hasEnded, !hasVanished else { return }
        guard output.readableBytes > 0 else {
            if hasRelayClosed { endPeerSide() }
            return
        }
        guard room > 0 || hasPeerClosed else { return }
        let count = min(output.readableBytes, max(room, 1), dice.among([1 << 10, 16 << 10, 1 << 20]))
        guard let bytes = output.readSlice(length: count) else { return }
        output.discardReadBytes()
        sent += count
        isCarryingOutput = true
        later { self.arrived(bytes) }
    }

    private func arrived(_ bytes: ByteBuffer) {
        isCarryingOutput = false
        if hasVanished { return }
        guard !hasPeerClosed else {
            // The peer's system answers bytes for a closed socket with a reset.
            output.clear()
            if channel != nil, inputEnd == nil, !parcels.contains(where: { if case .end = $0 { true } else { false } })
            {
                add(.end(.reset))
            }
            return
        }
        acknowledged += bytes.readableBytes
        unread.writeImmutableBuffer(bytes)
        if let channel { channel.eventLoop.execute { channel.writable() } }
        peerReads()
        carryOutput()
    }

    private func peerReads() {
        guard isReading, isEstablished, isOpen, unread.readableBytes > 0 else { return }
        let bytes = unread
        unread = ByteBuffer()
        peer?.received(bytes)
        carryOutput()
    }

    private func endPeerSide() {
        later {
            guard !self.hasEnded, self.isReading || self.unread.readableBytes == 0 else { return }
            self.hasEnded = true
            self.peer?.ended()
            self.dropParcels()
        }
    }

    private func dropParcels() {
        for parcel in parcels { if case .bytes(_, let fate) = parcel { fate?(false) } }
        parcels = []
    }

    private func add(_ parcel: Parcel) {
        parcels.append(parcel)
        carryInput()
    }

    private func carryInput() {
        guard !isCarryingInput, !parcels.isEmpty else { return }
        isCarryingInput = true
        later {
            self.isCarryingInput = false
            guard !self.parcels.isEmpty else { return }
            switch self.parcels.removeFirst() {
            case .bytes(let bytes, let fate):
                if self.channel != nil { self.input.append((bytes, fate)) } else { fate?(false) }
            case .end(let end):
                self.inputEnd = end
            }
            if let channel = self.channel { channel.eventLoop.execute { channel.readable() } }
            self.carryInput()
        }
    }
}
