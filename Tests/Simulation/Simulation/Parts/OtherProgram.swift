import CSimulation
import ChatDomain
import GRDB

/// Another program that inserts pushes into the relay's file, with its own connection.
final class OtherProgram: Part {
    private unowned let world: World
    private var inserted: [(id: Int64, token: String, moment: Moment, wall: Timestamp)] = []

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        guard choices.dice.chance(40) else { return }
        choices.add(choices.dice.among([1, 5, 20])) { dice in
            let tokens = (0..<dice.within(1...10)).map { _ in Clients.token(dice.below(30)).description }
            return ("another program inserts \(tokens.count) pushes", { self.insert(tokens) })
        }
    }

    private func insert(_ tokens: [String]) {
        guard world.relay != nil else { return }
        do {
            var configuration = Configuration()
            configuration.busyMode = .timeout(1)
            let ids = try DatabaseQueue(path: world.path, configuration: configuration).write { db in
                try tokens.map { token in
                    try db.execute(
                        sql: #"INSERT INTO push_queue (device_token, payload) VALUES (?, '{"aps":{"alert":"x"}}')"#,
                        arguments: [token])
                    return db.lastInsertedRowID
                }
            }
            inserted += zip(ids, tokens).map { ($0, $1, .now, Timestamp.now()) }
            world.log("another program has inserted \(ids)")
        } catch {
            world.log("another program: \(error)")
        }
    }

    func check(_ rows: StoredRows) {
        let tokens = Dictionary(uniqueKeysWithValues: rows.pushes.map { ($0.id, $0.token) })
        for (id, token, moment, wall) in inserted where tokens[id] != token {
            if world.retention.mayHaveDeleted(writtenSince: moment, at: wall) { continue }
            world.violate(.theRelaySendsRowsOfOtherPrograms, "push \(id) is \(tokens[id] ?? "gone")")
        }
    }
}
