import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Access to the admin API", .timeLimit(.minutes(1)))
struct AdminGuardTests {
    private static let answers = AdminResponses(depths: { [] }, totals: { StoreTotals() }, usage: { nil }, outcomes: [])

    /// Calls the relay through a real socket, because the guard checks for loopback.
    private static func status(
        _ settings: ChatHTTPSettings, _ headers: [(String, String)] = [], path: String = "/v1/queue"
    ) async throws -> (Int, String) {
        let relay = Relay(ScriptedStore(admin: answers), settings: settings)
        return try await relay.listening { port in
            var lines = headers
            if !lines.contains(where: { $0.0 == "Host" }) { lines.append(("Host", "127.0.0.1")) }
            let request = "GET \(path) HTTP/1.1\r\n" + lines.map { "\($0.0): \($0.1)\r\n" }.joined() + "\r\n"
            return try await RawConnection.open(port: port) { connection in
                try await connection.write(request)
                let answer = try await connection.answer()
                return (answer.status, "\(answer.headers) \(answer.body)")
            }
        }
    }

    private static let development = ChatHTTPSettings(isDevelopment: true)
    private static let production = ChatHTTPSettings(isDevelopment: false)

    @Test(
        "Without a token, this machine has access in development, and no caller in production",
        arguments: ["/v1/queue", "/metrics"])
    func open(path: String) async throws {
        #expect(try await Self.status(Self.development, path: path).0 == 200)
        let (status, text) = try await Self.status(Self.production, path: path)
        #expect(status == 403)
        #expect(text.contains("set admin.token"))
        #expect(text.contains("application/problem+json"))
    }

    @Test(
        "Without a token, a request through a proxy or from a page of another site is refused",
        arguments: [
            ("X-Forwarded-For", "192.0.2.1"), ("Forwarded", "for=127.0.0.1"), ("Origin", "https://example.com"),
            ("X-Forwarded-Host", "a"), ("X-Forwarded-Proto", "https"), ("X-Real-IP", "127.0.0.1"), ("Via", "1.1 a"),
            ("Origin", "null"), ("Host", "example.com"), ("Host", "rebound.example.com:44447"),
        ])
    func foreign(name: String, value: String) async throws {
        #expect(try await Self.status(Self.development, [(name, value)]).0 == 403)
    }

    @Test(
        "With a token, only callers that send it have access",
        arguments: [
            (nil, 401), ("Bearer geheim", 200), ("bearer geheim", 200), ("Bearer  geheim", 200),
            ("Bearer geheim2", 401),
            ("Bearer gehei", 401), ("Bearer ", 401), ("Bearer", 401), ("Basic geheim", 401), ("geheim", 401),
            ("Bearer GEHEIM", 401), ("Bearer geheimgeheim", 401),
        ] as [(String?, Int)])
    func token(header: String?, expected: Int) async throws {
        for isDevelopment in [true, false] {
            let settings = ChatHTTPSettings(isDevelopment: isDevelopment, adminTokens: ["geheim"])
            let headers = header.map { [("Authorization", $0)] } ?? []
            let (status, text) = try await Self.status(settings, headers)
            #expect(status == expected)
            #expect((status == 401) == text.contains("\"www-authenticate\": \"Bearer"))
        }
    }

    @Test("A token in the configuration may look like one in the database")
    func prefix() async throws {
        let settings = ChatHTTPSettings(adminTokens: ["pct_geheim"])
        #expect(try await Self.status(settings, [("Authorization", "Bearer pct_geheim")]).0 == 200)
    }

    @Test(
        "No other spelling of an address avoids the guard",
        arguments: [
            "//v1/queue", "/v1//queue", "/v1/queue/", "//metrics", "/v1/../v1/queue", "/%761/queue", "/v1/queue?",
        ])
    func spelling(path: String) async throws {
        let (status, text) = try await Self.status(Self.production, path: path)
        #expect([403, 404].contains(status), "\(text)")
    }

    @Test("The response to a call without a token asks for one; the response to a wrong token says that it is wrong")
    func challenge() async throws {
        let settings = ChatHTTPSettings(isDevelopment: false, adminTokens: ["geheim"])
        #expect(try await Self.status(settings).1.contains(#""www-authenticate": "Bearer""#))
        #expect(
            try await Self.status(settings, [("Authorization", "Bearer x")]).1.contains(
                #"Bearer error=\"invalid_token\""#))
    }

    @Test("A refused call is logged once, at notice, with the caller's address")
    func log() async throws {
        let relay = Relay(settings: Self.production)
        let answer = try await relay.exchange(Array("GET /v1/queue HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8))
        #expect(answer.status == 403)
        let lines = relay.log.lines.filter { $0.contains("admin.token") }
        #expect(lines.count == 1)
        #expect(lines.first?.hasPrefix("notice call of the admin API refused address=127.0.0.1 ") == true, "\(lines)")
    }

    @Test(
        "Another spelling of an address, which a proxy's rule may miss, gets a 404",
        arguments: ["//v1/queue", "/v1//queue", "//metrics", "///v1/queue"])
    func doubledSlash(path: String) async throws {
        #expect(try await Self.status(Self.development, path: path).0 == 404)
    }

    @Test("The addresses of the apps are not guarded")
    func others() async throws {
        for path in ["/healthz", "/", "/v10"] {
            #expect(try await Self.status(Self.production, path: path).0 != 403)
        }
        let relay = Relay(ScriptedStore(register: { .created }), settings: Self.production)
        let answer = try await relay.send(
            .post, "/admin/apns_devices.json", headers: [.contentType: "application/x-www-form-urlencoded"],
            body: Array("token=\(Sample.token)".utf8))
        #expect(answer.status == .ok)
    }

    @Test("A token matches only if every byte and the length are equal")
    func comparison() {
        for (given, wanted, expected) in [
            ("", "", false), ("a", "", false), ("", "a", false), ("a", "a", true), ("ab", "a", false),
            ("aa", "a", false),
            ("b", "a", false), ("geheim", "geheim", true), ("geheiN", "geheim", false),
        ] {
            #expect(AdminGuard.isSame(given, wanted) == expected, "\(given) \(wanted)")
        }
    }
}
