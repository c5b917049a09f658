import Foundation
import NIOCore
import NIOEmbedded
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the feedback service on a channel without sockets, where only the test advances the time.
@Suite("A connection to the feedback service")
struct FeedbackHandlerTests {
    private let state = SharedState(.forTests(directory: "/nonexistent"))
    private let socket = Socket()
    private let channel = EmbeddedChannel()

    /// Replaces a socket. It accepts the next bytes only when the test says so.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var written = ByteBuffer()
        var isHalfClosed = false
        private var waiting: [EventLoopPromise<Void>] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            var bytes = unwrapOutboundIn(data)
            written.writeBuffer(&bytes)
            if let promise { waiting.append(promise) }
        }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            guard mode == .output else { return context.close(mode: mode, promise: promise) }
            isHalfClosed = true
            promise?.succeed()
        }

        func takeAll() {
            let promises = waiting
            waiting = []
            for promise in promises { promise.succeed() }
        }
    }

    /// - Parameter tuples: The number of tuples that wait for the reader, with 38 bytes each.
    private func connect(tuples: Int) throws {
        state.withLock { state in
            for number in 0..<UInt32(tuples) {
                let tuple = FeedbackTuple(timestamp: number, token: [UInt8](repeating: 7, count: 32))
                state.feedback.append(tuple, topic: "app")
            }
        }
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(socket)
        try pipeline.addHandler(FeedbackHandler(state: state, logger: .silent))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.pipeline.fireUserInboundEventTriggered(
            ClientIdentified(certificate: ClientCertificate(topic: "app")))
    }

    private var waiting: Int { state.withLock { $0.stats.feedback.waiting } }

    @Test("The list is written in pieces, each after the socket has accepted the one before, and cleared at the end")
    func pieces() throws {
        try connect(tuples: 4000)
        var sizes: [Int] = []
        while !socket.isHalfClosed, sizes.count < 10 {
            sizes.append(socket.written.readableBytes)
            socket.takeAll()
        }
        // 1,725 is the lowest number of tuples that fills 64 KiB.
        #expect(sizes == [1725 * 38, 2 * 1725 * 38, 4000 * 38])
        #expect(state.withLock { $0.stats.feedback.sent } == 4000)
        #expect(waiting == 4000)
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!channel.isActive)
        #expect(waiting == 0)
    }

    @Test("A reader that needs more than ten seconds for a piece is closed, and its list kept")
    func slowReader() throws {
        try connect(tuples: 4000)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(9_999))
        socket.takeAll()
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(9_999))
        #expect(channel.isActive)
        channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        #expect(!channel.isActive)
        #expect(waiting == 4000)
    }

    @Test("A reader that closes before the end leaves the list unchanged")
    func earlyClose() throws {
        try connect(tuples: 4000)
        socket.takeAll()
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(!channel.isActive)
        #expect(waiting == 4000)
    }
}
