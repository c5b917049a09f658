import ChatDomain
import HTTPTypes
import NIOSSL
import Testing

@testable import ChatHTTP

@Suite("Metrics")
struct MetricsTests {
    /// Returns a relay that accepts posts and whose metrics can be read.
    private static func relay(_ settings: ChatHTTPSettings = ChatHTTPSettings(), isReadable: Bool = true) -> Relay {
        var answers = AdminResponses(depths: { [] }, totals: { StoreTotals() }, usage: { [] }, outcomes: [])
        if !isReadable { answers.depths = { () throws(ChatError) in throw .unavailable(cause: "gone") } }
        var settings = settings
        settings.adminTokens = ["t"]
        var relay = Relay(ScriptedStore(post: Sample.receipt, admin: answers), settings: settings)
        relay.checks = [ReadinessCheck(name: "disk", problem: "takes no writes"), ReadinessCheck(name: "dispatcher")]
        return relay
    }

    private static let form: HTTPFields = [.contentType: "application/x-www-form-urlencoded"]
    private static let token: HTTPFields = [.authorization: "Bearer t"]

    /// Sends some requests, then reads the metrics of the same server.
    private static func metrics(
        _ relay: Relay, after requests: [(HTTPRequest.Method, String, HTTPFields, String?)] = []
    ) async throws -> [String] {
        try await relay.requests { send in
            for (method, path, headers, body) in requests {
                _ = try await send(method, path, headers, body.map { Array($0.utf8) })
            }
            let answer = try await send(.get, "/metrics", token, nil)
            #expect(answer.status == .ok)
            return answer.text.split(separator: "\n").map(String.init)
        }
    }

    @Test("Requests are counted by route pattern, method and status; no value from an address appears")
    func requests() async throws {
        let lines = try await Self.metrics(
            Self.relay(),
            after: [
                (.post, "/api.php", Self.form, Sample.message), (.post, "/api.php", Self.form, Sample.message),
                (.post, "/api.php", Self.form, "cmd=message&udid=\(Sample.udid)"),
                (.get, "/v1/devices/\(Sample.token)", [:], nil), (.get, "/\(Sample.token)", [:], nil),
                (.options, "/healthz", [:], nil), (.head, "/healthz", [:], nil),
            ])
        for line in [
            #"{route="/api.php",method="POST",status="200"} 2"#, #"{route="/api.php",method="POST",status="400"} 1"#,
            #"{route="/v1/devices/{token}",method="GET",status="401"} 1"#,
            #"{route="NotFound",method="GET",status="404"} 1"#, #"{route="/healthz",method="other",status="405"} 1"#,
            #"{route="/healthz",method="HEAD",status="200"} 1"#,
        ] {
            #expect(lines.contains("pushchat_http_requests_total" + line), "\(line)")
        }
        #expect(!lines.contains { $0.contains(Sample.token) || $0.contains(Sample.udid) })
        // Two messages were accepted.
        #expect(lines.contains("pushchat_post_duration_seconds_count 2"))
        #expect(lines.contains(#"pushchat_post_duration_seconds_bucket{le="+Inf"} 2"#))
        #expect(lines.contains { $0.hasPrefix(#"pushchat_post_duration_seconds_bucket{le="30"}"#) })
    }

    @Test("A push that no app receives counts as the client's error, in the metrics and in the log")
    func orphans() async throws {
        let relay = Self.relay(
            ChatHTTPSettings(ntfy: NtfySettings(baseURL: "https://chat.example.org", unifiedPush: true)))
        let push = (HTTPRequest.Method.post, "/ntfy/upABCDabcd0123?up=1", [:] as HTTPFields, "x" as String?)
        let lines = try await Self.metrics(relay, after: [push, push])
            .filter { $0.hasPrefix("pushchat_http_requests_total{") && $0.contains("ntfy") }
        #expect(lines.count == 1 && lines[0].contains(#"status="404""#) && lines[0].hasSuffix(" 2"), "\(lines)")
        #expect(relay.log.lines.filter { $0.contains("507") }.allSatisfy { $0.hasPrefix("debug ") })
    }

    @Test("The build, the readiness and each limit have metrics from the start")
    func state() async throws {
        let lines = try await Self.metrics(Self.relay())
        for line in [
            #"pushchat_build_info{version="1.2.3",commit="abc1234"} 1"#, #"pushchat_ready{check="database"} 1"#,
            #"pushchat_ready{check="disk"} 0"#, #"pushchat_ready{check="dispatcher"} 1"#, "pushchat_event_streams 0",
            #"pushchat_gateway_credentials{app="default",gateway="http2"} 0"#, "pushchat_write_failures_total 0",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        for limit in Limit.allCases.map(\.rawValue) + ["waiting_writes"] {
            #expect(lines.contains(#"pushchat_limit_hits_total{limit="\#(limit)"} 0"#))
        }
        #expect(lines.contains { $0.hasPrefix("process_resident_memory_bytes ") && !$0.hasSuffix(" 0") })
    }

    @Test("A metric gives the lifetime of the presented server certificate; without one it is absent")
    func certificate() async throws {
        let name = "pushchat_http_certificate_expiry_seconds "
        let plain = try await Self.metrics(Self.relay())
        #expect(plain.contains("# TYPE \(name)gauge") && !plain.contains { $0.hasPrefix(name) })

        let files = try TestCertificate()
        let certificate = try ServerCertificate(certificate: files.certificate, key: files.key)
        var relay = Self.relay()
        relay.certificate = certificate
        func line() throws -> String {
            let end = try NIOSSLCertificate.fromPEMFile(files.certificate)[0].notValidAfter
            return name + "\(Double(Int64(end) - Sample.time.seconds))"
        }
        let first = try line()
        #expect(try await Self.metrics(relay).contains(first))
        try files.renew(validFor: 90 * 86_400)
        #expect(try await Self.metrics(relay).contains(first))
        try certificate.reload()
        #expect(try await Self.metrics(relay).contains(try line()))
        #expect(try line() != first)
    }

