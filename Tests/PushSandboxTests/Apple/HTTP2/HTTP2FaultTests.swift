import Foundation
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests each fault as the client sees it.
@Suite("HTTP/2: faults", .serialized, .timeLimit(.minutes(10)))
struct HTTP2FaultTests {
    private func answers(_ sandbox: TestSandbox) -> [String] {
        sandbox.state.withLock { $0.inbox.page().entries.map(\.answer.name) }
    }

    /// Returns a connection that may open many streams.
    private func ready(_ sandbox: TestSandbox) async throws -> HTTP2Client {
        let client = try await sandbox.provider(certificate: .client)
        #expect(try await client.isAlive())
        return client
    }

    @Test(
        "A fault can give any status and reason",
        arguments: [
            (
                #""reason":"Unregistered","timestamp":1469818512000"#, 410,
                #"{"reason":"Unregistered","timestamp":1469818512000}"#
            ),
            (#""reason":"TooManyRequests""#, 429, #"{"reason":"TooManyRequests"}"#),
            (#""status":418,"reason":"Out of tea""#, 418, #"{"reason":"Out of tea"}"#),
            (#""status":400,"reason":"ServiceUnavailable""#, 400, #"{"reason":"ServiceUnavailable"}"#),
            (#""status":503"#, 503, ""), (#""status":503,"delay_ms":20"#, 503, ""),
        ])
    func status(fields: String, status: Int, body: String) async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"status",\#(fields),"after":1,"times":2"#)
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            for _ in 0..<2 {
                let response = try await client.push()
                #expect(response.status == status)
                #expect(response.body == body)
                #expect(response.isBare == body.isEmpty)
            }
            #expect(try await client.push().status == 200)
            let names = answers(sandbox)
            #expect(
                names[1]
                    == (body.isEmpty ? "Status503" : ProviderRefusal(status: status, body: Array(body.utf8)).reason))
        }
    }

    @Test("A 410 without a timestamp gets the present time")
    func timestamp() async throws {
        let now = Date()
        try await TestSandbox.with {
            $0.now = { now }
        } _: { sandbox in
            try await sandbox.fault(#""action":"status","reason":"ExpiredToken""#)
            let response = try await sandbox.provider().push()
            #expect(response.body == #"{"reason":"ExpiredToken","timestamp":\#(SandboxRules.milliseconds(now))}"#)
        }
    }

    @Test("A fault affects only its token and its protocol")
    func matching() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"status","reason":"BadTopic","token":"CDCD""#)
            let binary = #"{"protocol":"binary","action":"status","status":8}"#
            #expect(try await sandbox.control(.post, "/faults", json: binary).status == 201)
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            #expect(try await client.push("cdcd").status == 400)
            #expect(try await client.push("cdcd").status == 200)
            let gateway = try await sandbox.gateway()
            try await gateway.send(.good(1))
            #expect(try await gateway.end().bytes == [8, 8, 0, 0, 0, 1])
        }
    }

