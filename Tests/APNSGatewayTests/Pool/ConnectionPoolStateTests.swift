import ChatDomain
import NIOCore
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The state of a connection pool")
struct ConnectionPoolStateTests {
    private typealias State = ConnectionPoolState<String, FakeConnection, Int>

    /// A pool's state, and the actions that it has requested so far.
    private struct Pool {
        var state: State
        var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        /// Attempts that have neither succeeded nor failed.
        var attempts: [ConnectionAttempt<String>] = []
        /// The attempts by the numbers of their connections.
        var opened: [Int64: ConnectionAttempt<String>] = [:]
        var wakeUps: [NIODeadline] = []
        var drained: [Int64] = []
        /// The slots by waiter. `nil` for a waiter that the pool dismissed.
        var slots: [Int: ConnectionSlot?] = [:]
        private var lastConnection: Int64 = 0

        init(_ size: PoolSize, target: String? = "first", breaker: CircuitBreaker? = nil) {
            state = State(target: target, size: size, breaker: breaker)
            perform { $0.start(now: $1) }
        }

        mutating func perform(_ event: (inout State, NIODeadline) -> [State.Action]) {
            for action in event(&state, now) {
                switch action {
                case .connect(let attempt): attempts.append(attempt)
                case .wakeUp(let time): wakeUps.append(time)
                case .drain(let connection): drained.append(connection.id.number)
                case .handOut(let slot, let waiter):
                    #expect(slots.updateValue(slot, forKey: waiter) == nil, "one answer for each waiter")
                }
            }
        }

        /// Lets the oldest attempt succeed.
        @discardableResult
        mutating func open(_ change: (inout FakeConnection.Properties) -> Void = { _ in }) throws -> FakeConnection {
            try #require(!attempts.isEmpty)
            lastConnection += 1
            let connection = FakeConnection(lastConnection)
            connection.change(change)
            let attempt = attempts.removeFirst()
            opened[lastConnection] = attempt
            perform { $0.opened(connection, attempt, now: $1) }
            return connection
        }

        mutating func fail(random: Double = 1) throws {
            try #require(!attempts.isEmpty)
            let attempt = attempts.removeFirst()
            perform { $0.failed(attempt, random: random, now: $1) }
        }

        mutating func retire(_ connection: FakeConnection, _ result: ConnectionResult, random: Double = 1) throws {
            connection.change { $0.slot = nil }
            let attempt = try #require(opened[connection.id.number])
            opened[connection.id.number] = nil
            perform { $0.retired(attempt, result: result, random: random, now: $1) }
        }

        mutating func close(_ connection: FakeConnection) {
            perform { $0.closed(connection, now: $1) }
        }

        mutating func ask(_ waiter: Int, fresh: Bool = false) {
            perform { $0.request(waiter, id: UInt64(waiter), fresh: fresh, now: $1) }
        }

        /// Advances the time and performs the wake-ups that are due.
        mutating func advance(by amount: TimeAmount) {
            now = now + amount
            let due = wakeUps.filter { $0 <= now }
            wakeUps.removeAll { $0 <= now }
            for _ in due { perform { $0.timePassed(now: $1) } }
        }
    }

    private static let slotOf1 = ConnectionSlot(
        connection: ConnectionID(1), firstIdentifier: 1, capacity: 100, isFresh: true)

    // MARK: Growth and limits

    @Test("The permanent connections are opened at the start, the others are not")
    func start() throws {
        var pool = Pool(PoolSize(permanent: 2, additional: 3, spare: 1))
        #expect(pool.attempts.count == 2)
        #expect(pool.attempts.allSatisfy { $0.isPermanent && !$0.isConfirmed })
        pool.ask(1)
        pool.advance(by: .hours(1))
        #expect(pool.attempts.count == 2)
    }

