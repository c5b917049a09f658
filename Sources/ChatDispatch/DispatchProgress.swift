package import ChatDomain
import Synchronization

/// Counts a dispatcher's steps, which show whether it makes progress, and its gateway's responses.
package final class DispatchProgress: Sendable {
    /// The number of reasons to count separately. A gateway has about thirty.
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
    private let answers = Mutex(Responses())
    private let roundTrips = Histogram(Histogram.moments)
    private let waits = Histogram(Histogram.waits)
    private let acceptances = Histogram(Histogram.waits)

    package init() {}

    func moved() { moves.add(1, ordering: .relaxed) }

    var count: UInt64 { moves.load(ordering: .relaxed) }

    /// Records that pushes were written to a connection.
    func wrote(_ pushes: [QueuedPush], at now: Timestamp) {
        waits.record(
            pushes.lazy.filter { $0.history.attempts == 0 }.compactMap(\.dueSince).map { now.seconds(since: $0) })
    }

    /// An outcome, and the number of pushes that had it.
    struct Response: Sendable, Hashable {
        let outcome: Outcome
        let count: Int
        /// The time at which the pushes were leased for their connection. `nil` if the gateway did not respond, or if
        /// silence may have been its response.
        let writtenAt: Timestamp?
        /// The time since which the pushes have been due.
        let dueSince: Timestamp?
    }

    func answered(_ list: [Response], at now: Timestamp) {
        for answer in list {
            if let writtenAt = answer.writtenAt {
                roundTrips.record(now.seconds(since: writtenAt), count: answer.count)
            }
            if answer.outcome == .accepted, let dueSince = answer.dueSince {
                acceptances.record(now.seconds(since: dueSince), count: answer.count)
            }
        }
        answers.withLock { answers in
            for answer in list {
                let (kind, reason) = answer.outcome.kind
                answers.counts[Key(kind: kind, reason: reason.map { answers.reasons.known($0) }), default: 0] +=
                    answer.count
                switch answer.outcome {
                case .notAuthorized: answers.areCredentialsRefused = true
                // A gateway judges a device token only after it has accepted the credentials.
                case .accepted, .badAddress, .unregistered: answers.areCredentialsRefused = false
                default: break
                }
            }
        }
    }

    package var metrics: DispatchMetrics {
        let (counts, areCredentialsRefused) = answers.withLock { ($0.counts, $0.areCredentialsRefused) }
        return DispatchMetrics(
            answers: counts.map { DispatchMetrics.Responses(kind: $0.key.kind, reason: $0.key.reason, count: $0.value) }
                .sorted { ($0.kind, $0.reason ?? "") < ($1.kind, $1.reason ?? "") },
            roundTrips: roundTrips.snapshot, waits: waits.snapshot, acceptances: acceptances.snapshot,
            areCredentialsRefused: areCredentialsRefused)
    }
}
