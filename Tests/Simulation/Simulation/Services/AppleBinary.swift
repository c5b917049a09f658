import CSimulation
import ChatDomain
import NIOCore
import PushWire
import ServiceLifecycle

@testable import APNSGateway
@testable import GatewayPool

/// Apple's binary gateway and its imitations: silent acceptance, error responses, the resume rule, and sentinels that
/// are answered or not (docs/binary-gateway.md).
final class AppleBinary: PushService {
    /// The reaction of a gateway to a notification that is invalid on purpose.
    fileprivate enum Sentinels: CaseIterable {
        case answer, answerWithoutIdentifier, answerAsAnotherError, close, ignore
    }

    private static let finalStatuses: [BinaryStatus] = [
        .invalidPayloadSize, .invalidToken, .protocolError, .missingPayload, .missingTopic, BinaryStatus(rawValue: 77),
    ]

    unowned let world: World
    private(set) lazy var format: any PushFormat = MarkedFormat(APNSFormat(.binary, payloadLimit: 2048), pushes)
    fileprivate let pushes: WrittenPushes
    private var network: Network!
    private lazy var feedback = AppleFeedback(world) { [unowned self] token in !rejected.contains(token) }
    private(set) var reload: (() -> Void)?
    let silentUpdates: Set<AlertUpdate> = []
    private let ids = ConnectionIDs()
    private var connections: [Connection] = []

    private var command = BinaryCommand.framed
    private var settleTime = Duration.seconds(5)
    private var connectionCount = 2
    fileprivate var sentinels = Sentinels.answer
    /// The longest time from the arrival of a push to its response. It is shorter than the settle time, with room for
    /// the network.
    fileprivate var slowness = Duration.milliseconds(10)
    /// Percents of the batches for which the gateway takes longer than the settle time.
    fileprivate var lateness = 0
    /// Percents of the batches after which the gateway stops reading for good.
    fileprivate var stalls = 0
    /// Permilles of the pushes with which something happens.
    fileprivate var temporaryFailures = 0
    fileprivate var shutdowns = 0
    fileprivate var closes = 0
    fileprivate var unnamedErrors = 0
    /// The number of pushes among which one is bad, or makes the gateway close. 0: none.
    private var badPushes = 0
    private var poisons = 0
    private var badDevices = 0
    /// The number of notifications after which the gateway closes, on each connection or over all.
    fileprivate var connectionLength = Int.max
    fileprivate var interval = Int.max
    fileprivate var count = 0
    /// The tokens that the gateway has rejected. The fifth time, the relay deactivates the device.
    private var rejected: Set<String> = []
    /// Pushes that the gateway discarded after its silence had counted as acceptance.
    fileprivate var discardedLate: Set<Int64> = []

    init(_ world: World) {
        self.world = world
        pushes = WrittenPushes(world)
        network = Network(world, protocolName: nil) { [unowned self] link in
            let connection = Connection(self, link)
            connections.append(connection)
            return connection
        }
    }

    func plan(_ choices: Choices) {
        network.plan(choices)
        let dice = choices.dice
        let command = dice.among([BinaryCommand.simple, .enhanced])
        if dice.chance(15) { choices.add("command \(command.rawValue)") { self.command = command } }
        let sentinels = dice.among(Sentinels.allCases)
        if dice.chance(50) { choices.add("sentinels: \(sentinels)") { self.sentinels = sentinels } }
        choices.maybe(50, 1...4, { "\($0) connections" }, { self.connectionCount = $0 })
        choices.maybe(30, 1500...4000, { "settle \($0) ms" }, { self.settleTime = .milliseconds($0) })
        choices.maybe(40, 1...400, { "responses take up to \($0) ms" }, { self.slowness = .milliseconds($0) })
        choices.maybe(10, 1...30, { "\($0) % of batches are late" }, { self.lateness = $0 })
        choices.maybe(10, 1...10, { "stops reading after \($0) % of batches" }, { self.stalls = $0 })
        choices.maybe(30, 1...50, { "\($0) ‰ of temporary failures" }, { self.temporaryFailures = $0 })
        choices.maybe(30, 1...50, { "shutdown after \($0) ‰" }, { self.shutdowns = $0 })
        choices.maybe(20, 1...30, { "close after \($0) ‰" }, { self.closes = $0 })
        choices.maybe(10, 1...20, { "error without a name after \($0) ‰" }, { self.unnamedErrors = $0 })
        choices.maybe(30, 3...50, { "1 of \($0) pushes is bad" }, { self.badPushes = $0 })
        choices.maybe(15, 20...200, { "1 of \($0) pushes makes the gateway close" }, { self.poisons = $0 })
        choices.maybe(15, 3...20, { "1 of \($0) devices is bad" }, { self.badDevices = $0 })
        choices.maybe(15, 1...300, { "close after \($0) notifications" }, { self.connectionLength = $0 })
        choices.maybe(10, 1...300, { "close after \($0) notifications of all connections" }, { self.interval = $0 })
        feedback.plan(choices)
    }

