import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import pushchat

@Suite("Requests to ntfy's upstream server", .timeLimit(.minutes(1)))
struct UpstreamSenderTests {
    private static let now = Timestamp(seconds: 1_800_000_000)
    private static let server = UpstreamServer(
        url: "https://ntfy.example", token: "tk_1", baseURL: "https://chat.example.org/ntfy", userAgent: "pushchat/1")

    private static func request(_ message: MessageID, attempts: Int = 0) -> PollRequest {
        PollRequest(room: 1, alias: RoomAlias(stored: "AbC-_123"), message: message, attempts: attempts)
    }

    private static func sender(
        _ store: FakePollRequests, server: UpstreamServer? = server, _ send: @escaping UpstreamSender.Send
    ) -> UpstreamSender {
        UpstreamSender(
            store: store, server: { server }, send: send, now: { now },
            logger: .silent)
    }

    @Test("A request names only the hash of the room's address, and the message's id in ntfy's form")
    func form() {
        let call = Self.server.request(Self.request(42))
        // printf %s https://chat.example.org/ntfy/AbC-_123 | sha256sum
        #expect(
            call.url == "https://ntfy.example/c8385806554ffa6b75463fe79672062b0eef66a4f8706429a76b6a32f2b825d7")
        #expect(call.method == .POST)
        #expect(call.headers["X-Poll-ID"] == ["m00000000042"])
        #expect(call.headers["User-Agent"] == ["pushchat/1"])
        #expect(call.headers["Authorization"] == ["Bearer tk_1"])
        let open = UpstreamServer(url: "https://a.b", token: nil, baseURL: "https://c.d", userAgent: "pushchat/1")
        #expect(open.request(Self.request(1)).headers["Authorization"].isEmpty)
    }

    @Test("Only answers that may change are retried")
    func answers() {
        #expect(UpstreamResponse(status: 200, retryAfter: nil) == .accepted)
        #expect(UpstreamResponse(status: 404, retryAfter: nil) == .rejected("status 404"))
        #expect(UpstreamResponse(status: 503, retryAfter: "7") == .unavailable("status 503", after: .seconds(7)))
        for status: UInt in [302, 308, 408, 421, 425] {
            #expect(UpstreamResponse(status: status, retryAfter: nil) == .unavailable("status \(status)", after: nil))
        }
        #expect(
            UpstreamResponse(
                status: 429, retryAfter: "Fri, 15 Jan 2027 08:00:05 GMT", now: Timestamp(seconds: 1_800_000_000))
                == .unavailable("status 429", after: .seconds(5)))
        #expect(UpstreamResponse(status: 429, retryAfter: "-7") == .unavailable("status 429", after: nil))
        #expect(UpstreamResponse(status: 403, retryAfter: "soon") == .unavailable("status 403", after: nil))
    }

    @Test("Without an upstream server, nothing is leased")
    func off() async {
        let store = FakePollRequests([Self.request(1)])
        var schedule = UpstreamSchedule()
        let pause = await Self.sender(store, server: nil) { _, _ in .accepted }.round(&schedule, at: .zero)
        #expect(pause == .seconds(1))
        #expect(store.leases.isEmpty)
    }

    @Test("Accepted and refused messages are settled; the relay's stop releases one")
    func settled() async {
        let store = FakePollRequests([Self.request(1), Self.request(2), Self.request(3)])
        var schedule = UpstreamSchedule()
        let sender = Self.sender(store) { request, _ in
            switch request.message {
            case 1: .accepted
            case 2: .rejected("status 400")
            default: .notSent
            }
        }
        #expect(await sender.round(&schedule, at: .zero) == .zero)
        #expect(store.settled == [1: .done, 2: .done, 3: .released])
        #expect(await sender.round(&schedule, at: .zero) == .seconds(1))
    }

    @Test("A server that takes nothing gets no further requests until the pause that it asks for is over")
    func pauses() async {
        let store = FakePollRequests([Self.request(1), Self.request(2)])
        var schedule = UpstreamSchedule()
        let sender = Self.sender(store) { _, _ in .unavailable("status 429", after: .seconds(120)) }
        #expect(await sender.round(&schedule, at: .seconds(10)) == .zero)
        #expect(
            store.settled == [
                1: .failed(next: Self.now + .seconds(120)), 2: .failed(next: Self.now + .seconds(120)),
            ])
        store.add([Self.request(3)])
        #expect(await sender.round(&schedule, at: .seconds(129)) == .seconds(1))
        #expect(store.leases.count == 1)
        let other = Self.sender(store) { _, _ in .accepted }
        #expect(await other.round(&schedule, at: .seconds(130)) == .zero)
        #expect(store.settled[3] == .done)
        #expect(!schedule.isFailing)
    }

    @Test("A message that always fails does not delay others")
    func poison() async {
        let store = FakePollRequests([Self.request(1, attempts: 3), Self.request(2)])
        var schedule = UpstreamSchedule()
        let sender = Self.sender(store) { request, _ in
            request.message == 1 ? .unavailable("status 500", after: nil) : .accepted
        }
        _ = await sender.round(&schedule, at: .zero)
        #expect(store.settled == [1: .failed(next: Self.now + .seconds(40)), 2: .done])
        store.add([Self.request(3)])
        _ = await sender.round(&schedule, at: .zero)
        #expect(store.settled[3] == .done)
    }

    @Test("The database's errors end nothing")
    func databaseErrors() async {
        let store = FakePollRequests([Self.request(1)], isBroken: true)
        var schedule = UpstreamSchedule()
        #expect(await Self.sender(store) { _, _ in .accepted }.round(&schedule, at: .zero) == .seconds(5))
    }

    @Test("After sixty requests at once, one is allowed every five seconds")
    func rate() {
        var schedule = UpstreamSchedule()
        #expect(schedule.allowance(at: .seconds(100)).count == 60)
        schedule.sent(59, at: .seconds(100))
        #expect(schedule.allowance(at: .seconds(100)).count == 1)
        schedule.sent(1, at: .seconds(100))
        #expect(schedule.allowance(at: .seconds(100)) == (0, .seconds(5)))
        #expect(schedule.allowance(at: .seconds(104)) == (0, .seconds(1)))
        #expect(schedule.allowance(at: .seconds(105)).count == 1)
        #expect(schedule.allowance(at: .seconds(1000)).count == 60)
    }

    @Test("Pauses double up to ten minutes, and a server may ask for at most an hour")
    func backoff() {
        var schedule = UpstreamSchedule()
        #expect(schedule.failed(at: .zero, wanted: nil, random: 1) == .seconds(5))
        #expect(schedule.failed(at: .seconds(5), wanted: nil, random: 1) == .seconds(10))
        for _ in 0..<10 { _ = schedule.failed(at: .seconds(5), wanted: nil, random: 1) }
        #expect(schedule.failed(at: .seconds(10_000), wanted: nil, random: 1) == .seconds(600))
        #expect(schedule.failed(at: .seconds(10_000), wanted: .seconds(1_000_000), random: 1) == .seconds(3600))
        #expect(UpstreamSchedule.delay(attempts: 0) == .seconds(5))
        #expect(UpstreamSchedule.delay(attempts: 1000) == .seconds(600))
    }
}

