import ChatDomain
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Guessing of room codes and of the administrator's token", .timeLimit(.minutes(1)))
struct GuessingTests {
    /// The rooms of a test.
    private final class Rooms: Sendable {
        private let state: Mutex<(used: Set<String>, wanted: String)>

        init(_ used: Set<String>) { state = Mutex((used, "")) }

        /// Sets the code of the next join, because the scripted store does not receive it.
        func expect(_ code: String) { state.withLock { $0.wanted = code } }

        /// Joins the expected room and returns whether it was empty.
        func join() -> Bool { state.withLock { $0.used.insert($0.wanted).inserted } }
    }

    /// A client behind a trusted proxy.
    private struct Client {
        let connection: RawConnection
        let rooms: Rooms

        func join(_ address: String, _ code: String) async throws -> RawConnection.Answer {
            rooms.expect(code)
            try await connection.write(
                post(
                    "cmd=join&udid=\(Sample.udid)&token=0&name=n&code=\(code)",
                    headers: ["Content-Type: application/x-www-form-urlencoded", "X-Forwarded-For: \(address)"]))
            return try await connection.answer()
        }
    }

    private static let production = RateLimit(perSecond: 200.0 / 3600, burst: 100)

    private static func run(
        used: Set<String> = [], feed: FakeFeed? = nil, limit: RateLimit? = production,
        _ body: @Sendable (Client, TestClock, Relay) async throws -> Void
    ) async throws {
        let rooms = Rooms(used)
        let clock = TestClock()
        var relay = Relay(
            ScriptedStore(join: { rooms.join() }, feed: feed),
            settings: ChatHTTPSettings(
                trustedProxies: ["127.0.0.1"].compactMap { AddressRange($0) }, joinRate: limit))
        relay.clock = clock
        try await relay.listening { [relay] port in
            try await RawConnection.open(port: port) { connection in
                try await body(Client(connection: connection, rooms: rooms), clock, relay)
            }
        }
    }

    @Test(
        "An address or an IPv6 network can try at most a few hundred codes in an hour",
        arguments: ["192.0.2.1", "2001:db8:0:1::"])
    func hour(network: String) throws {
        let clock = TestClock()
        let limiter = RequestLimiter(clock: MonotonicTime(clock))
        let limit = try #require(Self.production)
        var tried = 0
        for step in 0..<3600 {
            let text = network.hasSuffix("::") ? network + String(step, radix: 16) : network
            let address = try #require(IPAddress(text))
            // Concurrent joins do not evade the limit: each counts when it begins.
            while (try? limiter.admitJoin(address, limit: limit)) != nil { tried += 1 }
            clock.advance(by: .seconds(1))
        }
        #expect((200...300).contains(tried), "\(tried)")
    }

