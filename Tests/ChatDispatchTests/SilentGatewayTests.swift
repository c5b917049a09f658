import ChatDomain
import Testing

@testable import ChatDispatch

/// Tests the dispatcher's decisions at a gateway that does not understand probes and closes connections again and
/// again. Uses no sockets, tasks or clocks.
@Suite("A gateway that closes connections and does not understand probes")
struct SilentGatewayTests {
    struct Gateway: Sendable, CustomTestStringConvertible {
        /// The gateway closes the connection instead of accepting the notification with this number since the last
        /// close.
        let closesEvery: Int
        /// Whether the gateway counts each connection's notifications separately. Otherwise it counts those of all
        /// connections together.
        let countsEach: Bool
        /// The gateway rejects each push whose id is a multiple of this, and names it. 0 for none.
        var refusesEvery = 0
        /// The gateway closes the connection at each push whose id is a multiple of this. 0 for none.
        var closesOverEvery = 0
        /// The number of sent pushes after which the relay is killed.
        var restartsAfter = Int.max
        /// An upper bound for the number of duplicates that the gateway accepts.
        let duplicates: Int

        var testDescription: String {
            "closes every \(closesEvery) of \(countsEach ? "each connection" : "all"), refuses every \(refusesEvery), "
                + "closes over every \(closesOverEvery), killed after \(restartsAfter)"
        }
    }

    private static let pushes: Int64 = 20_000
    private static let start = Timestamp(seconds: 1_800_000_000)
    private static let address = FakeQueue.row(1).address
    /// The number of connections of the binary gateway.
    private static let connections = 8
    /// `settle: 1s`, and 150 ms for the delays around it.
    private static let proofTime = Duration.milliseconds(1150)

    private struct Written {
        let time: Timestamp
        let reports: [DeliveryReport]
    }

    /// The queue, the gateway, and the current time.
    private struct World {
        let gateway: Gateway
        var inFlight = InFlightPushes(PushLifeCycle())
        var now = SilentGatewayTests.start
        var lanes: [PushLane: [Int64]] = [.normal: Array(1...SilentGatewayTests.pushes)]
        var histories: [Int64: PushHistory] = [:]
        var waiting: [(until: Timestamp, id: Int64)] = []
        var leased: Set<Int64> = []
        var written: [Written] = []
        var lastConnection: Int64 = 0
        var taken: [Int64: Int] = [:]
        var sent: Set<Int64> = []
        var lastSent = SilentGatewayTests.start
        var failed: [Int64: String] = [:]
        private var sinceClose = 0

        init(_ gateway: Gateway) {
            self.gateway = gateway
        }

        mutating func slot(isProvenBySilence: Bool) -> ConnectionSlot {
            lastConnection += 1
            return ConnectionSlot(
                connection: ConnectionID(lastConnection), firstIdentifier: 1, capacity: 1000, isFresh: true,
                isProvenBySilence: isProvenBySilence)
        }

        private mutating func take(_ limit: Int) -> LeasedPushes {
            var chosen: [(Int64, PushLane)] = []
            for lane in inFlight.lanes {
                let count = min(limit - chosen.count, lanes[lane]?.count ?? 0)
                chosen += lanes[lane]?.prefix(count).map { ($0, lane) } ?? []
                lanes[lane]?.removeFirst(count)
            }
            let rows = chosen.map { id, lane in
                let history = histories[id] ?? PushHistory()
                return QueuedPush(
                    id: id, lane: lane, history: history, address: SilentGatewayTests.address, payload: [1],
                    apnsID: "\(id)")
            }
            leased.formUnion(chosen.map(\.0))
            return LeasedPushes(rows, lanes: Set(lanes.filter { !$0.value.isEmpty }.keys))
        }

