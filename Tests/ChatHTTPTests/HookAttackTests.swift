import ChatDomain
import ChatHooks
import Crypto
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

/// Programs that know a webhook's address, or recorded a delivery to it, and want more.
@Suite("Attacks on webhooks", .timeLimit(.minutes(1)))
struct HookAttackTests {
    /// A program that signs.
    struct Sender: Sendable, CustomTestStringConvertible {
        let format: String
        var secret = "kitchen-secret"
        var headers: [String: String] = [:]
        let body: [UInt8]
        /// The header that proves the secret.
        let header: String
        let proof: @Sendable (_ secret: String, _ body: [UInt8], _ time: Timestamp) -> [String: String]

        var testDescription: String { "\(format) \(header)" }

        func fields(_ change: (inout [String: String]) -> Void = { _ in }) throws -> HTTPFields {
            var all = headers.merging(proof(secret, body, Sample.time)) { $1 }
            change(&all)
            return try HTTPFields(all)
        }

        static func hex(_ secret: String, _ body: [UInt8]) -> String {
            Hex.text(Array(HMAC<SHA256>.authenticationCode(for: body, using: SymmetricKey(data: Array(secret.utf8)))))
        }

        static func standard(_ secret: String, _ body: [UInt8], _ time: Timestamp) -> [String: String] {
            let key = SymmetricKey(data: Data(base64Encoded: String(secret.dropFirst("whsec_".count))) ?? Data())
            let signed = Array("one.\(time.seconds).".utf8) + body
            let code = Data(HMAC<SHA256>.authenticationCode(for: signed, using: key)).base64EncodedString()
            return [
                "Webhook-Id": "one", "Webhook-Timestamp": "\(time.seconds)", "Webhook-Signature": "v1,\(code)",
            ]
        }
    }

