import Crypto
import Foundation
import HTTPTypes
import PushWire
import Testing

@testable import PushSandbox

/// A sandbox's state, and the actions of browsers and a sender on it.
private struct Service {
    static let origin = "https://localhost:2199"
    static let channel = "0d9ac2a8-6e4f-4c5d-a2cf-f5b0ae1a3a3a"

    var state = SandboxState.forTests()
    var now = Date(timeIntervalSince1970: 1_800_000_000)
    let key = VAPIDKey()
    /// The browser's own key, which the sandbox never sees.
    let browserKey = P256.KeyAgreement.PrivateKey()
    let secret = MessageEncryption.randomSalt()
    private var made = 0

    mutating func connect() throws -> Int {
        let connection = state.userAgents.open()
        return try #require(connection)
    }

    mutating func say(_ message: BrowserMessage, over connection: Int) throws -> ServiceMessage? {
        made += 1
        return try state.respond(
            to: message, over: connection, origin: Self.origin,
            fresh: .init(userAgent: "ua\(made)", secret: "secret\(made)"),
            at: now)
    }

    /// - Returns: The connection, and the browser's name.
    mutating func hello(_ known: String? = nil) throws -> (connection: Int, name: String) {
        let connection = try connect()
        let answer = try say(.hello(userAgent: known), over: connection)
        #expect(answer?.status == 200)
        return (connection, try #require(answer?.uaid))
    }

    /// - Returns: The last part of the endpoint.
    mutating func register(_ channel: String = channel, over connection: Int) throws -> String {
        let key = try #require(Base64URL.bytes(key.publicText))
        let answer = try say(.register(channel: channel, key: key), over: connection)
        #expect(answer?.status == 200)
        return String(try #require(answer?.pushEndpoint).dropFirst((Self.origin + SandboxBrowser.path).count))
    }

    mutating func push(_ text: String, to secret: String, ttl: Int = 60, topic: String? = nil) throws -> BrowserDecision
    {
        var headers: HTTPFields = [.ttl: "\(ttl)", .contentEncoding: "aes128gcm"]
        headers[.topic] = topic
        headers[.authorization] = try key.authorization(
            audience: Self.origin, expiresAt: Int64(now.timeIntervalSince1970) + 60, subject: nil)
        let keys = try SubscriptionKeys(publicKey: Array(browserKey.publicKey.x963Representation), secret: self.secret)
        let body = try MessageEncryption.encrypt(Array(text.utf8), for: keys)
        let browser = try #require(state.browsers[secret])
        return state.decide(
            BrowserPush(
                origin: Self.origin, secret: secret, headers: headers,
                payload: Result { () throws(WebPushError) in try browser.read(body) }), at: now)
    }

    /// Returns the texts and versions of the messages to send over the connection.
    mutating func take(_ connection: Int) throws -> [(text: String, version: String)] {
        try state.takeMessages(over: connection).map { message in
            #expect(message.messageType == "notification")
            #expect(message.headers == ["encoding": "aes128gcm"])
            let body = try #require(Base64URL.bytes(message.data ?? ""))
            let text = try MessageEncryption.decrypt(body, key: browserKey, secret: secret)
            return (String(decoding: text, as: UTF8.self), try #require(message.version))
        }
    }

    mutating func acknowledge(_ version: String, code: Int = 100, over connection: Int) throws {
        _ = try say(.acknowledge([.init(version: version, code: code)]), over: connection)
    }

    var deliveries: [InboxEntry.Delivery?] { state.inbox.page().entries.map(\.delivery) }
    var progress: [InboxEntry.Delivery.Progress?] { deliveries.map { $0?.progress } }
}

@Suite("Web Push: real browsers")
struct UserAgentsTests {
    @Test("A browser gets a name and keeps it; a name from before the sandbox's start is replaced")
    func hello() throws {
        var service = Service()
        let (connection, name) = try service.hello()
        _ = try service.register(over: connection)
        #expect(service.state.stats.browsers.connected == 1)
        service.state.userAgents.close(connection)
        #expect(service.state.stats.browsers.connected == 0)
        #expect(try service.hello(name).name == name)
        #expect(try service.hello("unknown").name != "unknown")
    }

    @Test(
        "Only pings may precede the hello, which comes once; a reconnected browser uses its new connection")
    func order() throws {
        var service = Service()
        let connection = try service.connect()
        #expect(try service.say(.ping, over: connection) == .pong)
        #expect(throws: PushProtocolError("messageType: hello must come first")) {
            try service.say(.unregister(channel: Service.channel), over: connection)
        }
        let answer = try service.say(.hello(userAgent: nil), over: connection)
        let name = try #require(answer?.uaid)
        #expect(throws: PushProtocolError("messageType: hello must come once")) {
            try service.say(.hello(userAgent: name), over: connection)
        }
        #expect(try service.say(.subscribeToBroadcasts, over: connection) == nil)
        _ = try service.hello(name)
        #expect(throws: PushProtocolError("messageType: hello must come first")) {
            try service.say(.unregister(channel: Service.channel), over: connection)
        }
    }