        /// Leases due pushes for a slot, lets the gateway read them, and schedules its reports.
        /// - Parameter isAsked: Whether the dispatcher sends a probe, which the gateway does not understand.
        mutating func lease(for slot: ConnectionSlot, isAsked: Bool = false) {
            var rows = take(inFlight.limit(for: slot))
            if rows.pushes.isEmpty, inFlight.servesSingleLane {
                inFlight.endTurn()
                rows = take(inFlight.limit(for: slot))
            }
            guard !rows.pushes.isEmpty else { return }
            let admission = inFlight.admit(rows, to: slot, format: FakeFormat(), at: now)
            for (lane, ranges) in admission.released { release(ranges, lane) }
            read(admission.lease, isAsked: isAsked)
        }

        private mutating func read(_ lease: Lease, isAsked: Bool) {
            var since = gateway.countsEach ? 0 : sinceClose
            defer { if !gateway.countsEach { sinceClose = since } }
            guard let last = lease.pushes.last?.identifier else { return }
            func report(_ identifiers: ClosedRange<UInt32>, _ outcome: Outcome) -> DeliveryReport {
                DeliveryReport(connection: lease.slot.connection, identifiers: identifiers, outcome: outcome)
            }
            let all = lease.slot.firstIdentifier...last
            for push in lease.pushes {
                since += 1
                if since >= gateway.closesEvery || push.id.isMultiple(ofAny: gateway.closesOverEvery) {
                    since = 0
                    return note([report(all, .unanswered(reason: "ConnectionLost"))], after: .milliseconds(5))
                }
                if push.id.isMultiple(ofAny: gateway.refusesEvery) {
                    var reports = [report(push.identifier...push.identifier, .badAddress(reason: "InvalidToken"))]
                    if push.identifier > 1 { reports.insert(report(1...(push.identifier - 1), .accepted), at: 0) }
                    if push.identifier < last { reports.append(report((push.identifier + 1)...last, .notProcessed)) }
                    return note(reports, after: .milliseconds(5))
                }
                taken[push.id, default: 0] += 1
            }
            if isAsked {
                note([report(all, .unanswered(reason: "ProcessingError"))], after: .milliseconds(5))
            } else {
                note([report(all, .accepted)], after: SilentGatewayTests.proofTime)
            }
        }

        private mutating func note(_ reports: [DeliveryReport], after time: Duration) {
            written.append(Written(time: now + time, reports: reports))
        }

        private mutating func release(_ ranges: IDRanges, _ lane: PushLane) {
            for range in ranges.ranges {
                lanes[lane, default: []].insert(contentsOf: range, at: 0)
                leased.subtract(range)
            }
        }

        /// Moves the time to the next reports, and settles the pushes that they are about.
        mutating func step() {
            written.sort { $0.time < $1.time }
            let next = written.first.map(\.time) ?? .init(milliseconds: .max)
            now = max(now, min(next, waiting.map(\.until).min() ?? next))
            let due = waiting.filter { $0.until <= now }
            waiting.removeAll { $0.until <= now }
            lanes[.retry, default: []] += due.map(\.id)
            guard let first = written.first, first.time <= now else { return }
            written.removeFirst()
            let conclusion = inFlight.conclude(first.reports, at: now)
            for (lane, ranges) in conclusion.released { release(ranges, lane) }
            for (settlement, _) in conclusion.batches.joined() { settle(settlement) }
        }

        private mutating func settle(_ settlement: Settlement) {
            let added = settlement.transition.added
            for id in settlement.pushIDs {
                leased.remove(id)
                var history = histories[id] ?? PushHistory()
                history.attempts += added.attempts
                history.unanswered += added.unanswered
                histories[id] = history
                switch settlement.transition.result {
                case .sent:
                    sent.insert(id)
                    lastSent = now
                case .failed(let reason, _): failed[id] = reason
                case .due(let lane, _): lanes[lane, default: []].append(id)
                case .waiting(let until, _, _): waiting.append((until, id))
                case .expired, .cancelled: Issue.record("no push expires or is cancelled here")
                }
            }
        }

        /// Kills and restarts the relay. It then knows the queue, but not the pushes that were in flight.
        mutating func restart() {
            inFlight = InFlightPushes(PushLifeCycle(), startsInDoubt: true)
            written = []
            for id in leased.sorted() {
                lanes[(histories[id]?.unanswered ?? 0) > 0 ? .retry : .normal, default: []].append(id)
            }
            leased = []
        }
    }