    @Test(
        "While a waiter waits and all connections are saturated, one opens per interval, up to the limit"
    )
    func growth() throws {
        var pool = Pool(PoolSize(permanent: 1, additional: 2, spare: 1))
        let first = try pool.open()
        pool.ask(1)
        #expect(pool.attempts.isEmpty, "the open one is not saturated")
        first.change { $0.isSaturated = true }
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.map(\.isPermanent) == [false])
        try pool.open { $0.isSaturated = true }
        pool.perform { $0.changed(now: $1) }
        pool.advance(by: .seconds(1))
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.isEmpty, "not before the interval is over")
        pool.advance(by: .nanoseconds(1))
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.count == 1)
        try pool.open { $0.isSaturated = true }
        pool.advance(by: .seconds(2))
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.isEmpty, "the spare one is for something else")
        #expect(pool.state.openConnections == 3)
        #expect(pool.slots.isEmpty)
    }

    @Test(
        "A spare connection opens beside one that proves a push, or for a waiter that needs a fresh one",
        arguments: [true, false])
    func spare(isFresh: Bool) throws {
        var pool = Pool(PoolSize(permanent: 1, spare: 1))
        try pool.open { $0.isBlocked = !isFresh }
        pool.ask(1, fresh: isFresh)
        #expect(pool.attempts.map(\.isPermanent) == [false])
        try pool.open().offer()
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots[1]??.connection.number == 2)
    }

    @Test(
        "If only blocked connections get a spare, a waiter for a fresh one waits for the successor instead"
    )
    func spareOnlyWhenBlocked() throws {
        var pool = Pool(PoolSize(permanent: 1, spare: 2, growsForFresh: false))
        let first = try pool.open()
        pool.ask(1, fresh: true)
        #expect(pool.attempts.isEmpty)
        first.change { $0.isBlocked = true }
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.map(\.isPermanent) == [false])
    }

    @Test("A growth that comes too soon happens when its interval is over, even if nothing else happens")
    func growthLater() throws {
        var pool = Pool(PoolSize(permanent: 1, spare: 2))
        try pool.open { $0.isBlocked = true }
        pool.ask(1)
        try pool.open { $0.isBlocked = true }
        #expect(pool.attempts.isEmpty)
        pool.advance(by: .milliseconds(1001))
        #expect(pool.attempts.count == 1)
    }

    @Test("An attempt that never completes blocks neither the others nor the limit")
    func endlessAttempt() throws {
        var pool = Pool(PoolSize(permanent: 2, additional: 1))
        let first = try pool.open { $0.isSaturated = true }
        pool.ask(1)
        #expect(pool.attempts.map(\.isPermanent) == [true, false])
        for _ in 0..<5 {
            pool.advance(by: .seconds(60))
            pool.perform { $0.changed(now: $1) }
        }
        #expect(pool.attempts.count == 2)
        first.offer()
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots == [1: Self.slotOf1])
    }

    @Test("A further connection that was closed is opened again only when it is wanted")
    func shrink() throws {
        var pool = Pool(PoolSize(permanent: 1, additional: 1))
        let first = try pool.open { $0.isSaturated = true }
        pool.ask(1)
        let further = try pool.open { $0.isSaturated = true }
        try pool.retire(further, .progress)
        pool.close(further)
        #expect(pool.attempts.isEmpty)
        pool.advance(by: .seconds(2))
        pool.perform { $0.changed(now: $1) }
        #expect(pool.attempts.count == 1)
        try pool.retire(first, .progress)
        #expect(pool.attempts.map(\.isPermanent) == [false, true])
    }

    @Test("A limited number of retired connections may wait for responses; beyond it a successor waits for a close")
    func retiredLimit() throws {
        var pool = Pool(PoolSize(permanent: 1))
        var connections: [FakeConnection] = []
        for _ in 0..<9 {
            connections.append(try pool.open())
            #expect(!pool.state.mustBeClosed(try #require(connections.last)))
            try pool.retire(try #require(connections.last), .progress)
        }
        let tenth = try pool.open()
        #expect(pool.state.mustBeClosed(tenth))
        #expect(pool.state.openConnections == 10)
        for connection in connections { pool.close(connection) }
        #expect(pool.state.openConnections == 1)
    }

    // MARK: Loss and pacing

    @Test("The successor of a connection with progress opens at once, while that one waits for its responses")
    func loss() throws {
        var pool = Pool(PoolSize(permanent: 1))
        let first = try pool.open()
        first.offer()
        try pool.retire(first, .progress)
        #expect(pool.attempts.map(\.isConfirmed) == [true])
        #expect(pool.wakeUps.isEmpty)
        pool.ask(1)
        #expect(pool.slots.isEmpty)
        let second = try pool.open()
        #expect(pool.state.openConnections == 2)
        #expect(pool.state.connection(first.id) === first)
        pool.close(first)
        #expect(pool.state.connection(first.id) == nil)
        second.offer()
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots[1]??.connection == second.id)
    }

    @Test("After failures, attempts follow growing delays that are randomly shortened by up to a half")
    func pacing() throws {
        var pool = Pool(PoolSize(permanent: 1))
        for (milliseconds, random) in [(250, 1.0), (250, 0), (1000, 1), (1500, 0.5), (4000, 1), (4000, 0), (16_000, 1)]
        {
            try pool.fail(random: random)
            pool.advance(by: .milliseconds(Int64(milliseconds)) - .nanoseconds(1))
            #expect(pool.attempts.isEmpty)
            pool.advance(by: .nanoseconds(1))
            #expect(pool.attempts.count == 1)
        }
        for _ in 0..<3 {
            try pool.fail()
            #expect(pool.wakeUps == [pool.now + .seconds(30)])
            pool.advance(by: .seconds(30))
        }
        try pool.retire(try pool.open(), .progress)
        try pool.fail()
        #expect(pool.wakeUps == [pool.now + .milliseconds(250)], "a success restarts the delays")
    }

    @Test("A connection without a response delays the next one, unless it lasted ten seconds", arguments: [10, 11])
    func mute(seconds: Int64) throws {
        var pool = Pool(PoolSize(permanent: 1))
        let connection = try pool.open()
        pool.advance(by: .seconds(seconds))
        try pool.retire(connection, .nothing)
        #expect(pool.attempts.count == (seconds > 10 ? 1 : 0))
        #expect(pool.wakeUps.count == (seconds > 10 ? 0 : 1))
    }

    @Test("While the service accepts pushes, a lost connection costs at most a quarter of a second")
    func lossAmidProgress() throws {
        let breaker = CircuitBreaker()
        var pool = Pool(PoolSize(permanent: 1), breaker: breaker)
        for _ in 0..<4 {
            _ = breaker.record(successes: 1, now: pool.now, random: 1)
            try pool.retire(try pool.open(), .nothing)
            #expect(pool.wakeUps == [pool.now + .milliseconds(250)])
            pool.advance(by: .milliseconds(250))
        }
    }

    @Test("The delays of two connectors are independent, even if the earlier wake-up was requested later")
    func twoDelays() throws {
        var pool = Pool(PoolSize(permanent: 2))
        try pool.fail(random: 1)
        try pool.fail(random: 0)
        pool.advance(by: .milliseconds(125))
        #expect(pool.attempts.count == 1)
        pool.advance(by: .milliseconds(125))
        #expect(pool.attempts.count == 2)
    }

    // MARK: Targets and drain

    @Test(
        "A new target is used at once, without the old one's delay; connections that open for the old one are drained")
    func reconfigure() throws {
        var pool = Pool(PoolSize(permanent: 2))
        let open = try pool.open()
        open.offer()
        try pool.fail()
        pool.perform { $0.reconfigure(target: "second", now: $1) }
        #expect(pool.drained == [1])
        #expect(pool.attempts.map(\.target) == ["second"])
        pool.ask(1)
        #expect(pool.slots.isEmpty, "a connection that is drained takes no pushes")
        pool.perform { $0.reconfigure(target: "third", now: $1) }
        let late = try pool.open()
        #expect(pool.drained == [1, 1, late.id.number])
        for connection in [open, late] { try pool.retire(connection, .progress) }
        #expect(pool.attempts.map(\.target) == ["third", "third"])
        #expect(pool.attempts.allSatisfy { !$0.isConfirmed })
    }

    @Test("Without a target no connection opens until there is one")
    func noTarget() throws {
        var pool = Pool(PoolSize(permanent: 1), target: nil)
        pool.ask(1)
        pool.advance(by: .hours(1))
        #expect(pool.attempts.isEmpty)
        pool.perform { $0.reconfigure(target: "first", now: $1) }
        #expect(pool.attempts.count == 1)
        try pool.fail()
        pool.perform { $0.reconfigure(target: nil, now: $1) }
        pool.advance(by: .milliseconds(250))
        #expect(pool.attempts.isEmpty)
        #expect(pool.wakeUps.isEmpty, "nothing is to be done at any time")
        pool.perform { $0.reconfigure(target: "second", now: $1) }
        #expect(pool.attempts.map(\.target) == ["second"])
    }

    @Test(
        "A drain dismisses waiters and drains all connections, also one that opens late, and no new one opens"
    )
    func drain() throws {
        var pool = Pool(PoolSize(permanent: 3, additional: 1))
        let open = try pool.open()
        try pool.fail()
        pool.ask(1)
        pool.perform { state, now in
            let (old, actions) = state.stop(now: now)
            #expect(old.map(\.id) == [open.id])
            return actions
        }
        #expect(pool.drained == [1])
        #expect(pool.slots == [1: nil])
        let late = try pool.open()
        #expect(pool.drained == [1, 2])
        for connection in [open, late] {
            try pool.retire(connection, .progress)
            pool.close(connection)
        }
        pool.advance(by: .hours(1))
        pool.ask(2)
        #expect(pool.slots == [1: nil, 2: nil])
        #expect(pool.attempts.isEmpty)
        #expect(pool.state.openConnections == 0)
    }

    // MARK: Waiters

    @Test("The first connection with capacity gets the pushes, permanent ones before the others")
    func order() throws {
        var pool = Pool(PoolSize(permanent: 2, additional: 1))
        try pool.open { $0.isSaturated = true }
        pool.ask(1)
        pool.attempts.swapAt(0, 1)
        let connections = [try pool.open(), try pool.open()]
        #expect(pool.opened[2]?.isPermanent == false)
        for connection in connections { connection.offer() }
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots[1]??.connection.number == 3)
    }

    @Test("A waiter for a fresh connection gets no other, and only one connection is closed for it")
    func fresh() throws {
        var pool = Pool(PoolSize(permanent: 2))
        for _ in 0..<2 { try pool.open { $0.isReplaceable = true }.offer(isFresh: false) }
        pool.ask(1, fresh: true)
        #expect(pool.drained == [2])
        pool.perform { $0.changed(now: $1) }
        #expect(pool.drained == [2])
        pool.ask(2)
        #expect(pool.slots.keys.sorted() == [2])
        #expect(pool.slots[2]??.connection.number == 1)
        let replaced = try #require(pool.state.connection(ConnectionID(2)))
        try pool.retire(replaced, .progress)
        pool.close(replaced)
        try pool.open().offer()
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots[1]??.connection.number == 3)
    }

    @Test("A cancelled waiter gets no slot, and the others keep waiting")
    func cancelled() throws {
        var pool = Pool(PoolSize(permanent: 1))
        let connection = try pool.open()
        for waiter in 1...3 { pool.ask(waiter) }
        pool.perform { state, _ in state.cancel(2) }
        #expect(pool.slots == [2: nil])
        connection.offer()
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots == [1: Self.slotOf1, 2: nil, 3: Self.slotOf1])
        pool.perform { state, _ in state.cancel(1) }
    }

    @Test(
        "While the breaker is open no waiter gets a slot and the pool does not grow; after the pause, a few tests are sent"
    )
    func openBreaker() throws {
        let breaker = CircuitBreaker()
        var pool = Pool(PoolSize(permanent: 1, additional: 1), breaker: breaker)
        let connection = try pool.open()
        connection.offer(isFresh: false)
        let devices = try (1...10).map { try HTTP2GatewayFixture.push($0).address }
        let change = breaker.record(successes: 0, refused: devices, now: pool.now, random: 1)
        #expect(change == .opened(.milliseconds(250)))
        connection.change { $0.isSaturated = true }
        pool.ask(1)
        #expect(pool.slots.isEmpty)
        #expect(pool.attempts.isEmpty)
        pool.advance(by: .milliseconds(250))
        let slot = pool.slots[1] ?? nil
        #expect(slot?.capacity == CircuitBreaker.testSizes.first)
        #expect(slot?.test == ServiceTest(Dictionary(uniqueKeysWithValues: devices.map { ($0, 1) })))
        breaker.noteWritten(CircuitBreaker.testSizes.first)
        pool.ask(2)
        #expect(pool.slots.count == 1)
        #expect(breaker.record(successes: 1, now: pool.now, random: 1) == .closed)
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots[2]??.capacity == 100)
        #expect((pool.slots[2] ?? nil)?.test == nil)
    }

    @Test("After any events, connections are reopened in time and no waiter is forgotten", arguments: 0..<20)
    func anything(seed: Int) throws {
        var random = Seeded(state: UInt64(seed))
        let size = PoolSize(permanent: 2, additional: 2, spare: 1)
        var pool = Pool(size)
        var connections: [FakeConnection] = []
        var retired: [FakeConnection] = []
        var asked = 0
        for step in 0..<300 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0 where !pool.attempts.isEmpty:
                connections.append(try pool.open { $0.isSaturated = step.isMultiple(of: 2) })
            case 1 where !pool.attempts.isEmpty: try pool.fail(random: .random(in: 0...1, using: &random))
            case 2 where !connections.isEmpty:
                let index = Int.random(in: 0..<connections.count, using: &random)
                let connection = connections.remove(at: index)
                try pool.retire(connection, [.nothing, .refusal, .progress][step % 3], random: 0.5)
                retired.append(connection)
            case 3 where !retired.isEmpty: pool.close(retired.removeFirst())
            case 4:
                asked += 1
                pool.ask(asked, fresh: .random(using: &random))
            case 5:
                if Bool.random(using: &random) { connections.randomElement(using: &random)?.offer() }
                pool.perform { $0.changed(now: $1) }
            case 6: connections.randomElement(using: &random)?.change { $0.slot = nil }
            case 7: pool.advance(by: .milliseconds(.random(in: 0...3000, using: &random)))
            case 8 where step.isMultiple(of: 10): pool.perform { $0.reconfigure(target: "\(step)", now: $1) }
            default: break
            }
            #expect(pool.attempts.count + connections.count <= size.total)
            let kept =
                pool.attempts.count(where: \.isPermanent) + pool.opened.values.count(where: \.isPermanent)
            #expect(kept == size.permanent || !pool.wakeUps.isEmpty, "what is missing will come")
        }
        pool.advance(by: .seconds(31))
        while !pool.attempts.isEmpty { connections.append(try pool.open()) }
        for connection in connections { connection.offer() }
        pool.perform { $0.reconfigure(target: "last", now: $1) }
        for connection in connections { try pool.retire(connection, .progress) }
        while !pool.attempts.isEmpty { try pool.open().offer() }
        pool.perform { $0.changed(now: $1) }
        #expect(pool.slots.count == asked)
        #expect(pool.slots.values.allSatisfy { $0 != nil })
    }
}
