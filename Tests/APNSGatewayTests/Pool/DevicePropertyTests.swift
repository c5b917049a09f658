import ChatDomain
import NIOCore
import Testing

@testable import APNSGateway
@testable import ChatDispatch
@testable import GatewayPool

/// Runs the values of dispatcher and gateway against a queue and a push service in memory, in simulated time.
@Suite("One app with devices that answer anything")
struct DevicePropertyTests {
    private static let start = Timestamp(seconds: 1_800_000_000)

    /// The response to all pushes of one device.
    private enum Behaviour: CaseIterable {
        case accepted, serverError, quota, longQuota, busy, silent, gone, sentBack

        var response: (outcome: Outcome, delay: Duration) {
            switch self {
            case .accepted: (.accepted, .milliseconds(20))
            case .serverError: (.retry(reason: "InternalServerError"), .milliseconds(20))
            case .quota, .longQuota: (.retry(reason: "QUOTA_EXCEEDED"), .milliseconds(20))
            case .busy: (.retry(reason: "TooManyRequests"), .milliseconds(20))
            case .silent: (.unanswered(reason: "NoResponse"), .seconds(30))
            case .gone: (.rejected(reason: "BadDeviceToken"), .milliseconds(20))
            case .sentBack: (.sentBack(reason: "Shutdown"), .milliseconds(20))
            }
        }

        /// The pause that the service asks for.
        var asked: Duration? {
            switch self {
            case .quota: .seconds(60)
            case .longQuota: .seconds(3600)
            default: nil
            }
        }

        var isSuccess: Bool { self == .accepted || self == .busy || self == .gone }
        var isRefusal: Bool { self == .serverError || asked != nil }
    }

    private struct Simulation {
        static let step = Duration.milliseconds(100)
        private static let streams = 2000

        private struct Row {
            let device: UInt32
            let queuedAt: Timestamp
            var history = PushHistory()
            var due: Timestamp
            var isLeased = false
        }

        private struct Response {
            let at: Timestamp
            let device: UInt32
            let report: DeliveryReport
        }

        var random: Seeded
        private(set) var now = DevicePropertyTests.start
        private let breaker = CircuitBreaker()
        private var inFlight = InFlightPushes(PushLifeCycle())
        private var depth = SearchDepth()
        private var behaviours: [UInt32: Behaviour] = [:]
        /// Unsettled pushes, by push id. The ids ascend.
        private var rows: [Int64: Row] = [:]
        private var lastPushID: Int64 = 0
        private var responses: [Response] = []
        private var connection = ConnectionID(1)
        private var nextIdentifier: UInt32 = 1
        /// The waits of the healthy devices' pushes until their first attempt.
        private(set) var waits: [Duration] = []

        init(seed: UInt64) { random = Seeded(state: seed) }

        mutating func add(_ device: UInt32, _ behaviour: Behaviour) { behaviours[device] = behaviour }

        mutating func queue(to device: UInt32) {
            lastPushID += 1
            rows[lastPushID] = Row(device: device, queuedAt: now, due: now)
        }

        private var deadline: NIODeadline {
            .uptimeNanoseconds(UInt64(now.milliseconds - DevicePropertyTests.start.milliseconds + 1) * 1_000_000)
        }

        mutating func advance() {
            now = now + Self.step
            let arrived = responses.filter { $0.at <= now }
            responses.removeAll { $0.at <= now }
            // Each response is recorded alone, so that a success does not hide the others.
            for response in arrived { receive(response) }
            dispatch()
        }

        private mutating func receive(_ response: Response) {
            let behaviour = behaviours[response.device] ?? .accepted
            _ = breaker.record(
                successes: behaviour.isSuccess ? 1 : 0,
                refused: behaviour.isRefusal ? [DevicePropertyTests.address(response.device)] : [],
                asked: behaviour.asked, now: deadline, random: 1)
            let conclusion = inFlight.conclude([response.report], at: now)
            for ranges in conclusion.released.values { release(ranges) }
            for (settlement, _) in conclusion.batches.joined() { settle(settlement) }
        }

        private mutating func release(_ ranges: IDRanges) {
            for id in ranges.ranges.joined() { rows[id]?.isLeased = false }
        }

