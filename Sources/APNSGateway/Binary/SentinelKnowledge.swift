import NIOCore
import Synchronization

/// The result of one sentinel.
enum SentinelResult: Sendable, Hashable {
    /// The gateway answered the sentinel, and so it has processed everything before it.
    case answered
    /// The gateway answered an earlier push and never read the sentinel. Says nothing about sentinels.
    case notReached
    /// The gateway sent an error that names no push, closed the connection, or stayed silent.
    case notUnderstood
}

/// Whether a gateway answers sentinels, and when to ask it again. A pure value.
///
/// A gateway that does not answer a sentinel leaves all pushes before it in doubt. Sent again with another sentinel, they would never
/// be settled. So one failure is enough to prove pushes by silence instead. A trial then finds out what the failure meant: a sentinel
/// alone on a connection, where it puts no push in doubt. A first loss without a sentinel asks for a trial, too, because
/// proof is needed from then on.
struct SentinelKnowledge: Sendable {
    /// Failures in a row after which a gateway that has answered sentinels is tried again. Such a gateway may also close for
    /// another reason while a sentinel is on its way.
    static let failureLimit = 3
    /// The time after a failed trial until the next. It doubles with each failure: a gateway may be updated, and the first failure may
    /// have had another reason.
    static let firstTrialInterval = TimeAmount.seconds(10)
    static let longestTrialInterval = TimeAmount.minutes(10)

    /// `nil` until a sentinel was answered or a trial has failed.
    private var isAnswering: Bool?
    /// Sentinels in a row that were not understood.
    private var failures = 0
    /// The time from which a trial is wanted. `nil` if none is.
    private var nextTrial: NIODeadline?
    private var trialInterval = Self.firstTrialInterval

    /// Whether a sentinel may follow pushes. If not, only silence proves them.
    var isUseful: Bool { isAnswering ?? (failures == 0) }

    /// Whether to try a sentinel on the connection that is opened now.
    mutating func takeTrial(now: NIODeadline) -> Bool {
        guard let time = nextTrial, time <= now else { return false }
        // As long as nothing is known, each new connection tries: knowing late costs more than a connection.
        if isAnswering != nil { nextTrial = now + trialInterval }
        return true
    }

    /// A connection without a sentinel has ended, and its pushes are in doubt.
    mutating func lostPushes(now: NIODeadline) {
        if isAnswering == nil, nextTrial == nil { nextTrial = now }
    }

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

/// The knowledge that an app's connections to one gateway share.
final class SharedSentinelKnowledge: Sendable {
    private let knowledge = Mutex(SentinelKnowledge())

    var isUseful: Bool { knowledge.withLock { $0.isUseful } }

    func takeTrial(now: NIODeadline) -> Bool { knowledge.withLock { $0.takeTrial(now: now) } }

    func lostPushes(now: NIODeadline) { knowledge.withLock { $0.lostPushes(now: now) } }

    /// - Returns: Whether sentinels are useful from now on. `nil` if that is as before.
    func learn(_ result: SentinelResult, isTrial: Bool, now: NIODeadline) -> Bool? {
        knowledge.withLock { knowledge in
            let before = knowledge.isUseful
            knowledge.learn(result, isTrial: isTrial, now: now)
            return knowledge.isUseful == before ? nil : knowledge.isUseful
        }
    }
}
