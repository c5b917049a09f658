import ChatDomain
import NIOCore
import NIOPosix
import Testing

@testable import pushchat

@Suite("Answers of ntfy's upstream server that never end", .timeLimit(.minutes(1)))
struct UpstreamClientTests {
    private static let request = PollRequest(room: 1, alias: RoomAlias(stored: "AbC-_123"), message: 1, attempts: 0)

    /// Sends a request to a server whose answer begins with `head`, and continues with a byte now and then, for ever.
    private static func answer(to head: String, within limit: TimeAmount) async throws -> UpstreamResponse {
        let service = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.writeAndFlush(ByteBuffer(string: head), promise: nil)
                let bytes = channel.eventLoop.scheduleRepeatedTask(
                    initialDelay: .milliseconds(10), delay: .milliseconds(10)
                ) { _ in channel.writeAndFlush(ByteBuffer(string: "x"), promise: nil) }
                channel.closeFuture.whenComplete { _ in bytes.cancel() }
                return channel.eventLoop.makeSucceededVoidFuture()
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let server = UpstreamServer(
            url: "http://127.0.0.1:\(service.localAddress?.port ?? 0)", token: nil, baseURL: "https://chat.example.org",
            userAgent: "pushchat/1")
        let client = UpstreamClient(timeLimit: limit)
        let answer = await client.send(request, to: server)
        await client.close()
        try await service.close()
        return answer
    }

    @Test(
        "A body that arrives byte by byte ends at the deadline, and the status is the answer",
        arguments: [
            ("HTTP/1.1 200 OK\r\n", .accepted),
            ("HTTP/1.1 503 Later\r\nRetry-After: 7\r\n", .unavailable("status 503", after: .seconds(7))),
        ] as [(String, UpstreamResponse)])
    func body(head: String, expected: UpstreamResponse) async throws {
        // On a busy machine, the head may be late as well.
        for limit in [500, 4000, 20_000] as [Int64]
        where try await Self.answer(to: head + "Content-Length: 60000\r\n\r\n", within: .milliseconds(limit))
            == expected
        {
            return
        }
        Issue.record("no answer is \(expected)")
    }

    @Test("A head that arrives byte by byte ends at the deadline")
    func head() async throws {
        let answer = try await Self.answer(to: "HTTP/1.1 200 OK\r\nX-Long: ", within: .milliseconds(500))
        guard case .unavailable = answer else {
            Issue.record("a head without an end is an answer")
            return
        }
    }

    @Test(
        "A response with an impossible status is a failure, and does not end the process",
        arguments: ["000 X", "099 X", "101 X", "101 X\r\nConnection: upgrade\r\nUpgrade: websocket"])
    func impossible(status: String) async throws {
        let service = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(
                        FixedResponse("HTTP/1.1 \(status)\r\nContent-Length: 0\r\n\r\n"))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let server = UpstreamServer(
            url: "http://127.0.0.1:\(service.localAddress?.port ?? 0)", token: nil, baseURL: "https://chat.example.org",
            userAgent: "pushchat/1")
        let client = UpstreamClient(timeLimit: .seconds(20))
        let answer = await client.send(Self.request, to: server)
        await client.close()
        try await service.close()
        guard case .unavailable(let reason, _) = answer else {
            Issue.record("\(answer)")
            return
        }
        #expect(!reason.hasPrefix("status"))
    }
}

/// Sends the same response to each read.
private final class FixedResponse: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let response: ByteBuffer

    init(_ response: String) {
        self.response = ByteBuffer(string: response)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.writeAndFlush(wrapOutboundOut(response), promise: nil)
    }
}