        private mutating func settle(_ settlement: Settlement) {
            let added = settlement.transition.added
            for id in settlement.pushIDs {
                rows[id]?.isLeased = false
                rows[id]?.history.attempts += added.attempts
                rows[id]?.history.unanswered += added.unanswered
                rows[id]?.history.refused += added.refused
                switch settlement.transition.result {
                case .waiting(let until, _, _): rows[id]?.due = until
                case .due: rows[id]?.due = now
                case .sent, .failed, .expired, .cancelled: rows[id] = nil
                }
            }
        }

        /// Does what the dispatcher does until nothing can be sent.
        private mutating func dispatch() {
            while case let permission = breaker.permission(now: deadline, random: 1), let slot = slot(permission) {
                let leased = lease(for: slot)
                if leased.pushes.isEmpty {
                    guard inFlight.servesSingleLane else { return }
                    inFlight.endTurn()
                    continue
                }
                let admission = inFlight.admit(leased, to: slot, format: PlainFormat(), at: now)
                for ranges in admission.released.values { release(ranges) }
                guard !admission.lease.pushes.isEmpty else { continue }
                write(admission.lease)
            }
        }

        private mutating func slot(_ permission: CircuitBreaker.Permission) -> ConnectionSlot? {
            // Suspect pushes get a new connection.
            if inFlight.needsFreshConnection {
                connection = ConnectionID(connection.number + 1)
                nextIdentifier = 1
            }
            let free = min(1000, Self.streams - responses.count)
            guard free > 0 else { return nil }
            func slot(_ capacity: Int, _ test: ServiceTest?) -> ConnectionSlot {
                ConnectionSlot(
                    connection: connection, firstIdentifier: nextIdentifier, capacity: capacity,
                    isFresh: nextIdentifier == 1, answersEach: true, test: test)
            }
            switch permission {
            case .all: return slot(free, nil)
            case .test(let limit, let test): return slot(min(free, limit), test)
            case .none: return nil
            }
        }

        private mutating func lease(for slot: ConnectionSlot) -> LeasedPushes {
            guard let test = slot.test else { return lease(inFlight.lanes, inFlight.limit(for: slot)) }
            var candidates = TestCandidates(test, limit: inFlight.limit(for: slot))
            var (leases, isEnd) = (0, false)
            while leases < depth.leases, !isEnd, !candidates.isComplete {
                leases += 1
                let leased = lease(inFlight.lanes, TestCandidates.leaseSize)
                isEnd = leased.pushes.count < TestCandidates.leaseSize
                candidates.add(leased.pushes)
            }
            if inFlight.lanes == PushLane.allCases {
                depth.searched(foundFreshDevice: candidates.hasFreshDevice, reachedEnd: isEnd)
            }
            for ranges in candidates.released.values { release(ranges) }
            return LeasedPushes(candidates.pushes, lanes: Set(candidates.released.keys))
        }

        private mutating func lease(_ lanes: [PushLane], _ limit: Int) -> LeasedPushes {
            let due = rows.filter { !$0.value.isLeased && $0.value.due <= now }
                .map { (lane: PushLane($0.value.history, isBulk: false), id: $0.key, row: $0.value) }
                .filter { lanes.contains($0.lane) }
                .sorted { ($0.lane.rawValue, $0.id) < ($1.lane.rawValue, $1.id) }
            let taken = due.prefix(limit).map { lane, id, row in
                QueuedPush(
                    id: id, lane: lane, history: row.history, address: DevicePropertyTests.address(row.device),
                    payload: [1], apnsID: "\(id)")
            }
            for push in taken { rows[push.id]?.isLeased = true }
            return LeasedPushes(taken, lanes: Set(due.dropFirst(limit).map(\.lane)))
        }

