import CSimulation
import Glibc
import NIOCore
import NIOTLS

/// A socket of the relay. The bytes go over a ``Link``.
final class SimulatedChannel: Channel, ChannelCore, SocketOptionProvider, @unchecked Sendable {
    /// The marks of the relay's sockets.
    private static let waterMark = (low: 64 << 10, high: 256 << 10)
    private static let largestRead = 2048

    let allocator = ByteBufferAllocator()
    let eventLoop: any EventLoop
    private var ownPipeline: ChannelPipeline!
    private(set) var isActive = false
    private(set) var isWritable = true
    private var isOpen = true
    private let closing: EventLoopPromise<Void>
    let link: Link
    private let dice: Dice

    /// The bytes that the system has not taken yet. The first ones are flushed.
    private var writes = MarkedCircularBuffer<(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)>(initialCapacity: 4)
    private var unsent = 0
    private var wantsRead = false

    init(on eventLoop: any EventLoop, _ link: Link, _ dice: Dice) {
        (self.eventLoop, self.link, self.dice) = (eventLoop, link, dice)
        closing = eventLoop.makePromise()
        ownPipeline = ChannelPipeline(channel: self)
    }

    var pipeline: ChannelPipeline { ownPipeline }
    var closeFuture: EventLoopFuture<Void> { closing.futureResult }
    var localAddress: SocketAddress? { nil }
    var remoteAddress: SocketAddress? { nil }
    var parent: (any Channel)? { nil }
    var _channelCore: any ChannelCore { self }

    func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    // MARK: - The socket

    func connected() {
        guard isOpen else { return }
        isActive = true
        pipeline.fireChannelActive()
        pipeline.read()
    }

    /// Reads if the peer has sent something and a handler wants it.
    func readable() {
        var hasRead = false
        while isOpen, wantsRead, let bytes = link.takeInput(upTo: dice.within(1...Self.largestRead)) {
            hasRead = true
            pipeline.syncOperations.fireChannelRead(NIOAny(bytes))
            if dice.chance(20) { break }
        }
        if hasRead {
            wantsRead = false
            pipeline.syncOperations.fireChannelReadComplete()
            if isOpen { pipeline.syncOperations.read() }
        }
        guard isOpen, wantsRead, let end = link.inputEnd else { return }
        if case .reset = end {
            let error = IOError(errnoCode: ECONNRESET, reason: "read")
            pipeline.syncOperations.fireErrorCaught(error)
            close0(error: error, mode: .all, promise: nil)
        } else {
            close0(error: ChannelError.eof, mode: .all, promise: nil)
        }
    }

    /// Passes flushed bytes to the system, as far as it has room.
    func writable() {
        while isOpen, writes.hasMark, !writes.isEmpty {
            let taken = link.write(writes[writes.startIndex].bytes)
            unsent -= taken
            writes[writes.startIndex].bytes.moveReaderIndex(forwardBy: taken)
            guard writes[writes.startIndex].bytes.readableBytes == 0 else { break }
            writes.removeFirst().promise?.succeed()
        }
        noteWritability()
    }

    private func noteWritability() {
        let isWritable = unsent < (isWritable ? Self.waterMark.high : Self.waterMark.low)
        guard isOpen, isWritable != self.isWritable else { return }
        self.isWritable = isWritable
        pipeline.syncOperations.fireChannelWritabilityChanged()
    }

    // MARK: - From the pipeline

    func localAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
    func remoteAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
    func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) { promise?.fail(ChannelError.operationUnsupported) }
    func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    func channelRead0(_ data: NIOAny) {}
    func errorCaught0(error: any Error) {}
    func registerAlreadyConfigured0(promise: EventLoopPromise<Void>?) { register0(promise: promise) }

    func register0(promise: EventLoopPromise<Void>?) {
        promise?.succeed()
        pipeline.syncOperations.fireChannelRegistered()
    }

    func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard isOpen else { return promise?.fail(ChannelError.ioOnClosedChannel) ?? () }
        let bytes: ByteBuffer = unwrapData(data)
        writes.append((bytes, promise))
        unsent += bytes.readableBytes
        noteWritability()
    }

    func flush0() {
        writes.mark()
        writable()
    }

    func read0() {
        wantsRead = true
        guard link.hasInput else { return }
        eventLoop.execute { self.readable() }
    }

    func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard isOpen else { return promise?.fail(ChannelError.alreadyClosed) ?? () }
        let wasActive = isActive
        (isOpen, isActive) = (false, false)
        link.relayCloses()
        while let write = writes.popFirst() { write.promise?.fail(error) }
        promise?.succeed()
        if wasActive { pipeline.syncOperations.fireChannelInactive() }
        pipeline.syncOperations.fireChannelUnregistered()
        eventLoop.execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closing.succeed()
        }
    }

    // MARK: - TCP_INFO

    func unsafeSetSocketOption<Value: Sendable>(
        level: SocketOptionLevel, name: SocketOptionName, value: Value
    ) -> EventLoopFuture<Void> {
        eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    func unsafeGetSocketOption<Value: Sendable>(
        level: SocketOptionLevel, name: SocketOptionName
    ) -> EventLoopFuture<Value> {
        eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    func unsafeSetSocketOption<Value: Sendable>(
        level: NIOBSDSocket.OptionLevel, name: NIOBSDSocket.Option, value: Value
    ) -> EventLoopFuture<Void> {
        eventLoop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    /// Returns Linux's `struct tcp_info`, which is all that the relay asks for.
    func unsafeGetSocketOption<Value: Sendable>(
        level: NIOBSDSocket.OptionLevel, name: NIOBSDSocket.Option
    ) -> EventLoopFuture<Value> {
        guard isOpen else { return eventLoop.makeFailedFuture(ChannelError.ioOnClosedChannel) }
        let counts = link.counts
        let size = MemoryLayout<Value>.size
        return eventLoop.makeSucceededFuture(
            withUnsafeTemporaryAllocation(byteCount: size, alignment: MemoryLayout<Value>.alignment) { bytes in
                bytes.initializeMemory(as: UInt8.self, repeating: 0)
                bytes.storeBytes(of: UInt64(counts.acknowledged), toByteOffset: 120, as: UInt64.self)
                bytes.storeBytes(of: UInt32(counts.written - counts.sent), toByteOffset: 144, as: UInt32.self)
                bytes.storeBytes(of: UInt64(counts.sent), toByteOffset: 200, as: UInt64.self)
                return bytes.load(as: Value.self)
            })
    }
}

/// TLS without encryption: the handshake takes a while, and so does the close, in which both sides agree to it.
final class SimulatedTLS: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer

    /// The relay waits no longer for the peer's agreement to a close.
    private static let shutdownLimit = Duration.milliseconds(500)

    private let link: Link
    private let agreed: String?
    private let dice: Dice
    private var isClosing = false

    /// - Parameter agreed: The protocol that both sides speak.
    init(_ link: Link, agreed: String?, _ dice: Dice) { (self.link, self.agreed, self.dice) = (link, agreed, dice) }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        guard let delay = link.handshake else { return }
        context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(delay)) {
            guard context.channel.isActive, !self.isClosing else { return }
            context.fireUserInboundEventTriggered(TLSUserEvent.handshakeCompleted(negotiatedProtocol: self.agreed))
            self.link.established()
        }
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard context.channel.isActive, dice.chance(70) else { return context.close(mode: mode, promise: promise) }
        guard !isClosing else { return promise?.succeed() ?? () }
        isClosing = true
        link.relayIgnoresInput()
        context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(dice.within(.zero...Self.shutdownLimit))) {
            context.close(mode: mode, promise: promise)
        }
    }
}
