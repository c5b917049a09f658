import ChatDomain
import NIOCore
import Synchronization

/// Pauses sending on all connections of an app while its push service accepts nothing.
///
/// A refusal may concern only its device: a token whose pushes fail with 500, or a busy phone beyond its quota.
/// So a pause starts only after refusals of many distinct devices without a success between them. After the pause, a
/// round of tests follows: a few pushes to distinct devices, those with the fewest refusals first (``ServiceTest``).
/// The first success ends the pause. A round without a success starts a longer pause and a larger round, so that even
/// among thousands of refused devices one that the service accepts is soon tried.
final class CircuitBreaker: Sendable {
    /// The pushes that may be leased.
    enum Permission: Sendable, Hashable {
        case all
        /// Up to `limit` pushes to the devices that the test prefers.
        case test(limit: Int, ServiceTest)
        /// No push may be leased.
        case none(until: NIODeadline)
    }

    enum Change: Sendable, Hashable {
        case opened(TimeAmount), closed
    }

    /// The number of distinct devices with a refusal, without a success between them, that open the breaker.
    static let deviceLimit = 10
    /// The number of tests in a round. It doubles with each round: even the largest one is a small load for a service
    /// that recovers.
    static let testSizes = (first: 16, largest: 256)
    /// The longest pause that the service can ask for, because it may have asked for single devices only. The refused
    /// pushes themselves wait for as long as their responses ask.
    static let longestAskedPause = Duration.seconds(60)
    /// The longest pause otherwise.
    static let longestPause = Duration.seconds(30)
    /// The maximum number of refused devices to remember: one or two megabytes. The others count as never refused.
    static let rememberedDevices = 10_000
    /// The time for which a success counts as recent.
    private static let recently = TimeAmount.seconds(60)

    private enum Phase {
        case closed
        case open(until: NIODeadline)
        /// A round of tests.
        /// - Parameters:
        ///   - left: The number of tests that may still be written.
        ///   - pause: The length of the pause that a refusal starts after the last test.
        ///   - until: The start of the next round if no test gets a response that counts.
        case testing(left: Int, pause: TimeAmount, until: NIODeadline)
    }

    private struct State {
        var phase = Phase.closed
        /// The number of refusals of each device since the last success.
        var refusals: [Address: Int] = [:]
        var backoff = Backoff(first: .milliseconds(250), longest: CircuitBreaker.longestPause)
        var testSize = CircuitBreaker.testSizes.first
        var lastSuccess: NIODeadline?

        mutating func refuse(_ devices: [Address]) {
            for device in devices where refusals[device] != nil || refusals.count < CircuitBreaker.rememberedDevices {
                refusals[device, default: 0] += 1
            }
        }

        mutating func open(for pause: TimeAmount, now: NIODeadline) -> Change {
            phase = .open(until: now + pause)
            return .opened(pause)
        }
    }

    private let state = Mutex(State())

    func isOpen(now: NIODeadline) -> Bool {
        state.withLock { if case .open(let until) = $0.phase { now < until } else { false } }
    }

    /// Returns the pushes that may be leased now. Starts a round of tests after a pause.
    func permission(now: NIODeadline, random: Double = .random(in: 0...1)) -> Permission {
        state.withLock { state in
            switch state.phase {
            case .closed: return .all
            case .testing(let left, _, _) where left > 0: return .test(limit: left, ServiceTest(state.refusals))
            case .testing(_, _, let until) where now < until, .open(let until) where now < until:
                return .none(until: until)
            case .testing, .open:
                let pause = TimeAmount(state.backoff.delay(random: random))
                state.phase = .testing(left: state.testSize, pause: pause, until: now + pause)
                defer { state.testSize = min(2 * state.testSize, Self.testSizes.largest) }
                return .test(limit: state.testSize, ServiceTest(state.refusals))
            }
        }
    }

    func hasSucceededRecently(now: NIODeadline) -> Bool {
        state.withLock { $0.lastSuccess.map { now - $0 < Self.recently } ?? false }
    }

    func noteWritten(_ count: Int) {
        state.withLock { state in
            guard case .testing(let left, let pause, let until) = state.phase else { return }
            state.phase = .testing(left: max(0, left - count), pause: pause, until: until)
        }
    }

    /// Records responses. Lost pushes say nothing about the service.
    /// - Parameters:
    ///   - successes: The number of responses that show that the service works.
    ///   - refused: The devices whose pushes the service did not accept now, once per response.
    ///   - asked: The longest time for which the service asked for no pushes. `nil` if it did not ask.
    func record(
        successes: Int, refused: [Address] = [], asked: Duration? = nil, now: NIODeadline, random: Double
    ) -> Change? {
        state.withLock { state in
            if successes > 0 {
                defer { state = State(lastSuccess: now) }
                if case .closed = state.phase { return nil }
                return .closed
            }
            guard !refused.isEmpty else { return nil }
            state.refuse(refused)
            let asked = TimeAmount(min(asked ?? .zero, Self.longestAskedPause))
            switch state.phase {
            case .closed where state.refusals.count >= Self.deviceLimit:
                return state.open(for: max(TimeAmount(state.backoff.delay(random: random)), asked), now: now)
            case .testing(0, let pause, _): return state.open(for: max(pause, asked), now: now)
            case .open(let until) where until < now + asked:
                state.phase = .open(until: now + asked)
                return nil
            case .closed, .testing, .open: return nil
            }
        }
    }
}
