import Crypto
import Foundation
import HTTPTypes
import PushWire
import Testing

@testable import PushSandbox

/// A sender, and a browser that is subscribed with its key.
private struct Sender {
    static let origin = "https://localhost:2199"
    static let now = Date(timeIntervalSince1970: 1_800_000_000)
    static let seconds: Int64 = 1_800_000_000

    var state = SandboxState.forTests()
    let key = VAPIDKey()
    let browser: SandboxBrowser
    let origin: String

    init(_ origin: String = origin) throws {
        self.origin = origin
        browser = try state.browsers.subscribe(
            secret: "abc", origin: origin, applicationServerKey: Base64URL.bytes(key.publicText), at: Self.now)
    }

    func authorization(
        _ key: VAPIDKey? = nil, audience: String? = nil, expiresIn: Int64 = 3600, subject: String? = nil
    ) throws -> String {
        try (key ?? self.key).authorization(
            audience: audience ?? origin, expiresAt: Self.seconds + expiresIn, subject: subject)
    }

    /// Returns a request that is valid apart from `change`.
    func push(
        _ secret: String = "abc", text: String = "hello", body: [UInt8]? = nil, isTooLong: Bool = false,
        _ change: (inout HTTPFields) throws -> Void = { _ in }
    ) throws -> BrowserPush {
        var headers: HTTPFields = [.ttl: "60", .contentEncoding: "aes128gcm"]
        headers[.authorization] = try authorization()
        try change(&headers)
        let body = try body ?? MessageEncryption.encrypt(Array(text.utf8), for: browser.keys())
        let browser = browser
        return BrowserPush(
            origin: origin, secret: secret, headers: headers,
            payload: isTooLong ? nil : Result { () throws(WebPushError) in try browser.read(body) })
    }

    mutating func decide(_ push: BrowserPush) -> BrowserDecision { state.decide(push, at: Self.now) }
}

extension SandboxBrowser {
    /// Returns the keys as a page gets them.
    func keys() throws -> SubscriptionKeys {
        struct Browser: Decodable {
            struct Subscription: Decodable {
                let keys: [String: String]
            }
            let subscription: Subscription
        }
        let keys = try JSONDecoder().decode(Browser.self, from: JSONEncoder().encode(self)).subscription.keys
        return try SubscriptionKeys(
            publicKey: #require(Base64URL.bytes(keys["p256dh"] ?? "")),
            secret: #require(Base64URL.bytes(keys["auth"] ?? "")))
    }
}

@Suite("Web Push: rules")
struct BrowserPushTests {
    @Test("A good message is accepted, and is in the inbox as the browser reads it")
    func accepted() throws {
        var sender = try Sender()
        let push = try sender.push(text: "hello") {
            $0[.urgency] = "high"
            $0[.topic] = "news-1_A"
        }
        #expect(sender.decide(push) == .accept(.init(ttl: 60)))
        let entry = try #require(sender.state.inbox.page().entries.first)
        #expect(entry.payload == Array("hello".utf8))
        #expect(entry.token == Array(SHA256.hash(data: Data("https://localhost:2199/push/abc".utf8))))
        #expect(entry.gateway == .webpush)
        #expect(
            entry.details as? BrowserDetails
                == BrowserDetails(headers: ["ttl": "60", "urgency": "high", "topic": "news-1_A"]))
        #expect(sender.state.stats.answers[.webpush]?.accepted == 1)
        #expect(sender.state.stats.browsers == .init(subscribed: 1, removed: 0))
    }

    @Test(
        "A TTL is a whole number; a larger one than 30 days counts as 30 days",
        arguments: [("0", 0), ("2592001", 2_592_000), ("99999999999999999999", 2_592_000)])
    func largeTTL(text: String, granted: Int) throws {
        var sender = try Sender()
        #expect(sender.decide(try sender.push { $0[.ttl] = text }) == .accept(.init(ttl: granted)))
    }

    @Test(
        "The error names a header that breaks a rule",
        arguments: [
            (.ttl, [], 111), (.ttl, ["-1"], 112), (.ttl, ["1.5"], 112), (.ttl, [""], 112), (.ttl, ["1", "1"], 112),
            (.urgency, ["urgent"], 111), (.urgency, ["low", "high"], 111), (.urgency, ["low, high"], 111),
            (.topic, [""], 113), (.topic, ["a b"], 113), (.topic, ["a+b"], 113), (.topic, ["a", "b"], 113),
            (.topic, [String(repeating: "x", count: 33)], 113), (.contentEncoding, [], 110),
            (.contentEncoding, ["aesgcm"], 110), (.contentEncoding, ["aes128gcm", "aes128gcm"], 110),
            (.contentEncoding, ["aes128gcm, gzip"], 110),
        ] as [(HTTPField.Name, [String], Int)])
    func headers(name: HTTPField.Name, values: [String], errno: Int) throws {
        var sender = try Sender()
        let push = try sender.push { $0[values: name] = values }
        guard case .refuse(let refusal, 0) = sender.decide(push) else {
            Issue.record("it was taken")
            return
        }
        #expect(refusal.status == 400)
        #expect(refusal.errno == errno)
        #expect(refusal.message.hasPrefix(name.rawName), "\(refusal.message)")
        #expect(sender.state.inbox.page().entries.map(\.answer.name) == ["400"])
    }

