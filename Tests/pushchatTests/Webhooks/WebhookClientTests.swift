import ChatDomain
import Foundation
import NIOCore
import NIOPosix
import PushWire
import Synchronization
import TestSupport
import Testing
import WebPushGateway

@testable import pushchat

@Suite("Requests of webhooks", .timeLimit(.minutes(1)))
struct WebhookClientTests {
    private static let secrets = [Array(UInt8(0)..<32), Array(UInt8(32)..<64)].map(WebhookSecret.init(stored:))
    fileprivate static let body = """
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

    /// A receiver on this machine that answers each request with the same bytes, and counts its connections.
    private static func withReceiver<Result>(
        _ answer: FixedAnswer, _ body: (_ port: Int, _ connections: Counter) async throws -> Result
    ) async throws -> Result {
        let connections = Counter()
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                connections.add()
                return channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(FixedAnswerHandler(answer))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let result = try await body(server.localAddress?.port ?? 0, connections)
        try await server.close()
        return result
    }

    private static func answer(_ answer: FixedAnswer, within limit: TimeAmount = .seconds(20)) async throws
        -> WebhookResponse
    {
        try await withReceiver(answer) { port, _ in
            let rules = try EndpointRules(webhooks: [], admitsLoopback: true)
            return await WebhookClient(rules: { rules }, timeLimit: limit)
                .send(request("http://127.0.0.1:\(port)/hook"))
        }
    }

    private static func answer(_ bytes: String, closes: Bool = false) async throws -> WebhookResponse {
        try await answer(FixedAnswer(bytes, closes: closes))
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
        #expect(cut.body.count == WebhookResponse.bodyLimit && !cut.isJSON)
        let blank = try await Self.answer(
            "HTTP/1.1 200 OK\r\nContent-Type: Application/JSON ; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}")
        #expect(blank.isJSON)
    }

    @Test(
        "Retry-After counts up to a day, as seconds and as a date",
        arguments: [
            ("7", 7), ("7200", 7200), ("900000", 86_400), ("Tue, 01 Dec 2026 22:00:00 GMT", 7200),
            ("Fri, 01 Jan 2100 00:00:00 GMT", 86_400),
        ] as [(String, Int64)])
    func retryAfter(text: String, seconds: Int64) async throws {
        let start = Timestamp(seconds: 1_796_155_200)
        let rules = try EndpointRules(webhooks: [], admitsLoopback: true)
        let later = FixedAnswer("HTTP/1.1 429 Later\r\nRetry-After: \(text)\r\nContent-Length: 0\r\n\r\n")
        let response = try await Self.withReceiver(later) { port, _ in
            await WebhookClient(rules: { rules }, now: { start }).send(Self.request("http://127.0.0.1:\(port)/"))
        }
        #expect(response.outcome == .answered(status: 429, retryAfter: start + .seconds(seconds)))
    }

    @Test(
        "A response that never ends is cut, and one without an end of its head is none",
        arguments: [
            (
                FixedAnswer(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                    then: "1000\r\n\(String(repeating: "x", count: 4096))\r\n"), 200
            ),
            (
                FixedAnswer(
                    "HTTP/1.1 500 Drops\r\nContent-Length: 100000\r\n\r\n", then: "x", every: .milliseconds(20)), 500
            ),
            (FixedAnswer("HTTP/1.1 200 Short\r\nContent-Length: 100000\r\n\r\nshort", closes: true), 200),
            (FixedAnswer("HTTP/1.1 200 Long\r\nContent-Length: 1\r\n\r\nlonger than that"), 200),
            (FixedAnswer("HTTP/1.1 200 Bomb\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\u{1f}\u{0b}"), 200),
            (FixedAnswer("HTTP/1.1 101 Switch\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"), nil),
            (FixedAnswer("HTTP/1.1 200 OK\r\n", then: "X-A: \(String(repeating: "a", count: 4096))\r\n"), nil),
            (FixedAnswer("HTTP/1.1 200 OK\r\n", then: "X-A: a\r\n", every: .milliseconds(20)), nil),
            (FixedAnswer("", then: "HTTP/1.1 100 Continue\r\n\r\n", every: .milliseconds(1)), nil),
            (FixedAnswer("SSH-2.0-OpenSSH_9.2\r\n"), nil),
        ] as [(FixedAnswer, Int?)])
    fileprivate func hostile(answer: FixedAnswer, status: Int?) async throws {
        // Only a late end of the response needs the limit.
        let limit = TimeAmount.seconds(status == nil ? 1 : answer.pause > .zero ? 8 : 60)
        let response = try await Self.answer(answer, within: limit)
        #expect(response.body.count <= WebhookResponse.bodyLimit)
        switch response.outcome {
        case .answered(let code, _): #expect(code == status, "\(response)")
        case .unanswered: #expect(status == nil, "\(response)")
        }
    }

    // MARK: - Addresses and connections

    private static let ok = FixedAnswer("HTTP/1.1 204 OK\r\n\r\n")

    @Test("A connection is kept for some seconds, then the name is looked up again")
    func keeps() async throws {
        try await Self.withReceiver(Self.ok) { port, connections in
            let rules = try EndpointRules(webhooks: ["receiver.invalid:\(port)"])
            let lookups = Counter()
            let time = Mutex(NIODeadline.uptimeNanoseconds(0))
            let client = WebhookClient(
                rules: { rules }, idleLimit: .seconds(100),
                addresses: { _ in
                    lookups.add()
                    return [IPAddress("127.0.0.1")].compactMap(\.self)
                }, monotonic: { time.withLock { $0 } })
            func send() async {
                let response = await client.send(Self.request("http://receiver.invalid:\(port)/"))
                #expect(response.outcome == .answered(status: 204))
            }
            for _ in 0..<3 { await send() }
            #expect(connections.value == 1 && lookups.value == 1)
            time.withLock { $0 = $0 + .seconds(11) }
            await send()
            #expect(lookups.value == 2)
        }
    }

    @Test("A kept connection is not used if the host was removed from the settings, or has another address")
    func rebinding() async throws {
        try await Self.withReceiver(Self.ok) { port, connections in
            let named = try EndpointRules(webhooks: ["receiver.invalid:\(port)"])
            let rules = Mutex(named)
            let address = Mutex("127.0.0.1")
            let time = Mutex(NIODeadline.uptimeNanoseconds(0))
            let client = WebhookClient(
                rules: { rules.withLock { $0 } },
                addresses: { _ in [IPAddress(address.withLock { $0 })].compactMap(\.self) },
                monotonic: { time.withLock { $0 } })
            let request = Self.request("http://receiver.invalid:\(port)/")
            #expect(await client.send(request).outcome == .answered(status: 204))
            address.withLock { $0 = "127.0.0.9" }
            time.withLock { $0 = $0 + .seconds(11) }
            #expect(await client.send(request).outcome == .unanswered("the receiver cannot be reached"))
            address.withLock { $0 = "127.0.0.1" }
            #expect(await client.send(request).outcome == .answered(status: 204))
            let before = connections.value
            rules.withLock { $0 = .forWebhooks }
            #expect(
                await client.send(request).outcome
                    == .unanswered(
                        "the receiver's address must begin with https://, or webhooks.hosts must name receiver.invalid:\(port)"
                    ))
            #expect(connections.value == before)
        }
    }

    @Test("After a failure, the next address is tried, and private ones never")
    func rotation() async throws {
        try await Self.withReceiver(Self.ok) { port, _ in
            let rules = try EndpointRules(webhooks: [], admitsLoopback: true)
            let found = ["10.0.0.1", "127.0.0.9", "169.254.169.254", "127.0.0.1"].compactMap { IPAddress($0) }
            let client = WebhookClient(rules: { rules }, addresses: { _ in found })
            let request = Self.request("http://localhost:\(port)/")
            #expect(await client.send(request).outcome == .unanswered("the receiver cannot be reached"))
            for _ in 0..<3 { #expect(await client.send(request).outcome == .answered(status: 204)) }
        }
    }

    @Test("Names whose lookup hangs delay no other name, and a host has one lookup at a time")
    func lookups() async throws {
        let (released, asked) = (DispatchSemaphore(value: 0), Counter())
        let resolver = HostResolver { host in
            guard host.hasPrefix("hang") else { return [IPAddress("192.0.2.1")].compactMap(\.self) }
            asked.add()
            released.wait()
            return []
        }
        // More than the cores, and so more than the threads of a pool.
        let hanging = 2 * System.coreCount + 4
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<2 * hanging {
                group.addTask { _ = try await resolver.addresses("hang\(number % hanging)") }
            }
            try await eventually("all hang") { asked.value == hanging }
            #expect(try await resolver.addresses("other").count == 1)
            #expect(asked.value == hanging)
            for _ in 0..<hanging { released.signal() }
            try await group.waitForAll()
        }
        released.signal()
        #expect(try await resolver.addresses("hang0").isEmpty, "a lookup that has ended can be repeated")
    }

    @Test("A receiver that closes or hangs has not answered")
    func silence() async throws {
        #expect(
            try await Self.answer("", closes: true).outcome == .unanswered("the receiver closed the connection"))
        #expect(
            try await Self.answer(FixedAnswer("HTTP/1.1 200 OK\r\n"), within: .milliseconds(300)).outcome
                == .unanswered("no response in time"))
        let rules = try EndpointRules(webhooks: [], admitsLoopback: true)
        let nobody = await WebhookClient(rules: { rules }).send(Self.request("http://127.0.0.1:1/"))
        #expect(nobody.outcome == .unanswered("the receiver cannot be reached"))
    }

    @Test(
        "A name that leads into a private network is not reached, whatever a name server returns",
        arguments: [
            "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
            "fe80::1", "fd00::1", "fd00:ec2::254", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::",
            "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "2001:0:a00:1::", "224.0.0.1", "255.255.255.255",
            "ff02::1",
            "240.0.0.1",
        ])
    func privateAddress(address: String) async throws {
        let ip = try #require(IPAddress(address))
        let rules = try EndpointRules(webhooks: [])
        let client = WebhookClient(rules: { rules }, addresses: { _ in [ip] })
        #expect(
            await client.send(Self.request("https://example.org/")).outcome
                == .unanswered(
                    "the receiver's address must not lead into a private or local network, or webhooks.hosts must name example.org"
                ))
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
            "https://2130706433/", "https://017700000001/", "https://0177.0.0.1/", "https://0x7f000001/",
            "https://127.0.1/",
            "https://0/", "https://0.0.0.0/", "https://255.255.255.255/", "https://224.0.0.1/",
            "https://169.254.169.254/",
            "https://169.254.169.254./", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[2001:0:7f00:1::]/",
            "https://[fe80::1%25eth0]/",
            "https://[fe80::1%eth0]/", "https://[fd00:ec2::254]/", "https://[::]/", "https://[::1/", "https://[::1]x/",
            "https://example.org\\@10.0.0.8/", "https://example.org#@10.0.0.8/", "https://10.0.0.8%2eexample.org/",
            "https://example.org%00.evil/", "https://user:password@example.org/", "https://:@example.org/",
            "https://\u{0455}xample.org/", "https://\u{2460}27.0.0.1/", "https://127\u{3002}0.0.1/",
            "https://example..org/",
            "https://.example.org/", "https://example.org:0/", "https://example.org:65536/",
            "https://example.org:443x/",
            "https://example.org:22/", "http://example.org:443/", "http://homeassistant.local:8124/",
            "http://homeassistant.local.:80/", " https://example.org/", "https://example.org/ x",
            "https://example.org/\r\nX: y",
            "//example.org/", "https:example.org/", "https:///example.org/",
        ] {
            #expect(!isAllowed(url, rules), "\(url)")
        }
        // The error names the entry that would admit the address.
        for (url, name) in [
            ("http://n8n/", "n8n:80"), ("https://n8n:5678/", "n8n:5678"), ("https://10.0.0.8/", "10.0.0.8"),
            ("http://[fd00::1]/", "[fd00::1]:80"),
        ] {
            #expect(throws: ChatError.self) { try rules.check(webhook: url) }
            #expect(isAllowed(url, try EndpointRules(webhooks: [name])), "\(url)")
            do throws(ChatError) { try rules.check(webhook: url) } catch {
                #expect(error.message.hasSuffix("or webhooks.hosts must name \(name)"), "\(error.message)")
            }
        }
        let local = try EndpointRules(webhooks: [], admitsLoopback: true)
        #expect(isAllowed("http://localhost:3000/", local) && isAllowed("http://127.0.0.1:3000/", local))
        #expect(!isAllowed("http://10.0.0.1:3000/", local))
        // A name server must not make the name of this machine that of another one.
        let endpoint = try PushEndpoint("http://localhost:3000/", admitsHTTP: true)
        #expect(!local.allows(try #require(IPAddress("10.0.0.1")), of: endpoint))
        #expect(throws: WebPushError.self) { try PushEndpoint("http://example.org/") }
        do throws(WebPushError) {
            _ = try EndpointRules(webhooks: ["a/b"])
            Issue.record("a/b is no host")
        } catch {
            #expect(error.field == "webhooks.hosts")
        }
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

private final class Counter: Sendable {
    private let count = Atomic(0)

    var value: Int { count.load(ordering: .relaxed) }
    func add() { count.add(1, ordering: .relaxed) }
}

/// The bytes that a receiver answers.
private struct FixedAnswer: Sendable, CustomTestStringConvertible {
    let bytes: String
    /// Bytes to repeat without an end.
    let endless: String?
    let pause: TimeAmount
    let closes: Bool

    init(_ bytes: String, then endless: String? = nil, every pause: TimeAmount = .zero, closes: Bool = false) {
        self.bytes = bytes
        self.endless = endless
        self.pause = pause
        self.closes = closes
    }

    var testDescription: String { "\(bytes.prefix(40))\(endless?.prefix(20) ?? "")".debugDescription }
}

/// Answers each request, which is one read or more.
private final class FixedAnswerHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let answer: FixedAnswer
    private var request = ""

    init(_ answer: FixedAnswer) {
        self.answer = answer
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        request += String(buffer: unwrapInboundIn(data))
        guard request.hasSuffix(WebhookClientTests.body) else { return }
        request = ""
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: answer.bytes)), promise: nil)
        if answer.closes { context.close(promise: nil) } else { repeatEnd(context) }
    }

    /// Writes more after the client has taken what was written before.
    private func repeatEnd(_ context: ChannelHandlerContext) {
        guard let endless = answer.endless else { return }
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: endless))).whenSuccess { [pause = answer.pause] in
            bound.value.1.eventLoop.scheduleTask(in: pause) { bound.value.0.repeatEnd(bound.value.1) }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