    func gateway(for life: Life) throws -> any PushGateway {
        let endpoint = try GatewayEndpoint(host: "gateway.push.apple.com", port: 2195, trust: nil)
        var options = BinaryGateway.Options(connections: connectionCount, command: command, settleTime: settleTime)
        options.connector = network.connector()
        let gateway = BinaryGateway(
            endpoint: endpoint, options: options, connectionIDs: ids, logger: Life.logger(world))
        reload = { gateway.reconfigure(endpoint: endpoint) }
        return NotedGateway(gateway, format, pushes)
    }

    func readers(for life: Life) -> [any Service] { feedback.readers(for: life) }

    func relayDied() {
        for connection in connections { connection.relayDied() }
        connections = []
        reload = nil
        network.relayDied()
        feedback.relayDied()
        // The relay had read in a late response that these are to be sent again, and may not have recorded it.
        for push in discardedLate.sorted() { excuse(push) }
    }

    func calmDown() {
        network.calmDown()
        feedback.calmDown()
        (lateness, stalls, temporaryFailures, shutdowns, closes, unnamedErrors) = (0, 0, 0, 0, 0, 0)
        (connectionLength, interval, poisons) = (.max, .max, 0)
        if command == .simple { (badPushes, badDevices) = (0, 0) }
    }

    var isSettled: Bool { feedback.isSettled }

    func check(_ rows: StoredRows) {
        feedback.check(rows)
        for connection in connections { connection.simulationEnds() }
    }

    func permits(_ push: StoredRows.Push) -> Bool { pushes.permits(push) }

    // MARK: - The pushes

    private func isOneOf(_ count: Int, _ id: Int64) -> Bool { count > 0 && Int(id) % count == 1 }
    private func isBad(_ id: Int64) -> Bool { isOneOf(badPushes, id) }
    func isGone(_ token: String) -> Bool {
        badDevices > 0 && token.utf8.reduce(0) { ($0 * 31 + Int($1)) % 1_000_003 } % badDevices == 0
    }
    fileprivate func isPoison(_ id: Int64) -> Bool { isOneOf(poisons, id) }

    /// The status with which the gateway always rejects a push.
    fileprivate func finalStatus(_ id: Int64, _ token: String) -> BinaryStatus? {
        guard isGone(token) || isBad(id) else { return nil }
        let status = isGone(token) ? .invalidToken : Self.finalStatuses[Int(id) / badPushes % Self.finalStatuses.count]
        if status == .invalidToken {
            rejected.insert(token)
            world.ledger.unregistered.insert(token)
        }
        return status
    }

    /// The protocol cannot tell the relay that a gateway discards a push after a long silence.
    fileprivate func excuse(_ push: Int64) {
        discardedLate.remove(push)
        guard world.ledger.fate(of: push).accepted == 0 else { return }
        world.log("push \(push) was discarded late")
        world.ledger.accepted(push)
        world.ledger.doubted(push)
    }
}

/// The gateway's side of a connection.
private final class Connection: Peer {
    private enum Notification {
        case push(Int64, token: String, identifier: UInt32?)
        case sentinel(UInt32?)
    }

    private let service: AppleBinary
    private let link: Link
    private let dice: Dice
    private var parser = BinaryNotificationParser()
    private var isMalformed = false
    /// Notifications that were read, and not processed yet.
    private var waiting: [Notification] = []
    private var willProcess = false
    private var accepted: [Int64] = []
    private var lastAccepted: UInt32?
    private var count = 0
    private var isOver = false
    /// Whether the relay knows, from a response or as nothing was accepted, what has become of the pushes.
    private var isResolved = false
    private var relayHasClosed = false
    /// Whether the gateway takes longer than the settle time.
    private var isLate = false

    init(_ service: AppleBinary, _ link: Link) { (self.service, self.link, dice) = (service, link, service.world.dice) }

    private var world: World { service.world }

    // MARK: From the relay

    func connected() {}

    func received(_ bytes: ByteBuffer) {
        guard !isOver else { return }
        read(bytes)
        if dice.chance(service.stalls) {
            world.log("\(link): the gateway stops reading")
            link.isReading = false
            isLate = true
            return
        }
        processSoon()
    }

    private func read(_ bytes: ByteBuffer) {
        var bytes = bytes
        parser.append(&bytes)
        guard !isMalformed else { return }
        do {
            while let notification = try parser.next() {
                guard let (id, token) = service.pushes.push(Array(buffer: notification.payload)) else {
                    return world.violate(.theServiceGetsWhatIsQueued, "\(link): an unknown push")
                }
                waiting.append(.push(id, token: token, identifier: notification.identifier))
            }
        } catch {
            isMalformed = true
            guard error.status == .missingDeviceToken else {
                return world.violate(.theServiceGetsWhatIsQueued, "\(link): \(error)")
            }
            waiting.append(.sentinel(error.identifier))
        }
    }

