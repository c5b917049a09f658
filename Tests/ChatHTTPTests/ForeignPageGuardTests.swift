import ChatDomain
import HTTPTypes
import Testing

@testable import ChatHTTP

@Suite("Requests from foreign web pages", .timeLimit(.minutes(1)))
struct ForeignPageGuardTests {
    @Test(
        "Local host names and addresses count as local",
        arguments: [
            "", "localhost", "localhost:44447", "127.0.0.1:44447", "192.168.1.5:44447", "[::1]:44447",
            "pushchat.local:44447",
            "PushChat.LOCAL", "mymac", "a.test",
        ])
    func local(authority: String) {
        #expect(ForeignPageGuard.isLocal(authority))
    }

    @Test(
        "Host names that a public name server could point to this machine do not count as local",
        arguments: [
            "example.com", "example.com:44447", "localhost.example.com", "local.example.org:44447",
            "127.0.0.1.example.com",
            "[evil]:1", "evil.",
        ])
    func foreign(authority: String) {
        #expect(!ForeignPageGuard.isLocal(authority))
    }

    // MARK: - Headers in which browsers describe the page

    private static func relay(_ settings: ChatHTTPSettings) throws -> Relay {
        Relay(
            try ScriptedStore(
                join: { false }, post: Sample.receipt,
                admin: AdminResponses(depths: { [] }, totals: { StoreTotals() }, usage: { nil }, outcomes: []),
                real: RealStore(tokens: TokenAccessTests.tokens())), settings: settings)
    }

