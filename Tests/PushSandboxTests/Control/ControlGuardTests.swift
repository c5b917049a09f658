import Foundation
import HTTPTypes
import Testing

@testable import PushSandbox

@Suite("The control API is protected from web pages", .timeLimit(.minutes(10)))
struct ControlGuardTests {
    @Test(
        "Only hosts of this machine with this port are served",
        arguments: [
            ("localhost:PORT", 200), ("LOCALHOST:PORT", 200), ("127.0.0.1:PORT", 200), ("[::1]:PORT", 200),
            ("named.test:PORT", 200), ("named.test", 200), ("ported.test:8443", 200), ("ported.test", 403),
            ("evil.test:PORT", 403), ("localhost", 403), ("localhost:1", 403), ("localhost.evil.test:PORT", 403),
            ("127.0.0.1.evil.test:PORT", 403), ("[::2]:PORT", 403), ("[::1]", 403), ("[::1]:PORT:PORT", 403),
            ("", 403),
        ])
    func hosts(host: String, status: Int) async throws {
        try await TestSandbox.with { configuration in
            configuration.allowedHosts = ["named.test", "Ported.test:8443"]
        } _: { sandbox in
            let host = host.replacingOccurrences(of: "PORT", with: "\(sandbox.addresses[.control].port)")
            let answer = try await sandbox.control(.get, "/healthz", host: host)
            #expect(answer.status == status)
            #expect(status == 200 ? answer.body == #"{"healthy":true}"# : answer.body.hasPrefix(#"{"error":"Host"#))
        }
    }

    @Test(
        "Only pages of this address may call the API",
        arguments: [
            ("http://localhost:PORT", 204), ("http://127.0.0.1:PORT", 204), ("http://evil.test", 403),
            ("http://localhost:1", 403), ("null", 403), ("file://", 403), ("http://localhost:PORT.evil.test", 403),
        ])
    func origins(origin: String, status: Int) async throws {
        try await TestSandbox.with { sandbox in
            let origin = origin.replacingOccurrences(of: "PORT", with: "\(sandbox.addresses[.control].port)")
            let answer = try await sandbox.control(.delete, "/notifications", headers: [.origin: origin])
            #expect(answer.status == status)
        }
    }

    @Test(
        "A write must declare JSON, which no form can",
        arguments: [
            ("application/json", 201), ("Application/JSON; charset=utf-8", 201),
            ("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415), ("", 415),
        ])
    func contentTypes(type: String, status: Int) async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await sandbox.control(.post, "/devices", json: "{}", headers: [.contentType: type])
            #expect(answer.status == status)
        }
    }

    @Test("A long body is refused", arguments: [(65_536, 400), (65_537, 413), (200_000, 413)])
    func bodyLimit(count: Int, status: Int) async throws {
        try await TestSandbox.with { (sandbox) async throws in
            let json = "[" + String(repeating: " ", count: count - 2) + "]"
            #expect(try await sandbox.control(.post, "/devices", json: json).status == status)
        }
    }

    @Test("An unknown address or method gets an error in JSON")
    func unknown() async throws {
        try await TestSandbox.with { sandbox in
            for (method, path) in [(HTTPRequest.Method.get, "/nothing"), (.delete, "/stats")] {
                let answer = try await sandbox.control(method, path)
                #expect(answer.status == 404)
                #expect(try answer.object()["error"] is String)
            }
        }
    }

    @Test("The page has a policy that allows nothing")
    func page() async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await sandbox.control(.get, "/")
            #expect(answer.status == 200)
            #expect(answer.headers[.contentType] == "text/html; charset=utf-8")
            #expect(answer.headers[.contentSecurityPolicy]?.hasPrefix("default-src 'none'") == true)
            #expect(answer.body.hasPrefix("<!DOCTYPE html>"))
            for path in ["/notifications", "/devices", "/faults", "/stats", "/healthz"] {
                #expect(answer.body.contains("href=\"\(path.dropFirst())\""))
                #expect(try await sandbox.control(.get, path).status == 200)
            }
        }
    }

    @Test("The inbox's files are there, and sent compressed")
    func files() async throws {
        try await TestSandbox.with { sandbox in
            let page = try await sandbox.control(.get, "/").body
            #expect(page.contains("Unknown tokens are ") && !page.contains("{{"))
            let files = page.split(separator: "\"").filter { $0.hasSuffix(".js") || $0.hasSuffix(".css") }
            #expect(files.count == 9)
            for file in files {
                let plain = try await sandbox.control(.get, "/\(file)")
                let sent = try await sandbox.control(.get, "/\(file)", headers: [.acceptEncoding: "gzip"])
                #expect(plain.status == 200 && plain.headers[.contentEncoding] == nil, "\(file)")
                #expect(sent.status == 200 && sent.headers[.contentEncoding] == "gzip", "\(file)")
                let lengths = [sent, plain].compactMap { $0.headers[.contentLength].flatMap { Int($0) } }
                #expect(lengths.count == 2 && lengths[0] < lengths[1], "\(file)")
            }
        }
    }
}
