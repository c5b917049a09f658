/// What a push has been through.
package struct PushHistory: Sendable, Hashable {
    /// How often it was handed to a connection that did not give it back unread.
    package var attempts: Int
    /// How often its connection ended without an answer to it.
    package var unanswered: Int
    /// How often the gateway sent it back, or did not accept the credentials with it.
    package var refused: Int

    package init(attempts: Int = 0, unanswered: Int = 0, refused: Int = 0) {
        self.attempts = attempts
        self.unanswered = unanswered
        self.refused = refused
    }

    /// A connection ended over it, or the gateway sent it back.
    package var isSuspect: Bool { unanswered > 0 || refused > 0 }
}

/// In which order the due pushes of an app go.
package enum PushLane: Int, Sendable, Hashable, CaseIterable {
    /// What the chat, other programs and notifications to few send.
    case normal
    /// One of very many: has lower priority than ``normal``.
    case bulk
    /// Its connection was lost before, or the gateway sent it back.
    case retry

    package init(_ history: PushHistory, isBulk: Bool) {
        self = history.isSuspect ? .retry : isBulk ? .bulk : .normal
    }
}

/// When a push that the gateway could not take is tried again.
package struct RetryPolicy: Sendable, Hashable {
    /// Before the second attempt; doubles with each further one.
    package var first: Duration
    package var longest: Duration
    /// Attempts in all, after which the push has failed with the gateway's reason. A hundred take about a day.
    package var attempts: Int

    package init(first: Duration = .seconds(1), longest: Duration = .seconds(900), attempts: Int = 100) {
        self.first = first
        self.longest = longest
        self.attempts = attempts
    }

    /// How long to wait after so many attempts; nil when it is to be given up.
    package func delay(afterAttempts made: Int) -> Duration? {
        guard made < attempts else { return nil }
        return min(longest, first * Double(1 << min(max(made - 1, 0), 30)))
    }
}

/// What happens to a push, and what is written down about it.
package struct Transition: Sendable, Hashable {
    package enum Result: Sendable, Hashable {
        case sent
        case failed(reason: String, hint: String? = nil)
        case expired
        case cancelled(reason: String)
        /// It is due at that time.
        case waiting(until: Timestamp, reason: String)
        /// It is due again at once, in a lane. Without a reason nothing has happened to it.
        case due(PushLane, reason: String?)
    }

    /// What it means for the device.
    package enum Device: Sendable, Hashable {
        /// It is gone since a time, unless it registered later.
        case deactivate(since: Timestamp, reason: String)
        /// Its address was refused once more; with a limit it is deactivated when it was refused so often.
        case countRefusal(reason: String, limit: Int?)
    }

    package let result: Result
    /// What is added to the history's counts.
    package let added: PushHistory
    package let device: Device?

    package init(_ result: Result, adding added: PushHistory = PushHistory(), device: Device? = nil) {
        self.result = result
        self.added = added
        self.device = device
    }

    package var state: PushState {
        switch result {
        case .sent: .sent
        case .failed: .failed
        case .expired: .expired
        case .cancelled: .cancelled
        case .waiting, .due: .pending
        }
    }

    package var reason: String? {
        switch result {
        case .sent: nil
        case .failed(let reason, _), .cancelled(let reason), .waiting(_, let reason): reason
        case .expired: PushLifeCycle.expired
        case .due(_, let reason): reason
        }
    }

    /// Nothing has to be written down: the push is as it was.
    package var changesNothing: Bool {
        guard case .due(_, nil) = result else { return false }
        return added == PushHistory()
    }
}

