import NIOCore
import Testing

@testable import APNSGateway

@Suite("What is known of a gateway's answers to sentinels")
struct SentinelKnowledgeTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func knowledge(_ results: SentinelResult...) -> SentinelKnowledge {
        var knowledge = SentinelKnowledge()
        for result in results { knowledge.learn(result, isTrial: false, now: Self.start) }
        return knowledge
    }

    @Test("A new gateway gets a sentinel where proof is needed, and no trial before anything was lost")
    func new() {
        var knowledge = SentinelKnowledge()
        #expect(knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start) == false)
        knowledge.lostPushes(now: Self.start)
        #expect(knowledge.isUseful)
        #expect(knowledge.takeTrial(now: Self.start) == true)
    }

    @Test(
        "One sentinel that was not understood is enough: silence proves, and each new connection tries until it is known"
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
        "A failed trial is repeated by one connection, after ten seconds to ten minutes: an updated gateway is noticed")
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
        "A gateway that has answered is believed: three failures in a row ask for a trial, and its answer ends the doubt"
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
        "An answer to an earlier push says nothing about sentinels: neither that they are understood nor that they are not"
    )
    func notReached() {
        #expect(knowledge(.notReached, .notReached, .notReached).isUseful)
        #expect(!knowledge(.notUnderstood, .notReached).isUseful)
        #expect(!knowledge(.answered, .notUnderstood, .notReached, .notUnderstood, .notUnderstood).isUseful)
    }
}
