/// The counts of a push's earlier attempts.
package struct PushHistory: Sendable, Hashable {
    /// The number of attempts. An attempt that proves to be ``Outcome/notProcessed`` does not count.
    package var attempts: Int
    /// The number of times that the connection ended without a response to the push.
    package var unanswered: Int
    /// The number of times that the gateway sent the push back, or rejected the credentials with it.
    package var refused: Int

    package init(attempts: Int = 0, unanswered: Int = 0, refused: Int = 0) {
        self.attempts = attempts
        self.unanswered = unanswered
        self.refused = refused
    }

    /// Whether a connection ended without a response to the push, or the gateway sent it back or rejected the
    /// credentials with it.
    package var isSuspect: Bool { unanswered > 0 || refused > 0 }
}

/// The lanes of an app's queue, in the order in which leases take due pushes.
package enum PushLane: Int, Sendable, Hashable, CaseIterable {
    /// Pushes of the chat, of other programs, and of notifications to few devices.
    case normal
    /// Pushes of a message or notification to very many devices. They have lower priority than ``normal``.
    case bulk
    /// Pushes with a suspect history (``PushHistory/isSuspect``).
    case retry

    package init(_ history: PushHistory, isBulk: Bool) {
        self = history.isSuspect ? .retry : isBulk ? .bulk : .normal
    }
}

/// The delays between attempts for a push that the gateway could not accept.
package struct RetryPolicy: Sendable, Hashable {
    /// The delay before the second attempt. It doubles with each further attempt.
    package var first: Duration
    package var longest: Duration
    /// The maximum number of attempts. After the last one the push fails with the gateway's reason. With the defaults,
    /// a hundred attempts take about a day.
    package var attempts: Int

    package init(first: Duration = .seconds(1), longest: Duration = .seconds(900), attempts: Int = 100) {
        self.first = first
        self.longest = longest
        self.attempts = attempts
    }

    /// Returns the delay after `made` attempts. `nil` if the push must be given up.
    package func delay(afterAttempts made: Int) -> Duration? {
        guard made < attempts else { return nil }
        return min(longest, first * Double(1 << min(max(made - 1, 0), 30)))
    }
}

/// A change of a push's state, and the values to record with it.
package struct Transition: Sendable, Hashable {
    package enum Result: Sendable, Hashable {
        case sent
        case failed(reason: String, hint: String? = nil)
        case expired
        case cancelled(reason: String)
        /// The push is due at a later time.
        case waiting(until: Timestamp, reason: String, hint: String? = nil)
        /// The push is due again at once, in a lane. Without a reason, nothing has happened to the push.
        case due(PushLane, reason: String?)
    }

    /// The consequence for the device.
    package enum Device: Sendable, Hashable {
        /// Deactivates the device from a time on, unless it registered later.
        case deactivate(since: Timestamp, reason: String)
        /// Counts a refusal of the device's address. With a limit, the device is deactivated when its refusals reach
        /// the limit.
        case countRefusal(reason: String, limit: Int?)
    }

    package let result: Result
    /// The counts to add to the push's history.
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
        case .failed(let reason, _), .cancelled(let reason), .waiting(_, let reason, _): reason
        case .expired: PushLifeCycle.expired
        case .due(_, let reason): reason
        }
    }

    /// Whether the push is unchanged, so that there is nothing to record.
    package var changesNothing: Bool {
        guard case .due(_, nil) = result else { return false }
        return added == PushHistory()
    }
}

