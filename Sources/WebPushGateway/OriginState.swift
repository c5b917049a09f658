import ChatDomain
import NIOCore

/// A push and the subscription by which it reaches its browser.
struct AddressedPush: Sendable, Hashable {
    let push: Push
    let subscription: Subscription
}

/// The state of one push service (origin). Decides how many pushes the service gets at a time, and whether it gets any
/// now. A service that is slow or down therefore does not delay the others. A pure value: ``WebPushGateway`` performs
/// the actions.
struct OriginState: Sendable {
    /// The maximum number of requests in flight. Apple allows a hundred without a response.
    static let requestLimit = 100
    /// The maximum number of pushes that wait for a request to end. At this number, the gateway leases no more pushes
    /// until some responses arrive.
    static let waitingLimit = 400
    /// A service is slow if it has not responded for this time, or would need longer than this for its outstanding
    /// pushes. The gateway then leases for the other services, and postpones pushes that it leases for the slow one.
    static let slowAfter = Duration.seconds(2)
    /// The number of failed connects in a row after which sending to the service pauses.
    static let connectLimit = 5
    /// The first pause, and the longest one. Pauses double.
    private static let pauses = (first: Duration.seconds(1), longest: Duration.seconds(300))
    /// The number of pushes that are sent as tests in the first round of a pause. It doubles with each round, up to
    /// ``requestLimit``. So even among thousands of subscriptions that the service refuses, one that it accepts is soon
    /// tried.
    static let firstTests = 4
    /// The time for which a success proves that the credentials are valid, and a rejection that they are not.
    private static let verdictWindow = Duration.seconds(3600)
    /// The minimum time by which a push is postponed if there is no capacity for it.
    private static let shortestPause = Duration.seconds(1)

    enum Decision: Sendable, Hashable {
        case send, wait
        case postpone(until: Timestamp)
    }

    /// The meaning of a response for the service.
    enum Result: Sendable, Hashable {
        /// The service works: it has accepted a push, or rejected it because of the push itself.
        case answered(accepted: Bool)
        /// The service did not accept the push now, or did not respond. This may concern only the subscription.
        case refused
        /// The service accepts pushes only at a lower rate. This may concern only the subscription.
        case limited
        /// No connection to the service could be opened.
        case unreachable
        /// The service does not accept the sender. This may concern only the subscription, whose key may be another.
        case notAuthorized
        /// The push was not sent, which says nothing about the service.
        case notSent
    }

    /// The actions that follow a response.
    struct Next: Sendable {
        var send: [AddressedPush] = []
        /// Pushes to release to the queue until the given time.
        var postponed: [(push: AddressedPush, until: Timestamp)] = []
        /// The end of a pause that starts now. `nil` if none starts.
        var opened: Timestamp?
        /// The end of the current pause, whether it starts now or has started earlier. `nil` if there is no pause.
        var pausedUntil: Timestamp?
        /// The new rate, in pushes per minute, if the service limits the relay from now on. `nil` if it does not.
        var slowedTo: Int?
    }

    /// A pause of sending, in rounds. In each round some pushes are sent as tests, because the refusals may concern only
    /// the subscriptions that were refused.
    private struct Pause: Sendable {
        var until: Timestamp
        /// The length of the round.
        var length: Duration
        /// Whether the service cannot be reached. Each round then has one test, of any subscription.
        var isUnreachable = false
        /// The number of tests per round.
        var size = OriginState.firstTests
        /// The number of tests that are left in this round, for subscriptions that the service has not refused.
        var fresh = OriginState.firstTests
        /// The same for the others.
        var repeated = 0

        /// Whether a push may be sent as a test, which is counted.
        mutating func takeTest(isRepeated: Bool) -> Bool {
            if isUnreachable { return take(\.fresh) }
            return take(isRepeated ? \.repeated : \.fresh)
        }

        private mutating func take(_ left: WritableKeyPath<Pause, Int>) -> Bool {
            guard self[keyPath: left] > 0 else { return false }
            self[keyPath: left] -= 1
            return true
        }

        /// Starts the next round.
        mutating func next(until end: Timestamp, length: Duration) {
            (until, self.length) = (end, length)
            size = min(2 * size, OriginState.requestLimit)
            (fresh, repeated) = isUnreachable ? (1, 0) : (size, size / 4)
        }