/// What becomes of a push: says for its history and for an outcome what happens next. Without a database or a socket; the
/// relay and `send --direct` go by the same rules.
package struct PushLifeCycle: Sendable, Hashable {
    /// What differs between a relay and a single command.
    package struct Policy: Sendable, Hashable {
        package var retry: RetryPolicy
        /// Losses without an answer after which a push has failed even if nothing shows that it is the push's doing; nil:
        /// never. A relay waits for a gateway for days; a command has an end.
        package var unansweredLimit: Int?
        /// Whether somebody may mend the credentials while the push waits.
        package var credentialsMayChange: Bool

        package init(retry: RetryPolicy = RetryPolicy(), unansweredLimit: Int? = nil, credentialsMayChange: Bool = true)
        {
            self.retry = retry
            self.unansweredLimit = unansweredLimit
            self.credentialsMayChange = credentialsMayChange
        }
    }

    package var policy: Policy

    package init(_ policy: Policy = Policy()) {
        self.policy = policy
    }

    /// With more devices than this the pushes of a message or a notification let others pass, from the first to the last:
    /// a hundred are sent within milliseconds.
    package static let bulkFrom = 100

    // MARK: - Reasons of our own

    package static let expired = "Expired"
    package static let deviceInactive = "DeviceInactive"
    package static let cancelled = "Cancelled"
    package static let unregistered = "Unregistered"
    package static let memberRemoved = "MemberRemoved"
    package static let messageDeleted = "MessageDeleted"

    // MARK: - Before it is sent

    /// What happens to a push instead of being sent; nil for one that can go.
    package func obstacle(to push: QueuedPush, at now: Timestamp) -> Transition? {
        switch push.obstacle {
        case .notificationCancelled: return Transition(.cancelled(reason: Self.cancelled))
        case .messageDeleted: return Transition(.cancelled(reason: Self.messageDeleted))
        case .memberRemoved: return Transition(.cancelled(reason: Self.memberRemoved))
        case .deviceForgotten: return Transition(.cancelled(reason: Self.unregistered))
        case .deviceInactive, nil: break
        }
        // 0 is no time: the gateway is to try once and to store nothing.
        if let end = push.expiration, end != 0, end <= now.seconds { return Transition(.expired) }
        return push.obstacle == .deviceInactive ? Transition(.failed(reason: Self.deviceInactive)) : nil
    }

    // MARK: - After an outcome

    /// - Parameters:
    ///   - leasedAt: when the attempt began that the outcome is about.
    ///   - lastAccepted: when another push of the app was taken last; nil: not since the process began.
    package func transition(
        _ outcome: Outcome, _ history: PushHistory, lane: PushLane, expiration: Int64? = nil, leasedAt: Timestamp,
        lastAccepted: Timestamp?, at now: Timestamp
    ) -> Transition {
        let attempt = PushHistory(attempts: 1)
        switch outcome {
        case .accepted:
            return Transition(.sent, adding: attempt)
        case .rejected(let reason, let hint):
            return Transition(.failed(reason: reason, hint: hint), adding: attempt)
        case .badAddress(let reason):
            // Only while others are taken: a certificate of the wrong environment makes every address look bad.
            let isOthersTaken = lastAccepted.map { $0 + Self.acceptanceWindow >= now } ?? false
            return Transition(
                .failed(reason: reason), adding: attempt,
                device: .countRefusal(reason: reason, limit: isOthersTaken ? Self.refusalLimit : nil))
        case .unregistered(let since, let reason):
            return Transition(
                .failed(reason: reason), adding: attempt, device: .deactivate(since: since, reason: reason))
        case .retry(let reason, let notBefore):
            // An attempt that nobody answered says nothing about the push.
            let answered = history.attempts + 1 - history.unanswered
            guard expiration != 0, let delay = policy.retry.delay(afterAttempts: answered) else {
                return Transition(.failed(reason: reason), adding: attempt)
            }
            let time = min(max(now + delay, notBefore ?? now), now + Self.longestWait)
            return Transition(.waiting(until: time, reason: reason), adding: attempt)
        case .postponed(let until, let reason):
            return Transition(.waiting(until: min(until, now + Self.longestWait), reason: reason))
        case .notProcessed:
            return Transition(.due(lane, reason: nil))
        case .unanswered(let reason):
            var added = attempt
            added.unanswered = 1
            if let limit = policy.unansweredLimit, history.unanswered + 1 >= limit || expiration == 0 {
                return Transition(.failed(reason: reason), adding: added)
            }
            return transitionAfterLoss(
                reason, count: history.unanswered, immediate: Self.aloneFrom, limit: Self.aloneFrom + 5, added,
                leasedAt,
                lastAccepted, now)
        case .notAuthorized(let reason):
            guard policy.credentialsMayChange else { return Transition(.failed(reason: reason), adding: attempt) }
            var added = attempt
            added.refused = 1
            return transitionAfterLoss(
                reason, count: history.refused, immediate: 0, limit: Self.refusedLimit, added, leasedAt, lastAccepted,
                now)
        case .sentBack(let reason):
            var added = attempt
            added.refused = 1
            return transitionAfterLoss(
                reason, count: history.refused, immediate: Self.sentBackImmediate, limit: Self.sentBackLimit, added,
                leasedAt,
                lastAccepted, now)
        }
    }

    /// The push waits for what happened to it so often, and fails once it is certain that it is the push and not the gateway:
    /// that it happened `limit` times, and since the attempt before this one another push of the app was taken. In an
    /// outage nothing is taken, and nothing fails.
    ///
    /// The first `immediate` times it does not wait; then one second, doubling up to 512.
    private func transitionAfterLoss(
        _ reason: String, count: Int, immediate: Int, limit: Int, _ added: PushHistory, _ leasedAt: Timestamp,
        _ lastAccepted: Timestamp?, _ now: Timestamp
    ) -> Transition {
        let earlierAttempt = leasedAt - .seconds(1 << min(max(count - immediate - 1, 0), Self.longestDelayExponent))
        if count + 1 >= limit, let lastAccepted, lastAccepted >= earlierAttempt {
            return Transition(.failed(reason: reason), adding: added)
        }
        guard count + 1 > immediate else { return Transition(.due(.retry, reason: reason), adding: added) }
        let delay = Duration.seconds(1 << min(count - immediate, Self.longestDelayExponent))
        return Transition(.waiting(until: now + delay, reason: reason), adding: added)
    }

    /// 512 seconds: an operator who mends something sees the effect within minutes.
    private static let longestDelayExponent = 9
    /// How often the credentials are refused with a push, while others get through, until it is the push.
    private static let refusedLimit = 10
    /// Refused streams and GOAWAY are normal: three repeats do not wait.
    private static let sentBackImmediate = 3
    private static let sentBackLimit = 30
    /// How far back another push that was taken still shows that the gateway works.
    package static let acceptanceWindow = Duration.seconds(3600)
    /// Refusals of an address since it was registered, after which the device is deactivated: each costs the app its
    /// connection, and anyone can join with an invalid token.
    package static let refusalLimit = 5
    /// The longest time that a repeat waits, whatever a gateway asks for. A push that seems to wait for longer was queued
    /// by a clock that has been set back since, and is due.
    package static let longestWait = Duration.seconds(3600)

    // MARK: - Which pushes are probed alone

    /// How many pushes go together, and whether their connection carries nothing else until the gateway was asked about
    /// them.
    package struct Group: Sendable, Hashable {
        package let size: Int
        package let isProbe: Bool
    }

    /// Losses without an answer from which on a push is probed instead of simply repeated: losing one connection is normal.
    package static let probeThreshold = 2
    /// Losses from which on a push is probed alone.
    package static let aloneFrom = 6
    /// Pushes that are probed together, by the number of losses from ``probeThreshold`` on. Divided by four each time, so that
    /// one push among a thousand that makes the gateway close is isolated after six losses, two of them ordinary, and the others are sent.
    private static let probeSizes = [256, 64, 16, 4, 1]

    /// One of a group of suspected pushes may be what makes the gateway close: they go on a fresh connection and are asked
    /// about at once, in groups that shrink with each loss, so that this one is isolated and the others are sent.
    ///
    /// A command, which has an end, probes each push alone from its first loss on.
    package func group(_ history: PushHistory) -> Group {
        if policy.unansweredLimit != nil, history.unanswered > 0 { return Group(size: 1, isProbe: true) }
        guard history.unanswered >= Self.probeThreshold else { return Group(size: .max, isProbe: false) }
        let step = min(history.unanswered - Self.probeThreshold, Self.probeSizes.count - 1)
        return Group(size: Self.probeSizes[step], isProbe: true)
    }
}

