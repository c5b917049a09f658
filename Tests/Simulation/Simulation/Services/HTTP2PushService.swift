import CSimulation
import ChatDomain
import GatewayPool
import Logging
import NIOCore

/// The responses of a push service.
struct ServiceDialect {
    typealias Response = (status: Int, reason: String)

    let format: any PushFormat
    /// Final rejections of single pushes.
    let final: [Response]
    let temporary: [Response]
    /// Responses that send a push back without having processed it.
    let returns: [Response]
    let credentials: [Response]
    /// The device is gone.
    let gone: Response
    /// Returns a body with a reason.
    let body: (_ reason: String) -> String
    /// Returns the form of an address that the format requires.
    var address: @Sendable (Address) -> Address = { $0 }
    /// Returns the reason that the relay records.
    var recorded: (Response) -> String = { $0.reason }
}

/// A push service over HTTP/2: rejects, sends back, goes away, resets, closes, stays silent and falls ill, each in a
/// part of the seeds. Subclasses know its requests.
class HTTP2PushService: PushService, HTTP2PeerOwner {
    unowned let world: World
    let dialect: ServiceDialect
    let pushes: WrittenPushes
    private(set) var network: Network!
    let ids = ConnectionIDs()
    private(set) var peers: [HTTP2Peer] = []
    private(set) lazy var format: any PushFormat = MarkedFormat(dialect.format, pushes, address: dialect.address)

    private var slowness = Duration.milliseconds(60)
    private var streams = 100
    /// Percents of the responses.
    private var temporaryFailures = 0
    private var returns = 0
    private var resets = 0
    private var cutResponses = 0
    private var refusedCredentials = 0
    private var silences = 0
    /// Permilles of the requests after which something happens to the connection.
    private var farewells = 0
    private var closes = 0
    private var violations = 0
    private var limitChanges = 0
    /// The number of pushes among which one is bad, or makes the server close its connection. 0: none.
    private var badPushes = 0
    private var poisons = 0
    /// The number of devices among which one has unregistered.
    private var goneDevices = 0
    /// Servers that respond with errors only, and those that do not respond.
    private var sickConnections = 0
    private var deafConnections = 0
    private var sick: Set<ObjectIdentifier> = []
    private var deaf: Set<ObjectIdentifier> = []

    required convenience init(_ world: World) { fatalError("A service has a dialect.") }

    init(_ world: World, _ dialect: ServiceDialect) {
        (self.world, self.dialect) = (world, dialect)
        pushes = WrittenPushes(world)
        network = Network(world, protocolName: GatewayEndpoint.http2) { [unowned self] in accept($0) }
    }

    func plan(_ choices: Choices) {
        network.plan(choices)
        choices.maybe(40, 1...5000, { "responses take up to \($0) ms" }, { self.slowness = .milliseconds($0) })
        choices.maybe(50, 1...300, { "\($0) streams" }, { self.streams = $0 })
        choices.maybe(30, 1...50, { "\($0) % of temporary failures" }, { self.temporaryFailures = $0 })
        choices.maybe(20, 1...30, { "\($0) % are sent back" }, { self.returns = $0 })
        choices.maybe(20, 1...20, { "\($0) % of streams are reset" }, { self.resets = $0 })
        choices.maybe(10, 1...10, { "\($0) % of responses are cut" }, { self.cutResponses = $0 })
        choices.maybe(10, 1...20, { "\($0) % get no response" }, { self.silences = $0 })
        choices.maybe(10, 1...30, { "\($0) % of the credentials are refused" }, { self.refusedCredentials = $0 })
        choices.maybe(30, 1...50, { "GOAWAY after \($0) ‰ of requests" }, { self.farewells = $0 })
        choices.maybe(20, 1...50, { "close after \($0) ‰ of requests" }, { self.closes = $0 })
        choices.maybe(10, 1...20, { "violation after \($0) ‰ of requests" }, { self.violations = $0 })
        choices.maybe(20, 1...50, { "another limit after \($0) ‰ of requests" }, { self.limitChanges = $0 })
        choices.maybe(30, 3...30, { "1 of \($0) pushes is bad" }, { self.badPushes = $0 })
        choices.maybe(15, 20...200, { "1 of \($0) pushes makes the server close" }, { self.poisons = $0 })
        choices.maybe(15, 3...20, { "1 of \($0) devices has unregistered" }, { self.goneDevices = $0 })
        choices.maybe(15, 1...50, { "\($0) % of the servers are sick" }, { self.sickConnections = $0 })
        choices.maybe(15, 1...50, { "\($0) % of the servers are deaf" }, { self.deafConnections = $0 })
    }

