import ChatDomain
import Synchronization

/// Collects verdicts from the connections until they are recorded: everything that came is handed over at once.
///
/// Bounded by what is in flight: a push has one verdict, and ranges share one.
final class VerdictBuffer: Sendable {
    private struct State {
        var verdicts: [Verdict] = []
        var reader: CheckedContinuation<Void, Never>?
        var isClosed = false
    }

    private let state = Mutex(State())

    func put(_ verdicts: [Verdict]) {
        guard !verdicts.isEmpty else { return }
        wakeReader { $0.verdicts += verdicts }
    }

    /// No more will come; what is there can still be taken.
    func close() {
        wakeReader { $0.isClosed = true }
    }

    private func wakeReader(after change: (inout State) -> Void) {
        let reader = state.withLock { state in
            change(&state)
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume()
    }

    /// Everything that came; waits for the first, nil when closed and empty. One reader at a time.
    func take() async -> [Verdict]? {
        while true {
            let (verdicts, isClosed) = state.withLock { state in
                defer { state.verdicts = [] }
                return (state.verdicts, state.isClosed)
            }
            if !verdicts.isEmpty { return verdicts }
            if isClosed { return nil }
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    guard state.verdicts.isEmpty, !state.isClosed else { return true }
                    state.reader = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        }
    }
}

extension Verdict {
    /// Few verdicts for many outcomes, because each costs a row's update: neighbours with the same outcome share one, unless
    /// it concerns a single push.
    static func combining(_ outcomes: [(identifier: UInt32, outcome: Outcome)], on epoch: ConnectionEpoch) -> [Verdict]
    {
        var verdicts: [Verdict] = []
        var first: UInt32 = 0
        var last: UInt32 = 0
        var current: Outcome?
        func close() {
            if let current { verdicts.append(Verdict(connection: epoch, identifiers: first...last, outcome: current)) }
        }
        for (identifier, outcome) in outcomes.sorted(by: { $0.identifier < $1.identifier }) {
            if outcome.isShared, identifier == last + 1, current == outcome {
                last = identifier
            } else {
                close()
                (first, last, current) = (identifier, identifier, outcome)
            }
        }
        close()
        return verdicts
    }
}

extension Outcome {
    /// Recording the others needs the single entry and its device.
    fileprivate var isShared: Bool {
        switch self {
        case .accepted, .notProcessed, .sentBack, .unanswered: true
        case .rejected, .badAddress, .unregistered, .retry, .notAuthorized: false
        }
    }
}
