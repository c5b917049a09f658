import ChatDomain
import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import Testing
import WebAssets

@testable import ChatHTTP

@Suite("Clients that do not read")
struct WriteGuardTests {
    /// Replaces the socket, and accepts bytes only while it is open.
    private final class Socket: ChannelOutboundHandler {
        typealias OutboundIn = IOData
        var isOpen = false

        func flush(context: ChannelHandlerContext) {
            if isOpen { context.flush() }
        }
    }

    private static let answer: [HTTPResponsePart] = [
        .head(HTTPResponse(status: .ok, headerFields: [.contentLength: "5"])), .body(ByteBuffer(string: "Hello")),
        .end(nil),
    ]

    /// Returns a connection as the server sets it up, with one request.
    private func connection(_ counter: ConnectionCounter, _ socket: Socket) throws -> EmbeddedChannel {
        let channel = EmbeddedChannel()
        let pipeline = channel.pipeline.syncOperations
        try pipeline.configureHTTPServerPipeline(withPipeliningAssistance: false, withErrorHandling: false)
        try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
        try pipeline.addHandler(ConnectionGuard(connections: counter))
        try pipeline.addHandler(socket, position: .first)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try request(on: channel)
        return channel
    }

    private func request(on channel: EmbeddedChannel) throws {
        try channel.writeInbound(ByteBuffer(string: "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    private func answer(on channel: EmbeddedChannel) {
        for part in Self.answer { channel.write(part, promise: nil) }
        channel.flush()
    }

    @Test("A connection whose client reads no byte of a response for 30 seconds is closed and counted")
    func stuck() throws {
        let counter = ConnectionCounter()
        let channel = try connection(counter, Socket())
        channel.embeddedEventLoop.advanceTime(by: .seconds(60))
        #expect(channel.isActive, "nothing waited")
        answer(on: channel)
        channel.embeddedEventLoop.advanceTime(by: .seconds(29))
        #expect(channel.isActive)
        // Further responses do not count as progress.
        try request(on: channel)
        answer(on: channel)
        channel.embeddedEventLoop.advanceTime(by: .seconds(6))
        #expect(!channel.isActive)
        #expect(counter.metrics.count(.writeTime) == 1)
        _ = try channel.finish(acceptAlreadyClosed: true)
    }

    @Test("A connection whose client reads now and then stays open, even if some bytes always wait")
    func slow() throws {
        let counter = ConnectionCounter()
        let socket = Socket()
        let channel = try connection(counter, socket)
        answer(on: channel)
        for _ in 0..<10 {
            channel.embeddedEventLoop.advanceTime(by: .seconds(20))
            socket.isOpen = true
            channel.flush()
            socket.isOpen = false
            try request(on: channel)
            answer(on: channel)
        }
        #expect(channel.isActive)
        // The socket accepts everything, so nothing is left to wait for.
        socket.isOpen = true
        channel.flush()
        channel.embeddedEventLoop.advanceTime(by: .seconds(600))
        #expect(channel.isActive && counter.metrics.count(.writeTime) == 0)
        _ = try channel.finish(acceptAlreadyClosed: true)
    }

    @Test("The time counts from the last byte that the client read, whatever was queued since")
    func progress() {
        var progress = WriteProgress()
        progress.queued(100)
        progress.began(waiting: 100)
        for _ in 0..<5 { #expect(progress.checked(waiting: 100) == .checkAgain) }
        // The client took one byte, and more bytes were added.
        progress.queued(50)
        #expect(progress.checked(waiting: 149) == .checkAgain)
        for _ in 0..<5 { #expect(progress.checked(waiting: 149) == .checkAgain) }
        #expect(progress.checked(waiting: 149) == .close)
        #expect(progress.checked(waiting: 0) == .idle)
    }

    @Test("A connection with too many requests without a response is closed and counted")
    func pipelined() throws {
        let counter = ConnectionCounter()
        let channel = try connection(counter, Socket())
        for _ in 1..<HTTPLimits.pipelinedRequests { try request(on: channel) }
        #expect(channel.isActive)
        answer(on: channel)
        try request(on: channel)
        #expect(channel.isActive)
        try request(on: channel)
        #expect(!channel.isActive)
        #expect(counter.metrics.count(.pipelinedRequests) == 1)
        _ = try channel.finish(acceptAlreadyClosed: true)
    }
}
