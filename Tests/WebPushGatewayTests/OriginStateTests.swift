import ChatDomain
import Testing

@testable import WebPushGateway

@Suite("The window and pauses of one push service")
struct OriginStateTests {
    private static let start = Timestamp(seconds: 1_800_000_000)

    private static func push(_ entry: Int64) throws -> BrowserPush {
        let token = try #require(DeviceToken(bytes: [UInt8](repeating: 1, count: 32)))
        return BrowserPush(
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
        let next = state.finished(.answered(accepted: true), at: Self.start)
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
            for _ in 1...10 { _ = state.finished(.answered(accepted: true), at: now) }
        }
        #expect(state.outstanding == 400)
        #expect(state.capacity(at: now) == nil)
        #expect(state.capacity(at: now, isAlone: true) == 100)
        // The remaining requests are less than two seconds' work.
        for _ in 1...230 { _ = state.finished(.answered(accepted: true), at: now) }
        #expect(state.capacity(at: now) == 330)
    }

    @Test("While a service rejects all pushes, each outcome has the end of the pause")
    func refusedTogether() throws {
        var state = try Self.busy(3)
        let first = state.finished(.notAuthorized, at: Self.start, random: 1)
        let second = state.finished(.notAuthorized, at: Self.start, random: 1)
        #expect(first.opened == Self.start + .seconds(1) && first.pausedUntil == first.opened)
        #expect(second.opened == nil && second.pausedUntil == first.opened)
        // The end of a push that was not sent shows nothing about the service.
        #expect(state.finished(.notSent, at: Self.start).pausedUntil == nil)
        #expect(state.outstanding == 0)
    }

    @Test("Waiting pushes are withdrawn once, and pushes in flight stay")
    func withdrawal() throws {
        var state = try Self.busy(OriginState.requestLimit)
        #expect(state.submit(try Self.push(2000), at: Self.start) == .wait)
        #expect(state.withdrawWaiting().map(\.push.id) == [2000])
        #expect(state.withdrawWaiting().isEmpty)
        #expect(state.outstanding == OriginState.requestLimit)
        #expect(state.finished(.answered(accepted: true), at: Self.start).send.isEmpty)
    }

    @Test("After failures in a row nothing is sent; then one push is a probe, and its success resumes all")
    func pause() throws {
        var state = try Self.busy(OriginState.requestLimit)
        let waiting = (2001...2010).map(Int64.init)
        for entry in waiting { #expect(state.submit(try Self.push(entry), at: Self.start) == .wait) }
        for _ in 1..<OriginState.failureLimit {
            let next = state.finished(.failed(notBefore: nil), at: Self.start, random: 1)
            #expect(next.opened == nil)
        }
        let next = state.finished(.failed(notBefore: nil), at: Self.start, random: 1)
        #expect(next.opened == Self.start + .seconds(1))
        // Each earlier failure made room for one waiting push.
        #expect(next.postponed.map(\.push.push.id) == Array(waiting.dropFirst(OriginState.failureLimit - 1)))
        #expect(next.postponed.allSatisfy { $0.until > Self.start + .seconds(1) })
        #expect(state.capacity(at: Self.start) == nil)
        guard case .postpone(let until) = state.submit(try Self.push(3000), at: Self.start) else {
            Issue.record("sent while the service fails")
            return
        }
        #expect(until > Self.start + .seconds(1))
        // One push is sent as a probe. Others wait for its outcome.
        let later = Self.start + .seconds(2)
        #expect(state.submit(try Self.push(3001), at: later) == .send)
        guard case .postpone = state.submit(try Self.push(3002), at: later) else {
            Issue.record("two probes at once")
            return
        }
        _ = state.finished(.answered(accepted: true), at: later)
        #expect(state.submit(try Self.push(3003), at: later) == .send)
    }

    @Test("The pause doubles while probes fail, up to five minutes, or lasts as long as the service asks")
    func backoff() throws {
        var state = try Self.busy(OriginState.failureLimit)
        var now = Self.start
        var pauses: [Int64] = []
        for _ in 0..<OriginState.failureLimit {
            if let until = state.finished(.failed(notBefore: nil), at: now, random: 1).opened {
                pauses.append(until.seconds - now.seconds)
                now = until
            }
        }
        for _ in 0..<10 {
            #expect(state.submit(try Self.push(9), at: now) == .send)
            let until = try #require(state.finished(.failed(notBefore: nil), at: now, random: 1).opened)
            pauses.append(until.seconds - now.seconds)
            now = until
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
        #expect(state.submit(try Self.push(9), at: now) == .send)
        let asked = state.finished(.failed(notBefore: now + .seconds(1200)), at: now, random: 1)
        #expect(asked.opened == now + .seconds(1200))
    }

    @Test("Credentials that were never accepted pause the service at once; after an acceptance the subscription fails")
    func notAuthorized() throws {
        var state = try Self.busy(2)
        #expect(!state.isAuthorized(at: Self.start))
        #expect(state.finished(.notAuthorized, at: Self.start, random: 1).opened != nil)
        var working = try Self.busy(3)
        _ = working.finished(.answered(accepted: true), at: Self.start)
        #expect(working.isAuthorized(at: Self.start))
        #expect(working.finished(.notAuthorized, at: Self.start, random: 1).opened == nil)
        #expect(working.submit(try Self.push(7), at: Self.start) == .send)
    }

    @Test(
        "A rejection of the credentials counts for an hour or until an acceptance; a single subscription's never counts"
    )
    func refusal() throws {
        var state = try Self.busy(4)
        #expect(!state.refusesCredentials(at: Self.start))
        _ = state.finished(.failed(notBefore: nil), at: Self.start, random: 1)
        #expect(!state.refusesCredentials(at: Self.start))
        _ = state.finished(.notAuthorized, at: Self.start, random: 1)
        _ = state.finished(.answered(accepted: false), at: Self.start)
        #expect(state.refusesCredentials(at: Self.start + .seconds(3600)))
        #expect(!state.refusesCredentials(at: Self.start + .seconds(3601)))
        _ = state.finished(.answered(accepted: true), at: Self.start)
        #expect(!state.refusesCredentials(at: Self.start))
        #expect(state.submit(try Self.push(5), at: Self.start) == .send)
        _ = state.finished(.notAuthorized, at: Self.start, random: 1)
        #expect(!state.refusesCredentials(at: Self.start))
    }

    @Test("A clock that is set back does not pause a service for long")
    func clock() throws {
        var state = try Self.busy(OriginState.failureLimit)
        for _ in 0..<OriginState.failureLimit { _ = state.finished(.failed(notBefore: nil), at: Self.start, random: 1) }
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