/// Requests in memory.
final class FakePollRequests: PollRequestStore {
    private struct State {
        var waiting: [PollRequest]
        var leases: [[PollRequest]] = []
        var settled: [MessageID: PollRequestResult] = [:]
    }

    private let state: Mutex<State>
    private let isBroken: Bool

    init(_ waiting: [PollRequest], isBroken: Bool = false) {
        state = Mutex(State(waiting: waiting))
        self.isBroken = isBroken
    }

    var leases: [[PollRequest]] { state.withLock { $0.leases } }
    var settled: [MessageID: PollRequestResult] { state.withLock { $0.settled } }

    func add(_ requests: [PollRequest]) { state.withLock { $0.waiting += requests } }

    func polled(_ room: SecretCode) async throws(ChatError) {}

    func lease(limit: Int) async throws(ChatError) -> [PollRequest] {
        if isBroken { throw ChatError.unavailable(cause: "locked") }
        return state.withLock { state in
            let leased = Array(state.waiting.prefix(limit))
            state.waiting.removeFirst(leased.count)
            if !leased.isEmpty { state.leases.append(leased) }
            return leased
        }
    }

    func settle(_ request: PollRequest, _ result: PollRequestResult) async throws(ChatError) {
        state.withLock { $0.settled[request.message] = result }
    }
}
