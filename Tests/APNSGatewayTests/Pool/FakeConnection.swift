import ChatDomain
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import APNSGateway
@testable import GatewayPool

/// A connection whose properties a test sets. A lease that the test did not allow fails the test.
final class FakeConnection: PooledConnection {
    struct Properties: Sendable {
        var slot: ConnectionSlot?
        var isReplaceable = false
        var isSaturated = false
        var isBlocked = false
        var result: ConnectionResult?
        var takesLeases = false
        /// Whether a drain does not end.
        var keepsDraining = false
    }

    let id: ConnectionID
    private let properties: Mutex<Properties>
    private let leased = Mutex<[Lease]>([])
    private let retirement = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: Void.self)
    private let closing = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: Void.self)

    init(_ id: ConnectionID, _ properties: Properties = Properties()) {
        self.id = id
        self.properties = Mutex(properties)
    }

    convenience init(_ number: Int64, _ properties: Properties = Properties()) {
        self.init(ConnectionID(number), properties)
    }

    deinit {
        close()
    }

    var slot: ConnectionSlot? { properties.withLock { $0.slot } }
    var isReplaceable: Bool { properties.withLock { $0.isReplaceable } }
    var isSaturated: Bool { properties.withLock { $0.isSaturated } }
    var isBlocked: Bool { properties.withLock { $0.isBlocked } }
    var leases: [Lease] { leased.withLock { $0 } }

    func change(_ change: (inout Properties) -> Void) {
        properties.withLock { change(&$0) }
    }

    /// Offers a slot.
    func offer(capacity: Int = 100, isFresh: Bool = true) {
        change { $0.slot = ConnectionSlot(connection: id, firstIdentifier: 1, capacity: capacity, isFresh: isFresh) }
    }

    func retire() { retirement.succeed() }

    func close() {
        retire()
        closing.succeed()
    }

    func write(_ lease: Lease, now: Timestamp) {
        if !properties.withLock({ $0.takesLeases }) { Issue.record("connection \(id) got a lease") }
        leased.withLock { $0.append(lease) }
    }

    func drain() { if !properties.withLock({ $0.keepsDraining }) { close() } }

    func retired() async {
        try? await retirement.futureResult.get()
    }

    func closed() async {
        try? await closing.futureResult.get()
    }

    func result() async -> ConnectionResult {
        if let result = properties.withLock({ $0.result }) { return result }
        Issue.record("connection \(id) was asked for its result")
        return .nothing
    }
}
