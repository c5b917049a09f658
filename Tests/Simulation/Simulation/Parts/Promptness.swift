import CSimulation
import ChatDomain
import GRDB

/// Looks for pushes that are due and stay in the queue, although nothing hinders the relay: its signal was lost.
final class Promptness: Part {
    /// The relay notices a commit of another program within a second.
    private static let limit = Duration.seconds(3)
    /// After a fault of the disk, the relay may wait for its next scan of the whole queue.
    private static let recovery = Duration.seconds(20)

    private unowned let world: World
    private var waitingSince: [Int64: Moment] = [:]
    private var lastHindrance = Moment.now

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        // Browsers' services must not delay each other.
        if choices.dice.chance(world.service is Browsers ? 100 : 50) {
            choices.add("pushes are sent at once") { self.look() }
        }
    }

    private var isHindered: Bool {
        world.relay == nil || !world.service.hasRoom || !world.queueOperator.isSettled
            || world.diskFaults.lastFault.map { .now < $0 + Self.recovery } ?? false
            || world.retention.lastStep.map { .now < $0 + Self.recovery } ?? false
    }

    private func look() {
        simulation_world.run(after: .milliseconds(500)) { self.look() }
        if isHindered { lastHindrance = .now }
        guard Moment.now > lastHindrance + Self.limit, let relay = world.relay else { return waitingSince = [:] }
        let time = Timestamp.now().milliseconds
        relay.call { stores in
            try await stores.read { db in
                try Int64.fetchAll(
                    db,
                    sql: """
                        SELECT message_id FROM push_queue
                        WHERE state = 'pending' AND (not_before IS NULL OR not_before <= ?)
                        """, arguments: [time])
            }
        } then: { result in
            guard case .success(let due) = result, relay === self.world.relay, !self.isHindered else { return }
            self.compare(due, relay)
        }
    }

    private func compare(_ due: [Int64], _ relay: Life) {
        var waiting: [Int64: Moment] = [:]
        for push in due where relay.queue?.isLeased(push) == false {
            let since = max(waitingSince[push] ?? .now, relay.queue?.lastLease(of: push) ?? lastHindrance)
            waiting[push] = since
            guard .now > since + Self.limit else { continue }
            return world.violate(.dueWithoutDelay, "push \(push) waits since \(since), and there is room for it")
        }
        waitingSince = waiting
    }
}
