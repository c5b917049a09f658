import ChatDomain
import Testing

@Suite("The life cycle of a push")
struct PushLifeCycleTests {
    private static let now = Timestamp(seconds: 1_780_000_000)
    private static let fresh = PushHistory()
    /// Histories that a push may have.
    private static let histories = [
        fresh, PushHistory(attempts: 1), PushHistory(attempts: 99), PushHistory(attempts: 3, unanswered: 2),
        PushHistory(attempts: 20, unanswered: 20), PushHistory(attempts: 5, refused: 4),
        PushHistory(attempts: 150, unanswered: 40, refused: 60),
    ]
    /// Times at which the gateway last accepted another push.
    private static let acceptances: [Timestamp?] = [nil, now, now - .seconds(86_400)]

    private let relay = PushLifeCycle()
    private let command = PushLifeCycle(.init(unansweredLimit: 3, credentialsMayChange: false))

    private static func next(
        _ lifeCycle: PushLifeCycle, _ outcome: Outcome, _ history: PushHistory = fresh, lane: PushLane = .normal,
        expiration: Int64? = nil, leasedAt: Timestamp = now, lastAccepted: Timestamp? = nil
    ) -> Transition {
        lifeCycle.transition(
            outcome, history, lane: lane, expiration: expiration, leasedAt: leasedAt, lastAccepted: lastAccepted,
            at: now
        )
    }

    /// Returns the time that the push waits. `nil` if it does not wait.
    private static func wait(_ transition: Transition) -> Duration? {
        guard case .waiting(let time, _, _) = transition.result else { return nil }
        return .milliseconds(time.milliseconds - now.milliseconds)
    }

    // MARK: - Final outcomes

    @Test("An accepted push is sent, whatever its history", arguments: histories)
    func sent(history: PushHistory) {
        for lastAccepted in Self.acceptances {
            let next = Self.next(relay, .accepted, history, expiration: 0, lastAccepted: lastAccepted)
            #expect(next == Transition(.sent, adding: PushHistory(attempts: 1)))
            #expect(next.state == .sent)
            #expect(next.reason == nil)
            #expect(!next.changesNothing)
        }
    }

