import ChatDomain
import NIOCore
import Testing

@testable import GatewayPool
@testable import WebPushGateway

/// `HTTP2ConnectionStateTests` tests the rules of the other gateways. These tests repeat the ones that hold for browsers.
@Suite("Requests on one HTTP/2 connection to a push service")
struct OriginRequestsTests {
    private enum Result: Hashable {
        case status(Int)
        case outcome(Outcome)
        static let lost = Result.outcome(.unanswered(reason: "NoResponse"))
        static let returned = Result.outcome(.notProcessed)
    }

    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
    private static let limit = TimeAmount.seconds(30)

    private func requests(_ numbers: ClosedRange<UInt32>, at now: NIODeadline = start) throws -> [HTTP2Request] {
        let token = try #require(DeviceToken(bytes: [UInt8](repeating: 7, count: 32)))
        return numbers.map { number in
            HTTP2Request(
                Push(id: Int64(number), identifier: number, address: .token(token), payload: [1]), headers: [:],
                body: [], deadline: now + Self.limit)
        }
    }

    private func state(_ maxStreams: Int? = 100, requests count: UInt32 = 0) throws -> HTTP2ConnectionState {
        var state = OriginRequests.state(responseLimit: Self.limit, now: Self.start)
        if let maxStreams { state.received(maxStreams: maxStreams, now: Self.start) }
        if count > 0 { state.enqueue(try requests(1...count), now: Self.start) }
        return state
    }

    private func open(_ state: inout HTTP2ConnectionState, at now: NIODeadline = start) -> [Int] {
        var opened: [Int] = []
        while let (id, _) = state.open(now: now, wall: Timestamp(milliseconds: 0)) { opened.append(id) }
        return opened
    }

    private func answer(
        _ state: inout HTTP2ConnectionState, _ id: Int, _ status: Int = 201, at now: NIODeadline = start
    ) {
        state.received(status: status, endsStream: true, on: id, now: now)
        state.closed(id, now: now)
    }

    private func orderedResults(_ state: inout HTTP2ConnectionState) -> [(identifier: UInt32, result: Result)] {
        let responses = state.takeResponses()
        return state.takeOutcomes().map { identifier, outcome in
            (identifier, responses[identifier].map { .status($0.status) } ?? .outcome(outcome))
        }
    }

    private func results(_ state: inout HTTP2ConnectionState) -> [UInt32: Result] {
        let results = orderedResults(&state)
        #expect(Set(results.map(\.identifier)).count == results.count)
        return Dictionary(results.map { ($0.identifier, $0.result) }) { first, _ in first }
    }

    @Test("Results have the order of their arrival, because a success in between ends a row of refusals")
    func order() throws {
        var state = try state(requests: 4)
        let opened = open(&state)
        state.received(reset: false, on: opened[2], now: Self.start)
        answer(&state, opened[0])
        state.received(reset: false, on: opened[3], now: Self.start)
        answer(&state, opened[1], 500)
        #expect(orderedResults(&state).map(\.identifier) == [3, 1, 4, 2])
    }

    @Test(
        "Ten server errors in a row retire a connection that is at least five seconds old",
        arguments: [(4, 500), (5, 500), (5, 429)])
    func serverErrors(age: Int64, status: Int) throws {
        var state = try state(requests: 10)
        let now = Self.start + .seconds(age)
        let opened = open(&state)
        for id in opened.dropLast() { answer(&state, id, status, at: now) }
        #expect(!state.isRetired)
        answer(&state, try #require(opened.last), status, at: now)
        #expect(state.isRetired == (age == 5 && status == 500))
    }

    @Test("A request that reached the wrong server ends the connection")
    func misdirected() throws {
        var state = try state(1, requests: 2)
        _ = open(&state)
        answer(&state, 1, 421)
        #expect(results(&state) == [1: .status(421), 2: .returned])
        #expect(state.isDone)
    }

    @Test("No stream is opened before SETTINGS, nor more than they allow")
    func limits() throws {
        var state = try state(nil, requests: 5)
        #expect(open(&state) == [])
        state.received(maxStreams: 2, now: Self.start)
        #expect(open(&state) == [1, 3])
        answer(&state, 3)
        #expect(open(&state) == [5])
        // SETTINGS without the limit do not change it.
        state.received(maxStreams: nil, now: Self.start)
        #expect(open(&state) == [])
        #expect(results(&state) == [2: .status(201)])
    }

    @Test("A refused stream is returned, and limits or delays the others in no way")
    func refused() throws {
        var state = try state(20, requests: 60)
        for _ in 0..<3 {
            let streams = open(&state)
            #expect(streams.count == 20)
            for id in streams {
                state.received(reset: true, on: id, now: Self.start)
                state.closed(id, now: Self.start)
            }
            #expect(Set(results(&state).values) == [.outcome(.sentBack(reason: "RefusedStream"))])
        }
        #expect(!state.isRetired)
    }

    @Test("GOAWAY returns unprocessed and waiting requests; the others get a response, and no more are accepted")
    func goAway() throws {
        var state = try state(3, requests: 5)
        #expect(open(&state) == [1, 3, 5])
        state.received(status: 201, endsStream: false, on: 5, now: Self.start)
        state.received(goAwayAfter: 3, reason: "")
        state.enqueue(try requests(6...6), now: Self.start)
        #expect(
            results(&state) == [3: .outcome(.sentBack(reason: "GoAway")), 4: .returned, 5: .returned, 6: .returned])
        #expect(state.isRetired && !state.isDone)
        for id in [1, 3] { answer(&state, id) }
        #expect(results(&state) == [1: .status(201), 2: .status(201)])
        #expect(state.isDone)
    }