        private mutating func write(_ lease: Lease) {
            breaker.noteWritten(lease.pushes.count)
            for push in lease.pushes {
                guard let row = rows[push.id] else { continue }
                let behaviour = behaviours[row.device] ?? .accepted
                if behaviour == .accepted {
                    waits.append(.milliseconds(now.milliseconds - row.queuedAt.milliseconds))
                }
                var (outcome, delay) = behaviour.response
                if let asked = behaviour.asked {
                    outcome = .retry(reason: "QUOTA_EXCEEDED", notBefore: now + delay + asked)
                }
                let report = DeliveryReport(
                    connection: lease.slot.connection, identifiers: push.identifier...push.identifier, outcome: outcome)
                responses.append(Response(at: now + delay, device: row.device, report: report))
            }
            nextIdentifier += UInt32(lease.pushes.count)
        }
    }

    /// Accepts every row.
    private struct PlainFormat: PushFormat {
        func payload(of alert: ChatAlert) throws(ChatError) -> String { throw .unavailable(cause: "not used") }
        func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
            throw .unavailable(cause: "not used")
        }
        func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
            guard let address = row.address else { throw PushRefusal("MissingAddress") }
            return Push(id: row.id, identifier: identifier, address: address, payload: row.payload ?? [])
        }
    }

    private static func address(_ device: UInt32) -> Address {
        let bytes = withUnsafeBytes(of: device.bigEndian, Array.init) + [UInt8](repeating: 7, count: 28)
        guard let token = DeviceToken(bytes: bytes) else { fatalError("32 bytes are a token") }
        return .token(token)
    }

    /// Queues pushes to broken and healthy devices, and returns the waits of the healthy ones.
    /// - Parameters:
    ///   - broken: The number of broken devices.
    ///   - pushes: The range of the number of pushes for each of them at the start.
    ///   - limit: The simulated time after which the simulation gives up.
    private func waits(
        seed: UInt64, broken: UInt32, pushes: ClosedRange<Int>, healthy: Int = 10, limit: Duration
    ) -> [Duration] {
        var simulation = Simulation(seed: seed)
        // Most mixtures have only a few kinds of answers.
        let all = Behaviour.allCases.filter { $0 != .accepted }
        let kinds = (0..<Int.random(in: 1...3, using: &simulation.random)).compactMap { _ in
            all.randomElement(using: &simulation.random)
        }
        for device in 1...broken {
            if let kind = kinds.randomElement(using: &simulation.random) { simulation.add(device, kind) }
            for _ in 0..<Int.random(in: pushes, using: &simulation.random) { simulation.queue(to: device) }
        }
        var arrivals = (0..<healthy).map { _ in Int.random(in: 1...600, using: &simulation.random) }
        let steps = Int(limit / Simulation.step) + 600
        for step in 1...steps {
            while let index = arrivals.firstIndex(where: { $0 <= step }) {
                arrivals.remove(at: index)
                simulation.queue(to: broken + 1 + UInt32(arrivals.count))
            }
            // The broken devices get further pushes all the time.
            if step.isMultiple(of: 10) { simulation.queue(to: .random(in: 1...broken, using: &simulation.random)) }
            simulation.advance()
            if arrivals.isEmpty, simulation.waits.count == healthy { break }
        }
        return simulation.waits
    }

    @Test("Fewer devices than the breaker's limit delay no other device, whatever they answer", arguments: 0..<20)
    func few(seed: UInt64) {
        let waits = waits(
            seed: seed, broken: 1 + UInt32(seed % 9), pushes: 1...20, limit: .seconds(60))
        #expect(waits.count == 10)
        #expect(waits.allSatisfy { $0 <= Simulation.step })
    }

    @Test("Among hundreds of broken devices, a healthy one is tried within minutes", arguments: 0..<12)
    func many(seed: UInt64) {
        // Five rounds of tests reach every device, and a round's pause is at most a minute.
        let limit = CircuitBreaker.longestAskedPause * 6
        let waits = waits(seed: seed, broken: 250, pushes: 1...2, limit: limit)
        #expect(waits.count == 10)
        #expect(waits.allSatisfy { $0 <= limit })
    }

    @Test("Thousands of due pushes of refused devices do not hide a healthy one", arguments: 0..<3)
    func hidden(seed: UInt64) {
        let limit = CircuitBreaker.longestAskedPause * 6
        let waits = waits(seed: seed, broken: 12, pushes: 150...200, healthy: 3, limit: limit)
        #expect(waits.count == 3)
        #expect(waits.allSatisfy { $0 <= limit })
    }
}
