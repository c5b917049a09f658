import ChatDomain
import HTTPTypes
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Pages and health")
struct PagesTests {
    private static let testPages = [
        "/test", "/test/", "/test/api_join.html", "/test/api_leave.html", "/test/api_update.html",
        "/test/api_message.html", "/test/test_message.html", "/test/api_messages.html",
    ]

    private let development = ChatHTTPSettings(isDevelopment: true)

    @Test("The chat page knows how long a message may be")
    func limit() async throws {
        let page = try await Relay(settings: ChatHTTPSettings(textLimit: 321)).send(.get, "/")
        #expect(page.text.contains(#"<meta name="text-limit" content="321">"#))
    }

    @Test(
        "The chat page knows the relay's public addresses",
        arguments: [
            (nil, ""), ("https://chat.example.org", "https://chat.example.org"),
            (#"https://a"b"#, "https://a&quot;b"),
        ] as [(String?, String)])
    func invitation(url: String?, content: String) async throws {
        let settings = ChatHTTPSettings(publicURL: url, ntfy: NtfySettings(baseURL: url))
        let page = try await Relay(settings: settings).send(.get, "/")
        let gotify = content.isEmpty ? "" : content + "/gotify"
        for (name, content) in [("public-url", content), ("ntfy-url", content), ("gotify-url", gotify)] {
            #expect(page.text.contains(#"<meta name="\#(name)" content="\#(content)">"#), "\(name)")
        }
    }

    @Test("Each file of a page is served under a strict policy, and not sent twice", arguments: ["/", "/admin"])
    func files(path: String) async throws {
        let page = try await Relay().send(.get, path)
        #expect(page.status == .ok)
        let policy = try #require(page.header("Content-Security-Policy"))
        #expect(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"))
        #expect(!policy.contains("unsafe") && !policy.contains("*"))
        for forbidden in ["<style", " style=", " onclick", "http://", "https://", "{{"] {
            #expect(!page.text.contains(forbidden), "\(forbidden)")
        }
        let linked = page.text.linkedPaths
        #expect(linked.count > 3)
        var bytes = page.body.readableBytes
        for path in Set(linked).subtracting(["/", "/test/"]).union(["/sw.js", "/icon-512.png"]) {
            let file = try await Relay().send(.get, path)
            #expect(file.status == .ok, "\(path)")
            #expect(!file.text.contains("{{"), "\(path)")
            bytes += file.body.readableBytes
            let tag = try #require(file.headers[.eTag])
            let again = try await Relay().send(.get, path, headers: [.ifNoneMatch: tag])
            #expect(again.status == .notModified && again.body.readableBytes == 0)
            #expect(try await Relay().send(.get, path, headers: [.ifNoneMatch: "\"x\""]).status == .ok)
        }
        // Uncompressed. Two languages are a fifth of it.
        #expect(bytes < 175_000)
    }

    private static let accepting: HTTPFields = [.acceptEncoding: "gzip, deflate, br"]

    /// The first load as a browser does it: the page, then every file that it names.
    @Test("The first load of the chat page takes less than 100 kB, and one parallel round of files")
    func firstLoad() async throws {
        let page = try await Relay().send(.get, "/")
        let compressed = try await Relay().send(.get, "/", headers: Self.accepting)
        var bytes = compressed.body.readableBytes
        // Links in the text load nothing.
        for path in Set(page.text.linkedPaths).subtracting(["/"]) {
            let file = try await Relay().send(.get, path)
            // A file that named others would cause a second round.
            for loads in ["@import", "url(", "import(", "importScripts("] {
                #expect(!file.text.contains(loads), "\(path) \(loads)")
            }
            let sent = try await Relay().send(.get, path, headers: Self.accepting)
            #expect(sent.body.readableBytes <= file.body.readableBytes, "\(path)")
            bytes += sent.body.readableBytes
        }
        #expect(bytes < 100_000)
        #expect(bytes > 10_000)
    }

    @Test("Static files are sent compressed, and each form has its entity tag", arguments: ["/", "/chat.js", "/admin"])
    func compressed(path: String) async throws {
        let plain = try await Relay().send(.get, path)
        let sent = try await Relay().send(.get, path, headers: Self.accepting)
        #expect(plain.headers[.contentEncoding] == nil && sent.headers[.contentEncoding] == "gzip")
        #expect(plain.headers[.vary] == "Accept-Encoding" && sent.headers[.vary] == "Accept-Encoding")
        #expect(sent.headers[.contentLength] == String(sent.body.readableBytes))
        #expect(sent.body.readableBytes * 2 < plain.body.readableBytes)
        let text = try ContentCoding.gzip.decompressed(Array(sent.body.readableBytesView), limit: 1 << 20)
        #expect(String(decoding: text, as: UTF8.self) == plain.text)
        let (tag, plainTag) = (try #require(sent.headers[.eTag]), try #require(plain.headers[.eTag]))
        #expect(tag != plainTag)
        var headers = Self.accepting
        headers[.ifNoneMatch] = plainTag
        #expect(try await Relay().send(.get, path, headers: headers).status == .ok)
        headers[.ifNoneMatch] = "W/\"x\", \(tag)"
        let again = try await Relay().send(.get, path, headers: headers)
        #expect(again.status == .notModified && again.headers[.eTag] == tag && again.headers[.contentEncoding] == nil)
        #expect(again.headers[.vary] == "Accept-Encoding")
        let head = try await Relay().send(.head, path, headers: Self.accepting)
        #expect(head.headers[.contentLength] == sent.headers[.contentLength] && head.body.readableBytes == 0)
    }

    @Test(
        "Accept-Encoding decides, with its weights",
        arguments: [
            ("", false), ("gzip", true), ("GZIP", true), ("x-gzip", true), ("br", false), ("*", true),
            ("gzip;q=0", false), ("gzip; q=0.000, *", false), ("gzip;q=0.5", true),
            ("identity;q=0.5, gzip;q=0.4", false),
            ("br;q=1, gzip;q=0.8, identity;q=0", true), ("*;q=0", false), ("gzip;q=x", false), (";q=1,,", false),
            ("deflate, gzip;level=9;q=1", true),
        ])
    func acceptEncoding(header: String, isCompressed: Bool) async throws {
        let file = try await Relay().send(.get, "/base.css", headers: [.acceptEncoding: header])
        #expect(file.status == .ok && (file.headers[.contentEncoding] == "gzip") == isCompressed)
    }

    @Test("Pictures are sent as they are")
    func picture() async throws {
        let file = try await Relay().send(.get, "/icon-512.png", headers: Self.accepting)
        #expect(file.headers[.contentEncoding] == nil && file.headers[.vary] == nil)
        #expect(file.text.contains("PNG"))
    }

    @Test("The worker is JavaScript that browsers revalidate, and caches every file of the chat page")
    func worker() async throws {
        let worker = try await Relay().send(.get, "/sw.js")
        #expect(worker.headers[.contentType] == "text/javascript; charset=utf-8")
        #expect(worker.headers[.cacheControl] == "no-cache")
        let page = try await Relay().send(.get, "/")
        let files = page.text.linkedPaths
        #expect(files.contains("/notify.js") && files.contains("/manifest.webmanifest"))
        for file in files { #expect(worker.text.contains("\"\(file.dropFirst())\""), "\(file)") }
        // The policy allows only the relay's own worker and manifest.
        let policy = try #require(page.header("Content-Security-Policy"))
        #expect(policy.contains("worker-src 'self'") && policy.contains("manifest-src 'self'"))
    }

    @Test("The manifest has the fields that a phone needs to install the page, and its icons exist")
    func manifest() async throws {
        let file = try await Relay().send(.get, "/manifest.webmanifest")
        #expect(file.headers[.contentType] == "application/manifest+json")
        let manifest = try #require(try JSONValue(parsing: Array(file.text.utf8)).object)
        #expect(manifest["name"]?.text == "PushChat" && manifest["start_url"]?.text == "./")
        #expect(manifest["display"]?.text == "standalone")
        let icons = try #require(manifest["icons"]?.array).compactMap { $0.object?["src"]?.text }
        #expect(icons.count == 3)
        for icon in icons { #expect(try await Relay().send(.get, "/" + icon).status == .ok, "\(icon)") }
    }

    /// Behind a proxy the root may be `/chat/`, so an address that begins with a slash leads to another server.
    @Test(
        "Every address in a page is relative, and leads to the relay's root",
        arguments: [
            ("/", "./"), ("/admin", "./"), ("/v1/docs", "../"), ("/test", "./"), ("/test/", "../"),
            ("/test/api_join.html", "../"), ("/nothing/here/at/all", "../../../"), ("/nothing//", "../../"),
        ])
    func relative(path: String, root: String) async throws {
        let page = try await Relay(settings: development).send(.get, path, headers: [.accept: "text/html"])
        let addresses = page.text.addresses
        #expect(addresses.contains(root + "base.css") || root == "./" && addresses.contains("base.css"))
        for address in addresses {
            #expect(!address.hasPrefix("/") && (root == "./" || address.hasPrefix(root)), "\(address)")
        }
    }

    @Test(
        "At another form of its path a page redirects, because its relative addresses would be wrong",
        arguments: [
            ("/admin/", "../admin"), ("//admin", "../admin"), ("/v1/docs/", "../../v1/docs"), ("//", "../"),
        ])
    func canonicalPath(path: String, address: String) async throws {
        let answer = try await Relay().send(.get, path)
        #expect(answer.status == .permanentRedirect && answer.headers[.location] == address)
        #expect(answer.headers[.cacheControl] == "no-cache")
    }

    @Test("Pages get the key to subscribe with, or a JSON error if there are no pushes to browsers")
    func pushKey() async throws {
        var relay = Relay()
        let refused = try await relay.send(.get, "/webpush/key")
        #expect(refused.status == .notFound)
        #expect(refused.headers[.contentType] == "application/json")
        #expect(
            refused.text
                == #"{"error":{"code":"not_found","message":"This relay sends no pushes to browsers"}}"#)
        relay.browsers = KeyOnly()
        let answer = try await relay.send(.get, "/webpush/key")
        #expect(answer.status == .ok && answer.text == #"{"key":"BP4z"}"#)
        // A restored database has another key. The page must not compare with a cached one.
        #expect(answer.headers[.cacheControl] == "no-store")
        #expect(try await relay.send(.post, "/webpush/key").status == .methodNotAllowed)
    }

    @Test("Development serves the tutorial's pages", arguments: testPages)
    func testPage(path: String) async throws {
        let page = try await Relay(settings: development).send(.get, path)
        #expect(page.status == .ok)
        #expect(page.headers[.contentType] == "text/html; charset=utf-8")
        #expect(page.headers[.xContentTypeOptions] == "nosniff")
        let policy = try #require(page.header("Content-Security-Policy"))
        #expect(policy.contains("default-src 'none'"))
        #expect(policy.contains("form-action 'self'"))
        #expect(!policy.contains("unsafe"))
        // The page contains nothing that the policy would block.
        for forbidden in ["<script", "<style", " style=", " onclick", "http://", "https://"] {
            #expect(!page.text.contains(forbidden), "\(forbidden)")
        }
        // Each control has its label and its hint.
        for piece in page.text.components(between: "<label for=\"", and: "\"") {
            #expect(page.text.contains("id=\"\(piece)\" name=\"\(piece)\" aria-describedby=\"\(piece)-hint\""))
            #expect(page.text.contains("id=\"\(piece)-hint\""))
        }
        #expect(page.text.contains(#"<html lang="en">"#))
        #expect(page.text.contains("width=device-width"))
    }

    @Test("Production does not serve the tutorial's pages", arguments: testPages + ["/test/database.php"])
    func production(path: String) async throws {
        let page = try await Relay().send(.get, path)
        #expect(page.status == .notFound)
        #expect(!page.text.contains("<form"))
    }

    @Test("A form sends the fields that its command needs, in the tutorial's order")
    func forms() async throws {
        let page = try await Relay(settings: development).send(.get, "/test/api_join.html")
        #expect(page.text.contains(#"<form action="../api.php" method="post""#))
        #expect(page.text.components(between: "<label for=\"", and: "\"") == ["udid", "token", "name", "code"])
        #expect(page.text.contains(#"name="cmd" value="join""#))
    }

    @Test("The stylesheet is served, and the response to HEAD has no body")
    func stylesheet() async throws {
        let get = try await Relay().send(.get, "/base.css")
        #expect(get.headers[.contentType] == "text/css; charset=utf-8")
        let head = try await Relay().send(.head, "/base.css")
        #expect(head.status == .ok)
        #expect(head.text.isEmpty)
        #expect(head.headers[.contentLength] == String(get.body.readableBytes))
    }

    @Test("The database page says whether the database responds")
    func database() async throws {
        let works = try await Relay(ScriptedStore(ping: {}), settings: development).send(.get, "/test/database.php")
        #expect(works.status == .ok)
        #expect(works.text.contains("Database connection successful!"))
        let broken = ScriptedStore(ping: { () throws(ChatError) in throw .unavailable(cause: "<locked>") })
        let fails = try await Relay(broken, settings: development).send(.get, "/test/database.php")
        #expect(fails.status == .serviceUnavailable)
        #expect(fails.text.contains("Database connection failed"))
        #expect(!fails.text.contains("successful"))
        #expect(!fails.text.contains("locked"))
    }

    @Test("The health check does not query the store")
    func health() async throws {
        let answer = try await Relay().send(.get, "/healthz")
        #expect(answer.status == .ok)
        #expect(answer.text == #"{"healthy":true}"#)
        #expect(answer.headers[.contentType] == "application/json")
    }

    @Test("The readiness check queries the store and the further checks")
    func readiness() async throws {
        let fine = try await Relay(ScriptedStore(ping: {})).send(.get, "/readyz")
        #expect(fine.status == .ok)
        #expect(fine.text == #"{"ready":true,"checks":{"database":"ok"}}"#)

        var relay = Relay(ScriptedStore(ping: {}))
        relay.checks = [ReadinessCheck(name: "dispatcher", problem: "stopped"), ReadinessCheck(name: "x")]
        let stopped = try await relay.send(.get, "/readyz")
        #expect(stopped.status == .serviceUnavailable)
        #expect(stopped.text == #"{"ready":false,"checks":{"database":"ok","dispatcher":"stopped","x":"ok"}}"#)

        #expect(relay.log.lines.contains { $0.hasPrefix("error") && $0.contains("check=dispatcher") })

        let broken = Relay(ScriptedStore(ping: { () throws(ChatError) in throw .unavailable(cause: "locked") }))
        let answer = try await broken.send(.get, "/readyz")
        #expect(answer.status == .serviceUnavailable)
        #expect(!answer.text.contains("locked"))
        #expect(broken.log.lines.contains { $0.hasPrefix("error not ready") && $0.contains("locked") })
    }

    @Test("The log reports once a minute, with a count, that the relay is not ready, and each change at once")
    func readinessLog() async throws {
        let isAway = Mutex(true)
        let clock = TestClock()
        var relay = Relay(
            ScriptedStore(ping: { () throws(ChatError) in
                if isAway.withLock(\.self) { throw .unavailable(cause: "the server is away") }
            }))
        relay.clock = clock
        relay.checks = [ReadinessCheck(name: "disk", problem: "takes no writes")]
        let log = relay.log
        @Sendable func lines() -> [String] {
            log.lines.filter { $0.contains("ready") && $0.contains("check=database") }
        }
        try await relay.requests { send in
            for _ in 0..<100 { #expect(try await send(.get, "/readyz", [:], nil).status == .serviceUnavailable) }
            #expect(lines().count == 1 && lines()[0].hasPrefix("error not ready"))
            #expect(log.lines.filter { $0.contains("check=disk") }.count == 1)
            clock.advance(by: .seconds(60))
            for _ in 0..<10 { _ = try await send(.get, "/readyz", [:], nil) }
            #expect(lines().count == 2 && lines()[1].contains("count=100"))
            isAway.withLock { $0 = false }
            for _ in 0..<10 { _ = try await send(.get, "/readyz", [:], nil) }
            #expect(lines().count == 3 && lines()[2].hasPrefix("notice ready again"))
            isAway.withLock { $0 = true }
            _ = try await send(.get, "/readyz", [:], nil)
            #expect(lines().count == 4 && lines()[3].hasPrefix("error not ready"))
        }
    }

    @Test(
        "Only the administrator's response contains the findings",
        arguments: [(nil, 503, false), ("Bearer geheim", 503, true), ("Bearer other", 401, false)]
            as [(
                String?, Int, Bool
            )])
    func readinessDetails(header: String?, status: Int, isDetailed: Bool) async throws {
        let store = ScriptedStore(ping: { () throws(ChatError) in throw .unavailable(cause: "the file is gone") })
        var relay = Relay(store, settings: ChatHTTPSettings(adminTokens: ["geheim"]))
        relay.checks = [
            ReadinessCheck(name: "disk", problem: "takes no writes", cause: "SQLite error 13"),
            ReadinessCheck(name: "dispatcher"),
        ]
        let answer = try await relay.send(.get, "/readyz", headers: header.map { [.authorization: $0] } ?? [:])
        #expect(answer.status.code == status)
        for cause in ["the file is gone", "SQLite error 13"] { #expect(answer.text.contains(cause) == isDetailed) }
        guard status == 503 else { return }
        let checks = #""checks":{"database":"does not answer","disk":"takes no writes","dispatcher":"ok"}"#
        #expect(answer.text.hasPrefix(#"{"ready":false,"# + checks))
    }
}

/// Knows a key, and throws on any other call.
private struct KeyOnly: SubscriptionReader {
    let publicKey = "BP4z"
    func subscription(_: String) throws(ChatError) -> Subscription { throw ChatError(.internalError, "not asked") }
}

extension String {
    /// The addresses in a page, without those of parts of the page.
    fileprivate var addresses: [String] {
        ["href", "src", "action"].flatMap { components(between: " \($0)=\"", and: "\"") }
            .filter { !$0.isEmpty && !$0.hasPrefix("#") }
    }

    /// The paths of the files and pages to which a page at the root leads.
    fileprivate var linkedPaths: [String] { addresses.map { $0 == "./" ? "/" : "/" + $0 } }

    /// Returns the text between each `start` and the next `end`.
    fileprivate func components(between start: String, and end: String) -> [String] {
        split(separator: start, omittingEmptySubsequences: false).dropFirst().map { piece in
            String(piece[..<(piece.firstRange(of: end)?.lowerBound ?? piece.endIndex)])
        }
    }
}
