import CSimulation
import ChatDomain
import Crypto
import Logging
import NIOCore
import PushWire

@testable import GatewayPool
@testable import WebPushGateway

/// The push services of browsers (docs/web-push.md). Several origins behave alike, except that some cannot be reached
/// for a while.
final class Browsers: HTTP2PushService {
    /// The subscriptions of all devices: the same key for all, and one of a few services.
    private struct Subscriptions: SubscriptionStore {
        let origins: Int
        let key: P256.KeyAgreement.PrivateKey
        let secret = [UInt8](repeating: 7, count: 16)

        func keep(_ subscription: Subscription) async throws(ChatError) {}
        func vapidKey(make: @escaping @Sendable () -> String) async throws(ChatError) -> String { make() }
        func setVAPIDKey(_ text: String) async throws(ChatError) {}

        func subscriptions(_ addresses: [DeviceToken]) async throws(ChatError) -> [DeviceToken: Subscription] {
            Dictionary(addresses.map { ($0, subscription($0)) }) { first, _ in first }
        }

        func subscription(_ address: DeviceToken) -> Subscription {
            Subscription(
                address: address,
                endpoint: "https://\(Browsers.host(of: address.description, among: origins))/\(address)",
                publicKey: Array(key.publicKey.x963Representation), secret: secret)
        }
    }

    /// Connects are refused and connections end, or requests get no response.
    private enum Outage { case refuses, isSilent }

    /// The longest time in which a push gets an outcome: a request may wait 30 s for its response.
    private static let patience = Duration.seconds(40)
    /// The time for which the relay may hold outcomes back after a fault of the disk.
    private static let recovery = Duration.seconds(20)
    /// The number of requests that a service gets at once. Further pushes wait for the first.
    private static let window = 100
    /// The gateway leases more pushes as long as it has fewer than these.
    private static let alwaysTaken = 200

    private static func host(_ number: Int) -> String { "host\(number).push.services.mozilla.com" }
    private static func host(of token: String, among origins: Int) -> String {
        host(token.utf8.reduce(0) { $0 + Int($1) } % origins)
    }

    private let key: P256.KeyAgreement.PrivateKey
    private let vapid: VAPIDKey
    private var origins = 1
    private var unknownNames = 0
    private var slowestName = Duration.milliseconds(50)
    private var outages: [String: Outage] = [:]
    /// The last times at which a service was down, or further requests to it had to wait.
    private var freeSince: [String: Moment] = [:]
    /// The last time at which the relay could not record outcomes, or did not run.
    private var lastHindrance = Moment.now