/// The rules for a push's next state, given its history and the outcome of an attempt.
///
/// A pure value, without a database or a socket. The relay and `send --direct` follow the same rules.
package struct PushLifeCycle: Sendable, Hashable {
    /// The differences between a relay and a single command.
    package struct Policy: Sendable, Hashable {
        package var retry: RetryPolicy
        /// The number of losses without a response after which a push fails, even if nothing shows that the push is the
        /// cause. With a limit, a push with the expiration 0 fails at its first loss. `nil` if there is no limit: a
        /// relay waits for a gateway for days, but a command must end.
        package var unansweredLimit: Int?
        /// Whether an operator may correct the credentials while the push waits.
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

    /// A message or notification to more devices than this uses ``PushLane/bulk`` for all of its pushes. Smaller ones
    /// need not, because a hundred pushes are sent within milliseconds.
    package static let bulkFrom = 100

    // MARK: - Reasons that the relay sets

    package static let expired = "Expired"
    package static let deviceInactive = "DeviceInactive"
    package static let cancelled = "Cancelled"
    package static let unregistered = "Unregistered"
    package static let memberRemoved = "MemberRemoved"
    package static let messageDeleted = "MessageDeleted"
    /// The message has changed since the push was queued.
    package static let messageReplaced = "MessageReplaced"

    // MARK: - Before an attempt

    /// Returns the transition of a push that must not be sent. `nil` if the push can be sent.
    package func obstacle(to push: QueuedPush, at now: Timestamp) -> Transition? {
        switch push.obstacle {
        case .notificationCancelled: return Transition(.cancelled(reason: Self.cancelled))
        case .messageDeleted: return Transition(.cancelled(reason: Self.messageDeleted))
        case .memberRemoved: return Transition(.cancelled(reason: Self.memberRemoved))
        case .deviceForgotten: return Transition(.cancelled(reason: Self.unregistered))
        case .deviceInactive, nil: break
        }
        if let problem = Self.misreadTime(of: push) { return Transition(problem) }
        // 0 is not a time: the gateway must try once and store nothing.
        if let end = push.expiration, end != 0, end <= now.seconds { return Transition(.expired) }
        return push.obstacle == .deviceInactive ? Transition(.failed(reason: Self.deviceInactive)) : nil
    }

    /// Numbers of `not_before` that cannot be meant as milliseconds, because they lie in the years 1970 to 1973. As
    /// seconds, they lie in the years 1973 to 5138.
    private static let secondsAsMilliseconds: Range<Int64> = 100_000_000..<100_000_000_000
    /// The end of the year 9999 in UNIX milliseconds. A queue treats a `not_before` after it as due, so that the push
    /// fails instead of waiting for ever.
    package static let latestNotBefore = Timestamp.latestSeconds * 1000 + 999

    /// Returns the failure of another program's push with a time in the wrong unit. As it stands, the push would never
    /// expire, would be sent too early, or would never be sent.
    private static func misreadTime(of push: QueuedPush) -> Transition.Result? {
        guard !push.isOurs else { return nil }
        if let end = push.expiration, end > Timestamp.latestSeconds {
            return .failed(
                reason: "InvalidExpiration",
                hint: "expires_at is a time in UNIX seconds; \(end) is after the year 9999. Is it in a smaller unit?")
        }
        guard push.history.attempts == 0, let time = push.notBefore else { return nil }
        let problem: String
        if secondsAsMilliseconds.contains(time) {
            problem = "before the year 1974. Is it in seconds?"
        } else if time > latestNotBefore {
            problem = "after the year 9999. Is it in a smaller unit?"
        } else {
            return nil
        }
        return .failed(
            reason: "InvalidNotBefore", hint: "not_before is a time in UNIX milliseconds; \(time) is \(problem)")
    }

    // MARK: - After an outcome

    /// Returns the transition that follows from an outcome.
    ///
    /// - Parameters:
    ///   - leasedAt: The time at which the push was leased for this attempt.
    ///   - lastAccepted: The time at which the gateway last accepted a push of the app. `nil` if it has accepted none
    ///     since the process started.
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
            // The limit applies only while the gateway accepts other pushes: with a certificate for the wrong
            // environment, every address looks bad.
            let isOthersTaken = lastAccepted.map { $0 + Self.acceptanceWindow >= now } ?? false
            return Transition(
                .failed(reason: reason), adding: attempt,
                device: .countRefusal(reason: reason, limit: isOthersTaken ? Self.refusalLimit : nil))
        case .unregistered(let since, let reason):
            return Transition(
                .failed(reason: reason), adding: attempt, device: .deactivate(since: since, reason: reason))
        case .retry(let reason, let notBefore):
            // Attempts without a response say nothing about the push, so they do not count.
            let answered = history.attempts + 1 - history.unanswered
            guard expiration != 0, let delay = policy.retry.delay(afterAttempts: answered) else {
                return Transition(.failed(reason: reason), adding: attempt)
            }
            let time = min(max(now + delay, notBefore ?? now), now + Self.longestWait)
            return Transition(.waiting(until: time, reason: reason), adding: attempt)
        case .postponed(let until, let reason, let hint):
            return Transition(.waiting(until: min(until, now + Self.longestWait), reason: reason, hint: hint))
        case .notProcessed:
            return Transition(.due(lane, reason: nil))
        case .unanswered(let reason):
            #if PLANTED_FAULTS
            if PlantedFault.lossAccepted.isPlanted { return Transition(.sent, adding: attempt) }
            #endif
            var added = attempt
            added.unanswered = 1
            if let limit = policy.unansweredLimit, history.unanswered + 1 >= limit || expiration == 0 {
                return Transition(.failed(reason: reason), adding: added)
            }
            return transitionAfterLoss(
                reason, count: history.unanswered, immediate: Self.aloneFrom, limit: Self.aloneFrom + 5, added,
                leasedAt,
                lastAccepted, now)
        case .notAuthorized(let reason, let hint):
            guard policy.credentialsMayChange else {
                return Transition(.failed(reason: reason, hint: hint), adding: attempt)
            }
            var added = attempt
            added.refused = 1
            return transitionAfterLoss(
                reason, hint: hint, count: history.refused, immediate: 0, limit: Self.refusedLimit, added, leasedAt,
                lastAccepted, now)
        case .sentBack(let reason):
            var added = attempt
            added.refused = 1
            return transitionAfterLoss(
                reason, count: history.refused, immediate: Self.sentBackImmediate, limit: Self.sentBackLimit, added,
                leasedAt,
                lastAccepted, now)
        }
    }

    /// Returns the transition after a loss, after a refusal of the credentials, or after the gateway sent the push
    /// back.
    ///
    /// The push fails when the push itself, and not the gateway, must be the cause. That is the case if this has
    /// happened `limit` times, and the gateway has accepted another push of the app since the previous attempt. In an
    /// outage the gateway accepts nothing, so nothing fails.
    ///
    /// The first `immediate` times, the push is due again at once. After that, the push waits one second, doubling up
    /// to 512 seconds.
    private func transitionAfterLoss(
        _ reason: String, hint: String? = nil, count: Int, immediate: Int, limit: Int, _ added: PushHistory,
        _ leasedAt: Timestamp,
        _ lastAccepted: Timestamp?, _ now: Timestamp
    ) -> Transition {
        let earlierAttempt = leasedAt - .seconds(1 << min(max(count - immediate - 1, 0), Self.longestDelayExponent))
        if count + 1 >= limit, let lastAccepted, lastAccepted >= earlierAttempt {
            return Transition(.failed(reason: reason, hint: hint), adding: added)
        }
        guard count + 1 > immediate else { return Transition(.due(.retry, reason: reason), adding: added) }
        let delay = Duration.seconds(1 << min(count - immediate, Self.longestDelayExponent))
        return Transition(.waiting(until: now + delay, reason: reason, hint: hint), adding: added)
    }

    /// The longest delay is 2⁹ = 512 seconds, so an operator who corrects a problem sees the effect within minutes.
    private static let longestDelayExponent = 9
    /// After this many credential refusals of one push, while others are accepted, the push itself is blamed.
    private static let refusedLimit = 10
    /// Refused streams and GOAWAY are normal, so the first three retries do not wait.
    private static let sentBackImmediate = 3
    private static let sentBackLimit = 30
    /// The time for which an accepted push shows that the gateway works.
    package static let acceptanceWindow = Duration.seconds(3600)
    /// The number of refusals of an address since its registration after which the device is deactivated. Each refusal
    /// costs the app its connection, and anyone can join with an invalid token.
    package static let refusalLimit = 5
    /// The longest wait before a retry, even if the gateway asks for more. A push that seems to wait longer was queued
    /// before the clock was set back, and is due.
    package static let longestWait = Duration.seconds(3600)

    // MARK: - Probing suspect pushes

    /// The maximum number of pushes to send together, and whether they are a probe. The connection of a probe carries
    /// nothing else until the gateway has been asked to confirm the probe.
    package struct Group: Sendable, Hashable {
        package let size: Int
        package let isProbe: Bool
    }

    /// The number of losses without a response from which a push is probed. Below it the push is simply retried: losing
    /// one connection is normal.
    package static let probeThreshold = 2
    /// The number of losses from which a push is probed alone.
    package static let aloneFrom = 6
    /// The number of pushes to probe together, by the number of losses from ``probeThreshold`` on. Each step divides
    /// the number by four. So if one push among a thousand makes the gateway close, this push is isolated after six
    /// losses, two of them ordinary, and the other pushes are sent.
    private static let probeSizes = [256, 64, 16, 4, 1]

    /// Returns the group in which a push with this history is sent.
    ///
    /// Any push of a suspect group may be the one that makes the gateway close. The group therefore gets a fresh
    /// connection, and the gateway is asked to confirm it at once. Groups shrink with each loss, which isolates the
    /// harmful push and lets the others through.
    ///
    /// A policy with an ``Policy/unansweredLimit`` belongs to a command, which must end. It probes each push alone from
    /// its first loss on.
    package func group(_ history: PushHistory) -> Group {
        if policy.unansweredLimit != nil, history.unanswered > 0 { return Group(size: 1, isProbe: true) }
        guard history.unanswered >= Self.probeThreshold else { return Group(size: .max, isProbe: false) }
        let step = min(history.unanswered - Self.probeThreshold, Self.probeSizes.count - 1)
        return Group(size: Self.probeSizes[step], isProbe: true)
    }
}

