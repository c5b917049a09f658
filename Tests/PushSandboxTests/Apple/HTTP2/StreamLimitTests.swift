import PushWire
import Testing

@testable import PushSandbox

@Suite("HTTP/2: stream limits", .serialized, .timeLimit(.minutes(10)))
struct StreamLimitTests {
    @Test(
        "With a provider token one stream is allowed until the first good token, and the limit binds when acknowledged")
    func token() {
        var limit = StreamLimit(full: 500, lowers: false, isAuthenticated: false)
        #expect(limit.announced == 1)
        #expect(limit.enforced == StreamLimit.initialLimit)
        #expect(limit.acknowledge() == nil)
        #expect(limit.enforced == 1)
        #expect(limit.decided(isAuthenticated: false, outcome: .refused) == nil)
        #expect(limit.decided(isAuthenticated: true, outcome: .refused) == 500)
        #expect(limit.decided(isAuthenticated: true, outcome: .accepted) == nil)
        #expect(limit.enforced == 500)
        #expect(limit.acknowledge() == nil)
        #expect(limit.enforced == 500)
    }

    @Test("A rejection lowers the limit to one, a success restores it; until it is acknowledged the larger limit holds")
    func lowering() {
        var limit = StreamLimit(full: 500, lowers: true, isAuthenticated: true)
        _ = limit.acknowledge()
        #expect(limit.decided(isAuthenticated: true, outcome: .refused) == 1)
        #expect(limit.enforced == 500)
        #expect(limit.decided(isAuthenticated: true, outcome: .neutral) == nil)
        #expect(limit.acknowledge() == nil)
        #expect(limit.enforced == 1)
        #expect(limit.decided(isAuthenticated: true, outcome: .accepted) == 500)
    }

    @Test("A client that acknowledges nothing does not make the list of changes grow")
    func deafClient() {
        var limit = StreamLimit(full: 500, lowers: true, isAuthenticated: true)
        var announced = 0
        for number in 0..<10_000 {
            let outcome: SandboxDecision.Outcome = number.isMultiple(of: 2) ? .refused : .accepted
            if limit.decided(isAuthenticated: true, outcome: outcome) != nil { announced += 1 }
        }
        #expect(announced == StreamLimit.maxUnacknowledged - 1)
    }

    @Test("The sandbox announces 1, then the limit, and a correct client never opens more streams")
    func announced() async throws {
        try await TestSandbox.with {
            $0.http2StreamLimit = 20
        } _: { sandbox in
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            #expect(try await client.isAlive())
            #expect(try await client.limits() == [1, 20])
            #expect(try await client.flood(500, client.headers()) == [200: 500])
            let stats = sandbox.state.withLock { $0.stats.http2 }
            #expect((1...20).contains(stats.maxStreams))
            #expect(stats.streamsOverLimit == 0)
            let certificate = try await sandbox.provider(certificate: .client)
            #expect(try await certificate.push().status == 200)
            #expect(try await certificate.limits() == [20])
        }
    }

    @Test("Streams above the acknowledged limit are refused, and the connection stays open")
    func overLimit() async throws {
        try await TestSandbox.with {
            $0.http2StreamLimit = 5
        } _: { sandbox in
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            #expect(try await client.isAlive())
            // Send the requests without their ends, so that the streams stay open.
            var streams: [Int] = []
            for _ in 0..<8 { streams.append(try await client.send(client.headers(), body: "{", ends: false)) }
            for stream in streams.suffix(3) {
                await #expect(throws: HTTP2Client.StreamReset(code: 7)) { try await client.response(to: stream) }
            }
            #expect(try await client.isAlive())
            #expect(try await client.unanswered() == 5)
            let stats = try await sandbox.control(.get, "/stats").object()["http2"] as? [String: Any]
            #expect(stats?["streams_over_limit"] as? Int == 3)
            #expect(try await client.goAways().isEmpty)
        }
    }

    @Test("With the option a rejection lowers the limit to 1 and an acceptance restores it; a 410 does not")
    func rejections() async throws {
        try await TestSandbox.with {
            $0.lowersStreamLimit = true
        } _: { sandbox in
            _ = try await sandbox.control(.delete, "/devices/cdcd")
            let client = try await sandbox.provider(certificate: .client)
            #expect(try await client.push("xyz").status == 400)
            #expect(try await client.push("cdcd").status == 410)
            #expect(try await client.push().status == 200)
            #expect(try await client.push("cdcd").status == 410)
            #expect(try await client.isAlive())
            #expect(try await client.limits() == [1000, 1, 1000])
        }
    }

    @Test("The connection's window is replenished as bodies arrive")
    func flood() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            let body = String(repeating: "x", count: PushType.alert.payloadLimit)
            let count = 3 * SandboxHTTP2Handler.window / 2 / body.utf8.count
            #expect(try await client.flood(count, client.headers(), body: body) == [200: count])
            let stats = sandbox.state.withLock { $0.stats.http2 }
            #expect(stats.answers.accepted == count + 1)
            #expect((1...1000).contains(stats.maxStreams))
            #expect(stats.streamsOverLimit == 0)
        }
    }
}
