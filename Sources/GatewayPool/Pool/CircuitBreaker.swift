import ChatDomain
import NIOCore
import Synchronization

/// Stops sending on all connections of an app while the push service fails (500 and 503).
///
/// It opens after several such responses without a success between them, or because the service asks for a pause (429). After a delay it is half open: one push, the
/// probe, shows whether the service works again.
final class CircuitBreaker: Sendable {
    /// The pushes that may be leased.
    enum Permission: Sendable, Hashable {
        case all, one
        /// No push may be leased.
        /// - Parameter until: The end of the delay. `nil` while the probe is in flight.
        case none(until: NIODeadline?)
    }

    enum Change: Sendable, Hashable {
        case opened(TimeAmount), closed
    }

    /// The number of failures in a row that open the breaker.
    static let failureLimit = 10
    /// The time for which a success counts as recent.
    private static let recently = TimeAmount.seconds(60)

    private enum Phase {
        case closed(failures: Int)
        case open(until: NIODeadline)
        /// Open because the service asked for it. Pushes that were in flight do not close it.
        case paused(until: NIODeadline)
        case halfOpen
        /// Half open, and the probe is in flight.
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
            switch state.phase {
            case .open(let until), .paused(let until): now < until
            case .closed, .halfOpen, .probing: false
            }
        }
    }

    func permission(now: NIODeadline) -> Permission {
        state.withLock { state in
            switch state.phase {
            case .closed: return .all
            case .probing: return .none(until: nil)
            case .halfOpen: return .one
            case .open(let until), .paused(let until):
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

    /// Opens the breaker for at least a time, because the push service asked for it.
    /// - Returns: `nil` if it is open for that long already.
    func pause(for duration: Duration, now: NIODeadline) -> Change? {
        let end = now + TimeAmount(duration)
        return state.withLock { state in
            if case .paused(let until) = state.phase, until >= end { return nil }
            state.phase = .paused(until: end)
            return .opened(end - now)
        }
    }

    /// Records outcomes. If both counts are zero, the outcomes say nothing about the service, for example because
    /// pushes were lost. A probe with such an outcome opens the breaker again.
    func record(successes: Int, failures: Int, now: NIODeadline, random: Double) -> Change? {
        state.withLock { state in
            if case .paused(let until) = state.phase, now < until {
                if successes > 0 { state.lastSuccess = now }
                return nil
            }
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
            case .open, .paused, .halfOpen: return nil
            }
            let delay = TimeAmount(state.backoff.delay(random: random))
            state.phase = .open(until: now + delay)
            return .opened(delay)
        }
    }
}
