import ChatDomain
import NIOCore
import NIOPosix
import NIOSSL
import PushSandbox
import PushWire
import Synchronization
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Reading the feedback service", .timeLimit(.minutes(5)))
struct BinaryFeedbackSourceTests {
    /// Sends each client the same bytes over TLS, and closes.
    private func withServer(
        _ bytes: ByteBuffer, isEndless: Bool = false, _ body: (BinaryFeedbackSource) async throws -> Void
    ) async throws {
        let credentials = try await HTTP2GatewayFixture.credentials.value
        let tls = try NIOSSLContext(
            configuration: .makeServerConfiguration(
                certificateChain: try NIOSSLCertificate.fromPEMFile(credentials.serverFile).map { .certificate($0) },
                privateKey: .privateKey(try NIOSSLPrivateKey(file: credentials.serverFile, format: .pem))))
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOSSLServerHandler(context: tls), FeedbackList(bytes: bytes, isEndless: isEndless),
                    ])
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let endpoint = try GatewayEndpoint(
            host: "localhost", port: try #require(server.localAddress?.port), credentials: nil,
            trust: credentials.authorityFile)
        do {
            try await body(BinaryFeedbackSource(endpoint: endpoint))
        } catch {
            try? await server.close()
            throw error
        }
        try await server.close()
    }

    /// Returns a list of devices with different tokens. The last tuple lacks its token.
    private func list(_ count: Int) -> ByteBuffer {
        var bytes = ByteBuffer()
        for number in 0..<count {
            let token = ServerFrames.bytes(number) + [UInt8](repeating: 0xab, count: 28)
            FeedbackTuple(timestamp: UInt32(1_700_000_000 + number), token: token).write(to: &bytes)
        }
        FeedbackTuple(timestamp: 1, token: []).write(to: &bytes)
        return bytes
    }

    @Test("A list is read to its end and passed on in pieces of at most 500; half a tuple remains")
    func pieces() async throws {
        var bytes = list(1200)
        bytes.writeBytes([1, 2, 3])
        try await withServer(bytes) { source in
            let pieces = Mutex<[[FeedbackReport]]>([])
            let rest = try await source.read { reports in pieces.withLock { $0.append(reports) } }
            #expect(rest == 3)
            let all = pieces.withLock { $0 }
            #expect(all.allSatisfy { $0.count <= 500 })
            #expect(all.count >= 3)
            let reports = all.flatMap { $0 }
            #expect(reports.map(\.since.seconds) == (0..<1200).map { 1_700_000_000 + $0 })
            #expect(reports.first?.token.bytes?.suffix(28) == [UInt8](repeating: 0xab, count: 28)[...])
        }
    }

    @Test("A list without an end is read until the task is cancelled, and its reports are stored")
    func endless() async throws {
        try await withServer(list(600), isEndless: true) { source in
            let (counts, count) = AsyncStream.makeStream(of: Int.self)
            let reading = Task { try await source.read { count.yield($0.count) } }
            var stored = 0
            for await count in counts {
                stored += count
                if stored > 2000 { break }
            }
            reading.cancel()
            _ = try await reading.value
        }
    }

    @Test("A failing store ends the reading with its error")
    func failingStore() async throws {
        try await withServer(list(1200)) { source in
            await #expect(throws: ChatError.self) {
                _ = try await source.read { _ in throw ChatError(.unavailable, "the disk is full") }
            }
        }
    }
}

private final class FeedbackList: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let bytes: ByteBuffer
    private let isEndless: Bool

    init(bytes: ByteBuffer, isEndless: Bool) {
        self.bytes = bytes
        self.isEndless = isEndless
    }

    func channelActive(context: ChannelHandlerContext) {
        write(to: context.channel)
    }

    /// Writes the bytes, and then closes the connection or writes them again.
    private func write(to channel: any Channel) {
        let (bytes, isEndless) = (bytes, isEndless)
        @Sendable func write() {
            channel.writeAndFlush(bytes).whenComplete { result in
                if isEndless, case .success = result { write() } else { channel.close(promise: nil) }
            }
        }
        write()
    }
}
