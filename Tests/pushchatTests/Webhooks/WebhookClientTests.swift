import ChatDomain
import NIOCore
import NIOPosix
import PushWire
import Testing
import WebPushGateway

@testable import pushchat

@Suite("Requests of webhooks", .timeLimit(.minutes(1)))
struct WebhookClientTests {
    private static let secrets = [Array(UInt8(0)..<32), Array(UInt8(32)..<64)].map(WebhookSecret.init(stored:))
    private static let body = """
        {"type":"message.posted","timestamp":"2026-12-01T20:00:00.000Z","data":{"room":"kitchen","message_id":7,"text":"Café ☕"}}
        """

    private static func request(_ url: String) -> WebhookRequest {
        WebhookRequest(
            url: url, id: "msg_01", time: Timestamp(seconds: 1_796_169_600), body: Array(body.utf8), secrets: secrets)
    }

    @Test("Both secrets sign as Standard Webhooks says")
    func signature() {
        // Python's hmac, and the packages standardwebhooks and svix, give the same.
        let headers = WebhookSignature.headers(of: Self.request("https://example.org/"))
        #expect(headers.map(\.name) == ["webhook-id", "webhook-timestamp", "webhook-signature"])
        #expect(
            headers.map(\.value) == [
                "msg_01", "1796169600",
                "v1,HSk9qwwyvGbfgMods+M32Aj1BYJN1Ms/KihlX2Ay4mQ= v1,AG5svG0G5594malsHnzRJZ6tTXQajxNE2+4ONCCWzoI=",
            ])
    }

    /// Sends a request to a server that answers with these bytes, and then waits or closes.
    private static func answer(
        _ bytes: String, closes: Bool = false, within limit: TimeAmount = .seconds(20)
    ) async throws -> WebhookResponse {
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(FixedAnswer(bytes, closes: closes))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = WebhookClient(rules: { try! EndpointRules(webhooks: [], admitsLoopback: true) }, timeLimit: limit)
        let response = await client.send(request("http://127.0.0.1:\(server.localAddress?.port ?? 0)/hook"))
        try await server.close()
        return response
    }

    @Test("The status, the body's beginning and Retry-After are the answer, and a redirection is not followed")
    func answers() async throws {
        let json = try await Self.answer(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}")
        #expect(json == WebhookResponse(.answered(status: 200), isJSON: true, body: Array("{}".utf8)))
        let moved = try await Self.answer(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
        #expect(moved.outcome == .answered(status: 302))
        let long = String(repeating: "x", count: 200_000)
        let cut = try await Self.answer("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n\(long)")
        #expect(cut.body.count == WebhookClient.maxBody && !cut.isJSON)
        let later = try await Self.answer("HTTP/1.1 429 Later\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
        guard case .answered(429, .some) = later.outcome else {
            Issue.record("\(later)")
            return
        }
    }

    @Test("A receiver that closes or hangs has not answered")
    func silence() async throws {
        #expect(
            try await Self.answer("", closes: true).outcome == .unanswered("the receiver closed the connection"))
        #expect(
            try await Self.answer("HTTP/1.1 200 OK\r\n", within: .milliseconds(300)).outcome
                == .unanswered("no response in time"))
        let rules = try EndpointRules(webhooks: [], admitsLoopback: true)
        let nobody = await WebhookClient(rules: { rules }).send(Self.request("http://127.0.0.1:1/"))
        guard case .unanswered = nobody.outcome else {
            Issue.record("\(nobody)")
            return
        }
    }

    @Test(
        "A name that leads into a private network is not reached, whatever a name server returns",
        arguments: [
            "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
            "fe80::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "224.0.0.1",
        ])
    func privateAddress(address: String) async throws {
        let ip = try #require(IPAddress(address))
        let rules = try EndpointRules(webhooks: [])
        let client = WebhookClient(rules: { rules }, addresses: { _ in [ip] })
        #expect(
            await client.send(Self.request("https://example.org/")).outcome
                == .unanswered(
                    "the receiver's address leads into a private or local network; webhooks.hosts may name it"))
    }

    @Test("Only named hosts may have a port, plain HTTP or an address")
    func rules() throws {
        let rules = try EndpointRules(webhooks: ["homeassistant.local:8123", "10.0.0.7"])
        func isAllowed(_ url: String, _ rules: EndpointRules) -> Bool {
            (try? rules.check(webhook: url)) != nil
        }
        for url in [
            "https://example.org/", "https://hooks.example.org/a?b", "http://homeassistant.local:8123/api/webhook/x",
            "https://homeassistant.local:8123/", "https://10.0.0.7/",
        ] {
            #expect(isAllowed(url, rules), "\(url)")
        }
        for url in [
            "http://example.org/", "https://example.org:8443/", "https://10.0.0.8/", "http://10.0.0.7/",
            "http://homeassistant.local/", "https://127.1/", "https://0x7f.1/", "https://[::1]/", "https://a@b.org/",
            "https://example.org/#x", "file:///etc/passwd", "gopher://example.org/", "https://", "",
        ] {
            #expect(!isAllowed(url, rules), "\(url)")
        }
        let local = try EndpointRules(webhooks: [], admitsLoopback: true)
        #expect(isAllowed("http://localhost:3000/", local) && isAllowed("http://127.0.0.1:3000/", local))
        #expect(!isAllowed("http://10.0.0.1:3000/", local))
        // A name server must not make the name of this machine that of another one.
        let endpoint = try PushEndpoint("http://localhost:3000/", admitsHTTP: true)
        #expect(!local.allows(try #require(IPAddress("10.0.0.1")), of: endpoint))
        #expect(throws: WebPushError.self) { try PushEndpoint("http://example.org/") }
        #expect(throws: WebPushError.self) { try EndpointRules(webhooks: ["a/b"]) }
    }

    @Test("A name without an address, or without one in time, is a failure")
    func lookup() async throws {
        let rules = try EndpointRules(webhooks: [])
        let slow = WebhookClient(
            rules: { rules }, timeLimit: .milliseconds(200),
            addresses: { _ in
                try await Task.sleep(for: .seconds(100))
                return []
            })
        #expect(
            await slow.send(Self.request("https://example.org/")).outcome
                == .unanswered("the receiver's host was not looked up in time"))
        let none = WebhookClient(rules: { rules }, addresses: { _ in [] })
        #expect(
            await none.send(Self.request("https://example.org/")).outcome
                == .unanswered("the receiver's host has no address"))
    }
}

/// Answers the first bytes of a request.
private final class FixedAnswer: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let bytes: String
    private let closes: Bool
    private var isOver = false

    init(_ bytes: String, closes: Bool) {
        self.bytes = bytes
        self.closes = closes
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        isOver = true
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: bytes)), promise: nil)
        if closes { context.close(promise: nil) }
    }
}
