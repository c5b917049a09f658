import ChatDomain
import Testing

@testable import WebPushGateway

@Suite("The window and pauses of one push service")
struct OriginStateTests {
    private static let start = Timestamp(seconds: 1_800_000_000)

    /// The subscription of the push with this id.
    private static func device(_ entry: Int64) throws -> DeviceToken {
        try #require(
            DeviceToken(bytes: withUnsafeBytes(of: entry.bigEndian, Array.init) + [UInt8](repeating: 1, count: 24)))
    }

    private static func push(_ entry: Int64) throws -> AddressedPush {
        let token = try device(entry)
        return AddressedPush(
            push: Push(id: entry, identifier: UInt32(entry), address: .token(token), payload: []),
            subscription: Subscription(address: token, endpoint: "https://push.test/1", publicKey: [], secret: []))
    }

    /// Returns a state with `count` requests in flight.
    private static func busy(_ count: Int) throws -> OriginState {
        var state = OriginState(now: start)
        for entry in 1...Int64(count) { #expect(state.submit(try push(entry), at: start) == .send) }
        return state
    }

    @Test("Pushes are sent up to the window; some wait, and the others are postponed one after another")
    func window() throws {
        var state = try Self.busy(OriginState.requestLimit)
        for entry in 1...Int64(OriginState.waitingLimit) {
            #expect(state.submit(try Self.push(1000 + entry), at: Self.start) == .wait)
        }
        #expect(state.capacity(at: Self.start) == 0)
        var last = Self.start
        for entry in 1...Int64(50) {
            guard case .postpone(let until) = state.submit(try Self.push(5000 + entry), at: Self.start) else {
                Issue.record("push \(entry) was taken")
                return
            }
            #expect(until > last)
            last = until
        }
        #expect(last >= Self.start + .seconds(1))
        let next = state.finished(.answered(accepted: true), of: try Self.device(1), at: Self.start)
        #expect(next.send.map(\.push.id) == [1001])
        #expect(state.outstanding == OriginState.requestLimit + OriginState.waitingLimit - 1)
        #expect(state.capacity(at: Self.start) == 1)
    }

    @Test("A service that does not respond for a while does not delay the others")
    func slow() throws {
        let state = try Self.busy(OriginState.requestLimit)
        #expect(state.capacity(at: Self.start + .milliseconds(1900)) == OriginState.waitingLimit)
        #expect(state.capacity(at: Self.start + .seconds(3)) == nil)
    }

    @Test("A service that responds slowly does not delay the others")
    func needsLong() throws {
        var state = try Self.busy(OriginState.requestLimit)
        for entry in 1...Int64(OriginState.waitingLimit) {
            #expect(state.submit(try Self.push(1000 + entry), at: Self.start) == .wait)
        }
        // Ten responses in each of ten tenths of a second: a hundred a second.
        var now = Self.start
        for _ in 1...10 {
            now = now + .milliseconds(100)
            #expect(state.capacity(at: now) == 500 - state.outstanding)
            for _ in 1...10 { _ = state.finished(.answered(accepted: true), of: try Self.device(1), at: now) }
        }
        #expect(state.outstanding == 400)
        #expect(state.capacity(at: now) == nil)
        #expect(state.capacity(at: now, isAlone: true) == 100)
        // The remaining requests are less than two seconds' work.
        for _ in 1...230 { _ = state.finished(.answered(accepted: true), of: try Self.device(1), at: now) }
        #expect(state.capacity(at: now) == 330)
    }

    @Test("While a service rejects all pushes, each outcome has the end of the pause")
    func refusedTogether() throws {
        var state = try Self.busy(3)
        let first = state.finished(.notAuthorized, of: try Self.device(1), at: Self.start, random: 1)
        let second = state.finished(.notAuthorized, of: try Self.device(2), at: Self.start, random: 1)
        #expect(first.opened == Self.start + .seconds(1) && first.pausedUntil == first.opened)
        #expect(second.opened == nil && second.pausedUntil == first.opened)
        // The end of a push that was not sent shows nothing about the service.
        #expect(state.finished(.notSent, of: try Self.device(3), at: Self.start).pausedUntil == nil)
        #expect(state.outstanding == 0)
    }

    @Test("Waiting pushes are withdrawn once, and pushes in flight stay")
    func withdrawal() throws {
        var state = try Self.busy(OriginState.requestLimit)
        #expect(state.submit(try Self.push(2000), at: Self.start) == .wait)
        #expect(state.withdrawWaiting().map(\.push.id) == [2000])
        #expect(state.withdrawWaiting().isEmpty)
        #expect(state.outstanding == OriginState.requestLimit)
        #expect(state.finished(.answered(accepted: true), of: try Self.device(1), at: Self.start).send.isEmpty)
    }

    @Test("If no connection opens, nothing is sent; then one push is a probe, and its success resumes all")
    func pause() throws {
        var state = try Self.busy(OriginState.requestLimit)
        let waiting = (2001...2010).map(Int64.init)
        for entry in waiting { #expect(state.submit(try Self.push(entry), at: Self.start) == .wait) }
        for entry in 1..<Int64(OriginState.connectLimit) {
            let next = state.finished(.unreachable, of: try Self.device(entry), at: Self.start, random: 1)
            #expect(next.opened == nil)
        }
        let next = state.finished(.unreachable, of: try Self.device(5), at: Self.start, random: 1)
        #expect(next.opened == Self.start + .seconds(1))
        // Each earlier failure made room for one waiting push.
        #expect(next.postponed.map(\.push.push.id) == Array(waiting.dropFirst(OriginState.connectLimit - 1)))
        #expect(next.postponed.allSatisfy { $0.until > Self.start + .seconds(1) })
        #expect(state.capacity(at: Self.start) == nil)
        guard case .postpone(let until) = state.submit(try Self.push(3000), at: Self.start) else {
            Issue.record("sent while the service fails")
            return
        }
        #expect(until > Self.start + .seconds(1))
        for entry in 6..<Int64(OriginState.connectLimit + OriginState.requestLimit) {
            _ = state.finished(.unreachable, of: try Self.device(entry), at: Self.start, random: 1)
        }
        // One push is sent as a probe. Others wait for its outcome.
        let later = Self.start + .seconds(2)
        #expect(state.submit(try Self.push(3001), at: later) == .send)
        guard case .postpone = state.submit(try Self.push(3002), at: later) else {
            Issue.record("two probes at once")
            return
        }
        #expect(state.condition(at: later) == .paused(until: later + .seconds(2)))
        _ = state.finished(.answered(accepted: true), of: try Self.device(3001), at: later)
        #expect(state.submit(try Self.push(3003), at: later) == .send)
        #expect(state.condition(at: later) == nil)
    }

    @Test("The pause doubles while no connection opens, up to five minutes")
    func backoff() throws {
        var state = try Self.busy(OriginState.connectLimit)
        var now = Self.start
        var pauses: [Int64] = []
        for entry in 1...Int64(OriginState.connectLimit) {
            if let until = state.finished(.unreachable, of: try Self.device(entry), at: now, random: 1).opened {
                pauses.append(until.seconds - now.seconds)
                now = until
            }
        }
        for _ in 0..<10 {
            #expect(state.submit(try Self.push(9), at: now) == .send)
            let until = try #require(state.finished(.unreachable, of: try Self.device(9), at: now).pausedUntil)
            pauses.append(until.seconds - now.seconds)
            now = until
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
        // A response of any kind proves that the service can be reached, so that other subscriptions are tried.
        #expect(state.submit(try Self.push(9), at: now) == .send)
        #expect(state.finished(.refused, of: try Self.device(9), at: now).pausedUntil == nil)
        #expect(state.submit(try Self.push(10), at: now) == .send)
    }

    @Test("Refusals of a few subscriptions pause nothing; those of subscriptions that were accepted, or of many, do")
    func refusals() throws {
        var state = try Self.busy(40)
        for entry in 1..<Int64(RefusalWatch.limit) {
            let next = state.finished(
                .refused, of: try Self.device(entry), at: Self.start)
            #expect(next.pausedUntil == nil)
        }
        // The same ones prove nothing new.
        for entry in 1..<Int64(RefusalWatch.limit) {
            #expect(state.submit(try Self.push(entry), at: Self.start) == .send)
            #expect(state.finished(.refused, of: try Self.device(entry), at: Self.start).opened == nil)
        }
        let last = state.finished(
            .refused, of: try Self.device(20), at: Self.start, random: 1)
        #expect(last.opened == Self.start + .seconds(1))

        var working = try Self.busy(10)
        for entry in 1...Int64(5) {
            _ = working.finished(.answered(accepted: true), of: try Self.device(entry), at: Self.start)
        }
        for entry in 1...Int64(5) {
            #expect(working.condition(at: Self.start) == nil)
            #expect(working.submit(try Self.push(entry), at: Self.start) == .send)
            _ = working.finished(.refused, of: try Self.device(entry), at: Self.start, random: 1)
        }
        #expect(working.condition(at: Self.start) == .paused(until: Self.start + .seconds(1)))
    }

    @Test(
        "In a pause, pushes of subscriptions that were not refused are tests, several at a time and more in each round")
    func rounds() throws {
        var state = try Self.busy(RefusalWatch.limit)
        for entry in 1...Int64(RefusalWatch.limit) {
            _ = state.finished(.refused, of: try Self.device(entry), at: Self.start, random: 1)
        }
        var now = Self.start
        var entry: Int64 = 1000
        func tests(_ isRepeated: Bool) throws -> Int {
            var count = 0
            while true {
                entry += 1
                let device = isRepeated ? 1 : entry
                guard state.submit(try Self.push(device), at: now) == .send else { return count }
                count += 1
                _ = state.finished(.refused, of: try Self.device(device), at: now)
            }
        }
        var sizes: [[Int]] = []
        for _ in 1...7 {
            sizes.append([try tests(true), try tests(false)])
            now = now + .seconds(300)
        }
        #expect(sizes == [[0, 4], [2, 8], [4, 16], [8, 32], [16, 64], [25, 100], [25, 100]])
        #expect(state.submit(try Self.push(1), at: now) == .send)
        _ = state.finished(.answered(accepted: true), of: try Self.device(1), at: now)
        #expect(state.condition(at: now) == nil)
    }

    @Test("A service that limits the rate gets pushes at the rate that it accepted, and faster again later")
    func limited() throws {
        var state = OriginState(now: Self.start)
        var now = Self.start
        // The service accepts 1200 pushes in its minute, and then answers 429.
        for entry in 1...Int64(1200) {
            now = Self.start + .milliseconds(10 * entry)
            #expect(state.submit(try Self.push(entry), at: now) == .send)
            _ = state.finished(.answered(accepted: true), of: try Self.device(entry), at: now)
        }
        for entry in 1...Int64(5) {
            #expect(state.submit(try Self.push(entry), at: now) == .send)
            let next = state.finished(
                .limited, of: try Self.device(entry), at: now, random: 1)
            #expect(next.slowedTo == (entry == 5 ? 1080 : nil))
            #expect(next.opened == (entry == 5 ? now + .seconds(1) : nil))
        }
        now = now + .seconds(30)
        #expect(state.submit(try Self.push(2000), at: now) == .send)
        _ = state.finished(.answered(accepted: true), of: try Self.device(2000), at: now)
        #expect(state.condition(at: now) == .slowed(perMinute: 1080))
        /// Submits ten pushes at each tenth of a second, and returns the number that were sent.
        func sent(seconds: Int) throws -> Int {
            var count = 0
            for tick in 1...Int64(10 * seconds) {
                let time = now + .milliseconds(100 * tick)
                for entry in 0..<Int64(10) where state.submit(try Self.push(entry), at: time) == .send {
                    count += 1
                    _ = state.finished(.answered(accepted: true), of: try Self.device(entry), at: time)
                }
            }
            now = now + .seconds(seconds)
            return count
        }
        // Capacity that was not used during the pause is kept for five seconds.
        let first = try sent(seconds: 20)
        #expect((360...455).contains(first), "\(first)")
        now = now + .seconds(60)
        #expect(state.condition(at: now) == .slowed(perMinute: 1188))
        now = now + .seconds(3600)
        #expect(state.condition(at: now) == nil)
        #expect(try sent(seconds: 1) == 100)
    }

    @Test("A service that accepted a thousand pushes a second is slowed, until the rate has doubled")
    func limitedAtSpeed() {
        var pace = Pace(accepted: 60_000, at: Self.start)
        #expect(pace.perMinute == 54_000)
        let isOver = [7, 8].map { pace.isOver(at: Self.start + .seconds($0 * 60)) }
        #expect(isOver == [false, true])
    }

    @Test("A rejected push ends a pause; in a lasting outage, five other accepted subscriptions start the next one")
    func rejectedInOutage() throws {
        var state = OriginState(now: Self.start)
        /// Sends a push to each subscription, and returns those whose results started a pause.
        func send(_ entries: ClosedRange<Int64>, _ result: OriginState.Result, at now: Timestamp) throws -> [Int64] {
            try entries.filter { entry in
                #expect(state.submit(try Self.push(entry), at: now) == .send)
                return state.finished(result, of: try Self.device(entry), at: now, random: 1).opened != nil
            }
        }
        #expect(try send(1...10, .answered(accepted: true), at: Self.start) == [])
        #expect(try send(1...5, .refused, at: Self.start) == [5])
        #expect(try send(11...11, .answered(accepted: false), at: Self.start) == [])
        #expect(state.condition(at: Self.start) == nil)
        #expect(try send(1...5, .refused, at: Self.start) == [], "these proved it before")
        #expect(try send(6...10, .refused, at: Self.start) == [10])
    }

    @Test("Subscriptions that are limited again and again do not slow the service down again")
    func limitedForItself() throws {
        var state = OriginState(now: Self.start)
        for round in 0..<Int64(10) {
            let now = Self.start + .seconds(round)
            for entry in 1..<Int64(RefusalWatch.limit) {
                #expect(state.submit(try Self.push(entry), at: now) == .send)
                _ = state.finished(.limited, of: try Self.device(entry), at: now)
            }
            #expect(state.submit(try Self.push(100), at: now) == .send)
            _ = state.finished(.answered(accepted: true), of: try Self.device(100), at: now)
            #expect(state.condition(at: now) == nil)
        }
    }

    @Test("Credentials that were never accepted pause the service at once; after an acceptance the subscription fails")
    func notAuthorized() throws {
        var state = try Self.busy(2)
        #expect(!state.isAuthorized(at: Self.start))
        #expect(state.finished(.notAuthorized, of: try Self.device(1), at: Self.start, random: 1).opened != nil)
        // The key of that subscription may be another, so the next one is tried at once.
        #expect(state.submit(try Self.push(3), at: Self.start) == .send)
        var working = try Self.busy(3)
        _ = working.finished(.answered(accepted: true), of: try Self.device(1), at: Self.start)
        #expect(working.isAuthorized(at: Self.start))
        #expect(working.finished(.notAuthorized, of: try Self.device(2), at: Self.start, random: 1).opened == nil)
        #expect(working.submit(try Self.push(7), at: Self.start) == .send)
        // Hours later, the same subscription is still the only one that is rejected.
        let later = Self.start + .seconds(7200)
        _ = working.finished(.notAuthorized, of: try Self.device(3), at: later, random: 1)
        #expect(working.condition(at: later) != nil)
        #expect(working.submit(try Self.push(7), at: later) == .send)
        _ = working.finished(.answered(accepted: true), of: try Self.device(7), at: later)
        #expect(working.submit(try Self.push(3), at: later + .seconds(7200)) == .send)
        let again = working.finished(.notAuthorized, of: try Self.device(3), at: later + .seconds(7200), random: 1)
        #expect(again.opened == nil)
    }

    @Test(
        "A rejection of the credentials counts for an hour or until an acceptance; a single subscription's never counts"
    )
    func refusal() throws {
        var state = try Self.busy(4)
        #expect(!state.refusesCredentials(at: Self.start))
        _ = state.finished(.refused, of: try Self.device(1), at: Self.start, random: 1)
        #expect(!state.refusesCredentials(at: Self.start))
        _ = state.finished(.notAuthorized, of: try Self.device(2), at: Self.start, random: 1)
        _ = state.finished(.answered(accepted: false), of: try Self.device(3), at: Self.start)
        #expect(state.refusesCredentials(at: Self.start + .seconds(3600)))
        #expect(!state.refusesCredentials(at: Self.start + .seconds(3601)))
        _ = state.finished(.answered(accepted: true), of: try Self.device(4), at: Self.start)
        #expect(!state.refusesCredentials(at: Self.start))
        #expect(state.submit(try Self.push(5), at: Self.start) == .send)
        _ = state.finished(.notAuthorized, of: try Self.device(5), at: Self.start, random: 1)
        #expect(!state.refusesCredentials(at: Self.start))
    }

    @Test("A clock that is set back does not pause a service for long")
    func clock() throws {
        var state = try Self.busy(OriginState.connectLimit)
        for entry in 1...Int64(OriginState.connectLimit) {
            _ = state.finished(.unreachable, of: try Self.device(entry), at: Self.start, random: 1)
        }
        let back = Self.start - .seconds(100_000)
        #expect(state.submit(try Self.push(9), at: back) == .send)
    }

    @Test(
        "Retry-After is read as seconds, up to the maximum wait, or as a date",
        arguments: [
            ("120", 120), (" 7 ", 7), ("99999999999", Int64(PushLifeCycle.longestWait.components.seconds)),
            ("Fri, 15 Jan 2027 08:00:05 GMT", 5), ("Thu, 31 Dec 2026 23:59:59 GMT", -1_238_401),
            ("Friday, 15-Jan-27 08:00:05 GMT", nil), ("Fri, 15 Foo 2027 08:00:05 GMT", nil), ("soon", nil), ("", nil),
        ] as [(String, Int64?)])
    func retryAfter(text: String, seconds: Int64?) {
        #expect(
            Timestamp(retryAfter: text, now: Self.start) == seconds.map { Timestamp(seconds: Self.start.seconds + $0) })
    }
}
