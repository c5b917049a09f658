import ChatDomain
import Testing

@testable import APNSGateway

@Suite("Verdicts on their way to the recorder", .timeLimit(.minutes(5)))
struct VerdictBufferTests {
    private func verdict(_ identifiers: ClosedRange<UInt32>) -> Verdict {
        Verdict(connection: ConnectionEpoch(7), identifiers: identifiers, outcome: .accepted)
    }

    @Test("Everything that came is handed over at once; after the close what is left, then nil")
    func take() async {
        let buffer = VerdictBuffer()
        buffer.put([verdict(1...1)])
        buffer.put([])
        buffer.put([verdict(2...2), verdict(3...3)])
        #expect(await buffer.take() == [verdict(1...1), verdict(2...2), verdict(3...3)])
        buffer.put([verdict(4...4)])
        buffer.close()
        #expect(await buffer.take() == [verdict(4...4)])
        #expect(await buffer.take() == nil)
    }

    @Test("A reader that waits gets every verdict of several writers, and the end")
    func races() async {
        let buffer = VerdictBuffer()
        async let taken = {
            var all: [Verdict] = []
            while let verdicts = await buffer.take() { all += verdicts }
            return all
        }()
        await withTaskGroup(of: Void.self) { group in
            for writer in UInt32(0)..<4 {
                group.addTask {
                    for number in 1...1000 as ClosedRange<UInt32> {
                        let identifier = writer * 1000 + number
                        buffer.put([verdict(identifier...identifier)])
                    }
                }
            }
        }
        buffer.close()
        #expect(await Set(taken.map(\.identifiers.lowerBound)) == Set(1...4000))
    }

    @Test("Few verdicts cover many outcomes, in whatever order they came")
    func combining() {
        let refused = Outcome.rejected(reason: "BadDeviceToken")
        let outcomes: [(UInt32, Outcome)] = [
            (3, .accepted), (1, .accepted), (2, .accepted), (5, .accepted), (6, refused), (7, refused),
            (8, .notProcessed), (9, .notProcessed), (11, .notProcessed),
        ]
        let verdicts = Verdict.combining(outcomes.map { (identifier: $0, outcome: $1) }, on: ConnectionEpoch(7))
        #expect(verdicts.map(\.identifiers) == [1...3, 5...5, 6...6, 7...7, 8...9, 11...11])
        #expect(verdicts.map(\.outcome) == [.accepted, .accepted, refused, refused, .notProcessed, .notProcessed])
        #expect(Verdict.combining([], on: ConnectionEpoch(7)).isEmpty)
    }
}
