import NIOCore
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Knowledge of a gateway's responses to sentinels")
struct SentinelKnowledgeTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func knowledge(_ results: SentinelResult...) -> SentinelKnowledge {
        var knowledge = SentinelKnowledge()
        for result in results { knowledge.learn(result, isTrial: false, now: Self.start) }
        return knowledge
    }

    @Test("A new gateway gets a sentinel when proof is needed, and no trial before a loss")
    func new() {
        var knowledge = SentinelKnowledge()
        #expect(knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start) == false)
        knowledge.lostPushes(now: Self.start)
        #expect(knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start) == true)
    }

    @Test(
        "After one failed sentinel silence proves pushes, and each new connection makes a trial until one succeeds"
    )
    func firstFailure() {
        var knowledge = knowledge(.notUnderstood)
        #expect(!knowledge.isUseful)
        for _ in 0..<3 {
            #expect(knowledge.takeTrial(now: Self.start) == true)
        }
        knowledge.learn(.answered, isTrial: true, now: Self.start)
        #expect(knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start + .hours(1)) == false)
    }

    @Test(
        "One connection repeats a failed trial after ten seconds to ten minutes, so that an updated gateway is noticed")
    func relearning() {
        var knowledge = knowledge(.notUnderstood)
        var now = Self.start
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] as [Int64] {
            knowledge.learn(.notUnderstood, isTrial: true, now: now)
            #expect(!knowledge.isUseful)
            now = now + .seconds(seconds) - .nanoseconds(1)
            #expect(knowledge.takeTrial(now: now) == false)
            now = now + .nanoseconds(1)
            #expect(knowledge.takeTrial(now: now) == true)
            #expect(knowledge.takeTrial(now: now) == false)
        }
        knowledge.learn(.answered, isTrial: true, now: now)
        #expect(knowledge.isUseful)
    }

    @Test(
        "For a gateway that has responded, only three failures in a row cause a trial, and its response ends the doubt"
    )
    func experience() {
        var knowledge = knowledge(.answered, .notUnderstood, .notUnderstood)
        #expect(knowledge.isUseful)
        knowledge.learn(.answered, isTrial: false, now: Self.start)
        for _ in 0..<2 { knowledge.learn(.notUnderstood, isTrial: false, now: Self.start) }
        #expect(knowledge.isUseful)
        knowledge.learn(.notUnderstood, isTrial: false, now: Self.start)
        #expect(!knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start) == true)
        knowledge.learn(.answered, isTrial: true, now: Self.start)
        #expect(knowledge.isUseful)
    }

    @Test(
        "A response to an earlier push shows nothing about sentinels"
    )
    func notReached() {
        #expect(knowledge(.notReached, .notReached, .notReached).isUseful)
        #expect(!knowledge(.notUnderstood, .notReached).isUseful)
        #expect(!knowledge(.answered, .notUnderstood, .notReached, .notUnderstood, .notUnderstood).isUseful)
    }
}
