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

    private final class Model {
        let fixture: StoreFixture
        let otherProgram: DatabaseQueue
        var bench: QueueBench
        var random: Random
        var fates: [Int64: Fate] = [:]
        /// With the gateway: identifier and entry, by connection.
        var inFlight: [Int64: [(identifier: UInt32, entry: Int64)]] = [:]
        var nextIdentifier: UInt32 = 1
        var connection: Int64 = 1
        /// Pushes that a crash, or a connection that was lost, left in doubt: they may come twice.
        var doubtful: Set<Int64> = []

        init(seed: UInt64) throws {
            random = Random(state: seed)
            fixture = try StoreFixture()
            bench = try QueueBench(fixture)
            otherProgram = try fixture.connection()
        }

        func query(_ sql: String, _ arguments: StatementArguments = []) throws -> [Row] {
            try otherProgram.write { try Row.fetchAll($0, sql: sql, arguments: arguments) }
        }

        func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }
    }

    @Test("Nothing is lost, nothing comes to two ends, what is not in doubt is sent once", arguments: 1...6)
    func run(number: UInt64) async throws {
        let seed =
            number &* 7919
            &+ UInt64(ProcessInfo.processInfo.environment["PUSHCHAT_TEST_SEED"].flatMap(Int.init) ?? 20_261_122)
        let model = try Model(seed: seed)
        for step in 0..<120 {
            try await move(model, "seed \(seed), step \(step)")
        }
        try await settleAll(model, "seed \(seed)")
        try verify(model, "seed \(seed)")
    }

    private func move(_ model: Model, _ place: String) async throws {
        switch Int.random(in: 0..<100, using: &model.random) {
        case 0..<25: try insert(model)
        case 25..<55: try await lease(model)
        case 55..<80: try await answer(model, place)
        case 80..<88: try changeByOthers(model)
        case 88..<92: try await crash(model)
        case 92..<96: lose(model)
        default: model.fixture.advance(.seconds(Int.random(in: 1...40, using: &model.random)))
        }
    }

    private func insert(_ model: Model) throws {
        let count = Int.random(in: 1...40, using: &model.random)
        for _ in 0..<count {
            let isBulk = model.chance(20)
            let entry: Int64 = try model.query(
                """
                INSERT INTO push_queue (device_token, payload, bulk) VALUES (?, '{"aps":{}}', ?) RETURNING message_id
                """, [StoreFixture.token(1).description, isBulk])[0][0]
            model.fates[entry] = Fate(isRefused: model.chance(10))
        }
    }

    private func lease(_ model: Model) async throws {
        let room = Int.random(in: 1...30, using: &model.random)
        var slot = StoreFixture.slot(model.connection, first: model.nextIdentifier, room: room)
        var lease = try await model.bench.lease(slot)
        if lease.needsFreshConnection {
            lose(model)
            slot = StoreFixture.slot(model.connection, room: room)
            lease = try await model.bench.lease(slot)
        }
        for push in lease.pushes {
            model.inFlight[model.connection, default: []].append((push.identifier, push.entry))
        }
        if let last = lease.pushes.last { model.nextIdentifier = last.identifier + 1 }
        let entries = lease.pushes.map(\.entry)
        #expect(Set(entries).count == entries.count)
    }

    /// A new connection; what the old one has may still be answered, or never.
    private func lose(_ model: Model) {
        model.connection += 1
        model.nextIdentifier = 1
    }

    private func answer(_ model: Model, _ place: String) async throws {
        guard let connection = model.inFlight.keys.sorted().randomElement(using: &model.random),
            let pushes = model.inFlight[connection]
        else { return }
        let count = Int.random(in: 1...pushes.count, using: &model.random)
        let isLost = model.chance(15)
        var reports: [DeliveryReport] = []
        for push in pushes.prefix(count) {
            let identifiers = push.identifier...push.identifier
            func add(_ outcome: Outcome) {
                reports.append(
                    DeliveryReport(connection: ConnectionID(connection), identifiers: identifiers, outcome: outcome))
            }
            if isLost {
                // The gateway took some of them.
                model.doubtful.insert(push.entry)
                if model.chance(50) { model.fates[push.entry]?.accepted += 1 }
                add(.unanswered(reason: "Lost"))
            } else if model.fates[push.entry]?.isRefused == true {
                model.fates[push.entry]?.refused += 1
                add(.rejected(reason: "BadTopic"))
            } else {
                switch Int.random(in: 0..<10, using: &model.random) {
                case 0: add(.retry(reason: "Busy"))
                case 1: add(.notProcessed)
                case 2: add(.sentBack(reason: "GoAway"))
                default:
                    model.fates[push.entry]?.accepted += 1
                    add(.accepted)
                }
            }
        }
        model.inFlight[connection] = count == pushes.count ? nil : Array(pushes.dropFirst(count))
        // Neighbours with one outcome share an outcome, as gateways say it.
        var merged: [DeliveryReport] = []
        for report in reports {
            if let last = merged.last, last.outcome == report.outcome,
                last.identifiers.upperBound + 1 == report.identifiers.lowerBound
            {
                merged[merged.count - 1] = DeliveryReport(
                    connection: last.connection,
                    identifiers: last.identifiers.lowerBound...report.identifiers.upperBound, outcome: last.outcome)
            } else {
                merged.append(report)
            }
        }
        try await model.bench.settle(merged)
    }

    /// What another program may do.
    private func changeByOthers(_ model: Model) throws {
        guard let entry = model.fates.keys.sorted().randomElement(using: &model.random) else { return }
        switch Int.random(in: 0..<3, using: &model.random) {
        case 0:
            _ = try model.query("DELETE FROM push_queue WHERE message_id = ? AND state = 'pending'", [entry])
            if try model.query("SELECT 1 FROM push_queue WHERE message_id = ?", [entry]).isEmpty {
                model.fates[entry]?.isDeleted = true
            }
        case 1:
            _ = try model.query(
                "UPDATE push_queue SET state = 'cancelled' WHERE message_id = ? AND state = 'pending'", [entry])
            if try !model.query(
                "SELECT 1 FROM push_queue WHERE message_id = ? AND state = 'cancelled'", [entry]
            ).isEmpty {
                model.fates[entry]?.isCancelled = true
            }
        default:
            _ = try model.query(
                "UPDATE push_queue SET not_before = ? WHERE message_id = ? AND state = 'pending'",
                [(model.fixture.time.withLock { $0 } + .seconds(20)).milliseconds, entry])
        }
    }

    /// Everything that is in memory goes; the gateway may have taken what was in flight.
    private func crash(_ model: Model) async throws {
        for push in model.inFlight.values.joined() {
            model.doubtful.insert(push.entry)
            if model.fates[push.entry]?.isRefused == false, model.chance(50) {
                model.fates[push.entry]?.accepted += 1
            }
        }
        model.inFlight = [:]
        try model.bench.store.close()
        model.bench = try QueueBench(model.fixture, model.fixture.open())
        _ = try await model.bench.store.upkeep.prepare()
        lose(model)
    }

    /// The gateway takes everything from now on.
    private func settleAll(_ model: Model, _ place: String) async throws {
        for _ in 0..<3000 {
            for (connection, pushes) in model.inFlight {
                try await model.bench.settle(
                    pushes.map { push in
                        let isRefused = model.fates[push.entry]?.isRefused == true
                        if isRefused {
                            model.fates[push.entry]?.refused += 1
                        } else {
                            model.fates[push.entry]?.accepted += 1
                        }
                        return DeliveryReport(
                            connection: ConnectionID(connection), identifiers: push.identifier...push.identifier,
                            outcome: isRefused ? .rejected(reason: "BadTopic") : .accepted)
                    })
            }
            model.inFlight = [:]
            lose(model)
            try await lease(model)
            if model.inFlight.isEmpty {
                if try model.query("SELECT 1 FROM push_queue WHERE state = 'pending' LIMIT 1").isEmpty { return }
                model.fixture.advance(.seconds(60))
            }
        }
        Issue.record("some pushes never come to an end; \(place)")
    }

    private func verify(_ model: Model, _ place: Comment) throws {
        let rows = try model.query("SELECT message_id, state FROM push_queue")
        let states = Dictionary(uniqueKeysWithValues: rows.map { ($0[0] as Int64, $0[1] as String) })
        for (entry, fate) in model.fates {
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
            if !model.doubtful.contains(entry) {
                #expect(fate.accepted <= 1, "\(entry) was sent \(fate.accepted) times; \(place)")
            }
        }
        #expect(try model.query("PRAGMA integrity_check")[0][0] == "ok")
    }
}
