import ChatDomain
import Foundation
import Testing

@testable import ChatHooks

@Suite("Signatures of hooks")
struct SignatureTests {
    private static let secret = "kitchen-secret"
    private static let body = Array(#"{"zen":"Keep it simple.","hook_id":1}"#.utf8)
    private static let hex = "28bfa3c4b2aa36233c44d1e0b9bcfc224f3e63bb36afb74038e5367b4faeb1c1"
    private static let now = Timestamp(seconds: 1_796_169_600)

    /// Whether a format accepts the request, with the values of a header replaced.
    private static func accepts(
        _ format: String, _ headers: [String: String], body: [UInt8] = body, secret: String = secret,
        now: Timestamp = now
    ) -> Bool {
        HookFormats.named(format)?.verify(HookRequest(headers: headers, body: body), secret: secret, now: now) ?? false
    }

    @Test(
        "A signature counts only for its body and its secret",
        arguments: [
            ("github", "x-hub-signature-256", "sha256=" + hex), ("gitea", "x-hub-signature-256", "sha256=" + hex),
            ("gitea", "x-gitea-signature", hex), ("forgejo", "x-gitea-signature", hex),
            ("grafana", "x-grafana-alerting-signature", hex), ("sentry", "sentry-hook-signature", hex),
        ])
    func hexadecimal(format: String, header: String, value: String) {
        #expect(Self.accepts(format, [header: value]))
        #expect(Self.accepts(format, [header: value.replacing("f", with: "F")]))
        #expect(!Self.accepts(format, [header: value], body: Self.body + [0x20]))
        #expect(!Self.accepts(format, [header: value], secret: "kitchen-secret2"))
        for wrong in [
            "", "sha256=", String(value.dropLast(2)), String(value.dropLast()), value + "00", "x" + value,
            "sha1=" + Self.hex,
        ] {
            #expect(!Self.accepts(format, [header: wrong]), "\(wrong)")
        }
        #expect(!Self.accepts(format, [:]))
    }

    @Test("Grafana's signature may cover a time, which must be recent")
    func grafana() {
        let headers = [
            "x-grafana-alerting-signature": "fcc91b8c92de02864997cbe893236d3ee2ff72baf274e3deeab90cf3776832b2",
            "x-grafana-alerting-timestamp": "1796169600",
        ]
        #expect(Self.accepts("grafana", headers))
        #expect(Self.accepts("grafana", headers, now: Self.now + .seconds(300)))
        #expect(!Self.accepts("grafana", headers, now: Self.now + .seconds(301)))
        #expect(!Self.accepts("grafana", headers.merging(["x-grafana-alerting-timestamp": "1796169601"]) { $1 }))
        #expect(!Self.accepts("grafana", headers.filter { $0.key == "x-grafana-alerting-signature" }))
    }

    @Test("GitLab sends the secret itself")
    func gitLab() {
        #expect(Self.accepts("gitlab", ["x-gitlab-token": Self.secret]))
        for wrong in ["", "kitchen", "kitchen-secret2"] { #expect(!Self.accepts("gitlab", ["x-gitlab-token": wrong])) }
        #expect(!Self.accepts("gitlab", [:]))
        // The relay makes secrets in this form, and GitLab takes any text.
        let made = WebhookSecret.random().text
        #expect(Self.accepts("gitlab", ["x-gitlab-token": made], secret: made))
        #expect(!Self.accepts("gitlab", ["x-gitlab-token": Self.secret], secret: made))
    }

    @Test("Standard Webhooks' signature covers the id, the time and the body", arguments: ["gitlab", "json"])
    func standard(format: String) {
        let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        let body = Array(
            #"{"type":"message.posted","timestamp":"2026-12-01T20:00:00.000Z","data":{"room":"kitchen","message_id":7,"text":"Café ☕"}}"#
                .utf8)
        let headers = [
            "webhook-id": "msg_01", "webhook-timestamp": "1796169600",
            "webhook-signature":
                "v1a,AAAA v1,AG5svG0G5594malsHnzRJZ6tTXQajxNE2+4ONCCWzoI= v1,HSk9qwwyvGbfgMods+M32Aj1BYJN1Ms/KihlX2Ay4mQ=",
        ]
        func accepts(_ change: [String: String], _ body: [UInt8] = body, now: Timestamp = Self.now) -> Bool {
            Self.accepts(format, headers.merging(change) { $1 }, body: body, secret: secret, now: now)
        }
        #expect(accepts([:]))
        #expect(accepts([:], now: Self.now - .seconds(300)) && !accepts([:], now: Self.now + .seconds(301)))
        #expect(!accepts([:], body + [0x20]))
        #expect(!accepts(["webhook-id": "msg_02"]) && !accepts(["webhook-timestamp": "1796169601"]))
        for wrong in ["", "v1,", "v1", "AG5s", "v1,====", "v2,HSk9qwwyvGbfgMods+M32Aj1BYJN1Ms/KihlX2Ay4mQ="] {
            #expect(!accepts(["webhook-signature": wrong]), "\(wrong)")
        }
        for time in ["", "-9223372036854775808", "9223372036854775807", "1e9"] {
            #expect(!accepts(["webhook-timestamp": time]))
        }
    }

    @Test("A format that does not sign takes no secret")
    func settings() throws {
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "slack", secret: Self.secret) }
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "github", secret: "short") }
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "telegram") }
        let template = try HookTemplate(parsing: #"{"text":"{a}"}"#)
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "github", template: template) }
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "json", secret: Self.secret) }
        #expect(throws: ChatError.self) { try HookFormats.settings(format: "gitlab", secret: "whsec_x-y-z") }
        let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        let settings = try HookFormats.settings(format: "json", secret: secret, template: template)
        #expect(try HookFormats.settings(stored: settings.stored) == settings)
        #expect(try HookFormats.settings(format: "forgejo").format == "gitea")
        for type in HookFormats.all where !type.isSigned {
            let isAccepted = type.verify(HookRequest(body: Self.body), secret: Self.secret, now: Self.now)
            #expect(!isAccepted, "\(type.name)")
        }
    }

    @Test("The id of a delivery comes from a header of the sender")
    func deliveries() {
        func id(_ format: String, _ header: String, _ value: String = "a1-b2") -> String? {
            HookFormats.named(format)?.deliveryID(HookRequest(headers: [header: value], body: []))
        }
        #expect(id("github", "x-github-delivery") == "a1-b2" && id("gitea", "x-gitea-delivery") == "a1-b2")
        #expect(id("gitlab", "idempotency-key") == "a1-b2" && id("json", "webhook-id") == "a1-b2")
        #expect(id("sentry", "request-id") == "a1-b2" && id("alertmanager", "request-id") == nil)
        #expect(id("github", "x-github-delivery", "") == nil && id("github", "x-github-delivery", "a b") == nil)
        #expect(id("github", "x-github-delivery", String(repeating: "a", count: 129)) == nil)
    }
}