    @Test("Each limit that is hit is counted by name")
    func limits() async throws {
        let rate = try #require(RateLimit(perSecond: 0.001, burst: 1))
        let relay = Self.relay(ChatHTTPSettings(addressRate: nil, memberRate: rate))
        let many = String(repeating: "x", count: HTTPLimits.body + 1)
        let lines = try await Self.metrics(
            relay,
            after: [
                (.post, "/api.php", Self.form, Sample.message), (.post, "/api.php", Self.form, Sample.message),
                (.post, "/api.php", Self.form, many),
            ])
        for (limit, count) in [("rate_per_member", 1), ("body", 1), ("streams", 0)] {
            #expect(lines.contains(#"pushchat_limit_hits_total{limit="\#(limit)"} \#(count)"#), "\(limit)")
        }
    }

    @Test("While the database cannot be read, the other metrics are served, and one reports it")
    func unreadable() async throws {
        let lines = try await Self.metrics(Self.relay(isReadable: false))
        #expect(lines.contains(#"pushchat_ready{check="database"} 0"#))
        #expect(lines.contains("pushchat_event_streams 0"))
        #expect(!lines.contains { $0.contains("pushchat_members") })
    }

    @Test("Metrics show the dispatchers' counts by app and gateway")
    func gateways() async throws {
        let seconds = Histogram([0.5, 1])
        seconds.record(0.7, count: 3)
        var relay = Self.relay()
        relay.apps = [
            AppStatus(
                app: .default, gateway: "http2", address: "a:1", topic: nil, connections: 1,
                dispatch: DispatchMetrics(
                    answers: [.init(kind: "not_authorized", reason: "InvalidProviderToken", count: 2)],
                    roundTrips: seconds.snapshot, waits: seconds.snapshot, acceptances: seconds.snapshot,
                    areCredentialsRefused: true))
        ]
        let lines = try await Self.metrics(relay)
        let labels = #"app="default",gateway="http2""#
        for line in [
            #"pushchat_gateway_answers_total{\#(labels),answer="not_authorized",reason="InvalidProviderToken"} 2"#,
            "pushchat_gateway_credentials_refused{\(labels)} 1", "pushchat_gateway_credentials{\(labels)} 1",
            #"pushchat_gateway_round_trip_seconds_bucket{\#(labels),le="0.5"} 0"#,
            #"pushchat_gateway_round_trip_seconds_bucket{\#(labels),le="1"} 3"#,
            #"pushchat_queue_age_seconds_bucket{\#(labels),le="+Inf"} 3"#,
            "pushchat_push_acceptance_seconds_count{\(labels)} 3",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    @Test("Metrics and statistics show the browsers' push services that do not get all pushes at once")
    func pushServices() async throws {
        var relay = Self.relay()
        relay.apps = [
            AppStatus(
                app: .web, gateway: "webpush", address: nil, topic: nil,
                restrictedServices: [
                    PushServiceStatus(origin: "https://a.example", condition: .paused(until: Sample.time)),
                    PushServiceStatus(origin: "https://b.example", condition: .slowed(perMinute: 900)),
                ])
        ]
        let lines = try await Self.metrics(relay)
        for state in ["paused", "slowed"] {
            let line = #"pushchat_push_services{app="webpush",gateway="webpush",state="\#(state)"} 1"#
            #expect(lines.contains(line), "\(state)")
        }
        let stats = try await relay.requests { try await $0(.get, "/v1/stats", Self.token, nil).text }
        let apps = try JSONValue(parsing: stats).object?["apps"]?.array
        let services = try #require(apps?.first?.object?["push_services"]?.array).compactMap(\.object)
        #expect(services.map { $0["state"]?.text } == ["paused", "slowed"])
        #expect(services[0]["until"]?.text == Sample.time.rfc3339 && services[1]["per_minute"]?.integer == 900)
    }

    @Test(
        "The log lines of a request have its traceparent besides its id; a malformed one is ignored",
        arguments: [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what-comes", nil),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", nil),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", nil),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", nil),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", nil),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", nil),
            ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-010", nil),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", nil), ("", nil), ("x", nil),
            ("00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-0", nil),
        ] as [(String, String?)])
    func trace(given: String, expected: String?) async throws {
        let relay = Self.relay()
        var headers = Self.form
        headers[.traceParent] = given
        headers[.requestID] = "my-request"
        _ = try await relay.send(headers: headers, body: Array(Sample.message.utf8))
        let line = try #require(relay.log.lines.first { $0.hasPrefix("info message accepted") })
        #expect(line.contains("request_id=my-request"))
        #expect(line.contains("trace_id=\(expected ?? "")") == (expected != nil), "\(line)")
    }

    @Test("If a request has two traceparents, neither counts; refusals also have the trace")
    func traces() async throws {
        let relay = Self.relay()
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        var headers = Self.form
        headers[.traceParent] = parent
        _ = try await relay.send(headers: headers, body: Array("cmd=leave".utf8))
        headers.append(HTTPField(name: .traceParent, value: parent))
        _ = try await relay.send(headers: headers, body: Array(Sample.message.utf8))
        let lines = relay.log.lines.filter { $0.contains("trace_id") }
        #expect(lines.count == 1 && lines[0].hasPrefix("debug request refused"))
    }
}
