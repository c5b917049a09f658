import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("Connections per address")
struct ConnectionCounterTests {
    @Test("Each address has a limit of connections; a connection that ends makes room for another")
    func limit() throws {
        let counter = ConnectionCounter(limit: 2)
        let (one, two) = (try #require(IPAddress("192.0.2.1")), try #require(IPAddress("192.0.2.2")))
        #expect(counter.add(one))
        #expect(counter.add(one))
        #expect(!counter.add(one))
        #expect(counter.add(two))
        counter.remove(one)
        #expect(counter.add(one))
        #expect(!counter.add(one))
    }

    @Test(
        "Loopback and trusted proxies have no limit",
        arguments: [
            ("127.0.0.1", false), ("::1", false), ("10.1.2.3", false), ("192.0.2.1", true), ("2001:db8::1", true),
        ])
    func exempt(text: String, isLimited: Bool) throws {
        let counter = ConnectionCounter(trustedProxies: { [AddressRange("10.0.0.0/8")].compactMap { $0 } })
        #expect(counter.isLimited(try #require(IPAddress(text))) == isLimited)
    }
}
