import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatDispatch
@testable import ChatStore
@testable import TestStores

/// Compares the queue with a model that only counts, under random pushes, outcomes, crashes and scripts.
@Suite("The queue under random outcomes, crashes and other programs' writes", .timeLimit(.minutes(5)))
struct QueuePropertyTests {
    /// A generator that returns the same numbers for the same seed.
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

    /// The expected end of a push, and the number of times that the gateway has seen it.
    private struct Fate {
        /// Whether the gateway rejects the push for good.
        let isRefused: Bool
        /// Whether another program deleted the push.
        var isDeleted = false
        /// Whether another program cancelled the push. The gateway may accept it all the same.
        var isCancelled = false
        var accepted = 0
        var refused = 0
    }

    /// The subject of the test: one relay or several on one database, and another program that reads it.
    private struct Subject: Sendable {
        let relays: Int
        let open: @Sendable () async throws -> Relay
        let advance: @Sendable (Duration) -> Void
        let now: @Sendable () -> Timestamp
        /// Runs another program's statement and returns its columns as text.
        let query: @Sendable (String) throws -> [[String]]
        let isIntact: @Sendable () throws -> Bool

        struct Relay {
            let queue: any PushQueue
            /// Notices the writes of other programs, as the relay does regularly.
            let notice: () async throws -> Void
            let close: () throws -> Void
        }

        init(_ kind: StoreKind) throws {
            switch kind {
            case .sqlite:
                let fixture = try StoreFixture()
                let otherProgram = try fixture.connection()
                relays = 1
                open = {
                    let store = try fixture.open()
                    _ = try await store.upkeep.prepare()
                    return Relay(
                        queue: store.queue, notice: { try await store.lookForPushes() }, close: { try store.close() })
                }
                query = { sql in
                    try otherProgram.write { db in
                        try Row.fetchAll(db, sql: sql).map { row in
                            row.databaseValues.map { "\($0.storage.value ?? "")" }
                        }
                    }
                }
                isIntact = { [query] in try query("PRAGMA integrity_check") == [["ok"]] }
                advance = { fixture.advance($0) }
                now = { fixture.time.now }
            case .postgres:
                let fixture = try PostgresFixture()
                relays = 2
                open = {
                    let store = try await fixture.open()
                    return Relay(
                        queue: store.queue, notice: { try await store.lookForPushes() }, close: { store.close() })
                }
                query = { sql in
                    try fixture.query(sql).split(separator: "\n").map { $0.split(separator: "|").map(String.init) }
                }
                isIntact = { true }
                advance = { fixture.advance($0) }
                now = { fixture.time.now }
            }
        }
    }

    private final class Model {
        let subject: Subject
        var relays: [Subject.Relay] = []
        var benches: [DispatchFixture] = []
        var random: Random
        var fates: [Int64: Fate] = [:]
        /// The pushes that are with the gateway, by connection: the identifier and the push id.
        var inFlight: [Int64: [(identifier: UInt32, id: Int64)]] = [:]
        var nextIdentifier: UInt32 = 1
        /// The current connection. Its number determines its relay, in turn.
        var connection: Int64 = 1
        /// Pushes that a crash or a lost connection left in doubt. They may be sent twice.
        var doubtful: Set<Int64> = []

        init(seed: UInt64, _ kind: StoreKind) async throws {
            random = Random(state: seed)
            subject = try Subject(kind)
            for number in 0..<subject.relays { try await open(number) }
        }

        deinit { for relay in relays { try? relay.close() } }

        func open(_ number: Int) async throws {
            let relay = try await subject.open()
            let bench = DispatchFixture(relay.queue, now: subject.now)
            if number < relays.count {
                (relays[number], benches[number]) = (relay, bench)
            } else {
                relays.append(relay)
                benches.append(bench)
            }
        }

        func relay(of connection: Int64) -> Int { Int(connection) % relays.count }

        func lease(_ slot: ConnectionSlot) async throws -> DispatchFixture.Result {
            let number = relay(of: slot.connection.number)
            try await relays[number].notice()
            return try await benches[number].lease(slot)
        }

        func settle(_ reports: [DeliveryReport], of connection: Int64) async throws {
            try await benches[relay(of: connection)].settle(reports)
        }

        func query(_ sql: String) throws -> [[String]] { try subject.query(sql) }