        mutating func noteUnreachable() {
            (isUnreachable, fresh, repeated) = (true, 0, 0)
        }
    }

    private enum Phase: Sendable {
        case sending
        case paused(Pause)
    }

    private var phase = Phase.sending
    private var failedConnects = 0
    private var watch = RefusalWatch()
    /// The rate to which the service limits the relay. `nil` if it does not.
    private var pace: Pace?
    /// The numbers of pushes that were accepted in the current minute and in the one before.
    private var accepted: (since: Timestamp, now: Int, before: Int)
    private var backoff = Backoff(first: Self.pauses.first, longest: Self.pauses.longest)
    private(set) var inFlight = 0
    private var waiting = CircularBuffer<AddressedPush>()
    private var lastResponse: Timestamp
    private var lastAccepted: Timestamp?
    /// The time at which the service last rejected the sender. `nil` if it has accepted a push since.
    private var lastRefused: Timestamp?
    /// The due time of the push that was last postponed. The next push becomes due after it, at the rate at which the
    /// service responds.
    private var postponedTo: Timestamp
    /// The number of responses per second, measured over the last full second with outstanding pushes. `perSecond` is
    /// `nil` until the first second is over.
    private var rate: (since: Timestamp, count: Int, perSecond: Double?)
    /// The minimum rate, per second, at which postponed pushes become due. A service that failed or was slow may be
    /// fast by then. Each push that is due too early costs one write.
    private static let minReturnRate: Double = 100
    /// The part of a limited rate at which postponed pushes become due. The rest is for new pushes.
    private static let returned = 0.8

    init(now: Timestamp) {
        lastResponse = now
        postponedTo = now
        rate = (now, 0, nil)
        accepted = (now, 0, 0)
    }

    var outstanding: Int { inFlight + waiting.count }

    /// Returns the number of pushes that the service can accept. `nil` if it is paused or slow, because the other
    /// services must not wait for it.
    /// - Parameter isAlone: Whether there are no other services.
    func capacity(at now: Timestamp, isAlone: Bool = false) -> Int? {
        guard case .sending = phase, outstanding == 0 || lastResponse + Self.slowAfter > now else { return nil }
        if !isAlone, let perSecond = rate.perSecond,
            Double(outstanding) > perSecond * Double(Self.slowAfter.components.seconds)
        {
            return nil
        }
        return Self.requestLimit + Self.waitingLimit - outstanding
    }

    mutating func submit(_ push: AddressedPush, at now: Timestamp) -> Decision {
        if outstanding == 0 { (lastResponse, rate) = (now, (now, 0, nil)) }
        if case .paused(var pause) = phase {
            let isOver = now >= pause.until || pause.until > now + Self.pauses.longest
            if isOver, !pause.isUnreachable || inFlight == 0 {
                let length = backoff.delay()
                pause.next(until: now + length, length: length)
            }
            let isTest =
                inFlight < Self.requestLimit
                && pause.takeTest(isRepeated: watch.wasRefused(push.subscription.address))
            phase = .paused(pause)
            guard isTest else { return .postpone(until: postpone(from: max(pause.until, now + Self.shortestPause))) }
            inFlight += 1
            return .send
        }
        if pace?.isOver(at: now) == true { pace = nil }
        guard outstanding < Self.requestLimit + Self.waitingLimit else {
            return .postpone(until: postpone(from: now + Self.shortestPause))
        }
        guard pace?.take(at: now) ?? true else { return .postpone(until: postpone(from: now)) }
        guard inFlight < Self.requestLimit else {
            waiting.append(push)
            return .wait
        }
        inFlight += 1
        return .send
    }