    @Test("A message goes to the browser at once, and again after each reconnect until it is acknowledged")
    func delivery() throws {
        var service = Service()
        let (first, name) = try service.hello()
        let secret = try service.register(over: first)
        #expect(try service.push("hello", to: secret) == .accept(.init(ttl: 60, wakes: first)))
        #expect(service.progress == [.waiting])
        #expect(try service.take(first).map(\.text) == ["hello"])
        #expect(try service.take(first).isEmpty)
        #expect(service.progress == [.sent])
        service.state.userAgents.close(first)

        let (second, _) = try service.hello(name)
        let messages = try service.take(second)
        let again = try #require(messages.first)
        #expect(again.text == "hello")
        try service.acknowledge("77", over: second)
        #expect(service.state.stats.browsers.waiting == 1)
        try service.acknowledge(again.version, over: second)
        #expect(service.deliveries == [.init(progress: .acknowledged, code: 100)])
        #expect(service.state.stats.browsers.waiting == 0)
        service.state.userAgents.close(second)
        let (third, _) = try service.hello(name)
        #expect(try service.take(third).isEmpty)
    }

    @Test("The inbox shows a worker that fails after the acknowledgement, if its own browser reports it")
    func failure() throws {
        var service = Service()
        let (connection, _) = try service.hello()
        let secret = try service.register(over: connection)
        _ = try service.push("hello", to: secret)
        let messages = try service.take(connection)
        let version = try #require(messages.first?.version)
        let (other, _) = try service.hello()
        _ = try service.say(.fail(.init(version: version, code: 303)), over: other)
        try service.acknowledge(version, over: other)
        #expect(service.progress == [.sent])
        try service.acknowledge(version, over: connection)
        _ = try service.say(.fail(.init(version: version, code: 302)), over: connection)
        #expect(service.deliveries == [.init(progress: .failed, code: 302)])
    }

    @Test("A message to an absent browser is kept for its TTL, and not kept without one")
    func expiry() throws {
        var service = Service()
        let (connection, name) = try service.hello()
        let secret = try service.register(over: connection)
        service.state.userAgents.close(connection)
        for (text, ttl) in [("none", 0), ("short", 10), ("long", 100)] {
            #expect(try service.push(text, to: secret, ttl: ttl) == .accept(.init(ttl: ttl)))
        }
        #expect(service.progress == [.expired, .waiting, .waiting])
        service.now += 10
        let (again, _) = try service.hello(name)
        #expect(try service.take(again).map(\.text) == ["long"])
        #expect(service.progress == [.expired, .expired, .sent])
        #expect(try service.push("at once", to: secret, ttl: 0) == .accept(.init(ttl: 0, wakes: again)))
        #expect(try service.take(again).map(\.text) == ["at once"])
    }

