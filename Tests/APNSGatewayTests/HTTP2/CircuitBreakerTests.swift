import ChatDomain
import NIOCore
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The circuit breaker, and the capacity of a connection")
struct CircuitBreakerTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private static func devices(_ numbers: ClosedRange<UInt32>) throws -> [Address] {
        try numbers.map { try HTTP2GatewayFixture.push($0).address }
    }

    private static func refusals(_ devices: [Address], _ count: Int = 1) -> [Address: Int] {
        Dictionary(uniqueKeysWithValues: devices.map { ($0, count) })
    }

    @Test("The breaker opens after refusals of ten devices without a success; a success in a test closes it")
    func phases() throws {
        let breaker = CircuitBreaker()
        func record(_ successes: Int, _ refused: [Address], at time: NIODeadline) -> CircuitBreaker.Change? {
            breaker.record(successes: successes, refused: refused, now: time, random: 1)
        }
        let devices = try Self.devices(1...10)
        #expect(!breaker.hasSucceededRecently(now: Self.start))
        #expect(record(0, Array(devices.dropLast()), at: Self.start) == nil)
        #expect(record(1, [], at: Self.start) == nil)
        #expect(breaker.hasSucceededRecently(now: Self.start + .seconds(59)))
        #expect(!breaker.hasSucceededRecently(now: Self.start + .seconds(60)))
        #expect(record(0, Array(devices.dropLast()), at: Self.start) == nil)
        #expect(record(0, [devices[9]], at: Self.start) == .opened(.milliseconds(250)))
        #expect(record(0, devices, at: Self.start) == nil)
        let later = Self.start + .milliseconds(250)
        #expect(breaker.isOpen(now: later - .nanoseconds(1)))
        #expect(breaker.permission(now: Self.start) == .none(until: later))
        #expect(!breaker.isOpen(now: later))
        let test = ServiceTest(Self.refusals(devices, 2))
        #expect(breaker.permission(now: later, random: 1) == .test(limit: 16, test))
        breaker.noteWritten(16)
        #expect(record(1, [], at: later) == .closed)
        #expect(breaker.permission(now: later) == .all)
    }

    @Test("A few devices never open the breaker, however often they are refused")
    func fewDevices() throws {
        let breaker = CircuitBreaker()
        for _ in 0..<1000 {
            let change = breaker.record(
                successes: 0, refused: try Self.devices(1...9), asked: .seconds(60), now: Self.start, random: 1)
            #expect(change == nil)
        }
        #expect(breaker.permission(now: Self.start) == .all)
    }

    @Test("A round of tests without a success starts a longer pause and a larger round")
    func rounds() throws {
        let breaker = CircuitBreaker()
        var now = Self.start
        let devices = try Self.devices(1...10)
        #expect(breaker.record(successes: 0, refused: devices, now: now, random: 1) == .opened(.milliseconds(250)))
        now = now + .milliseconds(250)
        for (size, pause) in [(16, 500), (32, 1000), (64, 2000), (128, 4000), (256, 8000), (256, 16000), (256, 30_000)]
        {
            guard case .test(let limit, _) = breaker.permission(now: now, random: 1) else {
                Issue.record("no test of \(size)")
                return
            }
            #expect(limit == size)
            breaker.noteWritten(1)
            #expect(breaker.record(successes: 0, refused: [devices[0]], now: now, random: 1) == nil, "a round goes on")
            breaker.noteWritten(size - 1)
            #expect(!breaker.isOpen(now: now), "the tests are still sent")
            let change = breaker.record(successes: 0, refused: devices, now: now, random: 1)
            #expect(change == .opened(.milliseconds(Int64(pause))))
            now = now + .milliseconds(Int64(pause))
        }
    }

    @Test("A round whose tests get no response is followed by another one after the pause")
    func lostRound() throws {
        let breaker = CircuitBreaker()
        let devices = try Self.devices(1...10)
        _ = breaker.record(successes: 0, refused: devices, now: Self.start, random: 1)
        let later = Self.start + .milliseconds(250)
        #expect(breaker.permission(now: later, random: 1) == .test(limit: 16, ServiceTest(Self.refusals(devices))))
        breaker.noteWritten(16)
        #expect(breaker.record(successes: 0, now: later, random: 1) == nil)
        #expect(breaker.permission(now: later) == .none(until: later + .milliseconds(500)))
        let next = breaker.permission(now: later + .milliseconds(500), random: 1)
        #expect(next == .test(limit: 32, ServiceTest(Self.refusals(devices))))
    }

    @Test("The service can ask for a pause of up to a minute, and an acceptance ends it")
    func asked() throws {
        let breaker = CircuitBreaker()
        func record(_ asked: Duration) throws -> CircuitBreaker.Change? {
            breaker.record(
                successes: 0, refused: try Self.devices(1...10), asked: asked, now: Self.start, random: 1)
        }
        #expect(try record(.seconds(20)) == .opened(.seconds(20)))
        #expect(try record(.seconds(10)) == nil)
        #expect(breaker.permission(now: Self.start) == .none(until: Self.start + .seconds(20)))
        #expect(try record(.seconds(3600)) == nil)
        #expect(breaker.permission(now: Self.start) == .none(until: Self.start + .seconds(60)))
        #expect(breaker.record(successes: 1, now: Self.start, random: 1) == .closed)
        #expect(breaker.permission(now: Self.start) == .all)
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