    @Test("A body is read to its limit, and then its stream is reset", arguments: [200, 201, 400])
    func longBody(status: Int) throws {
        var state = try state(requests: 1)
        _ = open(&state)
        state.received(status: status, endsStream: false, on: 1, now: Self.start)
        let part = ByteBuffer(repeating: 0x41, count: HTTP2Response.bodyLimit)
        state.received(body: part.readableBytesView, endsStream: false, on: 1, now: Self.start)
        #expect(results(&state) == [:])
        state.received(body: part.readableBytesView, endsStream: false, on: 1, now: Self.start)
        #expect(results(&state) == [1: .status(status)])
        #expect(state.takeUnclosed() == [1])
    }

    @Test("A status that arrived is the response, whatever ends the stream; waiting requests are returned")
    func end() throws {
        var state = try state(5, requests: 6)
        #expect(open(&state) == [1, 3, 5, 7, 9])
        for id in [1, 5, 7] { state.received(status: 410, endsStream: false, on: id, now: Self.start) }
        state.received(reset: true, on: 5, now: Self.start)
        state.received(reset: false, on: 7, now: Self.start)
        state.received(reset: false, on: 9, now: Self.start)
        state.end(reason: "ConnectionLost")
        #expect(
            results(&state) == [
                1: .status(410), 2: .outcome(.unanswered(reason: "ConnectionLost")), 3: .status(410), 4: .status(410),
                5: .outcome(.unanswered(reason: "StreamReset")), 6: .returned,
            ])
        #expect(state.isDone)
    }

    @Test("A request ends at its deadline; a connection without any response for that long is no longer used")
    func deadlines() throws {
        var state = try state(3, requests: 4)
        #expect(open(&state) == [1, 3, 5])
        answer(&state, 1, at: Self.start + .seconds(20))
        #expect(state.tick(now: Self.start + .seconds(29)) == nil)
        #expect(results(&state) == [1: .status(201)])
        #expect(state.tick(now: Self.start + .seconds(30)) == nil)
        #expect(results(&state) == [2: .lost, 3: .lost, 4: .lost])
        #expect(!state.isRetired)
        let late = Self.start + .seconds(31)
        state.enqueue(try requests(5...6, at: late), now: late)
        // The late streams keep their places until they are reset.
        #expect(open(&state, at: late) == [7])
        #expect(state.takeUnclosed().sorted() == [3, 5])
        for id in [3, 5] { state.closed(id, now: late) }
        #expect(open(&state, at: late) == [9])
        _ = state.tick(now: late + Self.limit)
        #expect(results(&state) == [5: .lost, 6: .lost])
        #expect(state.isRetired)
    }

    @Test(
        "A late response or a reset shows that the service is alive, so that its connection stays in use",
        arguments: ["late response", "reset", "late reset", "refused stream", "nothing"])
    func signsOfLife(sign: String) throws {
        func at(_ seconds: Int64) -> NIODeadline { Self.start + .seconds(seconds) }
        var state = try state(requests: 2)
        #expect(open(&state) == [1, 3])
        answer(&state, 3, at: at(1))
        _ = state.tick(now: at(30))
        #expect(state.takeUnclosed() == [1])
        state.closed(1, now: at(30))
        state.enqueue(try requests(3...4, at: at(30)), now: at(30))
        #expect(open(&state, at: at(30)) == [5, 7])
        switch sign {
        case "late response": answer(&state, 1, at: at(40))
        case "reset": state.received(reset: false, on: 7, now: at(40))
        case "late reset": state.received(reset: false, on: 1, now: at(40))
        case "refused stream": state.received(reset: true, on: 7, now: at(40))
        default: break
        }
        _ = state.tick(now: at(60))
        #expect(state.isRetired == ["refused stream", "nothing"].contains(sign))
    }

    @Test("A connection without SETTINGS or with silence is neither pinged nor closed by the state")
    func silence() throws {
        for maxStreams in [nil, 0, 1] {
            var state = try state(maxStreams, requests: 1)
            _ = open(&state)
            for second in 0..<30 { #expect(state.tick(now: Self.start + .seconds(Int64(second))) == nil) }
            #expect(!state.isRetired)
        }
    }

    @Test("A connection stays open for a minute without requests")
    func idle() throws {
        var state = try state(requests: 1)
        #expect(open(&state) == [1])
        answer(&state, 1)
        _ = state.tick(now: Self.start + .seconds(59))
        #expect(!state.isRetired)
        _ = state.tick(now: Self.start + .seconds(60))
        #expect(state.isDone)
    }
}
