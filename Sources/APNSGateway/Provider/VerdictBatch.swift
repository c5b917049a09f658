import ChatDomain

/// Makes few verdicts of many outcomes: what it costs to record them depends on their number.
enum VerdictBatch {
    /// Neighbours with the same outcome share a verdict, unless it is about them in person.
    static func verdicts(_ outcomes: [(identifier: UInt32, outcome: Outcome)], on epoch: ConnectionEpoch) -> [Verdict] {
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
    /// The others need the entry and its device.
    fileprivate var isShared: Bool {
        switch self {
        case .accepted, .notProcessed, .sentBack, .unanswered: true
        case .rejected, .badAddress, .unregistered, .retry, .notAuthorized: false
        }
    }
}