        func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }
    }

    @Test(
        "No push is lost or gets two outcomes, and each one that is not in doubt is sent once",
        arguments: StoreKind.allCases,
        1...6)
    func run(kind: StoreKind, number: UInt64) async throws {
        let seed =
            number &* 7919
            &+ UInt64(ProcessInfo.processInfo.environment["PUSHCHAT_TEST_SEED"].flatMap(Int.init) ?? 20_261_122)
        let model = try await Model(seed: seed, kind)
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
        default: model.subject.advance(.seconds(Int.random(in: 1...40, using: &model.random)))
        }
    }

    private func insert(_ model: Model) throws {
        let count = Int.random(in: 1...40, using: &model.random)
        let token = try StoreFixture.token(1)
        let rows = (0..<count).map { _ in "('\(token)', '{\"aps\":{}}', \(model.chance(20)))" }.joined(separator: ", ")
        let inserted = try model.query(
            "INSERT INTO push_queue (device_token, payload, bulk) VALUES \(rows) RETURNING message_id")
        for row in inserted { model.fates[try #require(Int64(row[0]))] = Fate(isRefused: model.chance(10)) }
    }

    private func lease(_ model: Model) async throws {
        let room = Int.random(in: 1...30, using: &model.random)
        var slot = StoreFixture.slot(model.connection, first: model.nextIdentifier, room: room)
        var lease = try await model.lease(slot)
        if lease.needsFreshConnection {
            lose(model)
            slot = StoreFixture.slot(model.connection, room: room)
            lease = try await model.lease(slot)
        }
        for push in lease.pushes {
            model.inFlight[model.connection, default: []].append((push.identifier, push.id))
        }
        if let last = lease.pushes.last { model.nextIdentifier = last.identifier + 1 }
        let ids = lease.pushes.map(\.id)
        #expect(Set(ids).count == ids.count)
    }

    /// Opens a new connection. The pushes of the old one may still get a response, or never.
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
                // The gateway accepted some of them.
                model.doubtful.insert(push.id)
                if model.chance(50) { model.fates[push.id]?.accepted += 1 }
                add(.unanswered(reason: "Lost"))
            } else if model.fates[push.id]?.isRefused == true {
                model.fates[push.id]?.refused += 1
                add(.rejected(reason: "BadTopic"))
            } else {
                switch Int.random(in: 0..<10, using: &model.random) {
                case 0: add(.retry(reason: "Busy"))
                case 1: add(.notProcessed)
                case 2: add(.sentBack(reason: "GoAway"))
                default:
                    model.fates[push.id]?.accepted += 1
                    add(.accepted)
                }
            }
        }
        model.inFlight[connection] = count == pushes.count ? nil : Array(pushes.dropFirst(count))
        // Adjacent pushes with the same outcome share a report, as gateways report them.
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
        try await model.settle(merged, of: connection)
    }

    /// Changes a random push as another program may.
    private func changeByOthers(_ model: Model) throws {
        guard let id = model.fates.keys.sorted().randomElement(using: &model.random) else { return }
        switch Int.random(in: 0..<3, using: &model.random) {
        case 0:
            _ = try model.query("DELETE FROM push_queue WHERE message_id = \(id) AND state = 'pending'")
            if try model.query("SELECT 1 FROM push_queue WHERE message_id = \(id)").isEmpty {
                model.fates[id]?.isDeleted = true
            }
        case 1:
            _ = try model.query(
                "UPDATE push_queue SET state = 'cancelled' WHERE message_id = \(id) AND state = 'pending'")
            let cancelled = try model.query(
                "SELECT 1 FROM push_queue WHERE message_id = \(id) AND state = 'cancelled'")
            if !cancelled.isEmpty { model.fates[id]?.isCancelled = true }
        default:
            let time = (model.subject.now() + .seconds(20)).milliseconds
            _ = try model.query(
                "UPDATE push_queue SET not_before = \(time) WHERE message_id = \(id) AND state = 'pending'")
        }
    }

    /// Clears a relay's memory. The gateway may have accepted pushes that were in flight.
    private func crash(_ model: Model) async throws {
        let relay = Int.random(in: 0..<model.relays.count, using: &model.random)
        for connection in model.inFlight.keys.sorted() where model.relay(of: connection) == relay {
            for push in model.inFlight[connection] ?? [] {
                model.doubtful.insert(push.id)
                if model.fates[push.id]?.isRefused == false, model.chance(50) {
                    model.fates[push.id]?.accepted += 1
                }
            }
            model.inFlight[connection] = nil
        }
        try model.relays[relay].close()
        try await model.open(relay)
        lose(model)
    }

    /// Settles all pushes: the gateway responds to everything from now on.
    private func settleAll(_ model: Model, _ place: String) async throws {
        for _ in 0..<3000 {
            for (connection, pushes) in model.inFlight {
                try await model.settle(
                    pushes.map { push in
                        let isRefused = model.fates[push.id]?.isRefused == true
                        if isRefused {
                            model.fates[push.id]?.refused += 1
                        } else {
                            model.fates[push.id]?.accepted += 1
                        }
                        return DeliveryReport(
                            connection: ConnectionID(connection), identifiers: push.identifier...push.identifier,
                            outcome: isRefused ? .rejected(reason: "BadTopic") : .accepted)
                    }, of: connection)
            }
            model.inFlight = [:]
            lose(model)
            try await lease(model)
            if model.inFlight.isEmpty {
                if try model.query("SELECT 1 FROM push_queue WHERE state = 'pending' LIMIT 1").isEmpty { return }
                model.subject.advance(.seconds(60))
            }
        }
        Issue.record("some pushes never come to an end; \(place)")
    }

    private func verify(_ model: Model, _ place: Comment) throws {
        let rows = try model.query("SELECT message_id, state FROM push_queue")
        let states = Dictionary(uniqueKeysWithValues: rows.compactMap { row in Int64(row[0]).map { ($0, row[1]) } })
        #expect(states.count == rows.count)
        for (id, fate) in model.fates {
            switch states[id] {
            case nil:
                #expect(fate.isDeleted, "\(id) has gone; \(place)")
            case "sent"?:
                #expect(fate.accepted > 0 && !fate.isRefused, "\(id) was not accepted; \(place)")
            case "failed"?:
                #expect(fate.isRefused && fate.refused > 0, "\(id) was not refused; \(place)")
            case "cancelled"?:
                #expect(fate.isCancelled, "\(id) was not cancelled; \(place)")
            default:
                Issue.record("\(id) is \(states[id] ?? ""); \(place)")
            }
            if !model.doubtful.contains(id) {
                #expect(fate.accepted <= 1, "\(id) was sent \(fate.accepted) times; \(place)")
            }
        }
        #expect(try model.subject.isIntact())
    }
}
