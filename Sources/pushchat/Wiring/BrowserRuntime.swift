import APNSGateway
import ChatDispatch
import ChatDomain
import Logging
import NIOSSL
import PushWire
import ServiceLifecycle
import Synchronization
import WebPushGateway

/// Pushes to browsers at run time: the gateway to their push services, and the key that identifies the relay to them.
/// Every relay has one, in addition to the configured apps.
final class BrowserRuntime: Sendable {
    private let key: VAPIDKey
    private let stores: Stores
    private let gateway: WebPushGateway
    private let progress = DispatchProgress()
    private let current: Mutex<WebPushSubscriptions>
    private let logger: Logger

    /// Reads the files that the configuration names.
    /// - Throws: ``Failure`` if a file cannot be read.
    init(
        _ configuration: Configuration, key: VAPIDKey, stores: Stores, connectionIDs: ConnectionIDs, logger: Logger
    ) throws {
        self.key = key
        self.stores = stores
        var logger = logger
        logger[metadataKey: "app"] = "\(AppName.web)"
        self.logger = logger
        let sender = try Self.sender(configuration, key)
        current = Mutex(WebPushSubscriptions(key: key, rules: sender.rules))
        var options = WebPushGateway.Options()
        options.lifetime = configuration.messages.retention
        gateway = WebPushGateway(
            sender: sender, format: configuration.browserFormat, subscriptions: stores.subscriptions, options: options,
            connectionIDs: connectionIDs, logger: logger)
    }

    /// The reader of subscriptions, with the settings in force.
    var subscriptions: any SubscriptionReader { current.withLock { $0 } }

    /// The state of the gateway. `nil` until it has connected to a push service, because most relays have no browsers
    /// and their operators need not read about them.
    var status: AppStatus? {
        var dispatch = progress.metrics
        // Query the gateway, because the response to one push does not show whether a service rejects the relay. If a
        // service rejects all pushes, the gateway postpones them. If it rejects one push, the subscription is at fault.
        dispatch.areCredentialsRefused = gateway.areCredentialsRefused
        guard gateway.openConnections > 0 || !dispatch.answers.isEmpty else { return nil }
        return AppStatus(
            app: .web, gateway: "webpush", address: nil, topic: nil, connections: gateway.openConnections,
            certificateExpiresAt: nil, dispatch: dispatch, restrictedServices: gateway.restrictedServices)
    }

    func services(startsInDoubt: Bool, showsTokens: Bool) -> [any Service] {
        [
            Dispatcher(
                app: .web, queue: stores.queue, gateway: gateway, startsInDoubt: startsInDoubt, progress: progress,
                logger: logger, showsTokens: showsTokens)
        ]
    }

    /// Returns the sender for a configuration.
    /// - Throws: ``Failure`` if a file cannot be read.
    func sender(_ configuration: Configuration) throws -> WebPushGateway.Sender {
        try Self.sender(configuration, key)
    }

    func reconfigure(_ configuration: Configuration, _ sender: WebPushGateway.Sender) {
        current.withLock { $0 = WebPushSubscriptions(key: key, rules: sender.rules) }
        gateway.reconfigure(sender: sender, format: configuration.browserFormat)
    }

    /// Returns the sender that pushes name, and the rules for the push services that they may go to.
    static func sender(_ configuration: Configuration, _ key: VAPIDKey) throws -> WebPushGateway.Sender {
        var trust: [NIOSSLCertificate] = []
        if let path = configuration.webPush.trust {
            do {
                trust = try NIOSSLCertificate.fromPEMFile(path)
            } catch {
                throw Failure("webpush.trust: \(path) contains no readable certificates")
            }
        }
        return WebPushGateway.Sender(
            key: key, subject: configuration.pushContact, rules: try EndpointRules(hosts: configuration.webPush.hosts),
            trust: trust)
    }
}

extension VAPIDKey {
    /// Returns the database's key. Creates one if the database has none.
    static func load(from stores: Stores) async throws -> VAPIDKey {
        try VAPIDKey(text: try await stores.subscriptions.vapidKey { VAPIDKey().text })
    }

    /// The names by which Apple sees rooms. They are the same for every relay on the database, and a backup and a
    /// migration keep them.
    ///
    /// The names are derived from the private key, because vendors see only its public key and signatures.
    /// `queue_state.id_key` is not a secret: the ids of pushes reveal it to Apple (``APNSIDs``).
    var threads: RoomThreads { RoomThreads(secret: secret(for: "thread-id")) }
}

extension Configuration {
    /// The address at which a push service's operator can reach the relay's operator. `nil` if none is configured.
    var pushContact: String? { push.contact ?? http.secureURL }

    var browserFormat: WebPushFormat { WebPushFormat(publicURL: http.publicURL, sound: push.sound) }
}