/// How many pushes are written before the gateway is asked to confirm them, at a gateway that loses what it was given.
///
/// After a loss without an answer the outcome of what was written is unknown. Behind a gateway that closes every so often
/// (a load balancer, say) that would be true for ever. So less is written before confirmation is asked for,
/// half of what was lost, and step by step more while that works. A relay that starts begins like that, too: an earlier
/// process may have died with pushes whose outcome is unknown.
///
/// Where only silence proves a group, each takes the settle time, and one that is too small costs more time than a lost one. There
/// the window goes beyond what was lost after fewer proofs.
package struct ProbeWindow: Sendable, Hashable {
    /// The first window after a start.
    package static let afterStart = 256
    /// From a window of this size on nothing is asked for any more: it is what one lease takes.
    package static let open = 1000
    /// Smaller losses are normal. Whether one of these pushes is the cause, their own histories show.
    package static let smallestLoss = 32
    /// The window is never smaller: with less there would be hardly any progress.
    private static let smallest = 16
    /// Groups that were confirmed since the last loss, after which the window may grow beyond what was lost: at a gateway that
    /// closes for a reason of its own each such try costs one loss.
    private static let confirmationsBeforeRetry = 64
    /// The same for proofs by silence, as a multiple of what was lost. At a gateway that closes after every 1,000 notifications of all
    /// connections, the groups settle at a fifth of that: the least time for all of a queue.
    private static let silentCeilingsBeforeRetry = 8

    /// Pushes that may be written before confirmation; nil: no limit.
    package private(set) var limit: Int?
    /// What was lost last; the window stays below it for a while.
    private var ceiling = Int.max
    private var confirmed = 0
    /// Pushes that silence has confirmed since the ceiling was set.
    private var silent = 0

    package init(limit: Int? = nil) {
        self.limit = limit
    }

    /// So many pushes of one connection were lost without an answer.
    package mutating func lost(_ count: Int) {
        let isAdapting = limit != nil && ceiling < .max
        guard count >= (isAdapting ? Self.smallest : Self.smallestLoss) else { return }
        // Groups that were written at the same time are lost at the same time. Together they halve the window once.
        ceiling = max(Self.smallestLoss, min(count, ceiling))
        limit = min(limit ?? .max, max(Self.smallest, count / 2))
        confirmed = 0
        silent = 0
    }

    /// A group that was asked about was answered.
    /// - Parameters:
    ///   - isAll: nothing else was due.
    ///   - bySilence: The gateway did not answer, and silence proved the group.
    package mutating func confirmed(_ count: Int, isAll: Bool, bySilence: Bool = false) {
        guard let limit, count > 0 else { return }
        guard ceiling < .max else {
            // Nothing was lost so far, or not for long.
            self.limit = isAll || limit * 2 >= Self.open ? nil : limit * 2
            return
        }
        confirmed += 1
        if bySilence { silent += count }
        if confirmed >= Self.confirmationsBeforeRetry {
            ceiling = .max
            confirmed = 0
            return
        }
        if silent >= Self.silentCeilingsBeforeRetry * ceiling {
            ceiling *= 2
            silent = 0
        }
        if count >= limit {
            let next = min(limit + max(1, limit / 4), ceiling - max(1, ceiling / 8))
            self.limit = max(limit, bySilence ? min(next, Self.open) : next)
        }
    }
}