/// The number of pushes to write before the gateway must confirm them, for a gateway that can lose pushes.
///
/// After a loss without a response, the outcome of the written pushes is unknown. Behind a gateway that closes
/// connections regularly (a load balancer, for example), it would stay unknown. The window is therefore halved after a
/// loss, and grows step by step while the gateway confirms groups. A relay also starts with a small window: an earlier
/// process may have died with pushes in doubt.
///
/// Where only silence proves a group, each group takes the settle time, and a group that is too small costs more time
/// than a lost one. There, fewer confirmed pushes are enough for the window to exceed the last loss.
package struct ProbeWindow: Sendable, Hashable {
    /// The first window after a start.
    package static let afterStart = 256
    /// A window of this size or more needs no confirmation: it is the size of one lease.
    package static let open = 1000
    /// The smallest loss that counts. Smaller losses are normal, and the histories of their pushes show whether one of
    /// them is the cause.
    package static let smallestLoss = 32
    /// The smallest window. A smaller one would make hardly any progress.
    private static let smallest = 16
    /// The number of groups confirmed since the last loss after which the window may grow beyond that loss. At a
    /// gateway that closes for a reason other than the pushes, each such try costs one loss.
    private static let confirmationsBeforeRetry = 64
    /// The number of pushes proven by silence after which the window may grow beyond the last loss, as a multiple of
    /// that loss. At a gateway that closes after every 1,000 notifications, counted over all connections, the groups
    /// settle at a fifth of that number. This takes the least time for a whole queue.
    private static let silentCeilingsBeforeRetry = 8

    /// The number of pushes that may be written before confirmation. `nil` if there is no limit.
    package private(set) var limit: Int?
    /// The smallest recent loss, doubled when silence has proven enough pushes. The window stays below it. `.max` if the
    /// window may grow freely.
    private var ceiling = Int.max
    /// The number of groups confirmed since the last loss.
    private var confirmedGroups = 0
    /// The number of pushes proven by silence since the ceiling was set.
    private var provenBySilence = 0

    package init(limit: Int? = nil) {
        self.limit = limit
    }

    /// Records that `count` pushes of one connection were lost without a response.
    package mutating func lost(_ count: Int) {
        let isAdapting = limit != nil && ceiling < .max
        guard count >= (isAdapting ? Self.smallest : Self.smallestLoss) else { return }
        // Groups that were written at the same time are lost at the same time. Together they halve the window once.
        ceiling = max(Self.smallestLoss, min(count, ceiling))
        limit = min(limit ?? .max, max(Self.smallest, count / 2))
        confirmedGroups = 0
        provenBySilence = 0
    }

    /// Records that the gateway confirmed a group of pushes.
    ///
    /// - Parameters:
    ///   - isAll: Whether no other push was due.
    ///   - bySilence: Whether the gateway did not respond, and its silence proved the group.
    package mutating func confirmed(_ count: Int, isAll: Bool, bySilence: Bool = false) {
        guard let limit, count > 0 else { return }
        guard ceiling < .max else {
            // Nothing was lost yet, or enough groups were confirmed since the last loss.
            self.limit = isAll || limit * 2 >= Self.open ? nil : limit * 2
            return
        }
        confirmedGroups += 1
        if bySilence { provenBySilence += count }
        if confirmedGroups >= Self.confirmationsBeforeRetry {
            ceiling = .max
            confirmedGroups = 0
            return
        }
        if provenBySilence >= Self.silentCeilingsBeforeRetry * ceiling {
            ceiling *= 2
            provenBySilence = 0
        }
        if count >= limit {
            let next = min(limit + max(1, limit / 4), ceiling - max(1, ceiling / 8))
            self.limit = max(limit, bySilence ? min(next, Self.open) : next)
        }
    }
}