    required init(_ world: World) {
        // Any 32 bytes are a key, except for a few.
        key = try! P256.KeyAgreement.PrivateKey(rawRepresentation: [UInt8](repeating: 3, count: 32))
        vapid = VAPIDKey()
        super.init(
            world,
            ServiceDialect(
                format: WebPushFormat(publicURL: "https://chat.example.org"),
                final: [(400, "bad"), (413, ""), (405, "method")],
                temporary: [(500, ""), (503, "busy"), (408, ""), (425, ""), (302, "")],
                returns: [(421, "")], credentials: [(401, "key"), (403, "BadJwtToken")], gone: (410, "gone"),
                body: { #"{"reason":"\#($0)"}"# },
                recorded: { $0.reason.isEmpty ? "\($0.status)" : "\($0.status) \($0.reason)" }))
    }

    override func plan(_ choices: Choices) {
        super.plan(choices)
        choices.maybe(80, 2...5, { "\($0) services" }, { self.origins = $0 })
        if choices.dice.chance(80) {
            choices.add(choices.dice.within(1...4)) { dice in
                let (service, outage) = (dice.below(5), dice.chance(50) ? Outage.refuses : .isSilent)
                let length = dice.within(.seconds(1)...(.seconds(60)))
                return (
                    "service \(service) \(outage) for \(length)", { self.fail(service, outage, for: length) }
                )
            }
        }
        choices.maybe(15, 1...60, { "\($0) % of names are not found" }, { self.unknownNames = $0 })
        choices.maybe(15, 1...5000, { "names take up to \($0) ms" }, { self.slowestName = .milliseconds($0) })
    }

    override func gateway(
        for life: Life, over connector: any Connector, logger: Logger
    ) throws -> any PushGateway {
        var sender = WebPushGateway.Sender(key: vapid, subject: "mailto:a@example.org", rules: try EndpointRules())
        sender.addresses = { [self] host in
            try await Task.sleep(for: world.dice.within(.zero...slowestName))
            if world.dice.chance(unknownNames) { throw WebPushError("host", "cannot be looked up") }
            return ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"].compactMap { IPAddress($0) }
        }
        var options = WebPushGateway.Options()
        options.connector = connector
        let format = WebPushFormat(publicURL: "https://chat.example.org")
        let gateway = WebPushGateway(
            sender: sender, format: format, subscriptions: Subscriptions(origins: origins, key: key), options: options,
            connectionIDs: ids, logger: logger)
        reload = { [sender] in gateway.reconfigure(sender: sender, format: format) }
        return gateway
    }

    override func subscription(_ token: DeviceToken) -> Subscription? {
        Subscriptions(origins: origins, key: key).subscription(token)
    }
    /// Browsers show each push.
    override var silentUpdates: Set<AlertUpdate> { [.replace] }

    override func calmDown() {
        super.calmDown()
        unknownNames = 0
        for host in outages.keys.sorted() { end(host) }
    }

    // MARK: - Services that are down

    override func begin() { look() }

    /// Lets a service fail for some time. A service that refuses also ends its connections.
    private func fail(_ service: Int, _ outage: Outage, for length: Duration) {
        let host = Self.host(service % origins)
        guard !world.isCalm, outages[host] == nil else { return }
        world.log("\(host) \(outage)")
        outages[host] = outage
        if outage == .refuses {
            network.refusing.insert(host)
            for peer in peers where peer.link.isOpen && peer.link.host == host { peer.link.lose(isSilent: false) }
        }
        simulation_world.run(after: length) { self.end(host) }
    }

    private func end(_ host: String) {
        guard outages.removeValue(forKey: host) != nil else { return }
        network.refusing.remove(host)
    }

    override func isSilent(_ peer: HTTP2Peer) -> Bool { outages[peer.link.host] == .isSilent }

    /// The gateway gives a slot as long as it has few pushes, whatever their outcomes are.
    override var hasRoom: Bool { pushes.isOpen && pushes.underWay.count < Self.alwaysTaken }

    /// Looks for pushes to services that are up, and that get no outcome.
    private func look() {
        simulation_world.run(after: .seconds(1)) { self.look() }
        let isHindered = world.diskFaults.lastFault.map { .now < $0 + Self.recovery } ?? false
        guard pushes.isOpen, !isHindered else { return lastHindrance = .now }
        var hosts: [String: [(push: Int64, since: Moment)]] = [:]
        for (push, since) in pushes.underWay {
            guard let token = pushes.token(of: push) else { continue }
            hosts[Self.host(of: token, among: origins), default: []].append((push, since))
        }
        for (host, all) in hosts.sorted(by: { $0.key < $1.key }) {
            if outages[host] != nil || all.count >= Self.window { freeSince[host] = .now }
            let begin = max(lastHindrance, freeSince[host] ?? lastHindrance)
            for (push, since) in all.sorted(by: { $0.push < $1.push }) where max(since, begin) + Self.patience < .now {
                return world.violate(
                    .noServiceDelaysAnother, "push \(push) to \(host) has no outcome since \(since)")
            }
        }
    }

    override func payload(of request: HTTP2PeerRequest) -> [UInt8]? {
        let secret = [UInt8](repeating: 7, count: 16)
        return try? MessageEncryption.decrypt(Array(buffer: request.body), key: key, secret: secret)
    }
}
