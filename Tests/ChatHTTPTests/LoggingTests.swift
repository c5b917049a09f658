import ChatDomain
import HTTPTypes
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Logging")
struct LoggingTests {
    private static let join =
        "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)&name=Annabel&code=hush-hush&app_version=v7.8&os_version=iOS+18&device_model=iPhone17"

    @Test(
        "Each accepted command logs one line at info, with the request's id and only the beginning of a udid")
    func info() async throws {
        let relay = Relay(
            ScriptedStore(join: { false }, leave: { true }, update: {}, post: Sample.receipt))
        for form in [
            Self.join, "cmd=update&udid=\(Sample.udid)&token=\(Sample.token)", Sample.message, Sample.leave,
        ] {
            #expect(try await relay.form(form).status == .ok)
        }
        let info = relay.log.lines.filter { $0.hasPrefix("info") }
        #expect(info.count == 4)
        #expect(info.allSatisfy { $0.contains("request_id=") })
        #expect(info[0].contains("info member joined"))
        #expect(info[0].contains("app=default member=6a45eb0b… "))
        #expect(info[0].contains("token=740f4707…"))
        #expect(info[1].contains("info token updated"))
        #expect(info[2].contains("info message accepted message_id=7 queued=2 repeat=false request_id="))
        #expect(info[3].contains("info member left"))
    }

    @Test("No nickname, code, text, token or udid is logged in full, at any level", arguments: [true, false])
    func secrets(works: Bool) async throws {
        let failure = ChatError.unavailable(cause: "disk full")
        let relay = Relay(
            works
                ? ScriptedStore(join: { false }, post: Sample.receipt)
                : ScriptedStore(
                    join: { () throws(ChatError) in throw failure }, post: { () throws(ChatError) in throw failure }))
        _ = try await relay.form(Self.join)
        _ = try await relay.form(Sample.message)
        _ = try await relay.form("cmd=message&udid=\(Sample.udid)&text=Hello\(String(repeating: "o", count: 300))")
        _ = try await relay.form("cmd=join&udid=\(Sample.udid)&token=\(Sample.token)&name=Annabel&code=hush-hush%01")
        let log = relay.log.lines.joined(separator: "\n")
        #expect(log.count > 100)
        for secret in [Sample.udid, Sample.token, "Annabel", "hush", "Hello", "v7.8", "iOS", "iPhone"] {
            #expect(!log.contains(secret), "\(secret)")
        }
        if !works { #expect(log.contains("error request failed")) }
    }

    @Test(
        "A line about a request has the route's pattern, and never a full token from its address",
        arguments: [
            ("/v1/devices/@", "route=/v1/devices/{token}"), ("/v1/devices/@/x", "route=NotFound"),
            ("/@", "route=NotFound"),
            ("/v1/notifications/@", "route=/v1/notifications/{id}"),
        ])
    func route(path: String, expected: String) async throws {
        let failing = AdminResponses(device: { () throws(ChatError) in throw .unavailable(cause: "disk full") })
        for token in ["geheim", nil] {
            let relay = Relay(ScriptedStore(admin: failing), settings: ChatHTTPSettings(adminTokens: ["geheim"]))
            let headers: HTTPFields = token.map { [.authorization: "Bearer \($0)"] } ?? [:]
            let answer = try await relay.send(
                .get, path.replacing("@", with: Sample.token), headers: headers)
            #expect(answer.status.code >= 400)
            #expect(relay.log.lines.contains { $0.contains(expected) })
            #expect(!relay.log.lines.contains { $0.contains(Sample.token) })
        }
    }

    @Test("Unavailability is logged once for many requests, with their number; another reason is logged separately")
    func unavailable() async throws {
        let clock = TestClock()
        let refusals = RepeatedRejections(clock: MonotonicTime(clock))
        #expect(refusals.count("streams") == 1)
        for _ in 0..<1000 { #expect(refusals.count("streams") == nil) }
        #expect(refusals.count("disk") == 1)
        clock.advance(by: HTTPLimits.rejectionReports)
        #expect(refusals.count("streams") == 1001)
        #expect(refusals.count("streams") == nil)
        #expect(refusals.end("streams") && !refusals.end("streams"))
        #expect(refusals.count("streams") == 1)

        let full = ScriptedStore(leave: { () throws(ChatError) in throw .unavailable(cause: "disk full") })
        let relay = Relay(full)
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for _ in 0..<3 {
                    try await connection.write(post(Sample.leave))
                    #expect(try await connection.answer().status == 503)
                }
            }
        }
        #expect(relay.log.lines.filter { $0.hasPrefix("error request failed") }.count == 1)
    }

    @Test("A refused request is logged once, at debug")
    func refused() async throws {
        let relay = Relay()
        _ = try await relay.form("cmd=leave")
        let about = relay.log.lines.filter { $0.contains("Missing udid") }
        #expect(about.count == 1)
        #expect(about.allSatisfy { $0.hasPrefix("debug request refused") })
    }
}
