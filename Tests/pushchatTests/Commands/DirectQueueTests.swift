import APNSGateway
import ChatDomain
import Synchronization
import TestSupport
import Testing

@testable import pushchat

@Suite("The queue of one command") struct DirectQueueTests {
    private static let start = Timestamp(seconds: 1_800_000_000)
    private static let tokens = (1...3).map { DeviceToken(bytes: [UInt8](repeating: $0, count: 32))! }

    private static func queue(
        _ count: Int = 1, expiration: Int64? = nil, now: @escaping TimeSource = { start }
    ) throws -> DirectQueue {
        var fields: JSONObject = ["alert": .string("x")]
        if let expiration { fields["expiration"] = .number(expiration) }
        let content = try NotificationContent(fields, now: start)
        return DirectQueue(content, try APNSFormat.composed(content), to: Array(tokens.prefix(count)), now: now)
    }

    private static func lease(_ queue: DirectQueue) -> [QueuedPush] {
        queue.lease(app: .default, lanes: PushLane.allCases, limit: 10).pushes
    }

    /// Records an outcome as a dispatcher does.
    private static func settle(
        _ queue: DirectQueue, _ push: QueuedPush, _ outcome: Outcome, at now: Timestamp = start
    ) {
        let transition = DirectQueue.lifeCycle.transition(
            outcome, push.history, lane: push.lane, expiration: push.expiration, leasedAt: now, lastAccepted: nil,
            at: now)
        if transition.changesNothing {
            queue.release([push.id...push.id], lane: push.lane, app: .default)
        } else {
            _ = queue.settle([Settlement(push.id...push.id, transition)], app: .default)
        }
    }

    @Test(
        "An outcome of the gateway becomes the result of the command",
        arguments: [
            (.accepted, .accepted, nil, true),
            (.rejected(reason: "BadTopic", hint: "h"), .refused, "BadTopic", true),
            (.badAddress(reason: "InvalidToken"), .refused, "InvalidToken", true),
            (.unregistered(since: start, reason: "Unregistered"), .refused, "Unregistered", true),
            (.notAuthorized(reason: "InvalidProviderToken"), .refused, "InvalidProviderToken", true),
            (.retry(reason: "ServiceUnavailable"), .unsent, "ServiceUnavailable", false),
            (.sentBack(reason: "Shutdown"), .unsent, "Shutdown", false),
            (.notProcessed, .unsent, nil, false),
            (.unanswered(reason: "NoResponse"), .unknown, "NoResponse", false),
        ] as [(Outcome, DirectResult.Outcome, String?, Bool)])
    func outcomes(outcome: Outcome, expected: DirectResult.Outcome, reason: String?, isOver: Bool) throws {
        let queue = try Self.queue()
        let pushes = Self.lease(queue)
        #expect(pushes.map(\.address) == [.token(Self.tokens[0])])
        #expect(!queue.hasWaiting)
        Self.settle(queue, pushes[0], outcome)
        let result = queue.results[0]
        #expect(
            (result.outcome, result.reason, result.attempts) == (expected, reason, outcome == .notProcessed ? 0 : 1))
        #expect(queue.isSettled == isOver)
        #expect(queue.hasWaiting == !isOver)
    }

    @Test("A retry keeps its id, waits for its time, and replaces the unknown outcome")
    func repeats() throws {
        let clock = WallClock(Self.start)
        let queue = try Self.queue(now: clock.source)
        let first = Self.lease(queue)
        Self.settle(queue, first[0], .retry(reason: "ServiceUnavailable"))
        #expect(Self.lease(queue).isEmpty)
        let due = try #require(queue.nextDue(app: .default))
        #expect(due > Self.start)
        clock.now = due
        let second = Self.lease(queue)
        #expect(second.map(\.id) == first.map(\.id))
        Self.settle(queue, second[0], .unanswered(reason: "NoResponse"), at: due)
        #expect(queue.results[0].outcome == .unknown)
        let third = Self.lease(queue)
        Self.settle(queue, third[0], .accepted, at: due)
        let result = queue.results[0]
        #expect((result.outcome, result.reason, result.attempts) == (.accepted, nil, 3))
    }

    @Test("A push that may have made the gateway close moves behind the others, a limited number of times")
    func suspect() throws {
        let queue = try Self.queue(3)
        let pushes = Self.lease(queue)
        #expect(pushes.count == 3)
        Self.settle(queue, pushes[0], .accepted)
        Self.settle(queue, pushes[1], .unanswered(reason: "Closed"))
        Self.settle(queue, pushes[2], .notProcessed)
        for _ in 2...3 {
            let again = Self.lease(queue)
            let suspect = try #require(again.last)
            #expect(suspect.lane == .retry && suspect.address == .token(Self.tokens[1]))
            Self.settle(queue, suspect, .unanswered(reason: "Closed"))
            for push in again.dropLast() { Self.settle(queue, push, .accepted) }
        }
        #expect(queue.isSettled)
        #expect(queue.results.map(\.outcome) == [.accepted, .unknown, .accepted])
    }

    @Test("An expiration of 0 allows one attempt", arguments: [Outcome.retry(reason: "r"), .unanswered(reason: "r")])
    func once(outcome: Outcome) throws {
        let queue = try Self.queue(expiration: 0)
        Self.settle(queue, Self.lease(queue)[0], outcome)
        #expect(queue.isSettled)
    }

    @Test("Results are printed as lines or as objects")
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
