import PushWire
import Testing

@Suite("The contact in a VAPID token")
struct VAPIDContactTests {
    @Test(
        "A contact without a valid form is none",
        arguments: [
            "", "you@example.org", "http://example.org", "https://", "https:///path", "https:example.org", "mailto:",
            "mailto:@", "mailto:a@", "mailto:@example.org", "mailto:mailto:a@example.org", "mailto:a b@example.org",
            "mailto:<a@example.org>", "mailto:a@-x.org", "mailto:a@x..org", "mailto:a@b.org,", "tel:1",
            "mailto://a@example.org", "mailto:a#b@example.org", "mailto:a@example.org.", "https://example.org..",
        ])
    func invalid(text: String) {
        #expect(VAPIDContact(text) == nil)
    }

    @Test(
        "A contact with a public host",
        arguments: [
            "mailto:you@example.org", "mailto:a.b+c@sub.example.com?subject=push", "https://example.org/contact",
            "https://chat.example.org:8443", "https://93.184.216.34", "https://[2606:4700::1111]", "MAILTO:a@b.org",
            "mailto:a@b.org,c@d.org", "https://my_host.ts.net",
            "https://example.org.",
        ])
    func isPublic(text: String) throws {
        #expect(try #require(VAPIDContact(text)).privateHost == nil)
    }

    @Test(
        "A contact with a host that no public host can be",
        arguments: [
            "mailto:a@localhost", "https://localhost:8080", "https://nas", "mailto:a@x.local", "mailto:a@x.invalid",
            "https://x.test", "https://x.home.arpa", "https://relay.lan", "https://127.0.0.1", "https://10.1.2.3",
            "https://172.31.0.1", "https://192.168.0.1", "https://169.254.1.1", "https://100.64.0.1", "https://[::1]",
            "https://[fd00::1]", "https://[fe80::1]", "mailto:a@[192.168.0.1]", "mailto:a@b.org,c@X.LOCAL",
            "https://relay.local.", "https://127.1", "https://0177.0.0.1", "mailto:a@1.2.3",
        ])
    func isPrivate(text: String) throws {
        #expect(try #require(VAPIDContact(text)).privateHost != nil)
    }
}