    @Test("A rejected push has failed, with the gateway's reason and a hint", arguments: histories)
    func rejected(history: PushHistory) {
        for lastAccepted in Self.acceptances {
            let next = Self.next(
                relay, .rejected(reason: "BadDeviceToken", hint: "wrong environment?"), history,
                lastAccepted: lastAccepted)
            #expect(
                next
                    == Transition(
                        .failed(reason: "BadDeviceToken", hint: "wrong environment?"), adding: PushHistory(attempts: 1))
            )
            #expect(next.state == .failed)
            #expect(next.reason == "BadDeviceToken")
        }
        #expect(Self.next(relay, .rejected(reason: "x"), history).result == .failed(reason: "x", hint: nil))
    }

    @Test("An unregistered device is deactivated as of the gateway's time", arguments: histories)
    func unregistered(history: PushHistory) {
        let since = Self.now - .seconds(5)
        #expect(
            Self.next(relay, .unregistered(since: since, reason: "Unregistered"), history)
                == Transition(
                    .failed(reason: "Unregistered"), adding: PushHistory(attempts: 1),
                    device: .deactivate(since: since, reason: "Unregistered")))
    }

    @Test(
        "A bad address is counted, with a limit only if another push was accepted within the last hour",
        arguments: [
            (nil, nil), (0, 5), (-1, 5), (-3_599_999, 5), (-3_600_000, 5), (-3_600_001, nil), (-86_400_000, nil),
        ] as [(Int64?, Int?)])
    func badAddress(accepted: Int64?, limit: Int?) {
        for history in Self.histories {
            let next = Self.next(
                relay, .badAddress(reason: "InvalidToken"), history,
                lastAccepted: accepted.map { Self.now + .milliseconds($0) })
            #expect(
                next
                    == Transition(
                        .failed(reason: "InvalidToken"), adding: PushHistory(attempts: 1),
                        device: .countRefusal(reason: "InvalidToken", limit: limit)))
        }
    }

    // MARK: - Gateway errors

    @Test("After gateway errors a push is retried after 1, 2, 4 … 900 seconds, and its hundredth attempt fails it")
    func retries() {
        var total = Duration.zero
        for made in 0..<99 {
            let next = Self.next(relay, .retry(reason: "ProcessingError"), PushHistory(attempts: made))
            let expected = Duration.seconds(made < 10 ? 1 << made : 900)
            #expect(Self.wait(next) == expected, "after \(made + 1) attempts")
            #expect(next.added == PushHistory(attempts: 1))
            #expect(next.state == .pending)
            #expect(next.reason == "ProcessingError")
            #expect(next.device == nil)
            total += expected
        }
        for made in [99, 100, 1000] {
            #expect(
                Self.next(relay, .retry(reason: "ProcessingError"), PushHistory(attempts: made))
                    == Transition(.failed(reason: "ProcessingError"), adding: PushHistory(attempts: 1)))
        }
        // The delays add up to about a day.
        #expect((Duration.seconds(20 * 3600)...Duration.seconds(28 * 3600)).contains(total))
    }

    @Test("An attempt without a response does not count towards the retry limit")
    func unansweredAttempts() {
        let retry = Outcome.retry(reason: "ProcessingError")
        #expect(
            Self.wait(Self.next(relay, retry, PushHistory(attempts: 20, unanswered: 20))) == .seconds(1))
        #expect(
            Self.wait(Self.next(relay, retry, PushHistory(attempts: 23, unanswered: 20))) == .seconds(8))
        #expect(Self.next(relay, retry, PushHistory(attempts: 118, unanswered: 20)).state == .pending)
        #expect(Self.next(relay, retry, PushHistory(attempts: 119, unanswered: 20)).state == .failed)
    }

    @Test("The policy sets the delays and the number of attempts")
    func policy() {
        let lifeCycle = PushLifeCycle(
            .init(retry: RetryPolicy(first: .seconds(3), longest: .seconds(10), attempts: 4)))
        let waits = (0..<5).map {
            Self.wait(Self.next(lifeCycle, .retry(reason: "x"), PushHistory(attempts: $0)))
        }
        #expect(waits == [.seconds(3), .seconds(6), .seconds(10), nil, nil])
        let once = PushLifeCycle(.init(retry: RetryPolicy(attempts: 1)))
        #expect(Self.next(once, .retry(reason: "x")).state == .failed)
    }

    @Test("The wait ends at the time that the gateway named, but is at least the usual delay and at most an hour")
    func retryAfter() {
        for (made, asked, expected) in [
            (0, 60, 60), (0, 0, 1), (0, -500, 1), (4, 5, 16), (4, 17, 17), (0, 3600, 3600), (0, 3601, 3600),
            (0, 86_400, 3600), (20, 10, 900), (20, 1000, 1000),
        ] {
            let next = Self.next(
                relay, .retry(reason: "TooManyRequests", notBefore: Self.now + .seconds(asked)),
                PushHistory(attempts: made))
            #expect(Self.wait(next) == .seconds(expected), "\(made) \(asked)")
        }
        // The gateway's time does not allow an additional attempt.
        #expect(
            Self.next(
                relay, .retry(reason: "x", notBefore: Self.now + .seconds(60)), PushHistory(attempts: 99)
            ).state == .failed)
    }

    @Test("A push with an expiration of 0 is not retried after a gateway error", arguments: histories)
    func singleAttempt(history: PushHistory) {
        let retry = Outcome.retry(reason: "InternalServerError", notBefore: Self.now + .seconds(1))
        #expect(
            Self.next(relay, retry, history, expiration: 0)
                == Transition(.failed(reason: "InternalServerError"), adding: PushHistory(attempts: 1)))
        #expect(
            Self.next(command, .unanswered(reason: "ConnectionLost"), expiration: 0).result
                == .failed(reason: "ConnectionLost"))
    }

    @Test("A push that was certainly not processed stays unchanged in its lane", arguments: histories)
    func notProcessed(history: PushHistory) {
        for lane in PushLane.allCases {
            for lifeCycle in [relay, command] {
                let next = Self.next(
                    lifeCycle, .notProcessed, history, lane: lane, expiration: 0, lastAccepted: Self.now)
                #expect(next == Transition(.due(lane, reason: nil)))
                #expect(next.changesNothing)
                #expect(next.state == .pending)
                #expect(next.reason == nil)
            }
        }
    }

    // MARK: - Suspicion

    /// Returns the transitions of a push that gets the same outcome again and again, while another push was accepted at
    /// `lastAccepted`.
    private static func fate(
        _ lifeCycle: PushLifeCycle, _ outcome: Outcome, times: Int, lastAccepted: Timestamp?
    ) -> [Transition] {
        var history = PushHistory()
        return (0..<times).map { _ in
            let transition = next(lifeCycle, outcome, history, lastAccepted: lastAccepted)
            history.attempts += transition.added.attempts
            history.unanswered += transition.added.unanswered
            history.refused += transition.added.refused
            return transition
        }
    }

    /// Returns durations in seconds that double up to 512.
    private static func doubling(_ count: Int) -> [Duration?] {
        (0..<count).map { .seconds(min(512, 1 << min($0, 30))) }
    }

    @Test("A lost push is retried six times at once, then ever later, and without end while nothing is accepted")
    func unanswered() {
        let fate = Self.fate(relay, .unanswered(reason: "ConnectionClosed"), times: 40, lastAccepted: nil)
        for transition in fate.prefix(6) { #expect(transition.result == .due(.retry, reason: "ConnectionClosed")) }
        #expect(fate.dropFirst(6).map(Self.wait) == Self.doubling(34))
        for transition in fate {
            #expect(transition.added == PushHistory(attempts: 1, unanswered: 1))
            #expect(transition.state == .pending)
            #expect(transition.reason == "ConnectionClosed")
            #expect(transition.device == nil)
            #expect(!transition.changesNothing)
        }
    }

    @Test("While other pushes are accepted, the eleventh loss fails the push")
    func unansweredAmongOthers() {
        let fate = Self.fate(relay, .unanswered(reason: "ConnectionClosed"), times: 12, lastAccepted: Self.now)
        #expect(fate.prefix(10).map(\.state) == Array(repeating: .pending, count: 10))
        #expect(fate[6...9].map(Self.wait) == Self.doubling(4))
        for transition in fate[10...] {
            #expect(
                transition
                    == Transition(
                        .failed(reason: "ConnectionClosed"), adding: PushHistory(attempts: 1, unanswered: 1)))
        }
    }

    @Test("The tenth refusal of the credentials fails the push only while other pushes are accepted")
    func notAuthorized() {
        let outcome = Outcome.notAuthorized(reason: "InvalidProviderToken")
        let alone = Self.fate(relay, outcome, times: 40, lastAccepted: nil)
        #expect(alone.map(Self.wait) == Self.doubling(40))
        #expect(alone.allSatisfy { $0.added == PushHistory(attempts: 1, refused: 1) && $0.state == .pending })
        #expect(alone.allSatisfy { $0.reason == "InvalidProviderToken" })
        let among = Self.fate(relay, outcome, times: 11, lastAccepted: Self.now)
        #expect(among.prefix(9).map(Self.wait) == Self.doubling(9))
        for transition in among[9...] {
            #expect(
                transition
                    == Transition(
                        .failed(reason: "InvalidProviderToken"), adding: PushHistory(attempts: 1, refused: 1)))
        }
    }

    @Test(
        "A push that is sent back is retried at once three times; while others are accepted, the thirtieth fails it")
    func sentBack() {
        let outcome = Outcome.sentBack(reason: "REFUSED_STREAM")
        let alone = Self.fate(relay, outcome, times: 50, lastAccepted: nil)
        for transition in alone.prefix(3) { #expect(transition.result == .due(.retry, reason: "REFUSED_STREAM")) }
        #expect(alone.dropFirst(3).map(Self.wait) == Self.doubling(47))
        #expect(alone.allSatisfy { $0.added == PushHistory(attempts: 1, refused: 1) && $0.state == .pending })
        let among = Self.fate(relay, outcome, times: 31, lastAccepted: Self.now)
        #expect(among.prefix(29).map(\.state) == Array(repeating: .pending, count: 29))
        #expect(among[28].reason == "REFUSED_STREAM")
        #expect(among[29].result == .failed(reason: "REFUSED_STREAM"))
        #expect(among[30].result == .failed(reason: "REFUSED_STREAM"))
    }

    /// The previous attempt began before the wait for this attempt. So it began at least as long before this attempt as
    /// that wait lasted.
    @Test(
        "A push is blamed if another was accepted since its previous attempt, or during this one",
        arguments: [
            (Outcome.unanswered(reason: "x"), PushHistory(attempts: 10, unanswered: 10), 8),
            (.unanswered(reason: "x"), PushHistory(attempts: 13, unanswered: 13), 64),
            (.unanswered(reason: "x"), PushHistory(attempts: 16, unanswered: 16), 512),
            (.unanswered(reason: "x"), PushHistory(attempts: 90, unanswered: 90), 512),
            (.notAuthorized(reason: "x"), PushHistory(attempts: 9, refused: 9), 256),
            (.notAuthorized(reason: "x"), PushHistory(attempts: 50, refused: 50), 512),
            (.sentBack(reason: "x"), PushHistory(attempts: 29, refused: 29), 512),
        ] as [(Outcome, PushHistory, Int64)])
    func proof(outcome: Outcome, history: PushHistory, waited: Int64) {
        // The wait before this attempt, as the life cycle computed it.
        var before = history
        before.attempts -= 1
        if before.unanswered > 0 { before.unanswered -= 1 }
        if before.refused > 0 { before.refused -= 1 }
        #expect(Self.wait(Self.next(relay, outcome, before)) == .seconds(waited))

        let leasedAt = Self.now - .seconds(30)
        let earlier = leasedAt - .seconds(waited)
        func state(_ lastAccepted: Timestamp) -> PushState {
            Self.next(relay, outcome, history, leasedAt: leasedAt, lastAccepted: lastAccepted).state
        }
        #expect(state(Self.now) == .failed)
        #expect(state(leasedAt) == .failed)
        #expect(state(earlier) == .failed)
        #expect(state(earlier - .milliseconds(1)) == .pending)
        #expect(state(Self.now - .seconds(86_400)) == .pending)
    }

    @Test("Losses do not count as refusals, nor refusals as losses")
    func separateCounts() {
        let refused = PushHistory(attempts: 50, refused: 50)
        #expect(
            Self.next(relay, .unanswered(reason: "x"), refused, lastAccepted: Self.now).result
                == .due(.retry, reason: "x"))
        let unanswered = PushHistory(attempts: 50, unanswered: 50)
        #expect(
            Self.wait(Self.next(relay, .notAuthorized(reason: "x"), unanswered, lastAccepted: Self.now)) == .seconds(1))
        #expect(
            Self.next(relay, .sentBack(reason: "x"), unanswered, lastAccepted: Self.now).result
                == .due(.retry, reason: "x"))
    }

    // MARK: - A command

    @Test("A command gives up after three losses, and at once if the credentials are refused")
    func commandPolicy() {
        let fate = Self.fate(command, .unanswered(reason: "ConnectionLost"), times: 4, lastAccepted: nil)
        #expect(fate[0].result == .due(.retry, reason: "ConnectionLost"))
        #expect(fate[1].result == .due(.retry, reason: "ConnectionLost"))
        #expect(fate[2].result == .failed(reason: "ConnectionLost"))
        #expect(fate[3].result == .failed(reason: "ConnectionLost"))
        #expect(fate[2].added == PushHistory(attempts: 1, unanswered: 1))
        #expect(
            Self.next(command, .notAuthorized(reason: "ExpiredProviderToken"))
                == Transition(.failed(reason: "ExpiredProviderToken"), adding: PushHistory(attempts: 1)))
        // A gateway's outcome is retried as a relay retries it.
        #expect(Self.wait(Self.next(command, .retry(reason: "x"))) == .seconds(1))
        #expect(Self.next(command, .sentBack(reason: "x")).result == .due(.retry, reason: "x"))
    }

    // MARK: - Obstacles

    @Test(
        "A cancellation counts before the expiration of a push, and that before an inactive device",
        arguments: [
            (nil, nil, nil), (nil, 1, nil), (nil, 0, .expired), (nil, -1000, .expired),
            (.notificationCancelled, nil, .cancelled(reason: "Cancelled")),
            (.notificationCancelled, -1000, .cancelled(reason: "Cancelled")),
            (.memberRemoved, nil, .cancelled(reason: "MemberRemoved")),
            (.deviceForgotten, nil, .cancelled(reason: "Unregistered")),
            (.deviceForgotten, -1000, .cancelled(reason: "Unregistered")),
            (.deviceInactive, nil, .failed(reason: "DeviceInactive")),
            (.deviceInactive, 1, .failed(reason: "DeviceInactive")), (.deviceInactive, 0, .expired),
            (.deviceInactive, -1000, .expired),
        ] as [(QueuedPush.Obstacle?, Int64?, Transition.Result?)])
    func obstacles(obstacle: QueuedPush.Obstacle?, left: Int64?, expected: Transition.Result?) {
        for history in Self.histories {
            let push = QueuedPush(
                id: 1, history: history, address: nil, payload: nil,
                expiration: left.map { Self.now.seconds + $0 }, apnsID: "id", obstacle: obstacle)
            let transition = relay.obstacle(to: push, at: Self.now)
            // An obstacle does not count as an attempt.
            #expect(transition == expected.map { Transition($0) })
            #expect(command.obstacle(to: push, at: Self.now) == transition)
        }
    }

    @Test(
        "Another program's push with a time in the wrong unit fails with a hint, and is not sent too early or for ever",
        arguments: [
            (1_780_000_060_000, nil, "InvalidExpiration"), (253_402_300_800, nil, "InvalidExpiration"),
            (Int64.max, nil, "InvalidExpiration"), (253_402_300_799, nil, nil),
            (nil, 1_780_000_060, "InvalidNotBefore"),
            (nil, 1_780_000_060_000_000, "InvalidNotBefore"), (nil, Int64.max, "InvalidNotBefore"),
            (nil, 253_402_300_800_000, "InvalidNotBefore"), (nil, 253_402_300_799_999, nil),
            (nil, 1_780_000_060_000, nil), (nil, 0, nil), (nil, -1, nil), (1_780_000_060_000, 1, "InvalidExpiration"),
        ] as [(Int64?, Int64?, String?)])
    func misreadTimes(expiration: Int64?, notBefore: Int64?, reason: String?) throws {
        func obstacle(isOurs: Bool, attempts: Int = 0) -> Transition? {
            relay.obstacle(
                to: QueuedPush(
                    id: 1, history: PushHistory(attempts: attempts), address: nil, payload: nil, isOurs: isOurs,
                    expiration: expiration, notBefore: notBefore, apnsID: "id"), at: Self.now)
        }
        let found = obstacle(isOurs: false)
        #expect(found?.reason == reason)
        if reason != nil {
            let hint: String? = if case .failed(_, let hint)? = found?.result { hint } else { nil }
            #expect(hint?.contains("UNIX") == true)
        }
        #expect(obstacle(isOurs: true) == nil)
        // The time of a retry is the relay's own.
        if notBefore != nil, expiration == nil { #expect(obstacle(isOurs: false, attempts: 1) == nil) }
    }

    @Test("An expiration of 0 is not a time in the past")
    func noExpiration() {
        func push(_ obstacle: QueuedPush.Obstacle?) -> QueuedPush {
            QueuedPush(id: 1, address: nil, payload: nil, expiration: 0, apnsID: "id", obstacle: obstacle)
        }
        #expect(relay.obstacle(to: push(nil), at: Self.now) == nil)
        #expect(relay.obstacle(to: push(.deviceInactive), at: Self.now)?.state == .failed)
    }

    @Test("Each result has its state and its reason")
    func states() {
        for (result, state, reason) in [
            (.sent, .sent, nil), (.failed(reason: "a", hint: "b"), .failed, "a"), (.expired, .expired, "Expired"),
            (.cancelled(reason: "c"), .cancelled, "c"), (.waiting(until: Self.now, reason: "d"), .pending, "d"),
            (.due(.bulk, reason: "e"), .pending, "e"), (.due(.bulk, reason: nil), .pending, nil),
        ] as [(Transition.Result, PushState, String?)] {
            #expect(Transition(result).state == state)
            #expect(Transition(result).reason == reason)
            #expect(Transition(result).changesNothing == (result == .due(.bulk, reason: nil)))
        }
        #expect(!Transition(.due(.normal, reason: nil), adding: PushHistory(attempts: 1)).changesNothing)
    }

    // MARK: - Groups and lanes

    @Test("A push that was lost twice is probed, in groups that shrink until it is alone")
    func groups() {
        for unanswered in [0, 1] {
            let group = relay.group(PushHistory(attempts: 9, unanswered: unanswered, refused: 9))
            #expect(!group.isProbe)
            #expect(group.size >= 1_000_000)
        }
        let groups = (2..<12).map { relay.group(PushHistory(attempts: $0, unanswered: $0)) }
        #expect(groups.map(\.size) == [256, 64, 16, 4, 1, 1, 1, 1, 1, 1])
        #expect(groups.allSatisfy { $0.isProbe })
        #expect(relay.group(PushHistory(unanswered: PushLifeCycle.aloneFrom - 1)).size > 1)
        #expect(relay.group(PushHistory(unanswered: PushLifeCycle.aloneFrom)).size == 1)
    }

    @Test("Suspect pushes go last, and bulk pushes let others pass")
    func lanes() {
        for history in [PushHistory(), PushHistory(attempts: 7)] {
            #expect(!history.isSuspect)
            #expect(PushLane(history, isBulk: false) == .normal)
            #expect(PushLane(history, isBulk: true) == .bulk)
        }
        for history in [PushHistory(unanswered: 1), PushHistory(refused: 1), PushHistory(unanswered: 2, refused: 3)] {
            #expect(history.isSuspect)
            #expect(PushLane(history, isBulk: false) == .retry)
            #expect(PushLane(history, isBulk: true) == .retry)
        }
        #expect(PushLane.allCases == [.normal, .bulk, .retry])
    }
}

