import ChatDomain
import NIOCore

/// A push and the subscription by which it reaches its browser.
struct BrowserPush: Sendable, Hashable {
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
    /// The number of failures in a row after which sending to the service pauses.
    static let failureLimit = 5
    /// The first pause, and the longest one. Pauses double.
    private static let pauses = (first: Duration.seconds(1), longest: Duration.seconds(300))
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
        /// The service has failed: 5xx, no connection, or no response. `notBefore` is the time of a retry that the
        /// service named.
        case failed(notBefore: Timestamp?)
        /// The service does not accept the sender.
        case notAuthorized
        /// The push was not sent, which says nothing about the service.
        case notSent
    }

    /// The actions that follow a response.
    struct Next: Sendable {
        var send: [BrowserPush] = []
        /// Pushes to release to the queue until the given time.
        var postponed: [(push: BrowserPush, until: Timestamp)] = []
        /// The end of a pause that starts now. `nil` if none starts.
        var opened: Timestamp?
        /// The end of the current pause, whether it starts now or has started earlier. `nil` if there is no pause.
        var pausedUntil: Timestamp?
    }

    private enum Phase: Sendable {
        case closed(failures: Int)
        case open(until: Timestamp)
        /// One push is in flight to test the service.
        case probing
    }

    private var phase = Phase.closed(failures: 0)
    private var backoff = Backoff(first: Self.pauses.first, longest: Self.pauses.longest)
    private(set) var inFlight = 0
    private var waiting = CircularBuffer<BrowserPush>()
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

    init(now: Timestamp) {
        lastResponse = now
        postponedTo = now
        rate = (now, 0, nil)
    }

    var outstanding: Int { inFlight + waiting.count }

    /// Returns the number of pushes that the service can accept. `nil` if it is paused or slow, because the other
    /// services must not wait for it.
    /// - Parameter isAlone: Whether there are no other services.
    func capacity(at now: Timestamp, isAlone: Bool = false) -> Int? {
        guard case .closed = phase, outstanding == 0 || lastResponse + Self.slowAfter > now else { return nil }
        if !isAlone, let perSecond = rate.perSecond,
            Double(outstanding) > perSecond * Double(Self.slowAfter.components.seconds)
        {
            return nil
        }
        return Self.requestLimit + Self.waitingLimit - outstanding
    }

    mutating func submit(_ push: BrowserPush, at now: Timestamp) -> Decision {
        if outstanding == 0 { (lastResponse, rate) = (now, (now, 0, nil)) }
        switch phase {
        case .open(let until) where now < until && until <= now + Self.pauses.longest + PushLifeCycle.longestWait:
            return .postpone(until: postpone(from: until))
        case .open:
            phase = .probing
            inFlight += 1
            return .send
        case .probing:
            return .postpone(until: postpone(from: now + Self.shortestPause))
        case .closed where inFlight < Self.requestLimit:
            inFlight += 1
            return .send
        case .closed where waiting.count < Self.waitingLimit:
            waiting.append(push)
            return .wait
        case .closed:
            return .postpone(until: postpone(from: now + Self.shortestPause))
        }
    }

    /// Records the result of a request.
    /// - Parameter random: A number from 0 to 1, for the pause.
    mutating func finished(_ result: Result, at now: Timestamp, random: Double = .random(in: 0...1)) -> Next {
        inFlight -= 1
        if result == .notSent { return Next() }
        lastResponse = now
        count(now)
        switch result {
        case .notSent: break
        case .answered(let accepted):
            if accepted { (lastAccepted, lastRefused) = (now, nil) }
            phase = .closed(failures: 0)
            backoff.reset()
        case .notAuthorized where isAuthorized(at: now):
            if case .probing = phase { phase = .closed(failures: 0) }
        case .failed, .notAuthorized:
            if result == .notAuthorized { lastRefused = now }
            if let until = fail(result, now, random) {
                let postponed = withdrawWaiting().map { ($0, postpone(from: until)) }
                return Next(postponed: postponed, opened: until, pausedUntil: until)
            }
        }
        if case .open(let until) = phase { return Next(pausedUntil: until) }
        guard case .closed = phase else { return Next() }
        let count = min(waiting.count, Self.requestLimit - inFlight)
        inFlight += count
        return Next(send: (0..<count).compactMap { _ in waiting.popFirst() })
    }

    /// Removes the waiting pushes, because the relay stops or its configuration has changed.
    /// - Returns: The pushes, which were not sent.
    mutating func withdrawWaiting() -> [BrowserPush] {
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

    /// Records a failure.
    /// - Returns: The end of a pause that starts now. `nil` if none starts.
    private mutating func fail(_ result: Result, _ now: Timestamp, _ random: Double) -> Timestamp? {
        switch phase {
        case .closed(let failures):
            phase = .closed(failures: failures + 1)
            guard failures + 1 >= Self.failureLimit || result == .notAuthorized else { return nil }
        case .probing: break
        case .open: return nil
        }
        var until = now + backoff.delay(random: random)
        if case .failed(let notBefore?) = result { until = min(max(until, notBefore), now + PushLifeCycle.longestWait) }
        phase = .open(until: until)
        return until
    }

    private mutating func postpone(from time: Timestamp) -> Timestamp {
        // A wall clock that was set back must not postpone pushes forever.
        if postponedTo < time || postponedTo > time + PushLifeCycle.longestWait { postponedTo = time }
        postponedTo = postponedTo + .milliseconds(max(1, Int64(1000 / max(rate.perSecond ?? 0, Self.minReturnRate))))
        return postponedTo
    }

    private mutating func count(_ now: Timestamp) {
        rate.count += 1
        let elapsed = now.milliseconds - rate.since.milliseconds
        guard elapsed >= 1000 || elapsed < 0 else { return }
        rate = (now, 0, max(1, Double(rate.count) * 1000 / Double(max(1000, elapsed))))
    }
}