    @Test("A message without VAPID gets a 401, one with a wrong VAPID header a 403")
    func authorization() throws {
        var sender = try Sender()
        let other = VAPIDKey()
        let good = try sender.authorization()
        let signature = try #require(good.firstIndex(of: ","))
        // Change a character in the middle of the signature.
        let place = good.index(signature, offsetBy: -20)
        let forged = good.replacingCharacters(in: place...place, with: good[place] == "A" ? "B" : "A")
        let wrong: [(String?, Int, String)] = [
            (nil, 401, "vapid"), ("Bearer abc", 403, "vapid"), (forged, 403, "signed"),
            (try sender.authorization(audience: "https://localhost:1"), 403, "aud"),
            (try sender.authorization(expiresIn: 0), 403, "past"),
            (try sender.authorization(expiresIn: 86_401), 403, "24 hours"),
            (try sender.key.authorization(audience: Sender.origin, expiresAt: .min, subject: nil), 403, "past"),
            (try sender.authorization(subject: "http://localhost"), 403, "sub"),
            (try sender.authorization(other), 403, "application server key"),
        ]
        for (value, status, word) in wrong {
            guard case .refuse(let refusal, 0) = sender.decide(try sender.push { $0[.authorization] = value }) else {
                Issue.record("\(value ?? "none") was taken")
                continue
            }
            #expect(refusal.status == status)
            #expect(refusal.errno == 109)
            #expect(refusal.message.contains(word), "\(refusal.message)")
        }
        // Some libraries leave out the port.
        let portless = try sender.push { $0[.authorization] = try sender.authorization(audience: "https://localhost") }
        #expect(sender.decide(portless) == .accept(.init(ttl: 60)))
        let last = try sender.push {
            $0[.authorization] = try sender.authorization(expiresIn: 86_400, subject: "mailto:a@b.c")
        }
        #expect(sender.decide(last) == .accept(.init(ttl: 60)))
    }

    @Test("A subscription without a key accepts any sender's messages")
    func anySender() throws {
        var sender = try Sender()
        let open = try sender.state.browsers.subscribe(secret: "open", origin: Sender.origin, at: Sender.now)
        var headers: HTTPFields = [.ttl: "1", .contentEncoding: "aes128gcm"]
        headers[.authorization] = try sender.authorization(VAPIDKey())
        let body = try MessageEncryption.encrypt([], for: open.keys())
        let payload = Result { () throws(WebPushError) in try open.read(body) }
        let push = BrowserPush(origin: Sender.origin, secret: "open", headers: headers, payload: payload)
        #expect(sender.decide(push) == .accept(.init(ttl: 1)))
    }

    @Test("An unknown subscription gets a 404, a removed one 410; a long body gets a 413, an undecryptable one 400")
    func bodies() throws {
        var sender = try Sender()
        func refusal(_ push: BrowserPush) -> WebPushRefusal? {
            if case .refuse(let refusal, 0) = sender.decide(push) { refusal } else { nil }
        }
        #expect(refusal(try sender.push("other")) == WebPushRefusal(404, 102, "there is no such subscription"))
        let long = refusal(try sender.push(isTooLong: true))
        #expect(long?.status == 413)
        #expect(long?.errno == 104)
        let stranger = try Sender()
        let foreign = try MessageEncryption.encrypt([1], for: stranger.browser.keys())
        let unread = refusal(try sender.push(body: foreign))
        #expect(unread?.status == 400)
        #expect(unread?.message == "body cannot be decrypted with the subscription's keys")
        #expect(refusal(try sender.push(body: []))?.errno == 110)
        let removed = sender.state.browsers.remove(id: 1, at: Sender.now)
        #expect(removed?.removedAt == Sender.now)
        #expect(refusal(try sender.push())?.status == 410)
        #expect(sender.state.stats.answers[.webpush]?.others == ["404": 1, "413": 1, "400": 2, "410": 1])
        #expect(sender.state.stats.browsers == .init(subscribed: 0, removed: 1))
        #expect(sender.state.browsers.remove(id: 2, at: Sender.now) == nil)
    }

