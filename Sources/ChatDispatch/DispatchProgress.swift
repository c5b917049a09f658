package import ChatDomain
import Synchronization

/// Counts a dispatcher's steps and its gateway's responses. The steps show whether the dispatcher makes progress.
package final class DispatchProgress: Sendable {
    /// The maximum number of reasons to count separately. A gateway has about thirty.
    private static let maxReasons = 64

    private struct Key: Hashable {
        let kind: String
        let reason: String?
    }

    private struct Responses {
        var counts: [Key: Int] = [:]
        var reasons = BoundedNames(most: DispatchProgress.maxReasons)
        var areCredentialsRefused = false
    }

    private let moves = Atomic<UInt64>(0)
    private let responses = Mutex(Responses())
    private let roundTrips = Histogram(Histogram.moments)
    private let waits = Histogram(Histogram.waits)
    private let acceptances = Histogram(Histogram.waits)

    package init() {}

    /// Records a step.
    func moved() { moves.add(1, ordering: .relaxed) }

    /// The number of steps that were recorded.
    var steps: UInt64 { moves.load(ordering: .relaxed) }

    /// Records that pushes were written to a connection.
    func wrote(_ pushes: [QueuedPush], at now: Timestamp) {
        waits.record(pushes.compactMap { $0.history.attempts == 0 ? $0.dueSince.map(now.seconds(since:)) : nil })
    }

    /// An outcome, and the number of pushes that had it.
    struct Response: Sendable, Hashable {
        let outcome: Outcome
        let count: Int
        /// The time at which the pushes were leased, just before they were written. `nil` if the gateway did not
        /// respond, or if the outcome may be inferred from its silence.
        let writtenAt: Timestamp?
        /// The time since which the pushes have been due.
        let dueSince: Timestamp?
    }

    /// Records the gateway's responses.
    func answered(_ list: [Response], at now: Timestamp) {
        for response in list {
            if let writtenAt = response.writtenAt {
                roundTrips.record(now.seconds(since: writtenAt), count: response.count)
            }
            if response.outcome == .accepted, let dueSince = response.dueSince {
                acceptances.record(now.seconds(since: dueSince), count: response.count)
            }
        }
        responses.withLock { responses in
            for response in list {
                let (kind, reason) = response.outcome.kind
                responses.counts[Key(kind: kind, reason: reason.map { responses.reasons.known($0) }), default: 0] +=
                    response.count
                switch response.outcome {
                case .notAuthorized: responses.areCredentialsRefused = true
                // A gateway judges a device token only after it has accepted the credentials.
                case .accepted, .badAddress, .unregistered: responses.areCredentialsRefused = false
                default: break
                }
            }
        }
    }

    package var metrics: DispatchMetrics {
        let (counts, areCredentialsRefused) = responses.withLock { ($0.counts, $0.areCredentialsRefused) }
        return DispatchMetrics(
            answers: counts.map { DispatchMetrics.Responses(kind: $0.key.kind, reason: $0.key.reason, count: $0.value) }
                .sorted { ($0.kind, $0.reason ?? "") < ($1.kind, $1.reason ?? "") },
            roundTrips: roundTrips.snapshot, waits: waits.snapshot, acceptances: acceptances.snapshot,
            areCredentialsRefused: areCredentialsRefused)
    }
}