@Suite("The number of pushes to write before a probe")
struct ProbeWindowTests {
    /// Returns the window after one loss of this number of pushes.
    private static func window(lost: Int) -> ProbeWindow {
        var window = ProbeWindow()
        window.lost(lost)
        return window
    }

    /// Confirms a whole window while more pushes are due.
    /// - Returns: The next window. `Int.max` if it has no limit.
    @discardableResult
    private static func prove(_ window: inout ProbeWindow) throws -> Int {
        window.confirmed(try #require(window.limit), isAll: false)
        return window.limit ?? .max
    }

    @Test("There is no limit at a gateway that loses nothing")
    func open() {
        var window = ProbeWindow()
        #expect(window.limit == nil)
        window.confirmed(1000, isAll: true)
        window.lost(0)
        #expect(window.limit == nil)
    }

    @Test("A loss limits the window to half of its size, and at least sixteen", arguments: [1000, 999, 100, 33, 32])
    func loss(count: Int) {
        var window = Self.window(lost: count)
        #expect(window.limit == max(16, count / 2))
        var expected = max(16, count / 2)
        for _ in 0..<12 {
            window.lost(expected)
            expected = max(16, expected / 2)
            #expect(window.limit == expected)
        }
        #expect(window.limit == 16)
    }

    @Test("A small loss is common and does not limit the window", arguments: [1, 31])
    func smallLoss(count: Int) {
        var window = Self.window(lost: count)
        #expect(window.limit == nil)
        window = ProbeWindow(limit: ProbeWindow.afterStart)
        window.lost(count)
        #expect(window.limit == ProbeWindow.afterStart)
    }

    @Test("A loss smaller than the window limits it to half of the loss")
    func partialLoss() {
        var window = Self.window(lost: 1000)
        window.lost(100)
        #expect(window.limit == 50)
        window.lost(0)
        #expect(window.limit == 50)
    }

    @Test("The window grows step by step and stays below the size of the loss", arguments: [32, 50, 100, 333, 1000])
    func growth(lost: Int) throws {
        var window = Self.window(lost: lost)
        var last = try #require(window.limit)
        var isGrown = false
        for _ in 0..<63 {
            let limit = try Self.prove(&window)
            #expect(limit >= last)
            #expect(limit < lost)
            if limit > last { isGrown = true }
            last = limit
        }
        #expect(isGrown)
        // The window reaches most of the range that is allowed.
        #expect(last >= lost * 3 / 4 || last == lost - 1)
    }

    @Test("After 64 proofs the window may pass the size of the loss", arguments: [32, 100, 1000])
    func retry(lost: Int) throws {
        var window = Self.window(lost: lost)
        for _ in 0..<64 {
            #expect(try Self.prove(&window) < max(lost, 2))
        }
        #expect(try Self.prove(&window) >= lost)
        for _ in 0..<12 where window.limit != nil { try Self.prove(&window) }
        #expect(window.limit == nil)
    }

    @Test("A loss in between restarts the count of proofs")
    func lossInBetween() throws {
        var window = Self.window(lost: 100)
        for _ in 0..<60 { try Self.prove(&window) }
        window.lost(80)
        #expect(window.limit == 40)
        for _ in 0..<64 {
            #expect(try Self.prove(&window) < 80)
        }
    }

    @Test("A loss above the size of the previous one halves the window again")
    func lossBeyond() throws {
        var window = Self.window(lost: 100)
        for _ in 0..<65 { try Self.prove(&window) }
        let beyond = try #require(window.limit)
        #expect(beyond > 100)
        window.lost(beyond)
        #expect(window.limit == beyond / 2)
        for _ in 0..<63 {
            #expect(try Self.prove(&window) < beyond)
        }
    }

    @Test("Groups that were lost together halve the window once")
    func simultaneousLosses() {
        var window = Self.window(lost: 800)
        for _ in 0..<3 { window.lost(400) }
        #expect(window.limit == 200)
        window.lost(800)
        #expect(window.limit == 200)
    }

    @Test("A loss smaller than the smallest window does not change the window", arguments: [1, 15])
    func tinyLoss(count: Int) {
        var window = Self.window(lost: 1000)
        window.lost(count)
        #expect(window.limit == 500)
    }

    @Test(
        "With proof by silence the window passes the size of the loss after eight times as many pushes",
        arguments: [32, 100, 400])
    func silence(lost: Int) throws {
        var window = Self.window(lost: lost)
        var proven = 0
        while try #require(window.limit) < lost {
            let limit = try #require(window.limit)
            window.confirmed(limit, isAll: false, bySilence: true)
            proven += limit
            try #require(proven < 10 * lost)
        }
        #expect(proven >= 8 * lost)
        // A loss above the limit counts as before.
        let beyond = try #require(window.limit)
        window.lost(beyond)
        #expect(window.limit == beyond / 2)
        window = Self.window(lost: 1000)
        for _ in 0..<63 {
            window.confirmed(try #require(window.limit), isAll: false, bySilence: true)
            #expect(try #require(window.limit) <= ProbeWindow.open)
        }
    }

    @Test("A group smaller than the window proves nothing, even if nothing else was due")
    func smallGroup() throws {
        var window = Self.window(lost: 1000)
        for count in [1, 2, 100, 499] {
            window.confirmed(count, isAll: true)
            window.confirmed(count, isAll: false)
            #expect(window.limit == 500)
        }
        window.confirmed(0, isAll: true)
        #expect(window.limit == 500)
        window.confirmed(500, isAll: true)
        let limit = try #require(window.limit)
        #expect(limit > 500)
    }

    @Test("After a start the window doubles until it is open")
    func start() throws {
        #expect(ProbeWindow.afterStart == 256)
        var window = ProbeWindow(limit: ProbeWindow.afterStart)
        #expect(window.limit == 256)
        #expect(try Self.prove(&window) == 512)
        try Self.prove(&window)
        #expect(window.limit == nil)
    }

    @Test("After a start the window opens at once if nothing else was due")
    func quietStart() {
        var window = ProbeWindow(limit: ProbeWindow.afterStart)
        window.confirmed(0, isAll: true)
        #expect(window.limit == 256)
        window.confirmed(3, isAll: true)
        #expect(window.limit == nil)
    }

    @Test("A loss after a start halves the window")
    func lossAfterStart() throws {
        var window = ProbeWindow(limit: ProbeWindow.afterStart)
        window.lost(256)
        #expect(window.limit == 128)
        window.confirmed(100, isAll: true)
        #expect(window.limit == 128)
        #expect(try Self.prove(&window) == 160)
    }
}
