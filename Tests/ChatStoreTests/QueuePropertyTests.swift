import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatDispatch
@testable import ChatStore

/// Random pushes, outcomes, crashes and scripts against a model that only counts.
@Suite("The queue under random outcomes, crashes and other programs' writes", .timeLimit(.minutes(5)))
struct QueuePropertyTests {
    /// A generator that can be had again.
    private struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var bits = state
            bits = (bits ^ bits >> 30) &* 0xBF58_476D_1CE4_E5B9
            bits = (bits ^ bits >> 27) &* 0x94D0_49BB_1331_11EB
            return bits ^ bits >> 31
        }
    }

    /// What a push is to come to, and what the gateway has seen of it.
    private struct Fate {
        /// The gateway refuses it for good.
        let isRefused: Bool
        /// Another program took it away.
        var isDeleted = false
        /// Another program took it back: what was sent, was sent.
        var isCancelled = false
        var accepted = 0
        var refused = 0
    }

    private final class World {
        let fixture: StoreFixture
        var bench: QueueBench
        var random: Random
        var fates: [Int64: Fate] = [:]
        /// With the gateway: identifier and entry, by connection.
        var inFlight: [Int64: [(identifier: UInt32, entry: Int64)]] = [:]
        var nextIdentifier: UInt32 = 1
        var connection: Int64 = 1
        /// Pushes that a crash, or a connection that was lost, left in doubt: they may come twice.
        var doubtful: Set<Int64> = []
        var lastInLane: Int64 = 0

        init(seed: UInt64) throws {
            random = Random(state: seed)
            fixture = try StoreFixture()
            bench = try QueueBench(fixture)
        }

        func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }
    }

    @Test("Nothing is lost, nothing comes to two ends, what is not in doubt is sent once", arguments: 1...12)
    func run(number: UInt64) async throws {
        let seed =
            number &* 7919
            &+ UInt64(ProcessInfo.processInfo.environment["PUSHCHAT_TEST_SEED"].flatMap(Int.init) ?? 20_261_122)
        let world = try World(seed: seed)
        for step in 0..<120 {
            try await move(world, "seed \(seed), step \(step)")
        }
        try await settleAll(world, "seed \(seed)")
        try verify(world, "seed \(seed)")
    }

    private func move(_ world: World, _ place: String) async throws {
        switch Int.random(in: 0..<100, using: &world.random) {
        case 0..<25: try insert(world)
        case 25..<55: try await lease(world)
        case 55..<80: try await answer(world, place)
        case 80..<88: try meddle(world)
        case 88..<92: try await crash(world)
        case 92..<96: lose(world)
        default: world.fixture.advance(.seconds(Int.random(in: 1...40, using: &world.random)))
        }
    }

    private func insert(_ world: World) throws {
        let count = Int.random(in: 1...40, using: &world.random)
        for _ in 0..<count {
            let isBulk = world.chance(20)
            _ = try world.fixture.query(
                "INSERT INTO push_queue (device_token, payload, bulk) VALUES (?, '{\"aps\":{}}', ?)",
                [StoreFixture.token(1).description, isBulk])
            let entry = Int64(try world.fixture.value("SELECT max(message_id) FROM push_queue"))
            world.fates[entry] = Fate(isRefused: world.chance(10))
        }
    }

    private func lease(_ world: World) async throws {
        let room = Int.random(in: 1...30, using: &world.random)
        var slot = StoreFixture.slot(world.connection, first: world.nextIdentifier, room: room)
        var lease = try await world.bench.lease(slot)
        if lease.needsFreshConnection {
            lose(world)
            slot = StoreFixture.slot(world.connection, room: room)
            lease = try await world.bench.lease(slot)
        }
        for push in lease.pushes {
            world.inFlight[world.connection, default: []].append((push.identifier, push.entry))
        }
        if let last = lease.pushes.last { world.nextIdentifier = last.identifier + 1 }
        let entries = lease.pushes.map(\.entry)
        #expect(Set(entries).count == entries.count)
    }

    /// A new connection; what the old one has may still be answered, or never.
    private func lose(_ world: World) {
        world.connection += 1
        world.nextIdentifier = 1
    }

    private func answer(_ world: World, _ place: String) async throws {
        guard let connection = world.inFlight.keys.sorted().randomElement(using: &world.random),
            let pushes = world.inFlight[connection]
        else { return }
        let count = Int.random(in: 1...pushes.count, using: &world.random)
        let isLost = world.chance(15)
        var verdicts: [Verdict] = []
        for push in pushes.prefix(count) {
            let identifiers = push.identifier...push.identifier
            func say(_ outcome: Outcome) {
                verdicts.append(
                    Verdict(connection: ConnectionEpoch(connection), identifiers: identifiers, outcome: outcome))
            }
            if isLost {
                // The gateway took some of them.
                world.doubtful.insert(push.entry)
                if world.chance(50) { world.fates[push.entry]?.accepted += 1 }
                say(.unanswered(reason: "Lost"))
            } else if world.fates[push.entry]?.isRefused == true {
                world.fates[push.entry]?.refused += 1
                say(.rejected(reason: "BadTopic"))
            } else {
                switch Int.random(in: 0..<10, using: &world.random) {
                case 0: say(.retry(reason: "Busy"))
                case 1: say(.notProcessed)
                case 2: say(.sentBack(reason: "GoAway"))
                default:
                    world.fates[push.entry]?.accepted += 1
                    say(.accepted)
                }
            }
        }
        world.inFlight[connection] = count == pushes.count ? nil : Array(pushes.dropFirst(count))
        // Neighbours with one outcome share a verdict, as gateways say it.
        var merged: [Verdict] = []
        for verdict in verdicts {
            if let last = merged.last, last.outcome == verdict.outcome,
                last.identifiers.upperBound + 1 == verdict.identifiers.lowerBound
            {
                merged[merged.count - 1] = Verdict(
                    connection: last.connection,
                    identifiers: last.identifiers.lowerBound...verdict.identifiers.upperBound, outcome: last.outcome)
            } else {
                merged.append(verdict)
            }
        }
        try await world.bench.settle(merged)
    }

    /// What another program may do.
    private func meddle(_ world: World) throws {
        guard let entry = world.fates.keys.sorted().randomElement(using: &world.random) else { return }
        switch Int.random(in: 0..<3, using: &world.random) {
        case 0:
            _ = try world.fixture.query("DELETE FROM push_queue WHERE message_id = ? AND state = 'pending'", [entry])
            if try world.fixture.query("SELECT 1 FROM push_queue WHERE message_id = ?", [entry]).isEmpty {
                world.fates[entry]?.isDeleted = true
            }
        case 1:
            _ = try world.fixture.query(
                "UPDATE push_queue SET state = 'cancelled' WHERE message_id = ? AND state = 'pending'", [entry])
            if try !world.fixture.query(
                "SELECT 1 FROM push_queue WHERE message_id = ? AND state = 'cancelled'", [entry]
            ).isEmpty {
                world.fates[entry]?.isCancelled = true
            }
        default:
            _ = try world.fixture.query(
                "UPDATE push_queue SET not_before = ? WHERE message_id = ? AND state = 'pending'",
                [(world.fixture.time.withLock { $0 } + .seconds(20)).milliseconds, entry])
        }
    }

    /// Everything that is in memory goes; the gateway may have taken what was in flight.
    private func crash(_ world: World) async throws {
        for push in world.inFlight.values.joined() {
            world.doubtful.insert(push.entry)
            if world.fates[push.entry]?.isRefused == false, world.chance(50) {
                world.fates[push.entry]?.accepted += 1
            }
        }
        world.inFlight = [:]
        try world.bench.store.close()
        world.bench = try QueueBench(world.fixture, world.fixture.open())
        _ = try await world.bench.store.upkeep.prepare()
        lose(world)
    }

    /// The gateway takes everything from now on.
    private func settleAll(_ world: World, _ place: String) async throws {
        for _ in 0..<3000 {
            for (connection, pushes) in world.inFlight {
                try await world.bench.settle(
                    pushes.map { push in
                        let isRefused = world.fates[push.entry]?.isRefused == true
                        if isRefused {
                            world.fates[push.entry]?.refused += 1
                        } else {
                            world.fates[push.entry]?.accepted += 1
                        }
                        return Verdict(
                            connection: ConnectionEpoch(connection), identifiers: push.identifier...push.identifier,
                            outcome: isRefused ? .rejected(reason: "BadTopic") : .accepted)
                    })
            }
            world.inFlight = [:]
            lose(world)
            try await lease(world)
            if world.inFlight.isEmpty {
                if try world.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") == 0 { return }
                world.fixture.advance(.seconds(60))
            }
        }
        Issue.record("some pushes never come to an end; \(place)")
    }

    private func verify(_ world: World, _ place: Comment) throws {
        let rows = try world.fixture.query("SELECT message_id, state FROM push_queue")
        let states = Dictionary(uniqueKeysWithValues: rows.map { ($0[0] as Int64, $0[1] as String) })
        for (entry, fate) in world.fates {
            switch states[entry] {
            case nil:
                #expect(fate.isDeleted, "\(entry) has gone; \(place)")
            case "sent"?:
                #expect(fate.accepted > 0 && !fate.isRefused, "\(entry) was not accepted; \(place)")
            case "failed"?:
                #expect(fate.isRefused && fate.refused > 0, "\(entry) was not refused; \(place)")
            case "cancelled"?:
                #expect(fate.isCancelled, "\(entry) was not taken back; \(place)")
            default:
                Issue.record("\(entry) is \(states[entry] ?? ""); \(place)")
            }
            if !world.doubtful.contains(entry) {
                #expect(fate.accepted <= 1, "\(entry) was sent \(fate.accepted) times; \(place)")
            }
        }
        #expect(try world.fixture.query("PRAGMA integrity_check")[0][0] == "ok")
    }
}
