import ChatDomain
import Testing

@Suite("Waits between retries")
struct BackoffTests {
    @Test("Each wait is twice the previous one, up to the limit, and a reset returns to the first")
    func delays() {
        var backoff = Backoff(first: .seconds(1), longest: .seconds(5))
        #expect(backoff.isFresh)
        #expect((1...5).map { _ in backoff.delay() } == [1, 2, 4, 5, 5].map { Duration.seconds($0) })
        #expect(!backoff.isFresh)
        backoff.reset()
        #expect(backoff.isFresh && backoff.delay() == .seconds(1))
    }
}
