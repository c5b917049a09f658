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

        private func subscription(_ address: DeviceToken) -> Subscription {
            let number = address.description.utf8.reduce(0) { $0 + Int($1) } % origins
            return Subscription(
                address: address, endpoint: "https://host\(number).push.services.mozilla.com/\(address)",
                publicKey: Array(key.publicKey.x963Representation), secret: secret)
        }
    }

    private let key: P256.KeyAgreement.PrivateKey
    private let vapid: VAPIDKey
    private var origins = 1
    private var unknownNames = 0
    private var slowestName = Duration.milliseconds(50)

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
        choices.maybe(60, 2...5, { "\($0) services" }, { self.origins = $0 })
        choices.maybe(15, 1...60, { "\($0) % of names are not found" }, { self.unknownNames = $0 })
        choices.maybe(15, 1...5000, { "names take up to \($0) ms" }, { self.slowestName = .milliseconds($0) })
    }

    override func gateway(connector: any Connector, logger: Logger) throws -> any PushGateway {
        var sender = WebPushGateway.Sender(key: vapid, subject: "mailto:a@example.org", rules: try EndpointRules())
        sender.addresses = { [self] host in
            try await Task.sleep(for: world.dice.within(.zero...slowestName))
            if world.dice.chance(unknownNames) { throw WebPushError("host", "cannot be looked up") }
            return ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"].compactMap { IPAddress($0) }
        }
        var options = WebPushGateway.Options()
        options.connector = connector
        return WebPushGateway(
            sender: sender, format: WebPushFormat(publicURL: "https://chat.example.org"),
            subscriptions: Subscriptions(origins: origins, key: key), options: options, connectionIDs: ids,
            logger: logger)
    }

    override func calmDown() {
        super.calmDown()
        unknownNames = 0
    }

    override func payload(of request: HTTP2PeerRequest) -> [UInt8]? {
        let secret = [UInt8](repeating: 7, count: 16)
        return try? MessageEncryption.decrypt(Array(buffer: request.body), key: key, secret: secret)
    }
}
