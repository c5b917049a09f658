import ChatDomain
import HTTPTypes
import NIOCore
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Client addresses")
struct AddressTests {
    private let trusted = ["10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48", "127.0.0.1"].compactMap { AddressRange($0) }

    private func find(_ peer: String, _ headers: HTTPFields) throws -> String {
        ClientAddress.find(peer: try #require(IPAddress(peer)), headers: headers, trusted: trusted).description
    }

    @Test(
        "X-Forwarded-For is read from its end as long as the hops are trusted",
        arguments: [
            ("10.0.0.1", "198.51.100.9", "198.51.100.9"),
            ("10.0.0.1", "203.0.113.1, 198.51.100.9", "198.51.100.9"),
            // Unicode joins this scalar with the comma.
            ("10.0.0.1", "203.0.113.1\u{600}, 198.51.100.9", "198.51.100.9"),
            ("10.0.0.1", "203.0.113.1,198.51.100.9 , 10.2.3.4,192.0.2.7", "198.51.100.9"),
            ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("10.0.0.1", "198.51.100.9:4711", "198.51.100.9"), ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"), ("10.0.0.1", "[2001:DB8:0::1]", "2001:db8::1"),
            ("10.0.0.1", "fe80::1%eth0", "fe80::1"), ("10.0.0.1", "::ffff:198.51.100.9", "198.51.100.9"),
            ("10.0.0.1", "198.51.100.9, unknown", "10.0.0.1"), ("10.0.0.1", "198.51.100.9, , 10.0.0.2", "10.0.0.2"),
            ("10.0.0.1", "", "10.0.0.1"), ("10.0.0.1", "[::1", "10.0.0.1"), ("10.0.0.1", "1.2.3", "10.0.0.1"),
            ("::ffff:10.0.0.1", "198.51.100.9", "198.51.100.9"), ("2001:db8:1::5", "198.51.100.9", "198.51.100.9"),
            ("198.51.100.1", "203.0.113.1", "198.51.100.1"), ("2001:db8:2::5", "203.0.113.1", "2001:db8:2::5"),
        ])
    func forwardedFor(peer: String, header: String, client: String) throws {
        #expect(try find(peer, [.xForwardedFor: header]) == client)
    }

    @Test(
        "Forwarded is read as RFC 7239 defines it",
        arguments: [
            ("for=198.51.100.9", "198.51.100.9"), ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=203.0.113.1;proto=http, proto=https;by=10.0.0.1;FOR=198.51.100.9", "198.51.100.9"),
            ("for=198.51.100.9, for=\"10.0.0.9:80\";host=\"a, b; c\"", "198.51.100.9"),
            ("for=198.51.100.9, for=unknown", "10.0.0.1"), ("for=_hidden", "10.0.0.1"), ("proto=http", "10.0.0.1"),
            ("for=\"198.51.100.9", "198.51.100.9"), ("", "10.0.0.1"), ("for=", "10.0.0.1"),
        ])
    func forwarded(header: String, client: String) throws {
        #expect(try find("10.0.0.1", [.forwarded: header]) == client)
        #expect(try find("203.0.113.200", [.forwarded: header]) == "203.0.113.200")
    }

    @Test("If both headers are present and disagree, neither is used")
    func disagreement() throws {
        #expect(try find("10.0.0.1", [.forwarded: "for=1.1.1.1", .xForwardedFor: "198.51.100.9"]) == "10.0.0.1")
        #expect(try find("10.0.0.1", [.forwarded: "for=1.1.1.1", .xForwardedFor: "1.1.1.1"]) == "1.1.1.1")
    }

    @Test("Several headers with the same name form one list")
    func severalHeaders() throws {
        var headers = HTTPFields()
        headers.append(HTTPField(name: .xForwardedFor, value: "203.0.113.1"))
        headers.append(HTTPField(name: .xForwardedFor, value: "198.51.100.9"))
        #expect(try find("10.0.0.1", headers) == "198.51.100.9")
    }

    @Test(
        "A network contains the right addresses",
        arguments: [
            ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.1", false), ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "2001:db8::1", false), ("::/0", "8.8.8.8", true), ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false), ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true), ("10.1.2.3/8", "10.0.0.1", true), ("::1", "::1", true),
        ])
    func ranges(range: String, address: String, isInside: Bool) throws {
        #expect(try #require(AddressRange(range)).contains(try #require(IPAddress(address))) == isInside)
    }

    @Test(
        "Invalid addresses and networks are refused",
        arguments: [
            "", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "10.0.0/8", "1.2.3.4/x",
        ])
    func badRange(text: String) {
        #expect(AddressRange(text) == nil)
    }

    @Test("A socket's address is read without its port; an IPv4-mapped one is the IPv4 address")
    func sockets() throws {
        let v4 = try SocketAddress(ipAddress: "192.0.2.1", port: 80)
        let mapped = try SocketAddress(ipAddress: "::ffff:192.0.2.1", port: 80)
        let v6 = try SocketAddress(ipAddress: "2001:db8::ff", port: 80)
        #expect(IPAddress(v4)?.description == "192.0.2.1")
        #expect(IPAddress(mapped) == IPAddress(v4))
        #expect(IPAddress(v6)?.description == "2001:db8::ff")
        #expect(IPAddress(try SocketAddress(unixDomainSocketPath: "/tmp/x")) == nil)
    }

    @Test("Rate limits treat an IPv6 network of 64 bits as one client")
    func rateKeys() throws {
        #expect(IPAddress("2001:db8::1")?.rateKey == IPAddress("2001:db8::ffff:2")?.rateKey)
        #expect(IPAddress("2001:db8::1")?.rateKey != IPAddress("2001:db8:0:1::1")?.rateKey)
        #expect(IPAddress("192.0.2.1")?.rateKey != IPAddress("192.0.2.2")?.rateKey)
    }
}

@Suite("Rate limits")
struct RateLimiterTests {
    private let limit = RateLimit(perSecond: 2, burst: 3)
    private let start = Duration.seconds(100)

