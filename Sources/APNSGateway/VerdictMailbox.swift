import ChatDomain
import Synchronization

/// Collects verdicts from the connections for the one who records them: everything that came is handed over at once.
///
/// Bounded by what is in flight: a push has one verdict, and ranges share one.
final class VerdictMailbox: Sendable {
    private struct State {
        var waiting: [Verdict] = []
        var reader: CheckedContinuation<Void, Never>?
        var isClosed = false
    }

    private let state = Mutex(State())

    func put(_ verdicts: [Verdict]) {
        guard !verdicts.isEmpty else { return }
        let reader = state.withLock { state in
            state.waiting += verdicts
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume()
    }

    /// No more will come; what is there can still be taken.
    func close() {
        let reader = state.withLock { state in
            state.isClosed = true
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume()
    }

    /// Everything that came; waits for the first, nil when closed and empty. One reader at a time.
    func take() async -> [Verdict]? {
        while true {
            let (verdicts, isClosed) = state.withLock { state in
                defer { state.waiting = [] }
                return (state.waiting, state.isClosed)
            }
            if !verdicts.isEmpty { return verdicts }
            if isClosed { return nil }
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    guard state.waiting.isEmpty, !state.isClosed else { return true }
                    state.reader = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        }
    }
}
