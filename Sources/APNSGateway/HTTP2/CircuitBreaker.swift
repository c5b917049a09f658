import ChatDomain
import NIOCore
import Synchronization

/// Stops sending for an app while the push service fails (500 and 503), over all its connections.
///
/// It opens after several such answers without a success between them. After a delay it is half open: one push, the probe,
/// shows whether the service works again.
final class CircuitBreaker: Sendable {
    /// Which pushes may be leased.
    enum Permission: Sendable, Hashable {
        case all, one
        /// - Parameter until: nil while the probe is on its way.
        case none(until: NIODeadline?)
    }

    enum Change: Sendable, Hashable {
        case opened(TimeAmount), closed
    }

    /// Failures in a row that open it.
    static let failureLimit = 10
    /// How long a success counts as recent.
    private static let recently = TimeAmount.seconds(60)

    private enum Phase {
        case closed(failures: Int)
        case open(until: NIODeadline)
        case halfOpen
        /// Half open, and the probe is on its way.
        case probing
    }

    private struct State {
        var phase = Phase.closed(failures: 0)
        var backoff = Backoff(first: .milliseconds(250), longest: .seconds(30))
        var lastSuccess: NIODeadline?
    }

    private let state = Mutex(State())

    func isOpen(now: NIODeadline) -> Bool {
        state.withLock { state in
            if case .open(let until) = state.phase { now < until } else { false }
        }
    }

    func permission(now: NIODeadline) -> Permission {
        state.withLock { state in
            switch state.phase {
            case .closed: return .all
            case .probing: return .none(until: nil)
            case .halfOpen: return .one
            case .open(let until):
                guard now >= until else { return .none(until: until) }
                state.phase = .halfOpen
                return .one
            }
        }
    }

    func hasSucceededRecently(now: NIODeadline) -> Bool {
        state.withLock { $0.lastSuccess.map { now - $0 < Self.recently } ?? false }
    }

    func noteWritten() {
        state.withLock { state in
            if case .halfOpen = state.phase { state.phase = .probing }
        }
    }

    /// What the last answers were; without any, pushes were lost.
    func record(successes: Int, failures: Int, now: NIODeadline, random: Double) -> Change? {
        state.withLock { state in
            if successes > 0 {
                defer { state = State(lastSuccess: now) }
                if case .closed = state.phase { return nil }
                return .closed
            }
            switch state.phase {
            case .closed(let before):
                state.phase = .closed(failures: before + failures)
                guard before + failures >= Self.failureLimit else { return nil }
            case .probing: break
            case .open, .halfOpen: return nil
            }
            let delay = TimeAmount(state.backoff.delay(random: random))
            state.phase = .open(until: now + delay)
            return .opened(delay)
        }
    }
}
