package import ChatDomain
import Synchronization

/// A wall clock that only the test sets.
package final class WallClock: Sendable {
    private let time: Mutex<Timestamp>

    package init(_ time: Timestamp) {
        self.time = Mutex(time)
    }

    package var now: Timestamp {
        get { time.withLock { $0 } }
        set { time.withLock { $0 = newValue } }
    }

    package var source: TimeSource { { self.now } }

    package func advance(by duration: Duration) { time.withLock { $0 = $0 + duration } }
}
