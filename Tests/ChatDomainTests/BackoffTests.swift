import ChatDomain
import Testing

@Suite("Waits between repeats")
struct BackoffTests {
    @Test("Each wait is twice the one before, up to the limit, and a success begins from the first again")
    func delays() {
        var backoff = Backoff(first: .seconds(1), longest: .seconds(5))
        #expect(backoff.isFresh)
        #expect((1...5).map { _ in backoff.delay() } == [1, 2, 4, 5, 5].map { Duration.seconds($0) })
        #expect(!backoff.isFresh)
        backoff.reset()
        #expect(backoff.isFresh && backoff.delay() == .seconds(1))
    }
}