    @Test("A dropped notification gets no response, its stream stays open, and others continue")
    func drop() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"drop""#)
            let client = try await ready(sandbox)
            let streams = try await client.send(2, client.headers())
            #expect(try await client.response(to: streams[1]).status == 200)
            #expect(try await client.isAlive())
            #expect(try await client.unanswered() == 1)
            #expect(answers(sandbox) == ["dropped", "accepted"])
        }
    }

    @Test("A connection that stops reading responds to nothing, not even PING, until its time is over")
    func stopReading() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"stop_reading","delay_ms":300"#)
            let client = try await ready(sandbox)
            let streams = try await client.send(3, client.headers())
            for stream in streams { #expect(try await client.response(to: stream).status == 200) }
            #expect(try await client.isAlive())

            try await sandbox.fault(#""action":"stop_reading""#)
            _ = try await client.send(3, client.headers())
            try await eventually { answers(sandbox).count == 4 }
            #expect(try await !client.isAlive(within: 200))
            #expect(try await client.unanswered() == 3)
            #expect(answers(sandbox).count == 4)
            await client.close()
        }
    }

    @Test("GOAWAY leaves the notification unprocessed, and the connection closes after the earlier ones")
    func goAway() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"goaway","reason":"Shutdown","after":2"#)
            let client = try await ready(sandbox)
            let streams = try await client.send(5, client.headers())
            for stream in streams.prefix(2) { #expect(try await client.response(to: stream).status == 200) }
            for stream in streams.suffix(3) {
                await #expect(throws: HTTP2Client.ConnectionEnded.self) { try await client.response(to: stream) }
            }
            let ending = try await client.end()
            #expect(ending.goAways == [.init(lastStream: 3, code: 0, text: #"{"reason":"Shutdown"}"#)])
            #expect(ending.isClean)
            #expect(answers(sandbox) == ["accepted", "accepted", "unprocessed"])
        }
    }

    @Test("GOAWAY with a later last stream, without a reason or with a code lets that stream finish")
    func goAwayLater() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"goaway","last_stream":3,"code":2"#)
            let client = try await ready(sandbox)
            let streams = try await client.send(3, client.headers())
            for stream in streams.prefix(2) { #expect(try await client.response(to: stream).status == 200) }
            await #expect(throws: HTTP2Client.ConnectionEnded.self) { try await client.response(to: streams[2]) }
            #expect(try await client.end().goAways == [.init(lastStream: 3, code: 2, text: "")])
            #expect(answers(sandbox) == ["accepted", "accepted"])
        }
    }

    @Test("After GOAWAY an older stream gets its response, and a later one is not processed")
    func afterGoAway() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"goaway","last_stream":3"#)
            let client = try await ready(sandbox)
            let older = try await client.send(client.headers(), body: "{", ends: false)
            #expect(try await client.push().status == 200)
            #expect(try await client.goAways().map(\.lastStream) == [3])
            let later = try await client.send(client.headers(), body: "{}")
            #expect(try await client.isAlive())
            #expect(answers(sandbox) == ["accepted"])
            try await client.finish(older, body: "}")
            #expect(try await client.response(to: older).status == 200)
            #expect(try await client.end().isClean)
            await #expect(throws: HTTP2Client.ConnectionEnded.self) { try await client.response(to: later) }
        }
    }

    @Test("The stream limit falls for the given time, and is restored")
    func streamLimit() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"stream_limit","limit":2"#)
            try await sandbox.fault(#""action":"stream_limit","limit":3,"delay_ms":50"#)
            let client = try await ready(sandbox)
            #expect(try await client.push().status == 200)
            #expect(try await client.isAlive())
            var streams: [Int] = []
            for _ in 0..<3 { streams.append(try await client.send(client.headers(), body: "{", ends: false)) }
            await #expect(throws: HTTP2Client.StreamReset(code: 7)) { try await client.response(to: streams[2]) }
            try await client.finish(streams[0], body: "}")
            try await eventually { try await client.limits() == [1000, 2, 3, 1000] }
        }
    }

    @Test(
        "A stream is reset with the code, and its notification not processed",
        arguments: [
            (#""action":"refuse_stream""#, 7), (#""action":"reset_stream""#, 2),
            (#""action":"reset_stream","code":11"#, 11),
        ] as [(String, UInt32)])
    func resetStream(fields: String, code: UInt32) async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(fields)
            let client = try await ready(sandbox)
            await #expect(throws: HTTP2Client.StreamReset(code: code)) { try await client.push() }
            #expect(try await client.push().status == 200)
            #expect(answers(sandbox) == ["unprocessed", "accepted"])
        }
    }

    @Test(
        "The connection ends at the notification, which is unprocessed or accepted without a response",
        arguments: [("close", "closed", true), ("reset", "reset", false), ("close_accepted", "accepted", true)])
    func endings(action: String, answer: String, isClean: Bool) async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"\#(action)","after":1"#)
            let client = try await ready(sandbox)
            #expect(try await client.push().status == 200)
            let streams = try await client.send(3, client.headers())
            for stream in streams {
                await #expect(throws: HTTP2Client.ConnectionEnded.self) { try await client.response(to: stream) }
            }
            let ending = try await client.end()
            #expect(ending.isClean == isClean)
            #expect(ending.goAways.isEmpty)
            #expect(answers(sandbox) == ["accepted", answer])
        }
    }

    @Test("The provider token counts as expired until another arrives")
    func expireToken() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"expire_token","after":1"#)
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            for _ in 0..<3 { #expect(try await client.push().reason == "ExpiredProviderToken") }
            let renewed = client.with(authorization: try sandbox.authorization(age: 60))
            #expect(try await renewed.push().status == 200)
            #expect(try await renewed.push().status == 200)
        }
    }

    @Test("Faults are listed as they were created")
    func shown() async throws {
        try await TestSandbox.with { sandbox in
            try await sandbox.fault(#""action":"status","reason":"Unregistered","timestamp":5"#)
            try await sandbox.fault(#""action":"goaway","reason":"IdleTimeout","last_stream":7,"code":1"#)
            try await sandbox.fault(#""action":"stream_limit","limit":3,"delay_ms":9"#)
            try await sandbox.fault(#""action":"refuse_stream","times":2,"after":4,"token":"ab""#)
            let common = #""hit":0,"#
            #expect(
                try await sandbox.control(.get, "/faults").body == #"{"faults":["#
                    + #"{"action":"status","after":0,"delay_ms":0,\#(common)"id":1,"passed":0,"protocol":"http2","#
                    + #""reason":"Unregistered","status":410,"times":1,"timestamp":5},"#
                    + #"{"action":"goaway","after":0,"code":1,\#(common)"id":2,"last_stream":7,"passed":0,"#
                    + #""protocol":"http2","reason":"IdleTimeout","times":1},"#
                    + #"{"action":"stream_limit","after":0,"delay_ms":9,\#(common)"id":3,"limit":3,"passed":0,"#
                    + #""protocol":"http2","times":1},"#
                    + #"{"action":"reset_stream","after":4,"code":7,\#(common)"id":4,"passed":0,"#
                    + #""protocol":"http2","times":2,"token":"ab"}]}"#)
        }
    }

    @Test(
        "The error names a bad field and its rule",
        arguments: [
            (#""action":"explode""#, "action"), (#""action":"status""#, "status"),
            (#""action":"status","reason":"Novel""#, "status"), (#""action":"status","status":200"#, "status"),
            (#""action":"status","status":600"#, "status"), (#""action":"status","reason":"a\"b""#, "reason"),
            (#""action":"status","reason":"""#, "reason"),
            (#""action":"status","status":400,"timestamp":1"#, "timestamp"),
            (#""action":"status","status":400,"identifier":1"#, "identifier"),
            (#""action":"goaway","last_stream":4"#, "last_stream"), (#""action":"goaway","status":400"#, "status"),
            (#""action":"close","reason":"x""#, "reason"), (#""action":"stream_limit","limit":-1"#, "limit"),
            (#""action":"reset_stream","code":-1"#, "code"), (#""action":"delay""#, "delay_ms"),
            (#""action":"expire_token","delay_ms":1"#, "delay_ms"),
        ])
    func badFields(fields: String, field: String) async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await sandbox.control(.post, "/faults", json: #"{"protocol":"http2",\#(fields)}"#)
            #expect(answer.status == 400)
            let text = try #require(try answer.object()["error"] as? String)
            #expect(text.hasPrefix(field + ":"), "\(text)")
            let binary = try await sandbox.control(
                .post, "/faults", json: #"{"protocol":"binary","action":"goaway"}"#)
            #expect(binary.status == 400)
        }
    }
}