    /// Records the result of a request.
    /// - Parameters:
    ///   - subscription: The subscription of the push.
    ///   - random: A number from 0 to 1, for the pause.
    mutating func finished(
        _ result: Result, of subscription: DeviceToken, at now: Timestamp, random: Double = .random(in: 0...1)
    ) -> Next {
        inFlight -= 1
        if result == .notSent { return Next() }
        lastResponse = now
        count(now)
        var next = Next()
        var pauses = false
        failedConnects = result == .unreachable ? failedConnects + 1 : 0
        switch result {
        case .notSent: break
        case .answered(let isAccepted):
            if isAccepted { noteAccepted(now) }
            watch.worked(for: subscription, accepted: isAccepted)
            phase = .sending
            backoff.reset()
        case .refused:
            pauses = watch.refused(subscription)
        case .limited:
            pauses = watch.limited(subscription, at: now)
            if pauses {
                countMinute(now)
                let pace = Pace(accepted: max(accepted.now, accepted.before), at: now)
                self.pace = pace
                next.slowedTo = pace.perMinute
            }
        case .unreachable:
            pauses = failedConnects >= Self.connectLimit
        case .notAuthorized where isAuthorized(at: now): break
        case .notAuthorized:
            lastRefused = now
            // The same subscription's next rejection proves nothing new, so that it does not pause the others again.
            pauses = watch.weigh(subscription) > 0
        }
        if pauses, case .sending = phase {
            let until = pause(now, random)
            next.postponed = withdrawWaiting().map { ($0, postpone(from: until)) }
            next.opened = until
        }
        if case .paused(let pause) = phase, pause.isUnreachable, result != .unreachable { phase = .sending }
        guard case .paused(var pause) = phase else {
            let count = min(waiting.count, Self.requestLimit - inFlight)
            inFlight += count
            next.send = (0..<count).compactMap { _ in waiting.popFirst() }
            return next
        }
        if result == .unreachable {
            pause.noteUnreachable()
            if inFlight == 0 { pause.until = now + pause.length }
            phase = .paused(pause)
        }
        next.pausedUntil = pause.until
        return next
    }

    /// Removes the waiting pushes, because the relay stops or its configuration has changed.
    /// - Returns: The pushes, which were not sent.
    mutating func withdrawWaiting() -> [AddressedPush] {
        defer { waiting.removeAll() }
        return Array(waiting)
    }

    /// Whether the service has recently accepted a push. A rejection of the credentials then concerns the subscription.
    func isAuthorized(at now: Timestamp) -> Bool {
        lastAccepted.map { $0 + Self.verdictWindow >= now } ?? false
    }

    /// Whether the service has recently rejected the sender and has accepted nothing since. While pushes wait for the
    /// service, it is tested every few minutes. A service without pushes is forgotten.
    func refusesCredentials(at now: Timestamp) -> Bool {
        lastRefused.map { $0 + Self.verdictWindow >= now } ?? false
    }

    /// The service's state for operators. `nil` if the service gets all pushes at once.
    func condition(at now: Timestamp) -> PushServiceCondition? {
        if case .paused(let pause) = phase { return .paused(until: pause.until) }
        guard var pace, !pace.isOver(at: now) else { return nil }
        return .slowed(perMinute: pace.perMinute)
    }

    /// Starts a pause. `Retry-After` does not lengthen it, because only one subscription may have got that response.
    /// Each push waits for as long as its own response asks.
    /// - Returns: The end of the first round.
    private mutating func pause(_ now: Timestamp, _ random: Double) -> Timestamp {
        let length = backoff.delay(random: random)
        phase = .paused(Pause(until: now + length, length: length))
        return now + length
    }

    private mutating func noteAccepted(_ now: Timestamp) {
        (lastAccepted, lastRefused) = (now, nil)
        countMinute(now)
        accepted.now += 1
    }

    /// Starts the next minute of the accepted pushes if this one is over.
    private mutating func countMinute(_ now: Timestamp) {
        let elapsed = now.milliseconds - accepted.since.milliseconds
        guard elapsed >= 60_000 || elapsed < 0 else { return }
        accepted = (now, 0, elapsed < 120_000 ? accepted.now : 0)
    }

    private mutating func postpone(from time: Timestamp) -> Timestamp {
        // A wall clock that was set back must not postpone pushes forever.
        if postponedTo < time || postponedTo > time + PushLifeCycle.longestWait { postponedTo = time }
        let perSecond = pace.map { $0.perSecond * Self.returned } ?? max(rate.perSecond ?? 0, Self.minReturnRate)
        postponedTo = postponedTo + .milliseconds(max(1, Int64(1000 / perSecond)))
        return postponedTo
    }

    private mutating func count(_ now: Timestamp) {
        rate.count += 1
        let elapsed = now.milliseconds - rate.since.milliseconds
        guard elapsed >= 1000 || elapsed < 0 else { return }
        rate = (now, 0, max(1, Double(rate.count) * 1000 / Double(max(1000, elapsed))))
    }
}
