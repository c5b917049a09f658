import ChatDomain
import HTTP2Wire
import NIOCore
import NIOHPACK
import PushWire
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The state of an HTTP/2 connection")
struct HTTP2ConnectionStateTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private static let wall = Timestamp(seconds: 1_800_000_000)

    private func state(
        streams: Int? = 10, waiting: Int = 0, isConfirmed: Bool = true, tokenEnd: TimeAmount? = nil,
        idleLimit: TimeAmount? = nil
    ) throws -> HTTP2ConnectionState {
        var state = HTTP2ConnectionState(
            limits: HTTP2Limits(), isConfirmed: isConfirmed, tokenEnd: tokenEnd.map { Self.start + $0 },
            idleLimit: idleLimit, now: Self.start,
            interpret: APNSClient(host: "api.sandbox.push.apple.com", bundleID: "com.example.app", token: nil).answer)
        if let streams { state.received(maxStreams: streams, now: Self.start) }
        if waiting > 0 { state.enqueue(try Self.requests(1...UInt32(waiting)), now: Self.start) }
        return state
    }

    private static func requests(_ identifiers: ClosedRange<UInt32>) throws -> [HTTP2Request] {
        let template = HTTP2RequestTemplate(host: "host", bundleID: "com.example.app", token: nil)
        return try identifiers.map { template.request(for: try HTTP2GatewayFixture.push($0)) }
    }

    /// Opens all streams that the state allows.
    private func open(_ state: inout HTTP2ConnectionState, after: TimeAmount = .zero) -> [Int] {
        var streams: [Int] = []
        while let (stream, _) = state.open(now: Self.start + after, wall: Self.wall) { streams.append(stream) }
        return streams
    }

    private func answer(_ state: inout HTTP2ConnectionState, _ stream: Int, after: TimeAmount = .zero) {
        state.received(status: 200, endsStream: true, on: stream, now: Self.start + after)
        state.closed(stream, now: Self.start + after)
    }

    private func refuse(
        _ state: inout HTTP2ConnectionState, _ stream: Int, _ refusal: ProviderRefusal, body: String? = nil
    ) {
        state.received(status: refusal.status, endsStream: false, on: stream, now: Self.start)
        state.received(
            body: ByteBuffer(string: body ?? refusal.body).readableBytesView, endsStream: true, on: stream,
            now: Self.start)
        state.closed(stream, now: Self.start)
    }

    private func outcomes(_ state: inout HTTP2ConnectionState) -> [UInt32: Outcome] {
        Dictionary(state.takeOutcomes().map { ($0.identifier, $0.outcome) }) { _, _ in .unanswered(reason: "twice") }
    }

    // MARK: Limits

    @Test(
        "No stream is opened before SETTINGS, and then as many as they allow, also after changes",
        arguments: [true, false])
    func limits(isConfirmed: Bool) throws {
        var state = try state(streams: nil, waiting: 20, isConfirmed: isConfirmed)
        #expect(open(&state) == [])
        #expect(state.pushLimit(at: Self.start) == 0)
        state.received(maxStreams: 5, now: Self.start)
        #expect(open(&state) == (isConfirmed ? [1, 3, 5, 7, 9] : [1]))
        #expect(state.pushLimit(at: Self.start) == (isConfirmed ? 10 : 1))
        state.received(maxStreams: 0, now: Self.start)
        answer(&state, 1)
        #expect(open(&state) == [])
        state.received(maxStreams: nil, now: Self.start)
        #expect(open(&state) == [])
        state.received(maxStreams: 6, now: Self.start)
        #expect(open(&state).count == (isConfirmed ? 2 : 6))
    }

    @Test("At most 2,000 streams are opened, whatever the peer allows")
    func hugeLimit() throws {
        let state = try state(streams: Int(UInt32.max))
        #expect(state.streamLimit == HTTP2Limits.openStreams)
    }

    @Test("Until the token is accepted only one stream is open; a rejection because of the push shows acceptance")
    func proof() throws {
        var state = try state(waiting: 3, isConfirmed: false)
        #expect(open(&state) == [1])
        refuse(&state, 1, ProviderRefusal(.badDeviceToken))
        #expect(open(&state) == [3, 5])
    }

    // MARK: Responses

    @Test(
        "Each response decides the push's outcome and the connection's end",
        arguments: [
            (
                ProviderRefusal(.badDeviceToken),
                Outcome.rejected(
                    reason: "BadDeviceToken",
                    hint:
                        "wrong environment? api.sandbox.push.apple.com is the development environment, where only tokens of apps installed by Xcode are known"
                ), false
            ),
            (
                ProviderRefusal(.deviceTokenNotForTopic),
                .rejected(reason: "DeviceTokenNotForTopic", hint: "the topic sent was com.example.app"), false
            ),
            (
                ProviderRefusal(.payloadTooLarge),
                .rejected(
                    reason: "PayloadTooLarge",
                    hint:
                        "api.sandbox.push.apple.com takes smaller payloads than this relay sends; lower payload_limit"
                ), false
            ),
            (
                ProviderRefusal(.unregistered, timestamp: 1_700_000_000_123),
                .unregistered(since: Timestamp(milliseconds: 1_700_000_000_123), reason: "Unregistered"), false
            ),
            (ProviderRefusal(.expiredToken), .unregistered(since: wall, reason: "ExpiredToken"), false),
            (ProviderRefusal(.tooManyRequests), .retry(reason: "TooManyRequests"), false),
            (ProviderRefusal(.internalServerError), .retry(reason: "InternalServerError"), false),
            (ProviderRefusal(.shutdown), .sentBack(reason: "Shutdown"), true),
            (ProviderRefusal(.idleTimeout), .sentBack(reason: "IdleTimeout"), true),
            (ProviderRefusal(.expiredProviderToken), .notAuthorized(reason: "ExpiredProviderToken"), true),
            (
                ProviderRefusal(.tooManyProviderTokenUpdates),
                .notAuthorized(reason: "TooManyProviderTokenUpdates"), true
            ),
            (ProviderRefusal(status: 400, reason: "NeverHeardOf"), .rejected(reason: "NeverHeardOf"), false),
            (ProviderRefusal(status: 403, reason: "NeverHeardOf"), .notAuthorized(reason: "NeverHeardOf"), true),
            (ProviderRefusal(status: 599, reason: "NeverHeardOf"), .retry(reason: "NeverHeardOf"), false),
        ])
    func answers(refusal: ProviderRefusal, outcome: Outcome, retires: Bool) throws {
        var state = try state(waiting: 1)
        _ = open(&state)
        refuse(&state, 1, refusal)
        #expect(outcomes(&state) == [1: outcome])
        #expect((state.retirement != nil) == retires)
        #expect(state.isEmpty)
    }

    @Test("Successes and failures are counted, and the connection's result is kept")
    func report() throws {
        var state = try state(waiting: 4)
        _ = open(&state)
        refuse(&state, 1, ProviderRefusal(.badDeviceToken))
        #expect(state.result == .refusal)
        refuse(&state, 3, ProviderRefusal(.serviceUnavailable))
        answer(&state, 5)
        let refused = try HTTP2GatewayFixture.push(2).address
        #expect(state.takeHealth() == .init(successes: 2, refused: [refused], hasAccepted: true))
        #expect(state.result == .progress)
    }

    @Test("A connection is replaced after ten server errors in a row, if it is at least five seconds old")
    func serverErrors() throws {
        func state(errors: Int, isLastAccepted: Bool = false) throws -> HTTP2ConnectionState {
            var state = try self.state(streams: 20, waiting: errors + 1)
            let streams = open(&state)
            for stream in streams.prefix(errors) { refuse(&state, stream, ProviderRefusal(.internalServerError)) }
            if isLastAccepted { answer(&state, streams[errors]) }
            return state
        }
        var sick = try state(errors: HTTP2Limits.serverErrors)
        #expect(sick.tick(now: Self.start + .seconds(4)) == nil)
        #expect(sick.retirement == nil)
        _ = sick.tick(now: Self.start + .seconds(5))
        #expect(sick.retirement == .serverErrors)
        #expect(sick.result == .progress, "the next connection opens at once")
        var few = try state(errors: HTTP2Limits.serverErrors - 1)
        var working = try state(errors: HTTP2Limits.serverErrors, isLastAccepted: true)
        _ = few.tick(now: Self.start + .seconds(5))
        _ = working.tick(now: Self.start + .seconds(5))
        #expect(few.retirement == nil)
        #expect(working.retirement == nil)
    }

    @Test("If the credentials were never accepted, the connection made no progress, whatever follows")
    func refusedCredentials() throws {
        var state = try state(waiting: 4)
        _ = open(&state)
        refuse(&state, 1, ProviderRefusal(.badCertificateEnvironment))
        refuse(&state, 3, ProviderRefusal(.unregistered))
        #expect(state.result == .nothing)
        #expect(state.retirement == .credentials(CredentialsProblem(ProviderRefusal(.badCertificateEnvironment))))
    }

    @Test(
        "Among accepted pushes, one credential rejection does not end the connection; three in a row do"
    )
    func refusedInBetween() throws {
        var state = try state(waiting: 8)
        _ = open(&state)
        answer(&state, 1)
        for (stream, peerIsReading) in [(3, false), (5, false), (7, true), (9, false), (11, false)] {
            if peerIsReading {
                answer(&state, stream)
            } else {
                refuse(&state, stream, ProviderRefusal(.invalidProviderToken))
            }
        }
        #expect(state.retirement == nil)
        refuse(&state, 13, ProviderRefusal(.invalidProviderToken))
        #expect(state.retirement == .credentials(CredentialsProblem(ProviderRefusal(.invalidProviderToken))))
        // The next connection may open at once: it has another token, or one more push shows whether the token is
        // accepted.
        #expect(state.result == .progress)
    }

    @Test("A provider token that is too old ends the connection at once", arguments: [true, false])
    func expired(hasAccepted: Bool) throws {
        var state = try state(waiting: 2)
        _ = open(&state)
        if hasAccepted { answer(&state, 1) }
        refuse(&state, 3, ProviderRefusal(.expiredProviderToken))
        #expect(state.retirement == .credentials(CredentialsProblem(ProviderRefusal(.expiredProviderToken))))
        #expect(state.result == (hasAccepted ? .progress : .nothing))
    }

    @Test("The response to the first push is late after a second")
    func hesitation() throws {
        var state = try state(waiting: 1, isConfirmed: false)
        let now = Self.start
        #expect(!state.isFirstResponseLate(at: now + .hours(1)))
        _ = state.open(now: now, wall: Timestamp(milliseconds: 0))
        #expect(!state.isFirstResponseLate(at: now + .milliseconds(999)))
        #expect(state.isFirstResponseLate(at: now + .seconds(1)))
        answer(&state, 1)
        #expect(!state.isFirstResponseLate(at: now + .seconds(1)))
    }

    @Test("Devices without a response hold up the others for seconds only, before the peer has accepted a push")
    func silentDevices() throws {
        var state = try state(streams: 100, waiting: 64, isConfirmed: false)
        var now = Self.start
        var opened: [Int] = []
        for _ in 0..<6 {
            while state.open(now: now, wall: Self.wall) != nil {}
            opened.append(state.pushLimit(at: now))
            now = now + .seconds(1)
            state.receivedBytes(now: now)
            _ = state.tick(now: now)
        }
        #expect(opened == [1, 2, 4, 8, 16, 32])
        // Credentials that are rejected at once concern one push, however long the connection stood.
        var refused = try self.state(waiting: 64, isConfirmed: false)
        _ = refused.tick(now: now)
        #expect(refused.pushLimit(at: now) == 1)
    }

    @Test(
        "The time of a rejection is limited to between 1970 and the push's own time, whatever the response says",
        arguments: [Int64.max, .min])
    func strangeTimestamps(timestamp: Int64) throws {
        var state = try state(waiting: 1)
        _ = open(&state)
        refuse(&state, 1, ProviderRefusal(.unregistered, timestamp: timestamp))
        let since = timestamp > 0 ? Self.wall : Timestamp(milliseconds: 0)
        #expect(outcomes(&state) == [1: .unregistered(since: since, reason: "Unregistered")])
    }

    @Test("A status of 200 counts without the end of the response, whatever ends the stream")
    func unfinished() throws {
        var state = try state(waiting: 3)
        _ = open(&state)
        for stream in [1, 3, 5] { state.received(status: 200, endsStream: false, on: stream, now: Self.start) }
        state.received(reset: false, on: 1, now: Self.start)
        _ = state.tick(now: Self.start)
        state.closed(3, now: Self.start)
        _ = state.tick(now: Self.start + .seconds(30))
        state.end(reason: "ConnectionLost")
        #expect(outcomes(&state) == [1: .accepted, 2: .accepted, 3: .accepted])
    }

    @Test("A body is read to its limit; then the stream is reset, and its push settled once")
    func longBody() throws {
        var state = try state(waiting: 1)
        _ = open(&state)
        state.received(status: 400, endsStream: false, on: 1, now: Self.start)
        for _ in 0..<5 {
            let piece = ByteBuffer(string: String(repeating: " ", count: 1000))
            state.received(body: piece.readableBytesView, endsStream: false, on: 1, now: Self.start)
        }
        #expect(state.takeUnclosed() == [1])
        state.closed(1, now: Self.start)
        #expect(state.takeOutcomes().map(\.outcome) == [.rejected(reason: "Status400")])
    }

    @Test("Interim responses and trailers do not count; END_STREAM without a status gives no outcome")
    func interim() throws {
        var state = try state(waiting: 2)
        _ = open(&state)
        state.received(status: 103, endsStream: false, on: 1, now: Self.start)
        state.received(status: 200, endsStream: false, on: 1, now: Self.start)
        state.received(status: nil, endsStream: true, on: 1, now: Self.start)
        state.received(status: 103, endsStream: true, on: 3, now: Self.start)
        #expect(outcomes(&state) == [1: .accepted, 2: .unanswered(reason: "MalformedResponse")])
    }

    @Test("A second status, which is malformed, does not change the response")
    func secondStatus() throws {
        var state = try state(waiting: 2)
        _ = open(&state)
        for (stream, statuses) in [(1, [200, 503]), (3, [400, 200])] {
            for status in statuses {
                state.received(status: status, endsStream: status == statuses.last, on: stream, now: Self.start)
            }
        }
        #expect(outcomes(&state) == [1: .accepted, 2: .rejected(reason: "Status400")])
    }

    @Test("Frames for unknown streams have no effect")
    func unknownStreams() throws {
        var state = try state()
        for stream in [0, 2, 7, -1, Int(Int32.max)] {
            answer(&state, stream)
            refuse(&state, stream, ProviderRefusal(.expiredProviderToken))
            state.received(reset: true, on: stream, now: Self.start)
        }
        #expect(!state.hasOutcomes)
        #expect(state.retirement == nil)
    }

    // MARK: Ends

    @Test("GOAWAY releases the pushes above its stream and the waiting ones, and keeps the others")
    func goAway() throws {
        var state = try state(streams: 4, waiting: 6)
        _ = open(&state)
        answer(&state, 7)
        state.received(goAwayAfter: 3, reason: "Shutdown")
        #expect(outcomes(&state) == [3: .sentBack(reason: "GoAway"), 4: .accepted, 5: .notProcessed, 6: .notProcessed])
        #expect(open(&state) == [])
        state.received(goAwayAfter: 1, reason: "Shutdown")
        #expect(outcomes(&state) == [2: .sentBack(reason: "GoAway")])
        #expect(!state.isEmpty)
        answer(&state, 1)
        #expect(outcomes(&state) == [1: .accepted])
        #expect(state.isEmpty)
    }

    @Test("At the end of a connection the written pushes are in doubt, the waiting ones are not")
    func end() throws {
        var state = try state(streams: 2, waiting: 4)
        _ = open(&state)
        state.received(status: 200, endsStream: true, on: 1, now: Self.start)
        state.end(reason: "ConnectionLost")
        #expect(
            outcomes(&state) == [
                1: .accepted, 2: .unanswered(reason: "ConnectionLost"), 3: .notProcessed, 4: .notProcessed,
            ])
        state.enqueue(try Self.requests(5...5), now: Self.start)
        #expect(outcomes(&state) == [5: .notProcessed])
    }

    @Test("Refused streams halve the assumed limit, once per round; a success raises it, and pauses end")
    func refused() throws {
        var state = try state(streams: 16, waiting: 60)
        for stream in open(&state) {
            state.received(reset: true, on: stream, now: Self.start)
            state.closed(stream, now: Self.start)
        }
        #expect(state.streamLimit == 8)
        let second = open(&state)
        #expect(second.count == 8)
        for stream in second {
            state.received(reset: true, on: stream, now: Self.start)
            state.closed(stream, now: Self.start)
        }
        #expect(state.streamLimit == 4)
        #expect(open(&state) == [])
        #expect(state.pushLimit(at: Self.start) == 0)
        let third = open(&state, after: .milliseconds(50))
        #expect(third.count == 4)
        for stream in third { answer(&state, stream) }
        #expect(state.streamLimit == 8)
        #expect(state.takeOutcomes().filter { $0.outcome == .sentBack(reason: "RefusedStream") }.count == 24)
    }

    @Test("A connection on which every stream is refused is retired")
    func refusesAll() throws {
        var state = try state(waiting: 30)
        var pause = TimeAmount.zero
        for _ in 0...state.limits.streamRefusals {
            let streams = open(&state, after: pause)
            for stream in streams {
                state.received(reset: true, on: stream, now: Self.start + pause)
                state.closed(stream, now: Self.start + pause)
            }
            pause = pause + .seconds(6)
        }
        #expect(state.retirement == .refusedStreams)
        #expect(!state.hasWaiting)
    }

    // MARK: Time

    @Test(
        "Without a response in time the push is in doubt and its stream reset; a late response changes nothing")
    func deadline() throws {
        var state = try state(waiting: 2)
        _ = open(&state)
        _ = state.tick(now: Self.start)
        answer(&state, 3, after: .seconds(10))
        state.receivedBytes(now: Self.start + .seconds(29))
        _ = state.tick(now: Self.start + .seconds(29))
        #expect(outcomes(&state) == [2: .accepted])
        state.receivedBytes(now: Self.start + .seconds(30))
        _ = state.tick(now: Self.start + .seconds(30))
        #expect(outcomes(&state) == [1: .unanswered(reason: "NoResponse")])
        #expect(state.takeUnclosed() == [1])
        #expect(state.retirement == nil, "another was answered in the meantime")
        answer(&state, 1, after: .seconds(31))
        #expect(!state.hasOutcomes)
    }

    @Test("A connection without any response to pushes is retired, although its peer is alive", arguments: [0, 1])
    func unresponsive(streams: Int) throws {
        var state = try state(streams: streams, waiting: 2)
        _ = open(&state)
        for second in 0...30 {
            state.receivedBytes(now: Self.start + .seconds(Int64(second)))
            _ = state.tick(now: Self.start + .seconds(Int64(second)))
        }
        #expect(state.retirement == .unresponsive)
        let doubtful = Outcome.unanswered(reason: "NoResponse")
        #expect(outcomes(&state) == [1: streams == 1 ? doubtful : .notProcessed, 2: .notProcessed])
    }

    @Test(
        "A connection that allows no stream for long is retired, even if no push waits; a short time does not matter"
    )
    func closed() throws {
        var state = try state(streams: 0)
        func tick(_ second: Int64) {
            state.receivedBytes(now: Self.start + .seconds(second))
            _ = state.tick(now: Self.start + .seconds(second))
        }
        tick(29)
        state.received(maxStreams: 1, now: Self.start + .seconds(29))
        state.received(maxStreams: 0, now: Self.start + .seconds(31))
        tick(60)
        #expect(state.retirement == nil)
        tick(61)
        #expect(state.retirement == .unresponsive)
    }

    @Test("A PING follows five silent seconds with a push in flight, or sixty without; five more end the connection")
    func ping() throws {
        var state = try state()
        func at(_ seconds: Int64) -> NIODeadline { Self.start + .seconds(seconds) }
        #expect(state.tick(now: at(59)) == nil)
        #expect(state.tick(now: at(60)) == .ping)
        #expect(state.tick(now: at(64)) == nil)
        state.receivedBytes(now: at(64))
        state.enqueue(try Self.requests(1...1), now: at(100))
        _ = open(&state, after: .seconds(100))
        #expect(state.tick(now: at(104)) == nil)
        #expect(state.tick(now: at(105)) == .ping)
        #expect(state.tick(now: at(109)) == nil)
        #expect(state.tick(now: at(110)) == .close(reason: "ConnectionLost"))
    }

    @Test("A connection without SETTINGS is closed ten seconds after the handshake")
    func noSettings() throws {
        var slow = try state(streams: nil)
        slow.began(now: Self.start + .seconds(12))
        #expect(slow.tick(now: Self.start + .seconds(21)) == nil)
        #expect(slow.tick(now: Self.start + .seconds(22)) == .close(reason: "ConnectionLost"))
        var state = try state(streams: nil)
        state.receivedBytes(now: Self.start + .seconds(9))
        #expect(state.tick(now: Self.start + .seconds(9)) == nil)
        #expect(state.tick(now: Self.start + .seconds(10)) == .close(reason: "ConnectionLost"))
    }

    @Test("A drain ends within its time limit")
    func drain() throws {
        var state = try state(streams: 1, waiting: 2)
        _ = open(&state)
        state.drain(now: Self.start)
        #expect(outcomes(&state) == [2: .notProcessed])
        state.receivedBytes(now: Self.start + .seconds(7))
        #expect(state.tick(now: Self.start + .seconds(7)) == nil)
        #expect(state.tick(now: Self.start + .seconds(8)) == .close(reason: "NoResponse"))
    }

    @Test("An old provider token or idleness retires a connection; a push resets the idle time")
    func age() throws {
        var state = try state(tokenEnd: .seconds(100))
        state.receivedBytes(now: Self.start + .seconds(99))
        _ = state.tick(now: Self.start + .seconds(99))
        #expect(state.retirement == nil)
        _ = state.tick(now: Self.start + .seconds(100))
        #expect(state.retirement == .tokenAge)

        var idle = try self.state(waiting: 1, idleLimit: .seconds(100))
        _ = open(&idle, after: .seconds(50))
        answer(&idle, 1, after: .seconds(50))
        _ = idle.tick(now: Self.start + .seconds(149))
        #expect(idle.retirement == nil)
        _ = idle.tick(now: Self.start + .seconds(150))
        #expect(idle.retirement == .idle)
    }
}