    @Test("Several names may exceed the burst of a rested address, count in full, and are refunded in full")
    func names() throws {
        let clock = TestClock()
        let limiter = RequestLimiter(clock: MonotonicTime(clock))
        let limit = try #require(RateLimit(perSecond: 1, burst: 1))
        let address = try #require(IPAddress("192.0.2.1"))
        // Then all addresses together have five guesses left before they lose their bursts.
        for other in 1...HTTPLimits.joinShares - 5 {
            _ = try limiter.admitJoin(#require(IPAddress("198.51.100.\(other)")), limit: limit)
        }
        limiter.refund(try limiter.admitJoin(address, limit: limit, names: 5))
        // This takes the five, which the refund has put back. So the second address has no burst.
        _ = try limiter.admitJoin(address, limit: limit, names: 5)
        let other = try #require(IPAddress("192.0.2.2"))
        limiter.refund(try limiter.admitJoin(other, limit: limit, names: 3))
        _ = try limiter.admitJoin(other, limit: limit, names: 3)
        for (guesser, wait) in [(address, 5), (other, 3)] {
            let error = #expect(throws: ChatError.self) { try limiter.admitJoin(guesser, limit: limit, names: 2) }
            #expect(error?.retryAfter == .seconds(wait))
        }
    }

    @Test("Above the limit a join to a used code is refused like one to an unused code, with the time to wait")
    func noOracle() async throws {
        try await Self.run(used: ["used"], feed: Self.stranger, limit: RateLimit(perSecond: 0.1, burst: 2)) {
            client, clock, relay in
            // Joins to a used code do not count.
            for _ in 0..<5 { #expect(try await client.join("192.0.2.1", "used").status == 200) }
            for code in ["a", "b"] { #expect(try await client.join("192.0.2.1", code).status == 200) }
            let calls = relay.store.calls.count
            for code in ["used", "c"] {
                let answer = try await client.join("192.0.2.1", code)
                #expect(answer.status == 429 && answer.headers["retry-after"] == "10")
                #expect(answer.body == "Too many new rooms from this address; try again in 10 s\n")
            }
            #expect(relay.store.calls.count == calls, "the store was not asked")
            #expect(try await client.join("192.0.2.2", "c").status == 200)
            #expect(relay.log.lines.filter { $0.contains("192.0.2.1") && $0.hasPrefix("warning") }.count == 1)
            clock.advance(by: .seconds(10))
            #expect(try await client.join("192.0.2.1", "used").status == 200)
            #expect(try await client.join("192.0.2.1", "d").status == 200)
            #expect(try await client.join("192.0.2.1", "e").status == 429)
        }
    }

    private static var stranger: FakeFeed {
        get throws {
            let feed = FakeFeed()
            feed.leave(try Sample.member)
            return feed
        }
    }

    @Test("A member may rejoin its room, whatever other clients at its address do")
    func again() async throws {
        let feed = FakeFeed()
        feed.join(try Sample.member, SecretCode(stored: "home"))
        try await Self.run(used: ["home"], feed: feed, limit: RateLimit(perSecond: 0.1, burst: 1)) {
            client, _, _ async throws in
            #expect(try await client.join("192.0.2.1", "new").status == 200)
            #expect(try await client.join("192.0.2.1", "home").status == 200)
            #expect(try await client.join("192.0.2.1", "other").status == 429)
        }
    }

    @Test("When many addresses join, they lose their bursts but can still join")
    func inAll() async throws {
        try await Self.run(feed: Self.stranger, limit: RateLimit(perSecond: 0.1, burst: 5)) {
            client, clock, _ async throws in
            for address in 0..<20 {
                for code in 0..<5 {
                    #expect(try await client.join("192.0.2.\(address)", "\(address)-\(code)").status == 200)
                }
            }
            // Until now each address may use a burst.
            #expect(try await client.join("198.51.100.1", "x").status == 200)
            #expect(try await client.join("198.51.100.1", "y").status == 429)
            clock.advance(by: .seconds(60))
            #expect(try await client.join("198.51.100.1", "y").status == 200)
            #expect(try await client.join("198.51.100.1", "z").status == 200)
        }
    }

    @Test("Without a limit, as in development, no join counts")
    func off() async throws {
        try await Self.run(limit: nil) { client, _, _ async throws in
            for code in 0..<20 { #expect(try await client.join("192.0.2.1", "\(code)").status == 200) }
        }
    }

    @Test("A join that fails does not count")
    func failing() async throws {
        var relay = Relay(
            ScriptedStore(join: { () throws(ChatError) in throw .unavailable(cause: "disk full") }),
            settings: ChatHTTPSettings(joinRate: RateLimit(perSecond: 0.1, burst: 1)))
        relay.clock = TestClock()
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for _ in 0..<3 {
                    try await connection.write(post("cmd=join&udid=\(Sample.udid)&token=0&name=n&code=c"))
                    #expect(try await connection.answer().status == 503)
                }
            }
        }
    }

    @Test("Wrong tokens slow down their client's address; a valid one is accepted nevertheless")
    func adminToken() async throws {
        let real = try RealStore()
        for (id, secret) in [(1 as Int64, "pct_known"), (2, "AknownInGotify_")] {
            let name = try AccessToken.name("monitor\(id)")
            try real.add(
                AccessToken(id: id, name: name, grant: AccessGrant(scopes: [.figures]), createdAt: Sample.time), secret)
        }
        var relay = Relay(
            ScriptedStore(
                admin: AdminResponses(depths: { [] }, totals: { StoreTotals() }, usage: { nil }, outcomes: []),
                real: real),
            settings: ChatHTTPSettings(
                trustedProxies: ["127.0.0.1"].compactMap { AddressRange($0) }, adminTokens: ["right", "next"]))
        let clock = TestClock()
        relay.clock = clock
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                func call(_ token: String?, _ address: String = "2001:db8::1") async throws -> RawConnection.Answer {
                    let authorization = token.map { "Authorization: Bearer \($0)\r\n" } ?? ""
                    try await connection.write(
                        "GET /v1/queue HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: \(address)\r\n\(authorization)\r\n"
                    )
                    return try await connection.answer()
                }
                let burst = HTTPLimits.wrongTokens.burst
                // Valid tokens, and calls without one, do not count.
                for _ in 0..<burst {
                    #expect(try await call("right").status == 200)
                    #expect(try await call("next").status == 200)
                    #expect(try await call(nil).status == 401)
                }
                for number in 0..<burst { #expect(try await call("wrong\(number)").status == 401) }
                // An address in the same network.
                for token in ["wrong", "pct_wrong", "AwrongInGotify_"] {
                    let answer = try await call(token, "2001:db8::2")
                    #expect(answer.status == 429 && answer.headers["retry-after"] == "6")
                    #expect(answer.headers["content-type"] == "application/problem+json")
                }
                for token in ["right", "next", "pct_known", "AknownInGotify_"] {
                    #expect(try await call(token).status == 200)
                }
                #expect(try await call(nil).status == 401)
                #expect(try await call("wrong", "192.0.2.1").status == 401)
                clock.advance(by: .seconds(6))
                #expect(try await call("wrong").status == 401)
                #expect(try await call("wrong").status == 429)
                #expect(try await call("right").status == 200)
            }
        }
        let refused = relay.log.lines.filter { $0.contains("call of the admin API refused") }
        #expect(refused.filter { !$0.contains("address=2001:db8::1 ") }.count == 1, "the one of the other address")
    }

    @Test("Calls without a token slow down their client's address, and fill no log")
    func missingToken() async throws {
        var relay = Relay(
            ScriptedStore(
                admin: AdminResponses(depths: { [] }, totals: { StoreTotals() }, usage: { nil }, outcomes: [])),
            settings: ChatHTTPSettings(
                trustedProxies: ["127.0.0.1"].compactMap { AddressRange($0) }, adminTokens: ["right"]))
        relay.clock = TestClock()
        let paths = ["/v1/queue", "/gotify/message", "/ntfy/tea/json?poll=1"]
        let burst = HTTPLimits.missingTokens.burst
        let statuses = try await relay.listening { port in
            try await RawConnection.open(port: port) { connection -> [Int] in
                func call(_ number: Int, _ address: String, _ more: String = "") async throws -> Int {
                    try await connection.write(
                        "GET \(paths[number % 3]) HTTP/1.1\r\nHost: localhost\r\n"
                            + "X-Forwarded-For: \(address)\r\n\(more)\r\n")
                    return try await connection.answer().status
                }
                var statuses: [Int] = []
                for number in 0..<burst { statuses.append(try await call(number, "2001:db8::1")) }
                // An address in the same network.
                for number in 0..<3 { statuses.append(try await call(number, "2001:db8::2")) }
                for token in ["right", "wrong"] {
                    statuses.append(try await call(0, "2001:db8::2", "Authorization: Bearer \(token)\r\n"))
                }
                statuses.append(try await call(0, "192.0.2.1"))
                return statuses
            }
        }
        // ntfy's apps ask for a password after 403.
        #expect(statuses == (0..<burst).map { [401, 401, 403][$0 % 3] } + [429, 429, 429, 200, 401, 401])
        let lines = relay.log.lines.filter { $0.hasPrefix("notice call of the admin API refused") }
        #expect(lines.count == HTTPLimits.rejectionLines.burst + 1)
        #expect(lines.last?.contains("address=192.0.2.1 ") == true)
    }
}
