import ChatDomain
import ChatStore

/// The real queue. Checks each lease, and notes which outcomes are on disk.
final class WatchedQueue: PushQueue, @unchecked Sendable {
    private let queue: SQLitePushQueue
    private let world: World
    private var leased: Set<Int64> = []
    /// Leased pushes, and when the relay asked for them.
    fileprivate private(set) var rows: [Int64: (push: QueuedPush, asked: Moment)] = [:]

    init(_ life: Life) { (queue, world) = (life.stores.queue, life.world) }

    func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        let asked = Moment.now
        return check(try await queue.lease(app: app, lanes: lanes, limit: limit), lanes, limit, asked)
    }

    func lease(
        app: AppName, lanes: [PushLane], limit: Int, passing devices: Set<Address>
    ) async throws(ChatError) -> LeasedPushes {
        let asked = Moment.now
        return check(
            try await queue.lease(app: app, lanes: lanes, limit: limit, passing: devices), lanes, limit, asked)
    }

    private func check(
        _ result: LeasedPushes, _ lanes: [PushLane], _ limit: Int, _ asked: Moment
    ) -> LeasedPushes {
        let pushes = result.pushes
        world.log("lease of \(limit) from \(name(lanes)): \(pushes.map { "\($0.id) \(name([$0.lane]))" })")
        for push in pushes where !leased.insert(push.id).inserted {
            world.violate(.leasedOnce, "push \(push.id) was leased twice")
        }
        let places = pushes.map { (lanes.firstIndex(of: $0.lane) ?? .max, $0.id) }
        for (earlier, later) in zip(places, places.dropFirst()) where earlier >= later {
            world.violate(.orderOfALease, "push \(later.1) follows \(earlier.1) in a lease from \(name(lanes))")
        }
        for push in pushes { rows[push.id] = (push, asked) }
        for part in world.parts { part.leased(pushes, asked: asked) }
        return result
    }

    func isLeased(_ push: Int64) -> Bool { leased.contains(push) }
    func lastLease(of push: Int64) -> Moment? { rows[push]?.asked }

    private func name(_ lanes: [PushLane]) -> String {
        lanes == PushLane.allCases ? "all" : lanes.map { String(describing: $0) }.joined(separator: ", ")
    }

    func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        for range in pushIDs { leased.subtract(range) }
        queue.release(pushIDs, lane: lane, app: app)
    }

    func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes] {
        let ids = settlements.flatMap { Array($0.pushIDs) }
        // The leases end before the call returns.
        let held = leased.intersection(ids)
        leased.subtract(held)
        do throws(ChatError) {
            let settled = try await queue.settle(settlements, app: app)
            world.ledger.recorded(ids)
            world.log("settled \(settlements.map { "\($0.pushIDs) \($0.transition.state)" })")
            return settled
        } catch {
            leased.formUnion(held)
            throw error
        }
    }

    func nextDue(app: AppName) async throws(ChatError) -> Timestamp? { try await queue.nextDue(app: app) }

    func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation) {
        queue.announceArrivals(of: app, to: signal)
    }
}

/// A gateway. Notes the pushes that the relay writes.
struct WatchedGateway: PushGateway {
    private let gateway: any PushGateway
    private let queue: WatchedQueue
    private let world: World

    init(_ gateway: any PushGateway, _ queue: WatchedQueue, _ world: World) {
        (self.gateway, self.queue, self.world) = (gateway, queue, world)
    }

    var format: any PushFormat { gateway.format }
    var openConnections: Int { gateway.openConnections }
    func run() async { await gateway.run() }
    func slot(fresh: Bool) async -> ConnectionSlot? { await gateway.slot(fresh: fresh) }

    func write(_ lease: Lease) {
        for push in lease.pushes {
            if !queue.isLeased(push.id) {
                world.violate(.onlyLeasedPushesAreWritten, "push \(push.id) is written, and is not leased")
            }
            world.ledger.wrote(push.id)
            guard let (row, asked) = queue.rows[push.id] else { continue }
            for part in world.parts { part.sending(row, leased: asked) }
        }
        gateway.write(lease)
    }

    func reports() async -> [DeliveryReport]? { await gateway.reports() }
    func drain() async { await gateway.drain() }
    func finish() async { await gateway.finish() }
}
