import NIOCore
import Synchronization

/// Whether a gateway answers the deliberately bad notification as Apple's did.
///
/// One that closes or keeps silent instead would never prove anything, and what is asked about would be repeated for
/// ever; with such a gateway silence has to do.
final class SentinelExperience: Sendable {
    /// Failures in a row after which it is not tried for a while, if it has never worked. More than it takes until what is
    /// written before is so little that a gateway that closes every so often comes to the sentinel.
    static let patience = 6
    static let pause = TimeAmount.minutes(10)

    private struct State {
        var hasWorked = false
        var failures = 0
        var lastFailure = NIODeadline.distantPast
    }

    private let state = Mutex(State())

    func areWorthwhile(now: NIODeadline) -> Bool {
        state.withLock { $0.hasWorked || $0.failures < Self.patience || now - $0.lastFailure > Self.pause }
    }

    /// A connection with a sentinel has ended.
    func noteAnswered() {
        state.withLock { state in
            state.hasWorked = true
            state.failures = 0
        }
    }

    /// It ended with another answer, which says that the gateway speaks, and nothing about sentinels.
    func noteOtherAnswer() {
        state.withLock { $0.failures = 0 }
    }

    func noteSilence(now: NIODeadline) {
        state.withLock { state in
            state.failures += 1
            state.lastFailure = now
        }
    }
}
