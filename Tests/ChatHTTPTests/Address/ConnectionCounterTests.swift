import Testing

@testable import ChatHTTP

@Suite("Connections per address")
struct ConnectionCensusTests {
    @Test("An address has its limit, and gets a place back when a connection ends")
    func limit() throws {
        let census = ConnectionCensus(limit: 2)
        let (one, two) = (try #require(IPAddress("192.0.2.1")), try #require(IPAddress("192.0.2.2")))
        #expect(census.enter(one))
        #expect(census.enter(one))
        #expect(!census.enter(one))
        #expect(census.enter(two))
        census.leave(one)
        #expect(census.enter(one))
        #expect(!census.enter(one))
    }

    @Test(
        "This machine and trusted proxies speak for many",
        arguments: [
            ("127.0.0.1", false), ("::1", false), ("10.1.2.3", false), ("192.0.2.1", true), ("2001:db8::1", true),
        ])
    func exempt(text: String, counts: Bool) throws {
        let census = ConnectionCensus(trustedProxies: { [AddressRange("10.0.0.0/8")].compactMap { $0 } })
        #expect(census.counts(try #require(IPAddress(text))) == counts)
    }
}
