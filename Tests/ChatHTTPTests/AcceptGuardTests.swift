import Foundation
import NIOCore
import NIOEmbedded
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Accepting connections while file descriptors are scarce")
struct AcceptGuardTests {
    /// Replaces the listener's socket, and counts the requests to accept.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = Never
        var reads = 0

        func read(context: ChannelHandlerContext) { reads += 1 }
    }

    private let log = LogRecorder()
    private let clock = TestClock()
    private let metrics = LimitMetrics()
    private let socket = Socket()

    private func channel(_ spares: SpareFiles = SpareFiles(free: { 100 })) throws -> EmbeddedChannel {
        let shortage = ConnectionShortage(metrics: metrics, clock: MonotonicTime(clock), logger: log.logger)
        let channel = EmbeddedChannel()
        try channel.pipeline.syncOperations.addHandlers([socket, AcceptGuard(shortage: shortage, spares: spares)])
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        socket.reads = 0
        return channel
    }

    private func fail(_ channel: EmbeddedChannel, _ code: CInt = EMFILE) {
        channel.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept"))
    }

    @Test("Accepting pauses after each failure for a growing time, and resumes by itself")
    func pauses() throws {
        let channel = try channel()
        var pause = AcceptBackoff.first
        for _ in 0..<8 {
            fail(channel)
            // A caller's read does not end the pause.
            channel.read()
            #expect(socket.reads == 0)
            channel.embeddedEventLoop.advanceTime(by: TimeAmount(pause) - .milliseconds(1))
            #expect(socket.reads == 0)
            channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
            #expect(socket.reads == 1)
            channel.read()
            #expect(socket.reads == 2)
            socket.reads = 0
            pause = min(pause * 2, AcceptBackoff.longest)
        }
        // An accepted connection shortens the next pause.
        channel.pipeline.fireChannelRead(EmbeddedChannel() as any Channel)
        fail(channel)
        channel.embeddedEventLoop.advanceTime(by: TimeAmount(AcceptBackoff.first))
        #expect(socket.reads == 1)
        _ = try channel.finish()
    }

    @Test("After a pause a listener accepts every connection, not only the first ones", .timeLimit(.minutes(1)))
    func listener() async throws {
        let shortage = ConnectionShortage(metrics: metrics, clock: MonotonicTime(clock), logger: log.logger)
        let group = MultiThreadedEventLoopGroup.singleton
        let server = try await ServerBootstrap(group: group)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        AcceptGuard(shortage: shortage, spares: SpareFiles(free: { 100 })))
                }
            }
            .bind(host: "127.0.0.1", port: 0) { channel in channel.eventLoop.makeSucceededFuture(channel) }
        let port = try #require(server.channel.localAddress?.port)
        try await server.executeThenClose { connections in
            var connections = connections.makeAsyncIterator()
            for _ in 0..<2 {
                server.channel.pipeline.fireErrorCaught(IOError(errnoCode: EMFILE, reason: "accept"))
                // Connect more clients than the server accepts in one go.
                var clients: [any Channel] = []
                for _ in 0..<10 {
                    clients.append(try await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port).get())
                }
                for _ in clients { try await connections.next()?.close().get() }
                for client in clients { try? await client.close().get() }
            }
        }
        #expect(metrics.count(.connections) == 2)
    }

    @Test("While too few descriptors are free, accepting stays paused and the spare ones are released")
    func spares() throws {
        let free = Mutex(100)
        let spares = SpareFiles(free: { free.withLock(\.self) })
        #expect(spares.take() == true)
        let channel = try channel(spares)
        free.withLock { $0 = SpareFiles.minFree - 1 }
        fail(channel)
        #expect(spares.take() == false)
        channel.embeddedEventLoop.advanceTime(by: .seconds(60))
        channel.read()
        #expect(socket.reads == 0)
        free.withLock { $0 += 1 }
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(socket.reads == 1)
        _ = try channel.finish()
    }

    @Test("The log reports failures once a minute with a count; other errors are passed on")
    func reports() throws {
        let channel = try channel()
        for _ in 0..<5 { fail(channel) }
        #expect(log.lines.count == 1 && log.lines[0].hasPrefix("error cannot accept connections"), "\(log.lines)")
        clock.advance(by: .seconds(60))
        fail(channel, ENFILE)
        #expect(log.lines.count == 2 && log.lines[1].contains("count=5"))
        #expect(metrics.count(.connections) == 6)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        socket.reads = 0
        fail(channel, ECONNABORTED)
        #expect(throws: IOError.self) { try channel.throwIfErrorCaught() }
        channel.read()
        #expect(socket.reads == 1)
        _ = try channel.finish()
    }

    @Test("At the limit no connection is accepted until one ends, and the log reports it once")
    func slots() {
        let shortage = ConnectionShortage(metrics: metrics, clock: MonotonicTime(clock), logger: log.logger)
        var slots = ConnectionSlots(limit: 2, shortage: shortage)
        slots.connectionOpened()
        #expect(slots.isAcceptingNewConnections() && log.lines.isEmpty)
        for _ in 0..<3 {
            slots.connectionOpened()
            #expect(!slots.isAcceptingNewConnections())
            slots.connectionClosed()
            #expect(slots.isAcceptingNewConnections())
        }
        #expect(log.lines.count == 1 && log.lines[0].contains("connections=2"))
        #expect(metrics.count(.connections) == 3)
    }
}
