import ChatDomain
import Synchronization
import Testing

@testable import pushchat

@Suite("The queue of one command") struct DirectQueueTests {
    private static let start = Timestamp(seconds: 1_800_000_000)
    private static let tokens = (1...3).map { DeviceToken(bytes: [UInt8](repeating: $0, count: 32))! }

    private static func queue(
        _ count: Int = 1, expiration: Int64? = nil, clock: @escaping TimeSource = { start }
    ) throws -> DirectQueue {
        var fields: JSONObject = ["alert": .string("x")]
        if let expiration { fields["expiration"] = .number(expiration) }
        return DirectQueue(
            try NotificationContent(fields, now: start), to: Array(tokens.prefix(count)), clock: clock)
    }

    private static func slot(_ epoch: Int64 = 1, first: UInt32 = 1, isFresh: Bool = true) -> ConnectionSlot {
        ConnectionSlot(
            connection: ConnectionEpoch(epoch), firstIdentifier: first, room: 10, isFresh: isFresh,
            payloadLimit: 4096, namesPushes: true)
    }

    private static func verdict(
        _ outcome: Outcome, _ identifiers: ClosedRange<UInt32> = 1...1, epoch: Int64 = 1
    ) -> Verdict {
        Verdict(connection: ConnectionEpoch(epoch), identifiers: identifiers, outcome: outcome)
    }

    @Test(
        "What the gateway says is what the command says",
        arguments: [
            (.accepted, .accepted, nil, true),
            (.rejected(reason: "BadTopic", hint: "h"), .refused, "BadTopic", true),
            (.unregistered(since: start, reason: "Unregistered"), .refused, "Unregistered", true),
            (.notAuthorized(reason: "InvalidProviderToken"), .refused, "InvalidProviderToken", true),
            (.retry(reason: "ServiceUnavailable"), .unsent, "ServiceUnavailable", false),
            (.sentBack(reason: "Shutdown"), .unsent, "Shutdown", false),
            (.notProcessed, .unsent, nil, false),
            (.unanswered(reason: "NoAnswer"), .unknown, "NoAnswer", false),
        ] as [(Outcome, DirectResult.Outcome, String?, Bool)])
    func outcomes(outcome: Outcome, expected: DirectResult.Outcome, reason: String?, isOver: Bool) async throws {
        let queue = try Self.queue()
        let lease = await queue.lease(app: .default, for: Self.slot())
        #expect(lease.pushes.map(\.token) == [Self.tokens[0]] && lease.pushes.first?.id != nil)
        #expect(await !queue.hasWaiting)
        await queue.settle([Self.verdict(outcome)])
        let result = await queue.results[0]
        #expect((result.outcome, result.reason, result.attempts) == (expected, reason, 1))
        #expect(await queue.isSettled == isOver)
        #expect(await queue.hasWaiting == !isOver)
    }

    @Test("A repeat keeps its id, waits for its time, and ends what was unknown")
    func repeats() async throws {
        let clock = TestClock(Self.start)
        let queue = try Self.queue(clock: clock.now)
        let first = await queue.lease(app: .default, for: Self.slot())
        await queue.settle([Self.verdict(.unanswered(reason: "NoAnswer"))])
        #expect(await queue.lease(app: .default, for: Self.slot(2)).pushes.isEmpty)
        let due = try #require(await queue.nextDue(app: .default))
        #expect(due > Self.start)
        clock.set(due)
        let second = await queue.lease(app: .default, for: Self.slot(2))
        #expect(second.pushes.map(\.id) == first.pushes.map(\.id))
        // Of another connection: not meant.
        await queue.settle([Self.verdict(.rejected(reason: "Late"))])
        #expect(await !queue.isSettled)
        await queue.settle([Self.verdict(.accepted, epoch: 2)])
        let result = await queue.results[0]
        #expect((result.outcome, result.reason, result.attempts) == (.accepted, nil, 2))
    }

    @Test("What may have made the gateway close goes alone on a fresh connection, and not for ever")
    func suspect() async throws {
        let clock = TestClock(Self.start)
        let queue = try Self.queue(3, clock: clock.now)
        #expect(await queue.lease(app: .default, for: Self.slot()).pushes.count == 3)
        await queue.settle([
            Self.verdict(.accepted, 1...1), Self.verdict(.unanswered(reason: "Closed"), 2...2),
            Self.verdict(.notProcessed, 3...3),
        ])
        for epoch in 2...3 as ClosedRange<Int64> {
            clock.set(try #require(await queue.nextDue(app: .default)) + .seconds(60))
            #expect(await queue.lease(app: .default, for: Self.slot(epoch, isFresh: false)).needsFreshConnection)
            let lease = await queue.lease(app: .default, for: Self.slot(epoch))
            #expect(lease.isProbe && lease.pushes.map(\.token) == [Self.tokens[1]])
            await queue.settle([Self.verdict(.unanswered(reason: "Closed"), epoch: epoch)])
        }
        #expect(await queue.lease(app: .default, for: Self.slot(4)).pushes.map(\.token) == [Self.tokens[2]])
        await queue.settle([Self.verdict(.accepted, epoch: 4)])
        #expect(await queue.isSettled)
        #expect(await queue.results.map(\.outcome) == [.accepted, .unknown, .accepted])
    }

    @Test("An expiration of 0 is one attempt", arguments: [Outcome.retry(reason: "r"), .unanswered(reason: "r")])
    func once(outcome: Outcome) async throws {
        let queue = try Self.queue(expiration: 0)
        _ = await queue.lease(app: .default, for: Self.slot())
        await queue.settle([Self.verdict(outcome)])
        #expect(await queue.isSettled)
    }

    @Test("Results are a line each, or objects")
    func printed() {
        var result = DirectResult(token: Self.tokens[0])
        #expect(result.line == "\(Self.tokens[0]) unsent")
        result.outcome = .refused
        result.reason = "BadTopic"
        result.hint = "sent was x"
        #expect(result.line == "\(Self.tokens[0]) refused BadTopic (sent was x)")
        #expect(
            result.json.description
                == #"{"token":"\#(Self.tokens[0])","outcome":"refused","reason":"BadTopic","hint":"sent was x","attempts":0,"#
                + #""apns_id":null}"#)
    }
}

/// A clock that a test sets.
private final class TestClock: Sendable {
    private let time: Mutex<Timestamp>

    init(_ time: Timestamp) {
        self.time = Mutex(time)
    }

    var now: TimeSource { { self.time.withLock { $0 } } }

    func set(_ time: Timestamp) {
        self.time.withLock { $0 = time }
    }
}