    /// Calls the relay through a socket, because the guard checks for loopback.
    private static func status(
        _ settings: ChatHTTPSettings, _ request: String, _ headers: [String], host: String = "localhost",
        body: String = ""
    ) async throws -> (status: Int, calls: Int) {
        let relay = try relay(settings)
        let lines = [request + " HTTP/1.1", "Host: \(host)", "Content-Length: \(body.utf8.count)"] + headers
        let head = try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(lines.joined(separator: "\r\n") + "\r\n\r\n" + body)
                // The response to HEAD has no body, whatever its Content-Length.
                return try await connection.text(until: "\r\n\r\n")
            }
        }
        let status = try #require(head.split(separator: " ").dropFirst().first.flatMap { Int($0) })
        return (status, relay.store.calls.count)
    }

    private static let development = ChatHTTPSettings(isDevelopment: true, rejectsForeignPages: true)
    private static let production = ChatHTTPSettings(adminTokens: ["geheim"])

    @Test(
        "In development a page of another site, or of another port, cannot post by an image",
        arguments: ["GET", "HEAD", "POST", "PUT"], ["cross-site", "same-site"])
    func image(method: String, site: String) async throws {
        let path = method.hasPrefix("P") ? "/ntfy/kitchen?message=x" : "/ntfy/kitchen/send?message=x"
        let (status, calls) = try await Self.status(
            Self.development, "\(method) \(path)", ["Sec-Fetch-Site: \(site)", "Sec-Fetch-Dest: image"])
        #expect(status == 403 && calls == 0)
    }

    @Test(
        "A GET that posts is refused at hosts to which browsers send no Sec-Fetch-Site; a POST has an origin",
        arguments: [
            ("0.0.0.0:80", 403), ("pushchat.local", 403), ("[::ffff:127.0.0.1]:80", 403), ("[::]", 403),
            ("192.168.1.5", 403), ("mymac", 403), ("127.0.0.1:80", 200), ("127.8.0.1", 200), ("[::1]:80", 200),
            ("a.localhost", 200),
        ])
    func imageWithoutSite(host: String, expected: Int) async throws {
        let (status, calls) = try await Self.status(
            Self.development, "GET /ntfy/kitchen/send?message=x", [], host: host)
        #expect(status == expected && calls == (expected == 200 ? 1 : 0))
        let post = try await Self.status(Self.development, "POST /ntfy/kitchen", [], host: host, body: "x")
        #expect(post.status == 200)
    }

    @Test(
        "In development a page of another site cannot change anything through the admin API",
        arguments: ["POST /v1/messages?room=kitchen", "DELETE /v1/members/1", "POST /gotify/message", "POST /"])
    func adminCalls(request: String) async throws {
        let (status, calls) = try await Self.status(
            Self.development, request, ["Sec-Fetch-Site: cross-site"], body: "x")
        #expect(status == 403 && calls == 0)
    }

    @Test(
        "Programs, the relay's own pages, typed addresses and reads are not affected",
        arguments: [
            ("GET /ntfy/kitchen/publish?message=x", nil), ("GET /ntfy/kitchen/publish?message=x", "none"),
            ("POST /v1/messages?room=kitchen", "same-origin"), ("GET /v1/queue", "cross-site"),
        ] as [(String, String?)])
    func own(request: String, site: String?) async throws {
        let headers = site.map { ["Sec-Fetch-Site: \($0)"] } ?? []
        let status = try await Self.status(
            Self.development, request, headers, body: request.hasPrefix("POST") ? "x" : ""
        ).status
        #expect((200...201).contains(status))
    }

    @Test(
        "A page of another site may post with its own token",
        arguments: [
            ("GET /ntfy/kitchen/publish?message=x&auth=QmVhcmVyIHBjdF9wb3N0X2tpdGNoZW4", []),
            ("POST /gotify/message?token=pct_post_kitchen", []),
            ("POST /gotify/message", ["X-Gotify-Key: pct_post_kitchen"]),
            ("POST /v1/messages", ["Authorization: Bearer pct_post_kitchen", "Content-Type: text/plain"]),
        ] as [(String, [String])])
    func credential(request: String, headers: [String]) async throws {
        let form = request.contains("gotify") ? ["Content-Type: application/x-www-form-urlencoded"] : []
        for settings in [ChatHTTPSettings(isDevelopment: true), Self.production] {
            let (status, calls) = try await Self.status(
                settings, request, headers + form + ["Sec-Fetch-Site: cross-site"],
                body: request.hasPrefix("POST") ? "message=x" : "")
            #expect((200...201).contains(status) && calls == 1)
        }
    }

    @Test(
        "In development an unknown credential also gets a 401, and admits no page of another site",
        arguments: [
            ("GET /v1/queue", ["Authorization: Bearer x"]), ("GET /v1/queue", ["Authorization: Basic eDp4"]),
            ("GET /v1/queue", ["Authorization: x"]), ("GET /metrics", ["Authorization: Bearer pct_x"]),
            ("GET /readyz", ["Authorization: Bearer x"]), ("POST /gotify/message?token=x", []),
            ("POST /gotify/message", ["X-Gotify-Key: "]), ("GET /ntfy/kitchen/publish?auth=QmVhcmVyIHg", []),
            // An ntfy server answers 403 if it does not know the scheme.
            ("GET /ntfy/kitchen/publish?auth=x", []), ("GET /ntfy/kitchen/publish?auth", []),
            ("POST /ntfy/kitchen", ["Authorization: Digest x"]),
        ] as [(String, [String])])
    func unknownCredential(request: String, headers: [String]) async throws {
        let knowsScheme = !request.contains("/ntfy") || request.hasSuffix("QmVhcmVyIHg")
        for site in [[], ["Sec-Fetch-Site: cross-site"]] {
            let (status, calls) = try await Self.status(Self.development, request, headers + site)
            #expect(status == (knowsScheme ? 401 : 403) && calls == 0)
        }
    }

    private static let join = "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)&name=A&code=kitchen"

    @Test(
        "A form of another site cannot join a room or register a device; apps' pages and calls with a session can",
        arguments: [
            ("cross-site", ["Origin: https://example.com"], 403), ("cross-site", [], 403),
            ("cross-site", ["Origin: null"], 403), ("cross-site", ["Origin: https://localhost.example.com"], 403),
            ("cross-site", ["Origin: capacitor://localhost"], 200), ("cross-site", ["Origin: https://localhost"], 200),
            ("cross-site", ["Origin: http://localhost:8100"], 200),
            ("same-site", ["Origin: https://a.example.com"], 200),
            ("cross-site", ["Origin: https://example.com", "Authorization: Bearer session"], 200),
            ("same-origin", ["Origin: http://localhost"], 200), ("none", [], 200),
        ] as [(String, [String], Int)])
    func forms(site: String, headers: [String], expected: Int) async throws {
        let (status, calls) = try await Self.status(
            Self.production, "POST /api.php",
            headers + ["Sec-Fetch-Site: \(site)", "Content-Type: application/x-www-form-urlencoded"], body: Self.join)
        #expect(status == expected && calls == (expected == 200 ? 1 : 0))
    }

    @Test(
        "The same holds for every call that needs no credential",
        arguments: ["/api", "/push_chat_service.php", "/admin/apns_devices.json", "/events/ticket"])
    func openCalls(path: String) async throws {
        let (status, calls) = try await Self.status(
            Self.production, "POST \(path)",
            ["Sec-Fetch-Site: cross-site", "Content-Type: application/x-www-form-urlencoded"], body: Self.join)
        #expect(status == 403 && calls == 0)
    }

    @Test("A page of another site learns nothing from a method that a path without a token does not support")
    func unsupported() async throws {
        for path in ["/", "/api.php", "/healthz", "/test/"] {
            let (status, _) = try await Self.status(
                Self.production, "DELETE \(path)", ["Sec-Fetch-Site: cross-site"])
            #expect(status == 403, "\(path)")
        }
    }
}