    func begin() {}

    func gateway(for life: Life) throws -> any PushGateway {
        NotedGateway(try gateway(for: life, over: network.connector(), logger: Life.logger(world)), format, pushes)
    }

    // MARK: - For subclasses

    func gateway(for life: Life, over connector: any Connector, logger: Logger) throws -> any PushGateway {
        fatalError("not overridden")
    }
    /// Returns the payload of a request. `nil` if it cannot be read.
    func payload(of request: HTTP2PeerRequest) -> [UInt8]? { fatalError("not overridden") }

    /// Returns the response to a request whose credentials are not accepted now. `nil` if they are.
    func refusal(of request: HTTP2PeerRequest) -> ServiceDialect.Response? { nil }
    /// Whether a server responds to no request now.
    func isSilent(_ peer: HTTP2Peer) -> Bool { false }
    var hasRoom: Bool { false }
    func subscription(_ token: DeviceToken) -> Subscription? { nil }
    var silentUpdates: Set<AlertUpdate> { [.replace, .remove] }
    var reload: (() -> Void)?

    // MARK: - Connections

    private func accept(_ link: Link) -> any Peer {
        let peer = HTTP2Peer(link, streams: streams, owner: self)
        if world.dice.chance(sickConnections) { sick.insert(ObjectIdentifier(peer)) }
        if world.dice.chance(deafConnections) { deaf.insert(ObjectIdentifier(peer)) }
        // Kept, so that another peer never gets the same identifier.
        peers.append(peer)
        return peer
    }

    // MARK: - Requests

    func received(_ request: HTTP2PeerRequest, from peer: HTTP2Peer) {
        guard let id = push(request) else { return }
        world.log("\(peer.link): request \(request.stream) for push \(id)")
        if isOneOf(poisons, id) { return close(peer) }
        if world.dice.below(1000) < farewells, !peer.isGoingAway { goAway(peer) }
        if world.dice.below(1000) < closes { return close(peer) }
        if world.dice.below(1000) < violations { return peer.violate() }
        if world.dice.below(1000) < limitChanges { peer.limit(world.dice.among([0, 1, 5, streams])) }
        guard !deaf.contains(ObjectIdentifier(peer)), !isSilent(peer), !world.dice.chance(silences) else { return }
        simulation_world.run(after: world.dice.within(.zero...slowness)) {
            guard peer.link.isOpen, peer.open[request.stream] === request else { return }
            self.respond(to: request, id, peer)
        }
    }

    private func close(_ peer: HTTP2Peer) {
        if world.dice.chance(50) { peer.link.close() } else { peer.link.reset() }
        peer.ended()
    }

    private func goAway(_ peer: HTTP2Peer) {
        peer.goAway(after: peer.possibleEnd, debugData: world.dice.among(["", dialect.body("Shutdown")]))
        guard world.dice.chance(50) else { return }
        simulation_world.run(after: world.dice.within(.zero...(.seconds(3)))) {
            if peer.link.isOpen { self.close(peer) }
        }
    }

