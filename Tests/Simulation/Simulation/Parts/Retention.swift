import CSimulation
import ChatDomain
import GRDB

/// Deletion by age, and a wall clock that steps.
final class Retention: Part {
    private unowned let world: World
    /// The wall clock right after each step.
    private var steps: [(moment: Moment, wall: Timestamp)] = []
    /// The newest time before which rows may have been deleted.
    private var deletedBefore: Timestamp?

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        if choices.dice.chance(30) {
            choices.add(choices.dice.below(5)) { dice in
                let step = Duration.milliseconds(
                    dice.within(dice.among([-50...50, -60_000...60_000, -600_000...86_400_000])))
                return ("the wall clock steps by \(step)", { self.stepWall(step) })
            }
        }
        if choices.dice.chance(30) {
            choices.add(choices.dice.below(5)) { dice in
                let age = Duration.seconds(dice.within(1...60))
                return ("rows older than \(age) are deleted", { self.delete(age) })
            }
        }
    }

    private func stepWall(_ step: Duration) {
        simulation_step_wall(Int64(step / .nanoseconds(1)))
        steps.append((.now, Timestamp.now()))
    }

    private func delete(_ age: Duration) {
        let ages = RetentionAges(messages: age, queue: age, moderation: age)
        deletedBefore = max(deletedBefore ?? Timestamp.now() - age, Timestamp.now() - age)
        world.calls.insist("deletion of rows older than \(age)") { stores in
            func ids(_ condition: String) async throws -> Set<Int64> {
                try await stores.read { db in
                    Set(try Int64.fetchAll(db, sql: "SELECT message_id FROM push_queue WHERE \(condition)"))
                }
            }
            let pending = try await ids("state = 'pending'")
            _ = try await stores.upkeep.applyRetention(ages)
            return pending.subtracting(try await ids("true"))
        } then: { [self] result in
            deletedBefore = max(deletedBefore ?? Timestamp.now() - age, Timestamp.now() - age)
            switch result {
            case .success(let missing) where missing.isEmpty: break
            case .success(let missing):
                world.violate(.retentionKeepsUnsettledPushes, "\(missing.sorted()) are gone")
            case .failure(let error): world.violate(.callsSucceed, "deletion of old rows: \(error)")
            }
        }
    }

    var lastStep: Moment? { steps.last?.moment }

    /// Whether the wall clock has stepped since a moment.
    func hasStepped(since moment: Moment) -> Bool { steps.contains { $0.moment >= moment } }

    /// Whether rows that were written at some time from a moment on, at this wall clock or after a step, may be gone.
    func mayHaveDeleted(writtenSince moment: Moment, at wall: Timestamp) -> Bool {
        let lowest = steps.filter { $0.moment >= moment }.map(\.wall).reduce(wall, min)
        return deletedBefore.map { lowest <= $0 } ?? false
    }
}
