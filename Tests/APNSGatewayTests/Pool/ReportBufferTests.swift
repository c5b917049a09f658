import ChatDomain
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Reports on their way to the recorder", .timeLimit(.minutes(5)))
struct ReportBufferTests {
    private func report(_ identifiers: ClosedRange<UInt32>) -> DeliveryReport {
        DeliveryReport(connection: ConnectionID(7), identifiers: identifiers, outcome: .accepted)
    }

    @Test("A read returns all reports so far; after the close the remaining ones, then nil")
    func take() async {
        let buffer = ReportBuffer()
        buffer.put([report(1...1)])
        buffer.put([])
        buffer.put([report(2...2), report(3...3)])
        #expect(await buffer.take() == [report(1...1), report(2...2), report(3...3)])
        buffer.put([report(4...4)])
        buffer.close()
        #expect(await buffer.take() == [report(4...4)])
        #expect(await buffer.take() == nil)
    }

    @Test("A waiting reader gets every report of several writers, and the end")
    func races() async {
        let buffer = ReportBuffer()
        async let taken = {
            var all: [DeliveryReport] = []
            while let reports = await buffer.take() { all += reports }
            return all
        }()
        await withTaskGroup(of: Void.self) { group in
            for writer in UInt32(0)..<4 {
                group.addTask {
                    for number in 1...1000 as ClosedRange<UInt32> {
                        let identifier = writer * 1000 + number
                        buffer.put([report(identifier...identifier)])
                    }
                }
            }
        }
        buffer.close()
        #expect(await Set(taken.map(\.identifiers.lowerBound)) == Set(1...4000))
    }

    @Test("Few reports cover many outcomes, in any order")
    func combining() {
        let refused = Outcome.rejected(reason: "BadDeviceToken")
        let outcomes: [(UInt32, Outcome)] = [
            (3, .accepted), (1, .accepted), (2, .accepted), (5, .accepted), (6, refused), (7, refused),
            (8, .notProcessed), (9, .notProcessed), (11, .notProcessed),
        ]
        let reports = DeliveryReport.combining(outcomes.map { (identifier: $0, outcome: $1) }, on: ConnectionID(7))
        #expect(reports.map(\.identifiers) == [1...3, 5...5, 6...6, 7...7, 8...9, 11...11])
        #expect(reports.map(\.outcome) == [.accepted, .accepted, refused, refused, .notProcessed, .notProcessed])
        #expect(DeliveryReport.combining([], on: ConnectionID(7)).isEmpty)
    }
}