    private func respond(to request: HTTP2PeerRequest, _ id: Int64, _ peer: HTTP2Peer) {
        func refuse(_ response: ServiceDialect.Response, _ headers: [(String, String)] = []) {
            world.log("push \(id): \(response)")
            let body = response.reason.isEmpty ? "" : dialect.body(response.reason)
            peer.respond(request, response.status, headers, body: body)
        }
        func reject(_ response: ServiceDialect.Response) {
            world.ledger.rejected(id, dialect.recorded(response))
            refuse(response)
        }
        let dice = world.dice
        if sick.contains(ObjectIdentifier(peer)) { return refuse(dialect.temporary[0]) }
        if let refusal = refusal(of: request) {
            world.expectErrors(for: .zero)
            return refuse(refusal)
        }
        if dice.chance(resets) {
            let isRefused = dice.chance(50)
            if !isRefused { abandoned(request, by: peer) }
            return peer.reset(request, code: isRefused ? 7 : 2)
        }
        if dice.chance(returns) { return refuse(dice.among(dialect.returns)) }
        if dice.chance(temporaryFailures) {
            return refuse(
                dice.among(dialect.temporary), dice.chance(20) ? [("retry-after", "\(dice.below(100))")] : [])
        }
        if dice.chance(refusedCredentials) {
            world.expectErrors(for: .zero)
            return refuse(dice.among(dialect.credentials))
        }
        if isGone(request.token) {
            world.ledger.unregistered.insert(request.token)
            return reject(dialect.gone)
        }
        if isOneOf(badPushes, id) { return reject(dialect.final[Int(id) / badPushes % dialect.final.count]) }
        accept(request, id)
        peer.respond(request, 200) { wasRead in if !wasRead { self.doubt(request, id, peer) } }
        if dice.chance(cutResponses) { close(peer) }
    }

    private func accept(_ request: HTTP2PeerRequest, _ id: Int64) {
        world.log("push \(id) is accepted")
        request.isAccepted = true
        world.ledger.accepted(id)
    }

    /// The relay cannot know that the push was accepted.
    private func doubt(_ request: HTTP2PeerRequest, _ id: Int64, _ peer: HTTP2Peer) {
        guard !request.isInDoubt else { return }
        request.isInDoubt = true
        world.log("push \(id) is in doubt")
        world.ledger.doubted(id, afterDeath: peer.link.isRelayDead)
    }

    func abandoned(_ request: HTTP2PeerRequest, by peer: HTTP2Peer) {
        guard let id = push(request) else { return }
        if request.isAccepted { return doubt(request, id, peer) }
        guard !isOneOf(badPushes, id), !isOneOf(poisons, id), !isGone(request.token), world.dice.chance(50) else {
            return
        }
        accept(request, id)
        doubt(request, id, peer)
    }

    // MARK: - The pushes

    private func push(_ request: HTTP2PeerRequest) -> Int64? {
        guard request.isComplete else { return nil }
        if let push = request.push { return push }
        guard let (id, token) = payload(of: request).flatMap(pushes.push) else {
            world.violate(.theServiceGetsWhatIsQueued, "an unknown push: \(request.headers)")
            return nil
        }
        (request.push, request.token) = (id, token)
        if let apnsID = request.headers.first(name: "apns-id"), !pushes.isKnown(id, apnsID: apnsID) {
            world.violate(.theSameIDAtEachAttempt, "push \(id) has the id of another")
        }
        return id
    }

    private func isOneOf(_ count: Int, _ id: Int64) -> Bool { count > 0 && Int(id) % count == 1 }
    private func isGone(_ token: String) -> Bool {
        goneDevices > 0 && token.utf8.reduce(0) { ($0 * 31 + Int($1)) % 1_000_003 } % goneDevices == 0
    }

    // MARK: - The relay and the end

    func relayDied() {
        reload = nil
        network.relayDied()
    }

    func calmDown() {
        network.calmDown()
        (temporaryFailures, returns, resets, cutResponses, refusedCredentials, silences) = (0, 0, 0, 0, 0, 0)
        (farewells, closes, violations, limitChanges, sickConnections, deafConnections) = (0, 0, 0, 0, 0, 0)
        // Nothing shows that such a push is the cause while no other is accepted.
        poisons = 0
        for peer in peers where peer.link.isOpen { peer.limit(streams) }
    }

    func permits(_ push: StoredRows.Push) -> Bool { pushes.permits(push) }

    func check(_ rows: StoredRows) {
        for push in rows.pushes where push.state == "sent" && isOneOf(badPushes, push.id) {
            world.violate(.oneBadPushFailsAlone, "push \(push.id) is sent, and its service always rejects it")
        }
    }
}