    @Test("A burst passes, then the steady rate; a refusal gives the time to wait and does not count")
    func bucket() throws {
        let limit = try #require(limit)
        var limiter = RateLimiter<String>()
        for _ in 0..<3 { #expect(limiter.admit("a", limit: limit, at: start) == nil) }
        #expect(limiter.admit("a", limit: limit, at: start) == .milliseconds(500))
        #expect(limiter.admit("a", limit: limit, at: start) == .milliseconds(500))
        #expect(limiter.admit("b", limit: limit, at: start) == nil)
        #expect(limiter.admit("a", limit: limit, at: start + .milliseconds(499)) == .milliseconds(1))
        #expect(limiter.admit("a", limit: limit, at: start + .milliseconds(500)) == nil)
        #expect(limiter.admit("a", limit: limit, at: start + .milliseconds(500)) != nil)
        for _ in 0..<3 { #expect(limiter.admit("a", limit: limit, at: start + .seconds(60)) == nil) }
        #expect(limiter.admit("a", limit: limit, at: start + .seconds(60)) != nil)
    }

    @Test("A request with a price takes as many tokens, and at most a whole bucket")
    func price() throws {
        let limit = try #require(limit)
        var limiter = RateLimiter<String>()
        #expect(limiter.admit("a", limit: limit, price: 2, at: start) == nil)
        #expect(limiter.admit("a", limit: limit, price: 2, at: start) == .milliseconds(500))
        #expect(limiter.admit("a", limit: limit, at: start) == nil)
        #expect(limiter.admit("b", limit: limit, price: 9, at: start) == nil)
        #expect(limiter.admit("b", limit: limit, price: 9, at: start) == .milliseconds(1500))
    }

    @Test("A refunded request can be made again, also from the older half of the table")
    func refunded() throws {
        let limit = try #require(RateLimit(perSecond: 0.1, burst: 1))
        var limiter = RateLimiter<Int>(capacity: 4)
        for client in 1...3 { #expect(limiter.admit(client, limit: limit, at: start) == nil) }
        for client in 1...3 {
            limiter.refund(client, limit: limit)
            #expect(limiter.admit(client, limit: limit, at: start) == nil)
            #expect(limiter.admit(client, limit: limit, at: start) == .seconds(10))
        }
        // A client that the limiter no longer knows.
        limiter.refund(9, limit: limit)
        #expect(limiter.count <= 4)
    }

    @Test("The table is bounded, and remembers the clients of the last requests")
    func bounded() throws {
        let limit = try #require(RateLimit(perSecond: 0.001, burst: 1))
        var limiter = RateLimiter<Int>(capacity: 100)
        for client in 0..<1000 {
            #expect(limiter.admit(client, limit: limit, at: start) == nil)
            #expect(limiter.count <= 100)
        }
        #expect(limiter.admit(999, limit: limit, at: start) != nil)
        #expect(limiter.admit(960, limit: limit, at: start) != nil)
        #expect(limiter.admit(0, limit: limit, at: start) == nil)
    }

    @Test("Only sensible limits can be created")
    func sensible() {
        #expect(RateLimit(perSecond: 0, burst: 1) == nil)
        #expect(RateLimit(perSecond: .nan, burst: 1) == nil)
        #expect(RateLimit(perSecond: 1, burst: 0) == nil)
    }

    @Test("A member above the limit gets a 429 with Retry-After; another member does not")
    func members() async throws {
        var relay = Relay(
            ScriptedStore(leave: { true }, post: Sample.receipt),
            settings: ChatHTTPSettings(memberRate: RateLimit(perSecond: 0.1, burst: 2)))
        relay.clock = TestClock()
        let server = relay.server()
        try await server.application().test(.router) { client in
            func send(_ form: String) async throws -> (Int, String?, String) {
                let answer = try await client.execute(
                    uri: "/api.php", method: .post, headers: [.contentType: "application/x-www-form-urlencoded"],
                    body: ByteBuffer(string: form))
                return (answer.status.code, answer.headers[.retryAfter], answer.text)
            }
            #expect(try await send(Sample.message).0 == 200)
            #expect(try await send(Sample.leave).0 == 200)
            let refused = try await send(Sample.message)
            #expect(refused.0 == 429)
            #expect(refused.1 == "10")
            #expect(refused.2 == "Too many requests from this device; try again in 10 s\n")
            #expect(try await send("cmd=leave&udid=\(String(repeating: "0", count: 32))").0 == 200)
        }
        #expect(relay.store.calls.count == 3)
    }
}