    @Test(
        "With a settle time of 1 s, all 20,000 pushes are settled within a minute; none is lost, no valid one fails",
        .timeLimit(.minutes(2)),
        arguments: [
            Gateway(closesEvery: 1000, countsEach: true, duplicates: 8_000),
            Gateway(closesEvery: 1500, countsEach: true, duplicates: 8_000),
            Gateway(closesEvery: 1000, countsEach: false, duplicates: 10_000),
            Gateway(closesEvery: 1500, countsEach: false, duplicates: 10_000),
            Gateway(closesEvery: 1000, countsEach: true, refusesEvery: 700, duplicates: 8_000),
            Gateway(closesEvery: 1000, countsEach: false, refusesEvery: 700, duplicates: 10_000),
            Gateway(closesEvery: 1000, countsEach: true, closesOverEvery: 7000, duplicates: 10_000),
            Gateway(closesEvery: 1000, countsEach: false, restartsAfter: 8_000, duplicates: 14_000),
        ])
    func settles(gateway: Gateway) async {
        var world = World(gateway)
        // Nothing was lost before, so the first connection carries the whole queue.
        let first = world.slot(isProvenBySilence: false)
        for number in 0..<UInt32(Self.pushes / 1000) {
            world.lease(
                for: ConnectionSlot(
                    connection: first.connection, firstIdentifier: 1 + number * 1000, capacity: 1000,
                    isFresh: number == 0))
        }
        // The gateway reads up to its first close. The rest of the connection's pushes are lost.
        world.written = [
            Written(
                time: world.now,
                reports: [
                    DeliveryReport(
                        connection: first.connection, identifiers: 1...UInt32(Self.pushes),
                        outcome: .unanswered(reason: "ConnectionLost"))
                ])
        ]
        world.taken = [:]
        for id in 1..<Int64(gateway.closesEvery) { world.taken[id] = 1 }
        world.step()
        // Two connections send probes before the relay knows that this gateway does not understand them.
        for _ in 0..<2 { world.lease(for: world.slot(isProvenBySilence: false), isAsked: true) }
        for _ in 0..<2 { world.step() }
        var refused: [Int64: String] = [:]
        var poisoned: Set<Int64> = []
        for id in 1...Self.pushes {
            if id.isMultiple(ofAny: gateway.refusesEvery) { refused[id] = "InvalidToken" }
            if id.isMultiple(ofAny: gateway.closesOverEvery) { poisoned.insert(id) }
        }
        let settled = Int(Self.pushes) - poisoned.count
        var hasRestarted = false
        var steps = 0
        while world.sent.count + world.failed.count < settled, steps < 2000 {
            steps += 1
            // Lets other tests run: they share two threads.
            await Task.yield()
            while world.written.count < Self.connections, world.lanes.values.contains(where: { !$0.isEmpty }) {
                world.lease(for: world.slot(isProvenBySilence: true))
            }
            world.step()
            if !hasRestarted, world.sent.count >= gateway.restartsAfter {
                hasRestarted = true
                world.restart()
            }
        }
        let seconds = world.lastSent.seconds(since: Self.start)
        let duplicates = world.taken.values.reduce(0) { $0 + $1 - 1 }
        print("\(gateway.testDescription): \(seconds) s, \(duplicates) duplicates, \(world.lastConnection) connections")
        #expect(seconds < 60)
        #expect(duplicates <= gateway.duplicates)
        #expect(world.sent.allSatisfy { world.taken[$0] != nil }, "sent, but not received by the gateway")
        // A push that makes the gateway close keeps waiting. The relay can blame it only while other pushes are
        // accepted.
        #expect(world.failed.filter { !poisoned.contains($0.key) } == refused)
        #expect(world.sent.count == settled - refused.count)
    }
}

extension Int64 {
    /// Whether this is a multiple of `number`. `false` if `number` is 0.
    fileprivate func isMultiple(ofAny number: Int) -> Bool { number > 0 && isMultiple(of: Int64(number)) }
}
