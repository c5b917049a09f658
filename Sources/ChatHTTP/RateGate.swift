import ChatDomain
import Synchronization

/// Counts the requests of addresses and members against their limits.
final class RateGate: Sendable {
    private let addresses = Mutex(RateLimiter<IPAddress>())
    private let members = Mutex(RateLimiter<MemberID>())
    private let now: @Sendable () -> ContinuousClock.Instant

    init(now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }) {
        self.now = now
    }

    func admit(_ address: IPAddress, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = addresses.withLock { $0.admit(address.rateKey, limit: limit, at: now()) }
        if let wait { throw Self.tooMany("address", wait) }
    }

    func admit(_ member: MemberID, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = members.withLock { $0.admit(member, limit: limit, at: now()) }
        if let wait { throw Self.tooMany("device", wait) }
    }

    private static func tooMany(_ whose: String, _ wait: Duration) -> ChatError {
        ChatError(
            .tooManyRequests,
            "Too many requests from this \(whose); try again in \(ErrorAnswer.wholeSeconds(wait)) s", retryAfter: wait)
    }
}
