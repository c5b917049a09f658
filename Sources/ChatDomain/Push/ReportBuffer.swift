import Synchronization

/// Collects reports from the connections until they are recorded. The reader gets all waiting reports at once.
///
/// The number of pushes in flight bounds the buffer's size: each push is in one report, and a range of pushes shares a
/// report.
package final class ReportBuffer: Sendable {
    private struct State {
        var reports: [DeliveryReport] = []
        /// Outcomes that are not combined into reports yet.
        var outcomes: [ConnectionID: [(identifier: UInt32, outcome: Outcome)]] = [:]
        var reader: CheckedContinuation<Void, Never>?
        var isClosed = false
    }

    private let state = Mutex(State())

    package init() {}

    package func put(_ reports: [DeliveryReport]) {
        guard !reports.isEmpty else { return }
        wakeReader { $0.reports += reports }
    }

    /// Adds the outcomes of single pushes. The reader combines all that have arrived into few reports.
    package func put(_ outcomes: [(identifier: UInt32, outcome: Outcome)], on connection: ConnectionID) {
        guard !outcomes.isEmpty else { return }
        wakeReader { $0.outcomes[connection, default: []] += outcomes }
    }

    /// Closes the buffer. No more reports may be added, but the reader can still take the reports in it.
    package func close() {
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

    /// Returns all reports, and waits if there are none. `nil` if the buffer is closed and empty. Only one reader may
    /// wait at a time.
    package func take() async -> [DeliveryReport]? {
        while true {
            let (put, outcomes, isClosed) = state.withLock { state in
                defer { (state.reports, state.outcomes) = ([], [:]) }
                return (state.reports, state.outcomes, state.isClosed)
            }
            let reports = put + outcomes.flatMap { DeliveryReport.combining($1, on: $0) }
            if !reports.isEmpty { return reports }
            if isClosed { return nil }
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    guard state.reports.isEmpty, state.outcomes.isEmpty, !state.isClosed else { return true }
                    state.reader = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        }
    }
}

extension DeliveryReport {
    /// Combines many outcomes into few reports, because each report costs the update of a row. Neighbours with the same
    /// outcome share a report, unless the outcome concerns a single push.
    package static func combining(_ outcomes: [(identifier: UInt32, outcome: Outcome)], on connectionID: ConnectionID)
        -> [DeliveryReport]
    {
        var reports: [DeliveryReport] = []
        var first: UInt32 = 0
        var last: UInt32 = 0
        var current: Outcome?
        func close() {
            if let current {
                reports.append(DeliveryReport(connection: connectionID, identifiers: first...last, outcome: current))
            }
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
        return reports
    }
}

extension Outcome {
    /// Whether several pushes can share a report of this outcome. To record any other outcome, the store needs the
    /// single push and its device.
    fileprivate var isShared: Bool {
        switch self {
        case .accepted, .notProcessed, .sentBack, .unanswered: true
        case .rejected, .badAddress, .unregistered, .retry, .postponed, .notAuthorized: false
        }
    }
}

/// Numbers the connections of a process, across all apps.
package final class ConnectionIDs: Sendable {
    private let last: Atomic<Int64>

    package init(after last: ConnectionID = ConnectionID(0)) {
        self.last = Atomic(last.number)
    }

    package func next() -> ConnectionID {
        ConnectionID(last.add(1, ordering: .relaxed).newValue)
    }
}
