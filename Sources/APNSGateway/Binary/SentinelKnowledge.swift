import NIOCore
import Synchronization

/// The result of one sentinel.
enum SentinelResult: Sendable, Hashable {
    /// The gateway responded to the sentinel, so it has processed everything before it.
    case answered
    /// The gateway responded to an earlier push and never read the sentinel. This says nothing about sentinels.
    case notReached
    /// The gateway sent an error that names no push, closed the connection, or stayed silent.
    case notUnderstood
}

/// Whether a gateway responds to sentinels, and when to test it again. A pure value.
///
/// If a gateway does not respond to a sentinel, all pushes before it are in doubt. If the relay sent these pushes again
/// with another sentinel, they would never be settled. So one failure is enough to switch to proof by silence.
///
/// A trial then shows whether the gateway understands sentinels. It sends one sentinel alone on a connection, where no
/// push can be in doubt. The first loss of pushes on a connection without a sentinel starts a trial as well, because
/// proof is needed from then on.
struct SentinelKnowledge: Sendable {
    /// The number of failures in a row after which a gateway that has responded to sentinels is tested again. Such a
    /// gateway may also close for another reason while a sentinel is on its way.
    static let failureLimit = 3
    /// The time from a failed trial to the next one. It doubles with each failure, up to ``longestTrialInterval``.
    /// Another trial may succeed, because a gateway may be updated or the failure may have had another reason.
    static let firstTrialInterval = TimeAmount.seconds(10)
    static let longestTrialInterval = TimeAmount.minutes(10)

    /// Whether the gateway responds to sentinels. `nil` until it has responded to one or a trial has failed, and again
    /// after too many failures.
    private var isAnswering: Bool?
    /// The number of sentinels in a row that were not understood.
    private var failures = 0
    /// The time from which a trial is wanted. `nil` if none is.
    private var nextTrial: NIODeadline?
    private var trialInterval = Self.firstTrialInterval

    /// Whether a sentinel may follow pushes. If not, only silence proves them.
    var isUseful: Bool { isAnswering ?? (failures == 0) }

    /// Returns whether the connection that is being opened should be preceded by a trial.
    mutating func takeTrial(now: NIODeadline) -> Bool {
        guard let time = nextTrial, time <= now else { return false }
        // Until the first result, each new connection starts a trial: an additional connection costs less than a late
        // result.
        if isAnswering != nil { nextTrial = now + trialInterval }
        return true
    }

    /// Records that a connection without a sentinel has ended and its pushes are in doubt.
    mutating func lostPushes(now: NIODeadline) {
        if isAnswering == nil, nextTrial == nil { nextTrial = now }
    }

    /// Records the result of a sentinel.
    /// - Parameter isTrial: Whether the sentinel was alone on its connection.
    mutating func learn(_ result: SentinelResult, isTrial: Bool, now: NIODeadline) {
        switch result {
        case .answered:
            self = SentinelKnowledge()
            isAnswering = true
        case .notReached:
            break
        case .notUnderstood where isTrial:
            isAnswering = false
            nextTrial = now + trialInterval
            trialInterval = min(trialInterval * 2, Self.longestTrialInterval)
        case .notUnderstood:
            failures += 1
            if isAnswering == true, failures >= Self.failureLimit { isAnswering = nil }
            if isAnswering == nil, nextTrial == nil { nextTrial = now }
        }
    }
}

/// The sentinel knowledge that an app's connections to one gateway share.
final class SharedSentinelKnowledge: Sendable {
    private let knowledge = Mutex(SentinelKnowledge())

    var isUseful: Bool { knowledge.withLock { $0.isUseful } }

    func takeTrial(now: NIODeadline) -> Bool { knowledge.withLock { $0.takeTrial(now: now) } }

    func lostPushes(now: NIODeadline) { knowledge.withLock { $0.lostPushes(now: now) } }

    /// Records the result of a sentinel.
    /// - Returns: Whether sentinels are useful from now on. `nil` if that has not changed.
    func learn(_ result: SentinelResult, isTrial: Bool, now: NIODeadline) -> Bool? {
        knowledge.withLock { knowledge in
            let before = knowledge.isUseful
            knowledge.learn(result, isTrial: isTrial, now: now)
            return knowledge.isUseful == before ? nil : knowledge.isUseful
        }
    }
}
