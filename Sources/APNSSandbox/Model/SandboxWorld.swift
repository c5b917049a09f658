import Foundation
import Synchronization

/// The one ``SandboxState`` that all listeners share, behind a lock.
///
/// The lock is held for a batch of notifications at most, never across a wait.
final class SandboxWorld: Sendable {
    let now: @Sendable () -> Date
    private let state: Mutex<SandboxState>

    init(_ state: SandboxState, now: @escaping @Sendable () -> Date) {
        self.state = Mutex(state)
        self.now = now
    }

    func withState<Result: Sendable, Failure: Error>(
        _ body: (inout SandboxState) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try state.withLock { (state) throws(Failure) in try body(&state) }
    }
}
