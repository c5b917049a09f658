import APNSGateway
import CSimulation
import ChatDomain

/// A push service without bytes: its responses are late, out of order, refusals, or lost with their connection.
final class ScriptedService: PushService {
    private final class Connection {
        let id: ConnectionID
        var next: UInt32 = 1
        var open: [UInt32: Int64] = [:]
        var isProbing = false

        init(_ id: ConnectionID) { self.id = id }
    }

    /// The service as a life of the relay reaches it.
    private final class Gateway: PushGateway, @unchecked Sendable {
        let format: any PushFormat
        let buffer = ReportBuffer()
        var connections: [Connection] = []
        var waiting: [(fresh: Bool, continuation: CheckedContinuation<ConnectionSlot?, Never>)] = []
        private var isDraining = false
        private var ended: AsyncStream<Never>.Continuation?
        private unowned let service: ScriptedService

        init(_ service: ScriptedService) {
            (self.service, format) = (service, service.format)
            for _ in 0..<2 { connect() }
        }

        func connect() { connections.append(Connection(service.ids.next())) }

        var openConnections: Int { connections.count }
        func run() async {
            let end = AsyncStream.makeStream(of: Never.self)
            ended = end.continuation
            for await _ in end.stream {}
        }

        func slot(fresh: Bool) async -> ConnectionSlot? {
            if isDraining { return nil }
            if let slot = freeSlot(fresh) { return slot }
            return await withCheckedContinuation { waiting.append((fresh, $0)) }
        }

        private func freeSlot(_ fresh: Bool) -> ConnectionSlot? {
            let limit = 50
            let free = connections.first { !$0.isProbing && $0.open.count < limit && (!fresh || $0.open.isEmpty) }
            return free.map { connection in
                ConnectionSlot(
                    connection: connection.id, firstIdentifier: connection.next,
                    capacity: limit - connection.open.count, isFresh: connection.open.isEmpty, answersEach: true)
            }
        }

        /// Gives a free slot to the dispatcher if it waits for one. Only its write takes the slot.
        func serve() {
            guard let index = waiting.indices.first(where: { freeSlot(waiting[$0].fresh) != nil }) else { return }
            let (fresh, continuation) = waiting.remove(at: index)
            continuation.resume(returning: freeSlot(fresh))
        }

        func write(_ lease: Lease) {
            guard let connection = connections.first(where: { $0.id == lease.slot.connection }) else {
                buffer.put(lease.pushes.map { ($0.identifier, .notProcessed) }, on: lease.slot.connection)
                return
            }
            connection.isProbing = lease.isProbe
            for push in lease.pushes {
                connection.next = push.identifier + 1
                connection.open[push.identifier] = push.id
                let delay = service.world.dice.within(.milliseconds(1)...service.slowness)
                simulation_world.run(after: delay) { [service] in service.respond(self, connection, push) }
            }
            serve()
        }

        func reports() async -> [DeliveryReport]? { await buffer.take() }

        func drain() async {
            isDraining = true
            for (_, continuation) in waiting { continuation.resume(returning: nil) }
            waiting = []
            // The port asks for a bounded time.
            for _ in 0..<50 where connections.contains(where: { !$0.open.isEmpty }) {
                try? await Task.sleep(for: .milliseconds(100))
            }
            while !connections.isEmpty { service.lose(connections.removeLast(), of: self) }
            ended?.finish()
        }

        func finish() async { buffer.close() }
    }

    let format: any PushFormat = APNSFormat(.http2, payloadLimit: 4096)
    private unowned let world: World
    private let ids = ConnectionIDs()
    private var gateway: Gateway?
    private var slowness = Duration.milliseconds(60)
    /// Percents of the responses.
    private var refusals = 0
    private var returns = 0
    private var rejections = 0
    private var unregistrations = 0

    init(_ world: World) { self.world = world }

    func plan(_ choices: Choices) {
        let dice = choices.dice
        let (slowness, refusals, returns) = (dice.within(1...5000), dice.below(30), dice.below(30))
        if dice.chance(30) {
            choices.add("the service takes \(slowness) ms") { self.slowness = .milliseconds(slowness) }
        }
        if dice.chance(30) { choices.add("the service refuses \(refusals) %") { self.refusals = refusals } }
        if dice.chance(30) { choices.add("the service sends \(returns) % back") { self.returns = returns } }
        let (rejections, unregistrations) = (dice.below(20), dice.below(10))
        if dice.chance(30) { choices.add("the service rejects \(rejections) %") { self.rejections = rejections } }
        if dice.chance(20) {
            choices.add("the service reports \(unregistrations) % as gone") { self.unregistrations = unregistrations }
        }
        if dice.chance(50) {
            choices.add(dice.below(20)) { _ in ("a connection is lost", { self.loseConnection() }) }
        }
    }

    func gateway(for life: Life) -> any PushGateway {
        let gateway = Gateway(self)
        self.gateway = gateway
        return gateway
    }

    private func respond(_ gateway: Gateway, _ connection: Connection, _ push: Push) {
        guard gateway === self.gateway, connection.open.removeValue(forKey: push.identifier) != nil else { return }
        let outcome: Outcome
        let number = world.dice.below(100)
        if number < refusals {
            outcome = .retry(reason: "InternalServerError")
        } else if number < refusals + returns {
            outcome = .sentBack(reason: "Shutdown")
        } else if number < refusals + returns + rejections {
            outcome = .rejected(reason: "BadTopic")
            world.ledger.rejected(push.id, "BadTopic")
        } else if number < refusals + returns + rejections + unregistrations {
            outcome = .unregistered(since: Timestamp.now(), reason: "Unregistered")
            world.ledger.rejected(push.id, "Unregistered")
            world.ledger.unregistered.insert(push.address.description)
        } else {
            outcome = .accepted
            world.ledger.accepted(push.id)
        }
        world.log("push \(push.id): \(outcome)")
        if connection.open.isEmpty { connection.isProbing = false }
        gateway.buffer.put([(push.identifier, outcome)], on: connection.id)
        gateway.serve()
    }

    private func loseConnection() {
        guard let gateway, !gateway.connections.isEmpty else { return }
        lose(gateway.connections.remove(at: world.dice.below(gateway.connections.count)), of: gateway)
        simulation_world.run(after: world.dice.within(.zero...(.seconds(3)))) {
            guard gateway === self.gateway else { return }
            gateway.connect()
            gateway.serve()
        }
    }

    private func lose(_ connection: Connection, of gateway: Gateway) {
        for push in accepted(connection) { world.ledger.doubted(push) }
        world.log("connection \(connection.id) is lost with \(connection.open.count) pushes")
        let identifiers = connection.open.keys.sorted()
        gateway.buffer.put(identifiers.map { ($0, .unanswered(reason: "ConnectionLost")) }, on: connection.id)
        connection.open = [:]
    }

    /// Accepts some of the pushes whose responses will not arrive.
    private func accepted(_ connection: Connection) -> [Int64] {
        let open = connection.open.values.sorted()
        for push in open where world.dice.chance(50) { world.ledger.accepted(push) }
        return open
    }

    func relayDied() {
        for connection in gateway?.connections ?? [] { _ = accepted(connection) }
        gateway = nil
    }

    var hasRoom: Bool { gateway?.connections.contains { $0.open.isEmpty && !$0.isProbing } ?? false }

    func calmDown() { (refusals, returns, rejections, unregistrations) = (0, 0, 0, 0) }

    func permits(_ push: StoredRows.Push) -> Bool { world.ledger.isGone(push) }
}
