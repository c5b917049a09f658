import NIOCore
import Synchronization

/// Slows an app down while the push service says that it is in trouble (500 and 503), over all connections.
///
/// After several such answers without a good one between, nothing is sent for a while; then one push shows whether it
/// is over.
final class ServiceTemper: Sendable {
    /// Answers of trouble in a row that are put up with.
    static let patience = 10

    private enum Mood {
        case calm(troubles: Int)
        case pausing(until: NIODeadline)
        /// One push may go.
        case curious
        /// It is on its way.
        case trying
    }

    /// How long a good answer speaks for the service.
    private static let memory = TimeAmount.seconds(60)

    private struct State {
        var mood = Mood.calm(troubles: 0)
        var pacing = ReconnectPacing()
        var lastGood: NIODeadline?
    }

    private let state = Mutex(State())

    func isPausing(now: NIODeadline) -> Bool {
        state.withLock { state in
            if case .pausing(let until) = state.mood { now < until } else { false }
        }
    }

    /// Whether slots are given out, and whether only for one push.
    func permission(now: NIODeadline) -> ServicePermission {
        state.withLock { state in
            switch state.mood {
            case .calm: return .all
            case .trying: return .none
            case .curious: return .one
            case .pausing(let until):
                guard now >= until else { return .none }
                state.mood = .curious
                return .one
            }
        }
    }

    /// Whether there was a good answer a moment ago.
    func hasProgressed(now: NIODeadline) -> Bool {
        state.withLock { $0.lastGood.map { now - $0 < Self.memory } ?? false }
    }

    func noteWritten() {
        state.withLock { state in
            if case .curious = state.mood { state.mood = .trying }
        }
    }

    /// What came back: how many answers were good, how many spoke of trouble; with neither, something was lost.
    /// - Returns: how long nothing is sent now, if that has just begun.
    func note(good: Int, troubles: Int, now: NIODeadline, random: Double) -> TimeAmount? {
        state.withLock { state in
            if good > 0 {
                state = State(lastGood: now)
                return nil
            }
            switch state.mood {
            case .calm(let before):
                state.mood = .calm(troubles: before + troubles)
                guard before + troubles >= Self.patience else { return nil }
            case .trying: break
            case .pausing, .curious: return nil
            }
            let delay = TimeAmount(state.pacing.delay(after: .nothing, random: random))
            state.mood = .pausing(until: now + delay)
            return delay
        }
    }
}

enum ServicePermission: Sendable {
    case all, one, none
}
