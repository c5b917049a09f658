import ChatDomain
import NIOCore

/// A push and what it takes to reach its browser.
struct BrowserPush: Sendable, Hashable {
    let push: Push
    let subscription: Subscription
}

/// One push service, by its origin: how much it is given at a time, and whether it is given anything now, so that one that is
/// slow or down holds up nobody else. A value; ``WebPushGateway`` acts.
struct OriginState: Sendable {
    /// Requests at once; Apple allows a hundred that are not answered.
    static let requestLimit = 100
    /// Pushes that wait for the window. With a full window and these, the gateway leases no more until some are answered.
    static let waitingLimit = 400
    /// A service that has not answered for so long, or will need so long for what it has been given, is not waited for: the
    /// gateway leases for the others, and what it leases for this one is put off.
    static let slowAfter = Duration.seconds(2)
    /// Failures in a row from which on nothing is sent for a while.
    static let failureLimit = 5
    /// The first such while, and the longest; doubles.
    private static let pauses = (first: Duration.seconds(1), longest: Duration.seconds(300))
    /// How long a success shows that the credentials are good, and a refusal that they are not.
    private static let verdictWindow = Duration.seconds(3600)
    /// How long a push is put off at least that finds no capacity.
    private static let shortestPause = Duration.seconds(1)

    enum Decision: Sendable, Hashable {
        case send, wait
        case postpone(until: Timestamp)
    }

    /// What an answer says about the service.
    enum Result: Sendable, Hashable {
        /// It works: it has taken a push, or refused it for the push's own sake.
        case answered(accepted: Bool)
        /// It does not: 5xx, no connection, no answer. Not before the time that it named.
        case failed(notBefore: Timestamp?)
        /// It does not accept who sends.
        case notAuthorized
        /// Nothing: the push was not sent.
        case notSent
    }

    /// What follows from an answer.
    struct Next: Sendable {
        var send: [BrowserPush] = []
        /// Their time is over: they wait in the queue again.
        var postponed: [(push: BrowserPush, until: Timestamp)] = []
        /// From now on nothing is sent until then; nil: no change.
        var opened: Timestamp?
        /// Nothing is sent until then, whether that is new or not.
        var pausedUntil: Timestamp?
    }

    private enum Phase: Sendable {
        case closed(failures: Int)
        case open(until: Timestamp)
        /// One push is on its way to find out.
        case probing
    }

    private var phase = Phase.closed(failures: 0)
    private var backoff = Backoff(first: Self.pauses.first, longest: Self.pauses.longest)
    private(set) var inFlight = 0
    private var waiting = CircularBuffer<BrowserPush>()
    private var lastResponse: Timestamp
    private var lastAccepted: Timestamp?
    /// When it last refused who sends, and has accepted nothing since.
    private var lastRefused: Timestamp?
    /// When the last push that found no capacity is due: the next one comes after it, as fast as the service answers.
    private var postponedTo: Timestamp
    /// Answers a second, over the last second in which there was something to answer; nil until that is over.
    private var rate: (since: Timestamp, count: Int, perSecond: Double?)
    /// What is put off comes back at least so fast, a second: a service that had failed, or was slow, may be fast by then. Each
    /// that comes too early costs one write.
    private static let slowestReturn: Double = 100

    init(now: Timestamp) {
        lastResponse = now
        postponedTo = now
        rate = (now, 0, nil)
    }

    var outstanding: Int { inFlight + waiting.count }

    /// How many more pushes it can take at once; nil where the others must not wait for it.
    /// - Parameter isAlone: there are no others.
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

    /// - Parameter random: from 0 to 1, for the pause.
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

    /// The relay stops, or sends in another way from now on.
    /// - Returns: those that were not sent.
    mutating func withdrawWaiting() -> [BrowserPush] {
        defer { waiting.removeAll() }
        return Array(waiting)
    }

    /// Others got through lately: a refusal of the credentials is about the subscription.
    func isAuthorized(at now: Timestamp) -> Bool {
        lastAccepted.map { $0 + Self.verdictWindow >= now } ?? false
    }

    /// It refused who sends lately, and has accepted nothing since. As long as something waits for it, it is asked every few
    /// minutes; what nothing waits for is forgotten.
    func refusesCredentials(at now: Timestamp) -> Bool {
        lastRefused.map { $0 + Self.verdictWindow >= now } ?? false
    }

    /// - Returns: until when nothing is sent, if that is new.
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
        // A clock that was set back must not put anything off for ever.
        if postponedTo < time || postponedTo > time + PushLifeCycle.longestWait { postponedTo = time }
        postponedTo = postponedTo + .milliseconds(max(1, Int64(1000 / max(rate.perSecond ?? 0, Self.slowestReturn))))
        return postponedTo
    }

    private mutating func count(_ now: Timestamp) {
        rate.count += 1
        let elapsed = now.milliseconds - rate.since.milliseconds
        guard elapsed >= 1000 || elapsed < 0 else { return }
        rate = (now, 0, max(1, Double(rate.count) * 1000 / Double(max(1000, elapsed))))
    }
}
