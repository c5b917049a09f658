import APNSGateway
import ChatDomain
import Synchronization

@testable import ChatDispatch

/// The part of a dispatcher between the queue and a gateway.
final class DispatchFixture: Sendable {
    let queue: any PushQueue
    private let now: @Sendable () -> Timestamp
    private let inFlight: Mutex<InFlightPushes>

    /// The result of a lease.
    struct Result {
        var pushes: [Push] = []
        var isProbe = false
        var needsFreshConnection = false
        /// Pushes that are not sent.
        var refused: [Settlement] = []

        var reasons: [String] { refused.map { $0.transition.reason ?? "" } }
    }

    init(_ queue: any PushQueue, now: @escaping @Sendable () -> Timestamp) {
        self.queue = queue
        self.now = now
        inFlight = Mutex(InFlightPushes(PushLifeCycle(.init(retry: RetryPolicy(attempts: 10)))))
    }

    func lease(_ slot: ConnectionSlot, _ kind: APNSFormat.Kind = .binary) async throws -> Result {
        let format = APNSFormat(kind, payloadLimit: kind == .binary ? 2048 : 4096)
        let now = now()
        while true {
            let (lanes, limit, servesSingleLane) = inFlight.withLock {
                ($0.lanes, $0.limit(for: slot), $0.servesSingleLane)
            }
            let leased = try await queue.lease(app: .default, lanes: lanes, limit: limit)
            if leased.pushes.isEmpty {
                guard servesSingleLane else { return Result() }
                inFlight.withLock { $0.endTurn() }
                continue
            }
            let admission = inFlight.withLock { $0.admit(leased, to: slot, format: format, at: now) }
            for (lane, ids) in admission.released {
                queue.release(ids.ranges, lane: lane, app: .default)
            }
            _ = try await queue.settle(admission.settlements, app: .default)
            return Result(
                pushes: admission.lease.pushes, isProbe: admission.lease.isProbe,
                needsFreshConnection: inFlight.withLock { $0.needsFreshConnection }, refused: admission.settlements)
        }
    }

    @discardableResult
    func settle(_ reports: [DeliveryReport]) async throws -> [SettledPushes] {
        let now = now()
        let conclusion = inFlight.withLock { $0.conclude(reports, at: now) }
        for (lane, ids) in conclusion.released { queue.release(ids.ranges, lane: lane, app: .default) }
        return try await queue.settle(conclusion.batches.joined().map(\.settlement), app: .default)
    }
}
