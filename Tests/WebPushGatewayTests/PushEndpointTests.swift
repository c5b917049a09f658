import ChatDomain
import PushWire
import Testing

@testable import WebPushGateway

@Suite("Endpoints from untrusted URLs")
struct PushEndpointTests {
    @Test(
        "The vendors' endpoints are accepted",
        arguments: [
            ("https://fcm.googleapis.com/fcm/send/dE4_x:APA91b", "https://fcm.googleapis.com"),
            ("https://updates.push.services.mozilla.com/wpush/v2/gAAAA", "https://updates.push.services.mozilla.com"),
            ("https://web.push.apple.com/QGuQ", "https://web.push.apple.com"),
            ("https://wns2-par02p.notify.windows.com/w/?token=BQYA%3d", "https://wns2-par02p.notify.windows.com"),
            ("HTTPS://FCM.googleapis.com:443/x", "https://fcm.googleapis.com"),
        ])
    func vendors(url: String, origin: String) throws {
        let endpoint = try PushEndpoint(url)
        #expect(endpoint.origin == origin)
        // The URL is normalized: the gateway looks up, checks and connects to the same name.
        #expect(endpoint.url == (url.hasPrefix("HTTPS") ? origin + "/x" : url))
        try EndpointRules().check(endpoint)
    }

    @Test(
        "Only plain https URLs are accepted",
        arguments: [
            "", "http://fcm.googleapis.com/x", "ftp://fcm.googleapis.com/x", "fcm.googleapis.com", "https://",
            "https:///x", "https://?x", "https://:443/x", "https://fcm.googleapis.com:0/x",
            "https://fcm.googleapis.com:65536/x", "https://fcm.googleapis.com:4x/x", "https://fcm.googleapis.com:/x",
            "https://user@fcm.googleapis.com/x", "https://user:pw@fcm.googleapis.com/x",
            "https://fcm.googleapis.com@127.0.0.1/x", "https://fcm%2egoogleapis.com/x",
            "https://fcm.googleapis.com/x#y",
            "https://fcm.googleapis.com\\@127.0.0.1/", "https://fcm.googleapis.com/ x", "https://fcm.googleapis.com/\n",
            "https://f\u{441}m.googleapis.com/x", "https://[::1/x", "https://[::1]x/", "https://[fe80::1%25eth0]/x",
            "https://[not:an:address]/x", "https://.googleapis.com/x", "https://fcm..googleapis.com/x",
            "https://fcm_googleapis.com/x", "https://fcm.googleapis.com/" + String(repeating: "x", count: 980),
        ])
    func malformed(url: String) {
        #expect(throws: WebPushError.self) { try PushEndpoint(url) }
    }

    @Test(
        "Other hosts are refused: addresses in every spelling, names of all kinds, other ports",
        arguments: [
            "https://127.0.0.1/x", "https://127.1/x", "https://0/x", "https://2130706433/x", "https://0x7f000001/x",
            "https://0x7f.1/x", "https://0177.0.0.1/x", "https://10.0.0.1/x", "https://8.8.8.8/x", "https://[::1]/x",
            "https://[::ffff:127.0.0.1]/x", "https://[::ffff:7f00:1]/x", "https://[64:ff9b::7f00:1]/x",
            "https://[2002:7f00:1::]/x", "https://[fe80::1]/x", "https://[fd00::1]/x", "https://[2606:4700::1]/x",
            "https://localhost/x", "https://localhost./x", "https://intranet/x", "https://relay.local/x",
            "https://example.org/x", "https://fcm.googleapis.com.example.org/x", "https://evilpush.apple.com.evil/x",
            "https://xpush.apple.com.example/x", "https://notfcm.googleapis.com/x", "https://push.apple.com/x",
            "https://fcm.googleapis.com:8443/x", "https://fcm.googleapis.com:80/x", "https://169.254.169.254/latest",
            "https://metadata.google.internal/x", "https://127.0.0.1./x", "https://1.2.3.4.5/x",
        ])
    func foreign(url: String) throws {
        #expect(throws: WebPushError.self) {
            try EndpointRules().check(PushEndpoint(url))
        }
    }

    @Test("A host that the operator named is accepted with the named port, whatever its address")
    func named() throws {
        let rules = try EndpointRules(hosts: ["push.example.org", "127.0.0.1:2199", "[::1]:2199"])
        for url in ["https://push.example.org/up", "https://127.0.0.1:2199/x", "https://[::1]:2199/x"] {
            try rules.check(PushEndpoint(url))
        }
        let local = try #require(IPAddress("127.0.0.1"))
        #expect(rules.allows(local, of: try PushEndpoint("https://push.example.org/up")))
        #expect(!rules.allows(local, of: try PushEndpoint("https://fcm.googleapis.com/x")))
        for url in ["https://push.example.org:8443/up", "https://127.0.0.1/x", "https://sub.push.example.org/x"] {
            #expect(throws: WebPushError.self) { try rules.check(PushEndpoint(url)) }
        }
        for host in ["", "https://push.example.org", "push.example.org/x", "a b", "user@host", "host:99999"] {
            #expect(throws: WebPushError.self, "\(host)") { try EndpointRules(hosts: [host]) }
        }
    }

    @Test(
        "No address of this machine, of a private or local network, or of a gateway into one is public",
        arguments: [
            "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
            "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1",
            "64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:db8::1",
            "2002:7f00:1::1", "2002:a00:1::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "febf::1",
            "fec0::1", "ff02::1", "ff0e::1",
        ])
    func notPublic(text: String) throws {
        #expect(!EndpointRules.isPublic(try #require(IPAddress(text))))
    }

    @Test(
        "Addresses of the internet are public",
        arguments: [
            "8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.255.255",
            "172.32.0.1", "192.167.255.255", "192.169.0.1", "198.17.255.255", "198.20.0.1", "223.255.255.255",
            "2606:4700::1111", "2a00:1450:4001:800::200a", "2001:4860:4860::8888", "2003::1", "2620:149:af0::10",
        ])
    func isPublic(text: String) throws {
        #expect(EndpointRules.isPublic(try #require(IPAddress(text))))
    }
}
