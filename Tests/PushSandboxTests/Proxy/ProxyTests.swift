import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the proxy through its socket.
@Suite("The proxy", .timeLimit(.minutes(10)))
struct ProxyTests {
    /// Sends bytes, and returns everything that the proxy sends until it closes.
    /// - Parameter ends: Whether the client ends its direction after these bytes.
    private static func exchange(_ sandbox: TestSandbox, _ text: String, ends: Bool = false) async throws -> String {
        try await RawExchange.run(sandbox.addresses[.proxy], text, ends: ends)
    }

    private static func refusals(_ sandbox: TestSandbox) -> [RefusedConnection] {
        sandbox.state.withLock { $0.stats.refusals }
    }

    @Test("A refused request gets a whole response, and is among the refused connections")
    func refused() async throws {
        try await TestSandbox.with { sandbox in
            let body = String(repeating: "a", count: 100_000)
            for (request, status) in [
                ("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n", "403 Forbidden"),
                (
                    "POST http://example.org/ HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + body,
                    "405 Method Not Allowed"
                ),
                ("\u{16}\u{3}\u{1}", "400 Bad Request"),
                ("CONNECT fcm.googleapis.com:443 HTTP/1.1\r\nA: " + body, "431 Request Header Fields Too Large"),
            ] {
                let answer = try await Self.exchange(sandbox, request)
                #expect(answer.hasPrefix("HTTP/1.1 \(status)\r\n"), "\(answer)")
                let parts = answer.split(separator: "\r\n\r\n")
                #expect(parts.count == 2 && parts[0].contains("Content-Length: \(parts[1].utf8.count)"))
            }
            let refusals = Self.refusals(sandbox)
            #expect(refusals.count == 4 && refusals.allSatisfy { $0.listener == .proxy && $0.reason == .noTunnel })
            #expect(refusals.first?.message.contains("does not play example.org:443") == true)
            #expect(sandbox.state.withLock { $0.stats.proxy.connections.noTunnel } == 4)
        }
    }

    @Test("A head that does not arrive in time gets 408")
    func slow() async throws {
        try await TestSandbox.with {
            $0.handshakeTimeout = .milliseconds(50)
        } _: { sandbox in
            let answer = try await Self.exchange(sandbox, "CONNECT fcm.googleapis.com:443 HTTP/1.1\r\n")
            #expect(answer.hasPrefix("HTTP/1.1 408 Request Timeout\r\n"), "\(answer)")
        }
    }

    @Test("A client that ends before its head is complete is closed without a response")
    func ended() async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await Self.exchange(sandbox, "CONNECT", ends: true)
            #expect(answer.isEmpty)
        }
    }

    @Test("A tunnel carries the bytes after the head, and the ends of both directions")
    func tunnel() async throws {
        try await TestSandbox.with { sandbox in
            // The listener refuses these bytes, because they are not TLS.
            let answer = try await Self.exchange(
                sandbox, "CONNECT gateway.sandbox.push.apple.com:2195 HTTP/1.1\r\n\r\nnot TLS", ends: true)
            #expect(answer.hasPrefix("HTTP/1.1 200 Connection established\r\n\r\n"))
            try await eventually { Self.refusals(sandbox).map(\.listener) == [.binary] }
            #expect(Self.refusals(sandbox).map(\.reason) == [.handshakeFailed])
            try await eventually { sandbox.state.withLock { $0.stats.proxy.connections.open } == 0 }
        }
    }

    @Test("A listener that accepts no connections gives 502")
    func unreachable() async throws {
        let addresses = SandboxAddresses(host: "127.0.0.1", ports: SandboxPort.values { _ in 1 })
        let configuration = SandboxConfiguration.forTests(directory: "/nonexistent")
        let state = SharedState(configuration)
        let listener = try await SocketListener.bind(
            .proxy, port: 0, tls: nil, configuration: configuration, state: state,
            group: MultiThreadedEventLoopGroup.singleton, logger: .silent
        ) { number, logger in
            ConnectHandler(
                connection: number, routes: ProxyRoutes(addresses), configuration: configuration, state: state,
                logger: logger)
        }
        let client = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(host: "127.0.0.1", port: listener.address.port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                }
            }
        let answer = try await client.executeThenClose { inbound, outbound in
            try await outbound.write(ByteBuffer(string: "CONNECT fcm.googleapis.com:443 HTTP/1.1\r\n\r\n"))
            var received = ByteBuffer()
            for try await var part in inbound { received.writeBuffer(&part) }
            return String(buffer: received)
        }
        #expect(answer.hasPrefix("HTTP/1.1 502 Bad Gateway\r\n"))
        await listener.close()
    }

    @Test("Beyond the limit, a connection is closed and counted")
    func tooMany() async throws {
        try await TestSandbox.with {
            $0.connectionLimit = 0
        } _: { sandbox in
            _ = try? await Self.exchange(sandbox, "")
            try await eventually { Self.refusals(sandbox).map(\.reason) == [.tooMany] }
        }
    }
}
