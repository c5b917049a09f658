import Crypto
import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests Mozilla's push protocol through its sockets, as a browser and a sender see it.
@Suite("Web Push: a real browser's WebSocket", .timeLimit(.minutes(10)))
struct PushSocketTests {
    private static let channel = "0d9ac2a8-6e4f-4c5d-a2cf-f5b0ae1a3a3a"
    private let key = VAPIDKey()
    private let browserKey = P256.KeyAgreement.PrivateKey()
    private let secret = MessageEncryption.randomSalt()

    @Test(
        "A browser subscribes, gets and acknowledges a push, gets missed pushes later, and unsubscribes"
    )
    func delivery() async throws {
        try await TestSandbox.with { sandbox in
            let browser = try await TestBrowser.connect(to: sandbox)
            try await browser.say(#"{"messageType":"hello","broadcasts":{"a":"b"},"use_webpush":true}"#)
            let hello = try await browser.heard()
            #expect(hello["status"] as? Int == 200)
            #expect(hello["use_webpush"] as? Bool == true)
            #expect(hello["broadcasts"] as? [String: String] == [:])
            let name = try #require(hello["uaid"] as? String)
            #expect(name.count == 32)
            try await browser.say("{}")
            #expect(try await browser.heard().isEmpty)
            try await browser.say(
                #"{"messageType":"register","channelID":"\#(Self.channel)","key":"\#(key.publicText)="}"#)
            let registered = try await browser.heard()
            #expect(registered["channelID"] as? String == Self.channel)
            let endpoint = try #require(registered["pushEndpoint"] as? String)
            #expect(endpoint.hasPrefix("https://localhost:\(sandbox.addresses[.webPush].port)/push/"))

            #expect(try await push("at once", to: endpoint, sandbox) == 201)
            let first = try await browser.heard()
            #expect(first["channelID"] as? String == Self.channel)
            #expect(first["ttl"] as? Int == 60)
            #expect(try text(first) == "at once")
            let version = try #require(first["version"] as? String)
            try await browser.say(
                #"{"messageType":"ack","updates":[{"channelID":"\#(Self.channel)","version":"\#(version)","code":100}]}"#
            )
            try await eventually {
                try await sandbox.notifications().first?["delivery"] as? String == "acknowledged"
            }
            let entry = try #require(try await sandbox.notifications().first)
            #expect(entry["delivery_code"] as? Int == 100)
            #expect(entry["payload_base64"] is String)
            try await browser.close()
            try await eventually { sandbox.state.withLock { $0.stats.browsers.connected } == 0 }

            #expect(try await push("later", to: endpoint, sandbox) == 201)
            #expect(try await sandbox.notifications().last?["delivery"] as? String == "waiting")
            let again = try await TestBrowser.connect(to: sandbox)
            try await again.say(#"{"messageType":"hello","broadcasts":{},"use_webpush":true,"uaid":"\#(name)"}"#)
            #expect(try await again.heard()["uaid"] as? String == name)
            #expect(try text(try await again.heard()) == "later")
            try await again.say(#"{"messageType":"unregister","channelID":"\#(Self.channel)","code":200}"#)
            #expect(try await again.heard()["status"] as? Int == 200)
            #expect(try await push("gone", to: endpoint, sandbox) == 410)
            try await again.close()
        }
    }

    @Test("A violation of the protocol closes the connection with the field and the rule")
    func refusals() async throws {
        try await TestSandbox.with { sandbox in
            let long = #"{"messageType":"hello","uaid":"\#(String(repeating: "x", count: 64 << 10))"}"#
            let wrong: [(String, UInt16, String)] = [
                ("nonsense", 1008, "must be a JSON object"),
                (
                    #"{"messageType":"unregister","channelID":"\#(Self.channel)"}"#, 1008,
                    "messageType: hello must come first"
                ),
                (long, 1009, ""),
            ]
            for (message, code, reason) in wrong {
                let browser = try await TestBrowser.connect(to: sandbox)
                try await browser.say(message)
                let end = try await browser.end()
                #expect(end.code == code)
                #expect(end.reason == reason)
            }
            let next = sandbox.state.withLock { $0.userAgents.open() }
            #expect(next == wrong.count + 1)
        }
    }

    @Test("A browser that does not identify itself is closed; the sandbox's stop closes the others")
    func ends() async throws {
        try await TestSandbox.with({ $0.handshakeTimeout = .milliseconds(1) }) { sandbox in
            let port = sandbox.addresses[.control].port
            let heard = try await raw(sandbox, Self.upgrade("/push", host: "localhost:\(port)"), toEnd: true)
            #expect(heard.hasPrefix("HTTP/1.1 101 "))
            #expect(heard.hasSuffix("messageType: hello did not arrive in time"))
        }
        let browser = try await TestSandbox.with { sandbox in
            let browser = try await TestBrowser.connect(to: sandbox)
            try await browser.say(#"{"messageType":"hello","use_webpush":true}"#)
            _ = try await browser.heard()
            return browser
        }
        await #expect(throws: TestBrowser.Closed.self) { try await browser.heard() }
    }

    @Test(
        "A WebSocket opens only for hosts of this machine",
        arguments: [
            (nil, nil, 101), (nil, "ws://localhost:PORT/push", 101), (nil, "http://127.0.0.1:PORT", 101),
            ("evil.example", nil, 403), ("localhost:1", nil, 403), (nil, "https://evil.example", 403),
            (nil, "http://localhost:1", 403), (nil, "null", 403), (nil, "ws://evil.example/push", 403),
        ] as [(String?, String?, Int)])
    func foreign(host: String?, origin: String?, status: Int) async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await upgrade(sandbox, "/push", host: host, origin: origin)
            #expect(answer == status)
        }
    }

    @Test("At other paths an upgrade is ignored, and without one the path asks for it")
    func other() async throws {
        try await TestSandbox.with { sandbox in
            #expect(try await upgrade(sandbox, "/healthz") == 200)
            #expect(try await upgrade(sandbox, "/browsers/push") == 404)
            let answer = try await sandbox.control(.get, "/push")
            #expect(answer.status == 426)
            #expect(answer.body.contains("Upgrade: "))
            #expect(Self.status(try await raw(sandbox, "nonsense\r\n\r\n")) == 400)
            // The sandbox closes a connection whose client sends nothing and ends its side.
            #expect(try await raw(sandbox, nil, toEnd: true) == "")
            // An upgrade in the second request of a connection is ignored.
            let port = sandbox.addresses[.control].port
            let both =
                "GET /healthz HTTP/1.1\r\nHost: localhost:\(port)\r\n\r\n"
                + Self.upgrade("/push", host: "localhost:\(port)")
            let heard = try await raw(sandbox, both, toEnd: true)
            #expect(heard.hasPrefix("HTTP/1.1 200 "))
            #expect(heard.contains("HTTP/1.1 426 "))
        }
    }

    // MARK: The sender

    /// - Returns: The status.
    private func push(_ text: String, to endpoint: String, _ sandbox: TestSandbox) async throws -> Int {
        let keys = try SubscriptionKeys(publicKey: Array(browserKey.publicKey.x963Representation), secret: secret)
        let body = try MessageEncryption.encrypt(Array(text.utf8), for: keys)
        let port = sandbox.addresses[.webPush].port
        var headers: HTTPFields = [.ttl: "60", .contentEncoding: "aes128gcm"]
        headers[.authorization] = try key.authorization(
            audience: "https://localhost:\(port)", expiresAt: Int64(sandbox.state.now().timeIntervalSince1970) + 60,
            subject: nil)
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.trustRoots = .file(sandbox.credentials.authorityFile)
        let request = TestClient.Request(
            try #require(URL(string: endpoint)).path, method: .post, authority: "localhost:\(port)", headers: headers,
            body: ByteBuffer(bytes: body))
        return try await TestClient.withClient(
            host: "localhost", port: port,
            configuration: .init(tlsConfiguration: tls, timeout: .seconds(TestLimit.seconds))
        ) { client in
            try await client.execute(request).status.code
        }
    }

    private func text(_ notification: [String: Any]) throws -> String {
        #expect(notification["headers"] as? [String: String] == ["encoding": "aes128gcm"])
        let body = try #require(Base64URL.bytes(notification["data"] as? String ?? ""))
        return String(decoding: try MessageEncryption.decrypt(body, key: browserKey, secret: secret), as: UTF8.self)
    }

    // MARK: The upgrade

    private static func upgrade(_ path: String, host: String, origin: String? = nil) -> String {
        let lines = [
            "GET \(path) HTTP/1.1", "Host: \(host)", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        return (lines + (origin.map { ["Origin: " + $0] } ?? [])).joined(separator: "\r\n") + "\r\n\r\n"
    }

    /// - Returns: The status.
    private func upgrade(
        _ sandbox: TestSandbox, _ path: String, host: String? = nil, origin: String? = nil
    ) async throws -> Int {
        let port = "\(sandbox.addresses[.control].port)"
        let request = Self.upgrade(
            path, host: host ?? "localhost:\(port)", origin: origin?.replacing("PORT", with: port))
        return Self.status(try await raw(sandbox, request))
    }

    private static func status(_ answer: String) -> Int {
        Int(answer.split(separator: " ").dropFirst().first ?? "") ?? 0
    }

    /// - Parameters:
    ///   - request: The request. If `nil`, the client sends nothing and ends its side.
    ///   - toEnd: Whether to read until the sandbox closes the connection, rather than until the first bytes arrive.
    private func raw(_ sandbox: TestSandbox, _ request: String?, toEnd: Bool = false) async throws -> String {
        try await RawExchange.run(
            sandbox.addresses[.control], request ?? "", ends: request == nil, toEnd: toEnd)
    }
}

/// A browser's end of a WebSocket.
private final class TestBrowser: Sendable {
    struct Closed: Error {}

    private let channel: any Channel
    private let frames: AsyncStream<WebSocketFrame>

    private init(_ channel: any Channel, _ frames: AsyncStream<WebSocketFrame>) {
        self.channel = channel
        self.frames = frames
    }

    static func connect(to sandbox: TestSandbox) async throws -> TestBrowser {
        let address = sandbox.addresses[.control]
        let (frames, came) = AsyncStream<WebSocketFrame>.makeStream()
        let upgraded = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(host: address.host, port: address.port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let upgrader = NIOTypedWebSocketClientUpgrader<Bool> { channel, _ in
                        channel.eventLoop.makeCompletedFuture {
                            try channel.pipeline.syncOperations.addHandler(Frames(came))
                            return true
                        }
                    }
                    var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/push")
                    head.headers = [
                        "Host": "localhost:\(address.port)", "Origin": "ws://localhost:\(address.port)/push",
                        "Sec-WebSocket-Protocol": "push-notification",
                    ]
                    var configuration = NIOUpgradableHTTPClientPipelineConfiguration(
                        upgradeConfiguration: .init(upgradeRequestHead: head, upgraders: [upgrader]) { channel in
                            channel.eventLoop.makeSucceededFuture(false)
                        })
                    // A frame may arrive together with the response.
                    configuration.leftOverBytesStrategy = .forwardBytes
                    channel.closeFuture.whenComplete { _ in came.finish() }
                    return try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(
                        configuration: configuration
                    ).map { ($0, channel) }
                }
            }
        let (isUpgraded, channel) = try await upgraded.get()
        try #require(isUpgraded)
        return TestBrowser(channel, frames)
    }

    func say(_ text: String) async throws {
        let frame = WebSocketFrame(fin: true, opcode: .text, maskKey: .random(), data: ByteBuffer(string: text))
        try await channel.writeAndFlush(frame)
    }

    /// Returns the next message.
    func heard() async throws -> [String: Any] {
        guard let frame = await frames.first(where: { _ in true }), frame.opcode == .text else { throw Closed() }
        return try #require(
            try JSONSerialization.jsonObject(with: Data(frame.data.readableBytesView)) as? [String: Any])
    }

    /// Returns the code and reason with which the sandbox closes the WebSocket.
    func end() async throws -> (code: UInt16?, reason: String) {
        guard var data = await frames.first(where: { $0.opcode == .connectionClose })?.data else { throw Closed() }
        let code: UInt16? = data.readInteger()
        try await channel.closeFuture.get()
        return (code, String(buffer: data))
    }

    func close() async throws { try await channel.close() }

    private final class Frames: ChannelInboundHandler, Sendable {
        typealias InboundIn = WebSocketFrame

        private let came: AsyncStream<WebSocketFrame>.Continuation

        init(_ came: AsyncStream<WebSocketFrame>.Continuation) {
            self.came = came
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { came.yield(unwrapInboundIn(data)) }
    }
}