    private static let standardSecret = "whsec_" + Data("kitchen-secret-kitchen-secret".utf8).base64EncodedString()
    private static let issue = Array(
        (#"{"action":"opened","issue":{"number":4,"title":"Bug","html_url":"https://github.com/o/r/issues/4","#
            + #""user":{"login":"ann"}},"repository":{"full_name":"o/r"},"sender":{"login":"ann"}}"#).utf8)

    static let senders: [Sender] = [
        Sender(
            format: "github", headers: ["X-GitHub-Event": "issues", "X-GitHub-Delivery": "one"], body: issue,
            header: "X-Hub-Signature-256",
            proof: { secret, body, _ in ["X-Hub-Signature-256": "sha256=" + Sender.hex(secret, body)] }),
        Sender(
            format: "gitea", headers: ["X-Gitea-Event": "issues", "X-Gitea-Delivery": "one"], body: issue,
            header: "X-Gitea-Signature", proof: { secret, body, _ in ["X-Gitea-Signature": Sender.hex(secret, body)] }),
        Sender(
            format: "grafana", body: HooksTests.alerts(["nas"]), header: "X-Grafana-Alerting-Signature",
            proof: { secret, body, _ in ["X-Grafana-Alerting-Signature": Sender.hex(secret, body)] }),
        Sender(
            format: "grafana", body: HooksTests.alerts(["nas"]), header: "X-Grafana-Alerting-Signature",
            proof: { secret, body, time in
                let signed = Array("\(time.seconds):".utf8) + body
                return [
                    "X-Grafana-Alerting-Signature": Sender.hex(secret, signed),
                    "X-Grafana-Alerting-Timestamp": "\(time.seconds)",
                ]
            }),
        Sender(
            format: "sentry", headers: ["Sentry-Hook-Resource": "event_alert", "Request-ID": "one"],
            body: Array(
                #"{"action":"triggered","data":{"event":{"title":"TypeError","issue_id":"17","level":"error"}}}"#.utf8),
            header: "Sentry-Hook-Signature",
            proof: { secret, body, _ in ["Sentry-Hook-Signature": Sender.hex(secret, body)] }),
        Sender(
            format: "gitlab",
            body: Array(
                (#"{"object_kind":"issue","project":{"path_with_namespace":"o/r"},"user":{"username":"ann"},"#
                    + #""object_attributes":{"iid":4,"title":"Bug","action":"open"}}"#).utf8),
            header: "X-Gitlab-Token", proof: { secret, _, _ in ["X-Gitlab-Token": secret] }),
        Sender(
            format: "json", secret: standardSecret, body: Array(#"{"text":"hi"}"#.utf8), header: "Webhook-Signature",
            proof: Sender.standard),
    ]

    private struct Target {
        let relay: Relay
        let path: String

        init(_ sender: Sender, settings: ChatHTTPSettings = ChatHTTPSettings(adminTokens: ["geheim"])) throws {
            let grant = try HooksTests.hook(sender.format, secret: sender.secret)
            let token = AccessToken(
                id: 5, name: Nickname(stored: "from afar"), grant: grant, createdAt: Sample.time)
            let real = try RealStore(tokens: ["pct_signed": token])
            var relay = Relay(ScriptedStore(real: real, isReal: true), settings: settings)
            relay.now = real.sqlite.database.now
            self.relay = relay
            path = "/hooks/pct_signed/\(sender.format)"
        }

        var messages: [String] {
            get throws { try HooksTests.messages(relay) }
        }

        func status(_ headers: HTTPFields, _ body: [UInt8], query: String = "") async throws -> Int {
            try await relay.send(.post, path + query, headers: headers, body: body).status.code
        }
    }

    // MARK: - Signatures

    @Test("A forged signature posts nothing, whatever its form", arguments: senders)
    func forged(sender: Sender) async throws {
        let target = try Target(sender)
        let header = sender.header
        let right = try #require(sender.proof(sender.secret, sender.body, Sample.time)[header])
        let prefix = right.hasPrefix("sha256=") ? "sha256=" : right.hasPrefix("v1,") ? "v1," : ""
        let value = String(right.dropFirst(prefix.count))
        let sha1 = Hex.text(
            Array(
                HMAC<Insecure.SHA1>.authenticationCode(
                    for: sender.body, using: SymmetricKey(data: Array(sender.secret.utf8)))))
        for wrong in [
            "", prefix, prefix + value.dropLast(), prefix + value.dropLast(2), prefix + value + "0",
            prefix + value + "00", prefix + String(repeating: "0", count: value.utf8.count), prefix + sha1,
            "sha1=" + sha1, "sha512=" + value, "v1a," + value, "x" + right, right + ", " + right, right + ",",
            "\(right)\u{FF}", prefix + "é",
        ] {
            // Standard Webhooks allow several signatures, between blanks.
            if prefix == "v1,", wrong.split(separator: " ").contains(Substring(right)) { continue }
            #expect(try await target.status(sender.fields { $0[header] = wrong }, sender.body) == 401, "\(wrong)")
        }
        #expect(try await target.status(sender.fields { $0[header] = nil }, sender.body) == 401)
        #expect(try await target.status([:], sender.body) == 401)
        let name = try #require(HTTPField.Name(header))
        for values in [[right, right], [right, "x"], ["x", right], ["", right]] {
            var twice = try sender.fields { $0[header] = nil }
            for value in values { twice.append(HTTPField(name: name, value: value)) }
            if prefix == "v1,", values.last == right { continue }
            #expect(try await target.status(twice, sender.body) == 401, "\(values)")
        }
        let query = "?\(header)=\(right.replacing("+", with: "%2B"))"
        #expect(try await target.status(sender.fields { $0[header] = nil }, sender.body, query: query) == 401)
        if header != "X-Gitlab-Token" {
            #expect(try await target.status(sender.fields(), sender.body + [0x20]) == 401)
            #expect(try await target.status(sender.fields(), []) == 401)
            var forged = sender
            forged.secret = sender.secret == Self.standardSecret ? "whsec_AAAAAAAAAAAA" : "another-secret"
            #expect(try await target.status(forged.fields(), sender.body) == 401)
        }
        #expect(try target.messages == [])
        #expect(try await target.status(sender.fields(), sender.body) == 200)
        #expect(try target.messages.count == 1)
    }

    @Test(
        "A recorded delivery posts nothing again, under its id or another one, or posts what is signed",
        arguments: senders)
    func replayed(sender: Sender) async throws {
        let target = try Target(sender)
        #expect(try await target.status(sender.fields(), sender.body) == 200)
        let messages = try target.messages
        func revisions() throws -> [String] { try target.relay.store.real.query("SELECT revision FROM message_states") }
        let before = try revisions()
        for (header, id) in [
            ("X-GitHub-Delivery", "two"), ("X-Gitea-Delivery", "two"), ("Request-ID", "two"), ("X-Other", "two"),
            ("Content-Type", "text/plain"),
            ("Content-Type", "application/x-www-form-urlencoded"), ("Content-Type", "multipart/form-data; boundary=b"),
        ] {
            let isKnown = sender.headers[header] != nil
            guard isKnown || ["Content-Type", "X-Other"].contains(header) else { continue }
            let query = "?payload=%7B%22text%22%3A%22forged%22%7D&text=forged&data=forged&payload_json=%7B%7D"
            _ = try await target.status(sender.fields { $0[header] = id }, sender.body, query: query)
        }
        let after = try target.messages
        #expect(after.allSatisfy { !$0.contains("forged") }, "\(after)")
        // GitLab sends its secret, so that a recorded delivery is worth as much as the secret.
        if sender.format != "gitlab" { #expect(after == messages) }
        // Grafana does not name its deliveries. A repetition shows the same alerts again.
        if !["gitlab", "grafana"].contains(sender.format) { #expect(try revisions() == before) }
        if sender.proof("s", [], Sample.time).keys.contains(where: { $0.hasSuffix("Timestamp") }) {
            for time in [Sample.time - .seconds(301), Sample.time + .seconds(301)] {
                let headers = try HTTPFields(sender.proof(sender.secret, sender.body, time))
                #expect(try await target.status(headers, sender.body) == 401)
            }
        }
    }

    @Test("A signed delivery does not take its content from the query, which no signature covers", arguments: senders)
    func query(sender: Sender) async throws {
        let target = try Target(sender)
        let forged = String(decoding: sender.body, as: UTF8.self)
            .addingPercentEncoding(withAllowedCharacters: .alphanumerics)
        let query = "?payload=\(try #require(forged))&text=forged&message=forged"
        for body in ["", "payload=x"].map({ Array($0.utf8) }) {
            let headers = sender.headers.merging(sender.proof(sender.secret, body, Sample.time)) { $1 }
            #expect(try await target.status(HTTPFields(headers), body, query: query) == 200)
        }
        let messages = try target.messages
        #expect(!messages.isEmpty && messages.allSatisfy { $0.contains("could not be read") }, "\(messages)")
    }

    @Test("Whoever knows only the address of a signed webhook does not use up its rate")
    func rate() async throws {
        let sender = Self.senders[0]
        let settings = ChatHTTPSettings(memberRate: RateLimit(perSecond: 0.001, burst: 2), adminTokens: ["geheim"])
        let target = try Target(sender, settings: settings)
        try await target.relay.requests { request in
            for _ in 0..<20 {
                #expect(try await request(.post, target.path, [:], sender.body).status == .unauthorized)
            }
            #expect(try await request(.post, target.path, sender.fields(), sender.body).status == .ok)
            // Wrong signatures count as guesses.
            var last = 0
            for _ in 0..<100 { last = try await request(.post, target.path, [:], sender.body).status.code }
            #expect(last == 429)
            #expect(try await request(.post, target.path, sender.fields(), sender.body).status == .ok)
            #expect(try await request(.post, target.path, sender.fields(), sender.body).status.code == 503)
        }
        let lines = target.relay.log.lines.filter { $0.contains("status=401") }
        #expect(
            lines.contains { $0.hasPrefix("notice delivery to a webhook refused") && $0.contains("caller=from afar") })
        #expect(!target.relay.log.lines.contains { $0.contains("admin API") })
    }

    // MARK: - Connections

    /// The head of a delivery over HTTP/1.1.
    private static func head(_ path: String, length: Int, _ headers: HTTPFields) -> String {
        let lines = headers.map { "\($0.name.rawName): \($0.value)\r\n" }.joined()
        return "POST \(path) HTTP/1.1\r\nHost: x\r\nContent-Length: \(length)\r\n\(lines)"
    }

    @Test("Bodies that stop half-way post nothing, do not hold up others, and leave a signed webhook's rate alone")
    func slowBodies() async throws {
        let sender = Self.senders[0]
        let target = try Target(
            sender, settings: ChatHTTPSettings(memberRate: RateLimit(perSecond: 0.001, burst: 1), adminTokens: ["x"]))
        let head = try Self.head(target.path, length: sender.body.count, sender.fields())
        try await target.relay.listening { port in
            /// Holds connections open on which the server waits for the rest of a body.
            func stalled(_ count: Int) async throws {
                try await RawConnection.open(port: port) { connection in
                    if count > 0 {
                        try await connection.write(head + "Expect: 100-continue\r\n\r\n")
                        #expect(try await connection.answer().status == 100)
                        try await connection.write(Array(sender.body.prefix(20)))
                        try await stalled(count - 1)
                    } else {
                        try await connection.write(Array("\(head)\r\n".utf8) + sender.body)
                        #expect(try await connection.answer().status == 200)
                    }
                }
            }
            try await stalled(5)
        }
        #expect(try target.messages.count == 1)
        #expect(target.relay.log.lines.allSatisfy { !$0.contains("pct_") })
    }

    @Test(
        "A preface of HTTP/2 is refused, and nothing behind an upgrade to it is read",
        arguments: ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "h2c"])
    func http2(start: String) async throws {
        let relay = try HooksTests.relay()
        @Sendable func delivery(_ text: String, _ headers: HTTPFields = [:]) -> String {
            let body = #"{"text":"\#(text)"}"#
            return "\(Self.head("/hooks/pct_json/json", length: body.utf8.count, headers))\r\n\(body)"
        }
        let upgrade: HTTPFields = [.connection: "Upgrade, HTTP2-Settings", .upgrade: "h2c"]
        let first = start == "h2c" ? delivery("first", upgrade) : start
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(first + delivery("smuggled"))
                let answer = try await connection.answer()
                #expect(answer.status == (start == "h2c" ? 200 : 400) && answer.headers["upgrade"] == nil)
                try await connection.closed()
            }
        }
        #expect(try HooksTests.messages(relay).allSatisfy { $0 != "smuggled" })
        #expect(relay.log.lines.allSatisfy { !$0.contains("pct_") })
    }

    // MARK: - Settings

    @Test(
        "Settings that another program has broken accept nothing, and say so only in the log",
        arguments: [
            #"{"format":"json","secret":5}"#, #"{"format":"json","secret":null}"#, #"{"format":"json","secret":""}"#,
            #"{"format":"json","secret":"short"}"#, #"{"format":"slack","secret":"kitchen-secret"}"#,
            #"{"format":"json","template":5}"#, #"{"format":"json","template":{}}"#,
            #"{"format":"json","template":{"text":"{a"}}"#, #"{"format":"github","template":{"text":"a"}}"#,
            #"{"format":"json","template":{"text":"\#(String(repeating: "{a}", count: 33))"}}"#,
            #"{"format":"json","template":{"text":"\#(String(repeating: "a", count: 5000))"}}"#,
            #"{"format":"json","template":{"text":"{\#(String(repeating: "a.", count: 40))a}"}}"#,
            #"{"format":"json","template":\#(String(repeating: "[", count: 30))\#(String(repeating: "]", count: 30))}"#,
        ])
    func settings(stored: String) async throws {
        let relay = try HooksTests.relay()
        try relay.store.real.query("UPDATE api_tokens SET hook = ? WHERE name = 'from json'", [stored])
        let format = stored.contains("slack") ? "slack" : stored.contains("github") ? "github" : "json"
        for body in [#"{"text":"hi"}"#, ""] {
            let answer = try await relay.send(
                .post, "/hooks/pct_json/\(format)", headers: [.contentType: "application/json"], body: Array(body.utf8))
            #expect(answer.status == .internalServerError)
            #expect(!answer.text.contains("template") && !answer.text.contains("kitchen"))
        }
        #expect(try HooksTests.messages(relay) == [])
        #expect(relay.log.lines.contains { $0.hasPrefix("error request failed") })
        #expect(relay.log.lines.allSatisfy { !$0.contains("pct_") && !$0.contains("kitchen-secret") })
    }

    @Test("A template's message is bounded, whatever the body")
    func explosion() async throws {
        let relay = try HooksTests.relay()
        let template = #"{"text":"\#(String(repeating: "{a}", count: 32))","title":"t"}"#
        let grant = try HooksTests.hook("json", template: template)
        try relay.store.real.query("UPDATE api_tokens SET hook = ? WHERE name = 'from json'", [grant.hook?.stored])
        let large = String(repeating: "ä", count: 500_000)
        for value in ["\"\(large)\"", "[\"\(large)\"]", "[" + String(repeating: "1,", count: 400_000) + "1]"] {
            let answer = try await relay.send(
                .post, "/hooks/pct_json/json", headers: [.contentType: "application/json"],
                body: Array(#"{"a":\#(value)}"#.utf8))
            #expect(answer.status == .ok)
        }
        let sizes = try relay.store.real.query("SELECT max(length(CAST(text AS BLOB))) FROM messages")
        #expect(try #require(Int(sizes[0])) <= MessageText.highestLimit)
        for field in [
            #"{"text":"{a"}"#, #"{"text":"\#(String(repeating: "{a}", count: 33))"}"#, #"{"text":5}"#,
            #"{"text":"\#(String(repeating: "x", count: 5000))"}"#, #"{"text":"a","loop":[]}"#,
        ] {
            let answer = try await relay.send(
                .post, "/v1/hooks:try", headers: [.authorization: "Bearer geheim", .contentType: "application/json"],
                body: Array(#"{"format":"json","template":\#(field),"body":"{}"}"#.utf8))
            #expect(answer.status == .badRequest && answer.text.contains(#""field":"template"#), "\(answer.text)")
        }
    }

    // MARK: - Secrets

    @Test("At every status, nothing that people or programs read has the token or the address")
    func secrecy() async throws {
        let relay = try HooksTests.relay(
            ChatHTTPSettings(memberRate: RateLimit(perSecond: 0.001, burst: 9), adminTokens: ["geheim"]))
        let real = relay.store.real
        let admin: HTTPFields = [.authorization: "Bearer geheim"]
        let seen = try await relay.requests { request -> (codes: Set<Int>, texts: [String]) in
            var (codes, texts): (Set<Int>, [String]) = ([], [])
            func deliver(
                _ method: HTTPRequest.Method, _ format: String, _ body: [UInt8], path: String? = nil,
                headers: HTTPFields = [.contentType: "application/json"]
            ) async throws {
                for accept in ["application/json", "text/html"] {
                    var headers = headers
                    headers[.accept] = accept
                    let answer = try await request(method, path ?? "/hooks/pct_\(format)/\(format)", headers, body)
                    codes.insert(answer.status.code)
                    texts.append("\(answer.headers) \(answer.text)")
                }
            }
            let text = Array(#"{"text":"hi","content":"hi"}"#.utf8)
            for format in ["sentry", "discord", "text"] {
                try await deliver(.post, format, [UInt8](repeating: 0x61, count: 1 << 20 + 1))
                try await deliver(.post, format, [1, 2], headers: [.contentEncoding: "gzip"])
                try await deliver(.post, format, text, headers: [.contentEncoding: "zstd"])
                try await deliver(.post, format, text, headers: [.contentType: "multipart/form-data"])
            }
            for format in HookFormats.all.map({ $0.name }) {
                try await deliver(.post, format, text)
                try await deliver(.post, format, Array("{".utf8))
                try await deliver(.post, format, text)
                try await deliver(.delete, format, text)
                try await deliver(.get, format, [])
                try await deliver(.post, format, text, path: "/hooks/pct_\(format)/telegram")
                try await deliver(.post, format, text, path: "/hooks/pct_\(format)/\(format)/more")
                try await deliver(.post, format, text, path: "/hooks/pct_\(format)/\(format)?pct_query=pct_query")
            }
            try await deliver(.post, "signed", text, path: "/hooks/pct_signed/github")
            try real.query("ALTER TABLE messages RENAME TO lost")
            for format in HookFormats.all.map({ $0.name }) { try await deliver(.post, format, text) }
            try real.query("ALTER TABLE lost RENAME TO messages")
            try real.query("ALTER TABLE api_tokens RENAME TO lost")
            for format in HookFormats.all.map({ $0.name }) { try await deliver(.post, format, text) }
            try real.query("ALTER TABLE lost RENAME TO api_tokens")
            for path in [
                "/metrics", "/v1/tokens", "/v1/hooks", "/v1/moderation", "/v1/stats", "/v1/messages?room=ops&text=true",
                "/v1/rooms", "/v1/devices", "/readyz",
            ] {
                let answer = try await request(.get, path, admin, nil)
                #expect(answer.status == .ok, "\(path)")
                texts.append(answer.text)
            }
            return (codes, texts)
        }
        #expect(
            seen.codes.isSuperset(of: [200, 204, 401, 404, 405, 413, 415, 429, 500, 503]), "\(seen.codes.sorted())")
        for text in seen.texts + relay.log.lines {
            #expect(!text.contains("pct_") && !text.contains("/hooks/p"), "\(text.prefix(300))")
        }
        let stored = try real.query("SELECT * FROM messages").joined() + real.query("SELECT * FROM moderation").joined()
        #expect(!stored.contains("pct_"))
    }
}

extension HTTPFields {
    fileprivate init(_ headers: [String: String]) throws {
        self.init()
        for (name, value) in headers { self[try #require(HTTPField.Name(name))] = value }
    }
}