    @Test(
        "Each fault gives its decision and its record, and hits only its token, once",
        arguments: [
            (
                .status(503, retryAfter: 7, delay: 0), .refuse(WebPushRefusal(fault: 503, retryAfter: 7)), "503"
            ),
            (
                .status(410, retryAfter: nil, delay: 9), .refuse(WebPushRefusal(fault: 410, retryAfter: nil), delay: 9),
                "410"
            ),
            (.close, .end(.close), "closed"), (.drop, .ignore, "dropped"), (.delay(9), .postpone(milliseconds: 9), nil),
        ] as [(BrowserFault, BrowserDecision, String?)])
    func faults(fault: BrowserFault, decision: BrowserDecision, answer: String?) throws {
        var sender = try Sender()
        try sender.state.faults.add(Fault(fault, token: [1]))
        #expect(sender.decide(try sender.push()) == .accept(.init(ttl: 60)))
        sender.state.faults.clear()
        sender.state.inbox.clear()
        try sender.state.faults.add(Fault(fault, token: sender.browser.token))
        #expect(sender.decide(try sender.push()) == decision)
        #expect(sender.state.inbox.page().entries.map(\.answer.name) == [answer].compactMap(\.self))
        #expect(sender.decide(try sender.push()) == .accept(.init(ttl: 60)))
    }

    @Test(
        "A vendor's host has the vendor's rules",
        arguments: [
            ("web.push.apple.com", "0", nil, nil, .apple("BadTtl")),
            ("web.push.apple.com", "1", "abcde", nil, .apple("BadWebPushTopic")),
            ("web.push.apple.com", "1", "collie-update", nil, .apple("BadWebPushTopic")),
            ("web.push.apple.com", "1", "collie-herd", nil, nil), ("localhost:2199", "0", "abcde", nil, nil),
            ("wns2-par02p.notify.windows.com", "0", nil, nil, .windows("Ttl value conflicts with X-WNS-Cache-Policy.")),
            ("wns2-par02p.notify.windows.com", "0", "abcde", "no-cache", nil),
            ("wns2-par02p.notify.windows.com", "1", nil, nil, nil),
        ] as [(String, String, String?, String?, WebPushRefusal.Form?)])
    func vendors(host: String, ttl: String, topic: String?, policy: String?, form: WebPushRefusal.Form?) throws {
        var sender = try Sender("https://" + host)
        let push = try sender.push {
            $0[.ttl] = ttl
            $0[.topic] = topic
            $0[.cachePolicy] = policy
            $0[.authorization] = try sender.authorization(subject: "mailto:a@example.org")
        }
        let decision = sender.decide(push)
        guard let form else {
            #expect(decision == .accept(.init(ttl: Int(ttl) ?? -1)))
            return
        }
        guard case .refuse(let refusal, 0) = decision else {
            Issue.record("it was taken")
            return
        }
        #expect(refusal.status == 400 && refusal.form == form)
    }

    @Test("Apple's host refuses a contact that no public host can have; others take it")
    func contact() throws {
        for subject in [nil, "mailto:a@localhost", "https://localhost", "mailto:a@x.local", "https://192.168.1.1"] {
            for host in ["web.push.apple.com", "updates.push.services.mozilla.com"] {
                var sender = try Sender("https://" + host)
                let push = try sender.push { $0[.authorization] = try sender.authorization(subject: subject) }
                guard case .refuse(let refusal, 0) = sender.decide(push) else {
                    #expect(host != "web.push.apple.com", "\(subject ?? "none") was taken")
                    continue
                }
                #expect(host == "web.push.apple.com" && refusal.status == 403 && refusal.form == .apple("BadJwtToken"))
            }
        }
    }

    @Test("A rate limit lets a number of messages through in each minute")
    func rateLimit() throws {
        var sender = try Sender()
        let action = BrowserFault.limitRate(3, status: 429, retryAfter: 9)
        try sender.state.faults.add(Fault(action, times: 1000))
        let refusal = BrowserDecision.refuse(WebPushRefusal(fault: 429, retryAfter: 9))
        for minute in 0..<2 {
            let now = Sender.now.addingTimeInterval(Double(60 * minute))
            let decisions = try (1...5).map { _ in sender.state.decide(try sender.push(), at: now) }
            #expect(
                decisions == [
                    .accept(.init(ttl: 60)), .accept(.init(ttl: 60)), .accept(.init(ttl: 60)), refusal, refusal,
                ])
        }
        #expect(sender.state.faults.all.first?.hit == 4)
    }

    @Test("The number of browsers is limited")
    func limit() throws {
        var registry = BrowserRegistry(limit: 3)
        for number in 0..<3 {
            _ = try registry.subscribe(secret: "\(number)", origin: Sender.origin, at: Sender.now)
        }
        #expect(throws: LimitReached.self) {
            try registry.subscribe(secret: "3", origin: Sender.origin, at: Sender.now)
        }
        #expect(registry.page(since: 1, limit: 1).items.map(\.id) == [2])
        #expect(registry.page(since: 2, limit: 9).next == 3)
    }
}