    @Test("A message replaces an unacknowledged one of its topic; above the limit the oldest is dropped")
    func replacement() throws {
        var service = Service()
        let (connection, name) = try service.hello()
        let secret = try service.register(over: connection)
        service.state.userAgents.close(connection)
        for (text, topic) in [("1", "news"), ("2", nil), ("3", "news")] {
            _ = try service.push(text, to: secret, topic: topic)
        }
        #expect(service.progress == [.replaced, .waiting, .waiting])
        for number in 4...(UserAgents.messageLimit + 2) { _ = try service.push("\(number)", to: secret) }
        #expect(service.progress.map { $0 == .dropped }.firstIndex(of: true) == 1)
        #expect(service.state.stats.browsers.waiting == UserAgents.messageLimit)
        let (again, _) = try service.hello(name)
        let texts = try service.take(again).map(\.text)
        #expect(texts == (3...(UserAgents.messageLimit + 2)).map { "\($0)" })
    }

    @Test("A channel keeps its endpoint, and gets another for another key; an ended endpoint gives a 410")
    func registration() throws {
        var service = Service()
        let (connection, _) = try service.hello()
        let secret = try service.register(over: connection)
        #expect(try service.register(over: connection) == secret)
        _ = try service.push("for nobody", to: secret)
        let other = VAPIDKey()
        let answer = try service.say(
            .register(channel: Service.channel, key: Base64URL.bytes(other.publicText)), over: connection)
        #expect(answer?.pushEndpoint?.hasSuffix(secret) == false)
        #expect(service.progress == [.unregistered])
        guard case .refuse(let refusal, _) = try service.push("gone", to: secret) else {
            Issue.record("it was taken")
            return
        }
        #expect(refusal.status == 410)

        let third = try service.register("7e7a4d2c-1d50-4f9c-8a3e-2f6f0a5f5f5f", over: connection)
        let ended = try service.say(.unregister(channel: "7e7a4d2c-1d50-4f9c-8a3e-2f6f0a5f5f5f"), over: connection)
        #expect(ended?.status == 200)
        #expect(service.state.browsers[third]?.removedAt != nil)
        #expect(try service.say(.unregister(channel: Service.channel), over: connection)?.status == 200)
        #expect(service.state.stats.browsers == .init(subscribed: 0, removed: 3, connected: 1, waiting: 0))
    }

    @Test("The control API can end a real browser's subscription, which gets another endpoint when registered again")
    func removal() throws {
        var service = Service()
        let (connection, _) = try service.hello()
        let secret = try service.register(over: connection)
        _ = try service.push("for nobody", to: secret)
        let id = try #require(service.state.browsers[secret]?.id)
        _ = service.state.removeBrowser(id: id, at: service.now)
        #expect(service.progress == [.unregistered])
        let second = try service.register(over: connection)
        #expect(second != secret)
        // Removing the former browser once more does not affect the new subscription.
        _ = service.state.removeBrowser(id: id, at: service.now)
        #expect(try service.register(over: connection) == second)
    }

    @Test("A sender's body is checked as far as possible without the browser's keys")
    func form() throws {
        var service = Service()
        let (connection, _) = try service.hello()
        let secret = try service.register(over: connection)
        let browser = try #require(service.state.browsers[secret])
        let keys = try SubscriptionKeys(
            publicKey: Array(service.browserKey.publicKey.x963Representation), secret: service.secret)
        let good = try MessageEncryption.encrypt(Array("hello".utf8), for: keys)
        #expect(try browser.read(good) == good)
        var (short, key, size, record) = (good, good, good, good)
        short.removeLast(good.count - 102)
        key[21] = 5
        size[20] = 64
        record.replaceSubrange(16..<20, with: [0, 0, 0, 18])
        for bad in [[], short, key, size, record] {
            #expect(throws: WebPushError.self) { try browser.read(bad) }
        }
    }

