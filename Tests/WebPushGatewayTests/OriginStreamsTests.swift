import ChatDomain
import NIOCore
import Testing

@testable import HTTP2Wire
@testable import WebPushGateway

@Suite("Requests on one HTTP/2 connection to a push service")
struct OriginStreamsTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
    private static let limit = TimeAmount.seconds(30)
    private let service: PushServiceFake

    init() throws {
        service = try PushServiceFake()
    }

    private func requests(_ numbers: ClosedRange<Int>, at now: NIODeadline = start) throws -> [WebPushRequest] {
        try numbers.map { number in
            let subscription = service.subscription(number, port: 443)
            let push = Push(
                id: Int64(number), identifier: UInt32(number), address: .token(subscription.address), payload: [1])
            return try WebPushRequest(
                BrowserPush(push: push, subscription: subscription), authorization: "vapid", lifetime: .seconds(60),
                now: .now(), deadline: now + Self.limit)
        }
    }

    private func streams(_ maxStreams: Int = 100) -> OriginStreams {
        var streams = OriginStreams(answerLimit: Self.limit, now: Self.start)
        streams.received(maxStreams: maxStreams)
        return streams
    }

    private func open(_ streams: inout OriginStreams, at now: NIODeadline = start) -> [Int] {
        var opened: [Int] = []
        while let (id, _) = streams.open(now: now) { opened.append(id) }
        return opened
    }

    private func results(_ streams: inout OriginStreams) -> [UInt32: OriginStreams.Result] {
        let concluded = streams.takeConcluded()
        let results = concluded.map { ($0.request.push.push.identifier, $0.result) }
        #expect(Set(results.map(\.0)).count == results.count)
        return Dictionary(results) { first, _ in first }
    }

    private static func status(_ code: UInt) -> OriginStreams.Result {
        .response(.status(code, retryAfter: nil, text: ""))
    }

    @Test(
        "Ten server errors in a row retire a connection that is at least five seconds old",
        arguments: [(4, 500), (5, 500), (5, 429)])
    func serverErrors(age: Int64, status: Int) throws {
        var streams = streams()
        streams.submit(try requests(1...10))
        let now = Self.start + .seconds(age)
        let opened = open(&streams)
        for id in opened.dropLast() {
            streams.received(status: status, retryAfter: nil, endsStream: true, on: id, now: now)
        }
        #expect(!streams.isRetired)
        streams.received(status: status, retryAfter: nil, endsStream: true, on: try #require(opened.last), now: now)
        #expect(streams.isRetired == (age == 5 && status == 500))
    }

    @Test("No stream is opened before SETTINGS, nor more than they allow")
    func limits() throws {
        var streams = OriginStreams(answerLimit: Self.limit, now: Self.start)
        streams.submit(try requests(1...5))
        #expect(open(&streams) == [])
        streams.received(maxStreams: 2)
        #expect(open(&streams) == [1, 3])
        streams.received(status: 201, retryAfter: nil, endsStream: true, on: 3, now: Self.start)
        #expect(open(&streams) == [5])
        // SETTINGS without the limit do not change it.
        streams.received(maxStreams: nil)
        #expect(open(&streams) == [])
        #expect(results(&streams) == [2: Self.status(201)])
    }

    @Test("GOAWAY returns unprocessed and waiting requests; the others get a response, and no more are accepted")
    func goAway() throws {
        var streams = streams(3)
        streams.submit(try requests(1...5))
        #expect(open(&streams) == [1, 3, 5])
        streams.received(goAwayAfter: 3)
        streams.submit(try requests(6...6))
        #expect(results(&streams) == [3: .returned, 4: .returned, 5: .returned, 6: .returned])
        #expect(streams.isRetired && !streams.isEmpty)
        for id in [1, 3] { streams.received(status: 201, retryAfter: nil, endsStream: true, on: id, now: Self.start) }
        #expect(results(&streams) == [1: Self.status(201), 2: Self.status(201)])
        #expect(streams.isEmpty)
    }

    @Test("A second status, which is malformed, does not change the response")
    func secondStatus() throws {
        var streams = streams()
        streams.submit(try requests(1...2))
        _ = open(&streams)
        for (id, statuses) in [(1, [201, 503]), (3, [410, 201])] {
            for status in statuses {
                streams.received(
                    status: status, retryAfter: nil, endsStream: status == statuses.last, on: id, now: Self.start)
            }
        }
        #expect(results(&streams) == [1: Self.status(201), 2: Self.status(410)])
    }

    @Test("When the connection is lost, a status that arrived is the response, and waiting requests are returned")
    func end() throws {
        var streams = streams(2)
        streams.submit(try requests(1...3))
        #expect(open(&streams) == [1, 3])
        streams.received(status: 410, retryAfter: nil, endsStream: false, on: 1, now: Self.start)
        streams.end(reason: "ConnectionLost")
        #expect(
            results(&streams) == [1: Self.status(410), 2: .response(.lost("ConnectionLost")), 3: .returned])
        #expect(streams.isEmpty)
    }

    @Test("A request ends at its deadline; a connection without any response for that long is no longer used")
    func deadlines() throws {
        var streams = streams(3)
        streams.submit(try requests(1...4))
        #expect(open(&streams) == [1, 3, 5])
        streams.received(
            status: 201, retryAfter: nil, endsStream: true, on: 1, now: Self.start + .seconds(20))
        streams.tick(now: Self.start + .seconds(29))
        #expect(results(&streams) == [1: Self.status(201)])
        streams.tick(now: Self.start + .seconds(30))
        let lost = OriginStreams.Result.response(.lost("NoResponse"))
        #expect(results(&streams) == [2: lost, 3: lost, 4: lost])
        #expect(streams.takeUnclosed() == [3, 5])
        #expect(!streams.isRetired)
        let late = Self.start + .seconds(31)
        streams.submit(try requests(5...5, at: late))
        #expect(open(&streams, at: late) == [7])
        streams.tick(now: late + Self.limit)
        #expect(results(&streams) == [5: lost])
        #expect(streams.isRetired)
    }

    @Test("A connection stays open for a minute without requests")
    func idle() throws {
        var streams = streams()
        streams.submit(try requests(1...1))
        #expect(open(&streams) == [1])
        streams.received(status: 201, retryAfter: nil, endsStream: true, on: 1, now: Self.start)
        streams.tick(now: Self.start + .seconds(59))
        #expect(!streams.isRetired)
        streams.tick(now: Self.start + .seconds(60))
        #expect(streams.isRetired && streams.isEmpty)
    }
}
