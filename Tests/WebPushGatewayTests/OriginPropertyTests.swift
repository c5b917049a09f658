import ChatDomain
import Testing

@testable import WebPushGateway

@Suite("One push service with subscriptions that answer anything")
struct OriginPropertyTests {
    /// A random number generator whose numbers are the same in every run (SplitMix64).
    private struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
            return z ^ (z >> 31)
        }
    }

    /// The response to all pushes of one subscription.
    private struct Behaviour {
        let response: WebPushResponse
        let delay: Duration

        static func random(_ random: inout Random) -> Behaviour {
            let statuses: [UInt] = [400, 401, 403, 404, 406, 408, 410, 413, 421, 425, 429, 500, 502, 503, 507]
            let wait = [nil, 1, 60, 3600].randomElement(using: &random)!
            let response: WebPushResponse =
                switch Int.random(in: 0..<10, using: &random) {
                case 0: .lost("NoResponse")
                case 1: .lost("StreamReset")
                // Most subscriptions of a mixture have one of a few statuses.
                default:
                    .status(
                        statuses.randomElement(using: &random)!,
                        retryAfter: wait.map { OriginPropertyTests.start + .seconds($0) },
                        text: "")
                }
            return Behaviour(response: response, delay: .milliseconds(response == .lost("NoResponse") ? 30_000 : 20))
        }
    }

    /// The queue and the service. Pushes of the broken subscriptions are queued at any time, and are retried by the
    /// relay's rules. `firstAttempts` has the time at which each healthy push was first sent.
    private struct Simulation {
        static let step = Duration.milliseconds(100)

        private struct Entry {
            let push: AddressedPush
            let queuedAt: Timestamp
            var history = PushHistory()
            var due: Timestamp
            var isLeased = false
        }

        var state = OriginState(now: OriginPropertyTests.start)
        var random: Random
        private var behaviours: [DeviceToken: Behaviour] = [:]
        private var entries: [Int64: Entry] = [:]
        private var lastID: Int64 = 0
        private var inFlight: [(push: AddressedPush, sentAt: Timestamp, end: Timestamp)] = []
        private(set) var waits: [Duration] = []
        private let lifeCycle = PushLifeCycle()
        private var lastAccepted: Timestamp?

        init(seed: UInt64, broken: Int) {
            random = Random(state: seed)
            // Most mixtures have only a few kinds of answers.
            let kinds = (0..<Int.random(in: 1...4, using: &random)).map { _ in Behaviour.random(&random) }
            for number in 0..<broken {
                behaviours[Self.device(Int64(number))] = kinds.randomElement(using: &random)!
            }
        }

        static func device(_ number: Int64) -> DeviceToken {
            DeviceToken(bytes: withUnsafeBytes(of: number.bigEndian, Array.init) + [UInt8](repeating: 7, count: 24))!
        }

        mutating func queue(to number: Int64, at now: Timestamp) {
            lastID += 1
            let (id, token) = (lastID, Self.device(number))
            let push = AddressedPush(
                push: Push(id: id, identifier: UInt32(id), address: .token(token), payload: []),
                subscription: Subscription(
                    address: token, endpoint: "https://push.test/\(number)", publicKey: [], secret: []))
            entries[id] = Entry(push: push, queuedAt: now, due: now)
        }

        /// Whether every push to a healthy subscription was sent.
        var isHealthySent: Bool { !entries.values.contains { behaviours[$0.push.subscription.address] == nil } }

        mutating func run(at now: Timestamp) {
            for done in inFlight.filter({ $0.end <= now }) { finish(done.push, done.sentAt, at: now) }
            inFlight.removeAll { $0.end <= now }
            // The gateway leases only while the service has capacity; a paused service does not hold the others up.
            let due = entries.values.filter { !$0.isLeased && $0.due <= now }.sorted {
                ($0.due, $0.push.push.id) < ($1.due, $1.push.push.id)
            }
            for entry in due.prefix(state.capacity(at: now, isAlone: true) ?? 500) {
                entries[entry.push.push.id]?.isLeased = true
                switch state.submit(entry.push, at: now) {
                case .send: send(entry.push, at: now)
                case .wait: break
                case .postpone(let until): conclude(entry.push, .postponed(until: until, reason: ""), at: now)
                }
            }
        }

        private mutating func send(_ push: AddressedPush, at now: Timestamp) {
            let behaviour = behaviours[push.subscription.address]
            inFlight.append((push, now, now + (behaviour?.delay ?? .milliseconds(20))))
            guard behaviour == nil, let entry = entries[push.push.id] else { return }
            waits.append(.milliseconds(now.milliseconds - entry.queuedAt.milliseconds))
        }

        private mutating func finish(_ push: AddressedPush, _ sentAt: Timestamp, at now: Timestamp) {
            let device = push.subscription.address
            let response = behaviours[device]?.response ?? .status(201, retryAfter: nil, text: "")
            let isAuthorized = state.isAuthorized(at: now)
            let next = state.finished(response.result, of: device, at: now, random: 1)
            conclude(
                push,
                response.outcome(
                    sentAt: sentAt, isAuthorized: isAuthorized, pausedUntil: next.pausedUntil, contact: nil), at: now)
            for (push, until) in next.postponed { conclude(push, .postponed(until: until, reason: ""), at: now) }
            for push in next.send { send(push, at: now) }
        }

        private mutating func conclude(_ push: AddressedPush, _ outcome: Outcome, at now: Timestamp) {
            guard var entry = entries[push.push.id] else { return }
            if outcome == .accepted { lastAccepted = now }
            let transition = lifeCycle.transition(
                outcome, entry.history, lane: .normal, leasedAt: entry.due, lastAccepted: lastAccepted, at: now)
            entry.history.attempts += transition.added.attempts
            entry.history.refused += transition.added.refused
            entry.isLeased = false
            switch transition.result {
            case .waiting(let until, _, _):
                entry.due = until
                entries[push.push.id] = entry
            case .due:
                entry.due = now
                entries[push.push.id] = entry
            case .sent, .failed, .expired, .cancelled: entries[push.push.id] = nil
            }
        }
    }

    fileprivate static let start = Timestamp(seconds: 1_800_000_000)
    /// A request without a response holds its place for 30 seconds, and some rounds of a pause may pass until 300 refused
    /// subscriptions are tested. The longest wait of 200 mixtures was 77 seconds.
    private static let bound = Duration.seconds(180)

    @Test(
        "A push to a subscription that the service accepts is soon sent, whatever the others answer", arguments: 1...60)
    func healthy(seed: UInt64) throws {
        var random = Random(state: seed)
        let broken = Int64([1, 12, 60, 300].randomElement(using: &random)!)
        var simulation = Simulation(seed: seed, broken: Int(broken))
        var now = Self.start
        // The broken ones get messages for a while, and fail as long as they like.
        for number in 0..<broken { simulation.queue(to: number, at: now) }
        let healthyAt = [0, 5, 60, 900].randomElement(using: &random)!
        var queued = false
        let end = Self.start + .seconds(healthyAt) + Self.bound
        while now <= end, !queued || !simulation.isHealthySent {
            if !queued, now >= Self.start + .seconds(healthyAt) {
                queued = true
                for number in 1000..<Int64(1003) { simulation.queue(to: number, at: now) }
                for number in 0..<broken { simulation.queue(to: number, at: now) }
            }
            simulation.run(at: now)
            now = now + Simulation.step
        }
        #expect(simulation.waits.count == 3, "\(3 - simulation.waits.count) of 3 were not tried")
        let longest = simulation.waits.max() ?? .zero
        #expect(longest <= Self.bound)
    }

    @Test("Twelve subscriptions with 507 do not delay a healthy one")
    func withoutSubscriber() throws {
        var state = OriginState(now: Self.start)
        var now = Self.start
        for _ in 1...20 {
            for number in 1...Int64(12) {
                let device = Simulation.device(number)
                let push = AddressedPush(
                    push: Push(id: number, identifier: UInt32(number), address: .token(device), payload: []),
                    subscription: Subscription(
                        address: device, endpoint: "https://push.test/1", publicKey: [], secret: []))
                #expect(state.submit(push, at: now) == .send)
                let response = WebPushResponse.status(507, retryAfter: nil, text: "")
                #expect(state.finished(response.result, of: device, at: now).pausedUntil == nil)
            }
            now = now + .seconds(60)
        }
        #expect(state.condition(at: now) == nil)
    }
}