    @Test("Subscriptions, browsers and connections have limits")
    func limits() throws {
        var service = Service()
        let (connection, name) = try service.hello()
        let secret = try service.register(over: connection)
        for _ in 1..<UserAgents.channelLimit {
            _ = try service.register(UUID().uuidString.lowercased(), over: connection)
        }
        let refused = try service.say(.register(channel: UUID().uuidString.lowercased(), key: nil), over: connection)
        #expect(refused?.status == 500)
        _ = try service.push("waits", to: secret)
        service.state.userAgents.close(connection)

        // This browser has been away the longest.
        for _ in 1..<UserAgents.limit {
            let (other, _) = try service.hello()
            _ = try service.register(over: other)
            service.state.userAgents.close(other)
        }
        #expect(service.state.browsers[secret]?.removedAt == nil)
        _ = try service.hello()
        #expect(service.state.browsers[secret]?.removedAt != nil)
        #expect(service.progress == [.unregistered])
        #expect(try service.hello(name).name != name)

        for _ in 2..<UserAgents.connectionLimit { _ = try service.connect() }
        let another = service.state.userAgents.open()
        #expect(another == nil)
    }

    @Test(
        "Firefox's messages are read",
        arguments: [
            (
                #"{"messageType":"hello","broadcasts":{"remote-settings/monitor_changes":"v"},"use_webpush":true}"#,
                .hello(userAgent: nil)
            ),
            (#"{"messageType":"hello","broadcasts":{},"use_webpush":true,"uaid":"abc"}"#, .hello(userAgent: "abc")),
            (
                #"{"messageType":"register","channelID":"0D9AC2A8-6e4f-4c5d-a2cf-f5b0ae1a3a3a"}"#,
                .register(channel: Service.channel, key: nil)
            ),
            (
                #"{"messageType":"unregister","channelID":"0d9ac2a8-6e4f-4c5d-a2cf-f5b0ae1a3a3a","code":200}"#,
                .unregister(channel: Service.channel)
            ),
            (
                #"{"messageType":"ack","updates":[{"channelID":"x","version":"7","code":100}]}"#,
                .acknowledge([.init(version: "7", code: 100)])
            ),
            (#"{"messageType":"nack","version":"7","code":302}"#, .fail(.init(version: "7", code: 302))),
            (#"{"messageType":"broadcast_subscribe","broadcasts":{"a":"b"}}"#, .subscribeToBroadcasts),
            ("{}", .ping),
        ] as [(String, BrowserMessage)])
    func messages(json: String, message: BrowserMessage) throws {
        #expect(try BrowserMessage(json: Data(json.utf8)) == message)
    }

    @Test("A key with padding is read")
    func padding() throws {
        let key = VAPIDKey().publicText
        let json = #"{"messageType":"register","channelID":"\#(Service.channel)","key":"\#(key)="}"#
        #expect(
            try BrowserMessage(json: Data(json.utf8)) == .register(channel: Service.channel, key: Base64URL.bytes(key)))
    }

    @Test(
        "The error names an invalid field of a message",
        arguments: [
            ("", "must be a JSON object"), ("[]", "must be a JSON object"), ("nonsense", "must be a JSON object"),
            (#"{"messageType":"bye"}"#, "messageType: "), (#"{"messageType":7}"#, "messageType: "),
            (#"{"messageType":"hello"}"#, "use_webpush: "),
            (#"{"messageType":"hello","use_webpush":true,"uaid":7}"#, "uaid: "),
            (#"{"messageType":"register","channelID":"x"}"#, "channelID: "),
            (#"{"messageType":"unregister"}"#, "channelID: "),
            (#"{"messageType":"register","channelID":"0d9ac2a8-6e4f-4c5d-a2cf-f5b0ae1a3a3a","key":"AAAA"}"#, "key: "),
            (#"{"messageType":"ack","updates":[7]}"#, "updates: "), (#"{"messageType":"nack"}"#, "version: "),
        ])
    func malformed(json: String, beginning: String) {
        let error = #expect(throws: PushProtocolError.self) { try BrowserMessage(json: Data(json.utf8)) }
        #expect(error?.text.hasPrefix(beginning) == true, "\(error?.text ?? "")")
        #expect(error?.text.utf8.count ?? 0 <= 123)
    }
}