    private func processSoon() {
        guard !willProcess, !waiting.isEmpty, link.isReading else { return }
        willProcess = true
        var delay = dice.within(.zero...service.slowness)
        if dice.chance(service.lateness) {
            isLate = true
            delay = dice.within(.seconds(1)...(.seconds(20)))
        }
        simulation_world.run(after: delay) {
            self.willProcess = false
            self.process()
        }
    }

    private func process() {
        while !isOver, !waiting.isEmpty {
            switch waiting.removeFirst() {
            case .push(let id, let token, let identifier): process(id, token, identifier)
            case .sentinel(let identifier): process(sentinel: identifier)
            }
        }
    }

    private func process(_ id: Int64, _ token: String, _ identifier: UInt32?) {
        count += 1
        service.count += 1
        if service.isPoison(id) { return end([id]) }
        if let status = service.finalStatus(id, token) {
            world.ledger.rejected(id, status.name)
            return respond(status, identifier, discarding: [id])
        }
        switch dice.below(1000) {
        case 0..<service.temporaryFailures:
            return respond(dice.among([.processingError, .unknown]), identifier, discarding: [id])
        case service.temporaryFailures..<service.temporaryFailures + service.unnamedErrors:
            return respond(.processingError, 0, discarding: [id])
        default: break
        }
        if accepted.isEmpty, dice.below(1000) < service.shutdowns { return respond(.shutdown, 0, discarding: [id]) }
        accept(id, identifier)
        let isLast = count >= service.connectionLength || service.count % service.interval == 0
        if isLast || dice.below(1000) < service.closes { return end() }
        if dice.below(1000) < service.shutdowns { respond(dice.among([.shutdown, .noErrors]), identifier) }
    }

    private func process(sentinel identifier: UInt32?) {
        switch service.sentinels {
        case .answer: respond(.missingDeviceToken, identifier)
        case .answerWithoutIdentifier: respond(.missingDeviceToken, 0)
        case .answerAsAnotherError: respond(.processingError, 0)
        case .close: end()
        case .ignore: break
        }
    }

    private func accept(_ id: Int64, _ identifier: UInt32?) {
        world.log("\(link): push \(id) is accepted")
        accepted.append(id)
        lastAccepted = identifier
        world.ledger.accepted(id)
        // The relay cannot know it any more.
        if relayHasClosed, !isResolved { world.ledger.doubted(id) }
    }

    // MARK: To the relay

    /// Responds to a notification, discards all later ones, and closes.
    private func respond(_ status: BinaryStatus, _ identifier: UInt32?, discarding ids: [Int64] = []) {
        // Without an identifier, the gateway cannot name the notification.
        guard let identifier else { return end(ids) }
        world.log("\(link): \(status.name) for \(identifier)")
        var packet = ByteBuffer()
        BinaryErrorResponse(status: status, identifier: identifier).write(to: &packet)
        let names = identifier > 0 || status == .missingDeviceToken
        let discarded = ids + unprocessed()
        link.send(packet) { [self] wasRead in
            if wasRead, names {
                isResolved = true
                if isLate { service.discardedLate.formUnion(discarded) }
            } else if isLate || link.hasVanished {
                discarded.forEach(service.excuse)
            }
        }
        isOver = true
        waiting = []
        // Bytes that still arrive are discarded.
        simulation_world.run(after: dice.within(.zero...(.milliseconds(100)))) { self.link.close() }
    }

    /// Closes without a response.
    private func end(_ ids: [Int64] = []) {
        guard !isOver else { return }
        isOver = true
        if isLate { (ids + unprocessed()).forEach(service.excuse) }
        waiting = []
        if dice.chance(50) { link.close() } else { link.reset() }
    }

    private func unprocessed() -> [Int64] {
        waiting.compactMap { if case .push(let id, _, _) = $0 { id } else { nil } }
    }

    func relayCloses() {
        relayHasClosed = true
        guard !isResolved else { return }
        for id in accepted where world.ledger.fate(of: id).isOpen { world.ledger.doubted(id) }
    }

    /// A gateway that has stopped reading never accepts what the relay could only take for accepted.
    func simulationEnds() { if isLate, !isOver { abandon() } }

    func relayDied() {
        // The ledger counts the doubts of a death.
        isResolved = true
        if isLate { abandon() }
    }

    func ended() {
        // The gateway processes what it has received completely.
        if isLate || link.hasVanished { abandon() } else { process() }
        isOver = true
    }

    private func abandon() {
        isOver = true
        read(link.takeUnread())
        unprocessed().forEach(service.excuse)
        waiting = []
    }
}
