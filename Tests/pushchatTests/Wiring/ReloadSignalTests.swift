import Synchronization
import Testing

@testable import pushchat

@Suite struct ReloadSignalTests {
    private final class Count: Sendable {
        let value = Atomic(0)
        func next() -> Int { value.add(1, ordering: .relaxed).newValue }
    }

    @Test("Signals that arrive while one is handled count as one", .timeLimit(.minutes(1)))
    func merged() async {
        let (sent, acts) = (Count(), Count())
        let (allRead, end) = AsyncStream.makeStream(of: Void.self)
        let signals = AsyncStream<Void>(unfolding: {
            if sent.next() <= 100 { return () }
            end.finish()
            return nil
        })
        await ReloadSignal.forEach(signals) {
            _ = acts.next()
            for await _ in allRead {}
        }
        #expect((1...2).contains(acts.next() - 1))
    }
}
