import ChatDomain
import NIOCore
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The circuit breaker, and the capacity of a connection")
struct CircuitBreakerTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("The breaker opens after ten failures in a row; half open, one push decides whether it closes; delays grow")
    func phases() {
        let breaker = CircuitBreaker()
        func record(_ successes: Int, _ failures: Int, at time: NIODeadline) -> CircuitBreaker.Change? {
            breaker.record(successes: successes, failures: failures, now: time, random: 1)
        }
        #expect(!breaker.hasSucceededRecently(now: Self.start))
        #expect(record(0, 9, at: Self.start) == nil)
        #expect(record(1, 0, at: Self.start) == nil)
        #expect(breaker.hasSucceededRecently(now: Self.start + .seconds(59)))
        #expect(!breaker.hasSucceededRecently(now: Self.start + .seconds(60)))
        #expect(record(0, 9, at: Self.start) == nil)
        #expect(record(0, 1, at: Self.start) == .opened(.milliseconds(250)))
        #expect(record(0, 1, at: Self.start) == nil)
        let later = Self.start + .milliseconds(250)
        #expect(breaker.isOpen(now: later - .nanoseconds(1)))
        #expect(breaker.permission(now: Self.start) == .none(until: later))
        #expect(!breaker.isOpen(now: later))
        #expect(breaker.permission(now: later) == .one)
        breaker.noteWritten()
        #expect(breaker.permission(now: later) == .none(until: nil))
        #expect(record(0, 1, at: later) == .opened(.milliseconds(500)))
        let latest = later + .milliseconds(500)
        #expect(breaker.permission(now: latest) == .one)
        breaker.noteWritten()
        #expect(record(1, 0, at: latest) == .closed)
        #expect(breaker.permission(now: latest) == .all)
    }

    @Test("A lost probe opens the breaker again")
    func lostProbe() {
        let breaker = CircuitBreaker()
        _ = breaker.record(successes: 0, failures: 10, now: Self.start, random: 1)
        let later = Self.start + .milliseconds(250)
        #expect(breaker.permission(now: later) == .one)
        #expect(breaker.record(successes: 0, failures: 0, now: later, random: 1) == nil, "nothing was written yet")
        breaker.noteWritten()
        #expect(breaker.record(successes: 0, failures: 0, now: later, random: 1) == .opened(.milliseconds(500)))
    }

    @Test("A pause that the service asked for lasts, whatever pushes in flight get, and the longest one counts")
    func pause() {
        let breaker = CircuitBreaker()
        let end = Self.start + .seconds(60)
        #expect(breaker.pause(for: .seconds(60), now: Self.start) == .opened(.seconds(60)))
        #expect(breaker.pause(for: .seconds(30), now: Self.start) == nil)
        #expect(breaker.record(successes: 5, failures: 0, now: Self.start, random: 1) == nil)
        #expect(breaker.isOpen(now: end - .nanoseconds(1)))
        #expect(breaker.permission(now: Self.start) == .none(until: end))
        #expect(breaker.permission(now: end) == .one)
        breaker.noteWritten()
        #expect(breaker.record(successes: 1, failures: 0, now: end, random: 1) == .closed)
        #expect(breaker.permission(now: end) == .all)
    }

    @Test("Capacity is what the limit leaves, in steps of at least a quarter of it, up to a thousand")
    func room() {
        let capacity = HTTP2Capacity()
        let connectionID = ConnectionID(1)
        func publish(_ settled: Int, limit: Int) -> Bool {
            capacity.publish(settled: settled, limit: limit, canBeSaturated: true, isFirstResponseLate: false)
        }
        #expect(capacity.slot(on: connectionID) == nil)
        #expect(!publish(0, limit: 0))
        #expect(publish(0, limit: 100))
        #expect(capacity.slot(on: connectionID)?.capacity == 100)
        capacity.noteLeased(through: 80, isProbe: false)
        #expect(capacity.slot(on: connectionID) == nil)
        #expect(capacity.isSaturated)
        #expect(!publish(4, limit: 100))
        #expect(publish(1, limit: 100))
        let slot = capacity.slot(on: connectionID)
        #expect(slot?.capacity == 25)
        #expect(slot?.firstIdentifier == 81)
        #expect(slot?.isFresh == false)
        #expect(publish(75, limit: 4000))
        #expect(capacity.slot(on: connectionID)?.capacity == 1000)
        #expect(capacity.slot(on: connectionID)?.isFresh == true)
    }

    @Test("A probe has a connection of its own, and blocks it until all its responses have come")
    func probe() {
        let capacity = HTTP2Capacity()
        func publish(_ settled: Int, isLate: Bool = false) -> Bool {
            capacity.publish(settled: settled, limit: 100, canBeSaturated: true, isFirstResponseLate: isLate)
        }
        #expect(publish(0))
        capacity.noteLeased(through: 3, isProbe: true)
        #expect(!publish(2))
        #expect(capacity.isBlocked)
        #expect(!capacity.isSaturated)
        #expect(publish(1))
        #expect(!capacity.isBlocked)
        capacity.noteLeased(through: 100, isProbe: false)
        #expect(publish(0, isLate: true), "waiters look for another connection")
        #expect(!publish(0, isLate: true))
        #expect(capacity.isBlocked)
    }
}
