import NIOCore
import NIOEmbedded
import Testing

@testable import PushSandbox

/// Tests a tunnel on two channels without sockets.
@Suite("A tunnel of the proxy")
struct TunnelEndTests {
    private let near = EmbeddedChannel()
    private let far = EmbeddedChannel()
    private let nearSocket = Socket()
    private let farSocket = Socket()

    /// Replaces a socket. It counts reads, and records the end of the output.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        private(set) var reads = 0
        private(set) var isOutputClosed = false

        func read(context: ChannelHandlerContext) { reads += 1 }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            guard mode == .output else { return context.close(mode: mode, promise: promise) }
            isOutputClosed = true
            promise?.succeed()
        }
    }

    init() throws {
        let ends = TunnelEnd.pair()
        for (channel, socket, end) in [(near, nearSocket, ends.0), (far, farSocket, ends.1)] {
            try channel.pipeline.syncOperations.addHandlers([socket, end])
            try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        }
    }

    @Test("Bytes pass in both directions")
    func bytes() throws {
        try near.writeInbound(ByteBuffer(string: "question"))
        #expect(try far.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "question"))
        try far.writeInbound(ByteBuffer(string: "answer"))
        #expect(try near.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "answer"))
    }

    @Test("An end does not read while the other end cannot write, and reads once when it can")
    func backpressure() throws {
        near.read()
        let before = nearSocket.reads
        far.isWritable = false
        far.pipeline.fireChannelWritabilityChanged()
        near.read()
        near.read()
        #expect(nearSocket.reads == before)
        far.isWritable = true
        far.pipeline.fireChannelWritabilityChanged()
        #expect(nearSocket.reads == before + 1)
        far.pipeline.fireChannelWritabilityChanged()
        #expect(nearSocket.reads == before + 1)
    }

    @Test("The end of one direction leaves the other open")
    func halfClose() throws {
        near.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(farSocket.isOutputClosed && !nearSocket.isOutputClosed && far.isActive)
        try far.writeInbound(ByteBuffer(string: "answer"))
        #expect(try near.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "answer"))
        far.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(nearSocket.isOutputClosed)
        // Both directions have ended. NIO closes the far end after it has written everything.
        near.close(promise: nil)
        near.embeddedEventLoop.run()
        #expect(far.isActive)
    }

    @Test("An end that breaks closes the other", arguments: [false, true])
    func breaks(inputEnded: Bool) throws {
        if inputEnded { near.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
        near.pipeline.fireErrorCaught(ChannelError.ioOnClosedChannel)
        near.embeddedEventLoop.run()
        far.embeddedEventLoop.run()
        #expect(!near.isActive && !far.isActive)
    }
}
