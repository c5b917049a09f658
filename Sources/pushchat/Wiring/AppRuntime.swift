import APNSGateway
import ChatDispatch
import ChatDomain
import Foundation
import Logging
import ServiceLifecycle
import Synchronization

/// A configured app at run time: its gateway, and its credentials as they were last read.
final class AppRuntime: Sendable {
    let name: AppName
    private let stores: Stores
    private let gateway: any ConfiguredGateway
    private let progress = DispatchProgress()
    private let current: Mutex<(app: AppConfiguration, credentials: AppCredentials)>
    private let logger: Logger

    init(
        _ app: AppConfiguration, credentials: AppCredentials, stores: Stores, connectionIDs: ConnectionIDs,
        logger: Logger
    ) {
        name = app.name
        self.stores = stores
        current = Mutex((app, credentials))
        var logger = logger
        logger[metadataKey: "app"] = "\(app.name)"
        self.logger = logger
        gateway = app.gatewayKind.gateway(
            credentials, tokens: stores.providerTokens, connectionIDs: connectionIDs, logger: logger)
        if let retirement = app.gatewayKind.retirement, credentials.push != nil { logger.warning("\(retirement)") }
        if app.gatewayKind.isForBrowsersOnly {
            logger.info("\(AppConfiguration.onlyBrowsers)")
        } else if credentials.push == nil {
            logger.warning("\(app.noCredentials)")
        }
    }

    /// The app's configuration and the state of its gateway.
    var status: AppStatus {
        let (app, credentials) = current.withLock { $0 }
        return AppStatus(
            app: name, gateway: app.gateway.rawValue, address: credentials.push.map { "\($0.host):\($0.port)" },
            topic: app.topic ?? credentials.certificate?.topic, isForBrowsersOnly: app.gatewayKind.isForBrowsersOnly,
            connections: gateway.openConnections,
            certificateExpiresAt: credentials.certificate.map {
                Timestamp(seconds: Int64($0.notAfter.timeIntervalSince1970))
            }, dispatch: progress.metrics)
    }

    var certificateTopic: String? { current.withLock { $0.credentials.certificate?.topic } }

    /// Apple's hosts for broadcasts. `nil` if the app has no key, or another gateway.
    var broadcastTarget: BroadcastClient.Target? {
        let (app, credentials) = current.withLock { $0 }
        guard let key = credentials.key, let bundleID = app.topic else { return nil }
        // The store keeps one token for each key, so these requests use the gateway's token.
        return BroadcastClient.Target(
            host: app.broadcastHost, port: app.port, channelsHost: app.channelsHost, channelsPort: app.channelsPort,
            bundleID: bundleID, tokens: TokenSource(key: key, store: stores.providerTokens), trust: app.trust)
    }

    /// The app as ``DispatchWatch`` observes it.
    var watched: DispatchWatch.App {
        let app = current.withLock { $0.app }
        return DispatchWatch.App(
            name: name, progress: progress, openConnections: { [gateway] in gateway.openConnections },
            answerLimit: max(app.answerTimeout, app.settleTime))
    }

    /// Returns the dispatcher and, for a gateway that confirms nothing, the feedback reader.
    ///
    /// - Parameters:
    ///   - startsInDoubt: Whether an earlier process may have sent some of the queued pushes.
    ///   - showsTokens: Whether the log may contain whole device tokens.
    func services(startsInDoubt: Bool, showsTokens: Bool) -> [any Service] {
        let dispatcher = Dispatcher(
            app: name, queue: stores.queue, gateway: gateway, startsInDoubt: startsInDoubt, progress: progress,
            logger: logger, showsTokens: showsTokens)
        if current.withLock({ $0.app.gateway.kind.confirmsPushes }) { return [dispatcher] }
        let feedback = FeedbackReader(
            app: name, store: stores.feedback,
            source: { [self] in
                let (app, credentials) = current.withLock { $0 }
                return app.feedbackInterval == nil
                    ? nil : credentials.feedback.map(BinaryFeedbackSource.init(endpoint:))
            },
            interval: { [self] in current.withLock { $0.app.feedbackInterval } ?? .hours(1) },
            logger: logger)
        return [dispatcher, feedback]
    }

    /// Whether ``reconfigure(_:credentials:)`` can apply another configuration.
    func canBecome(_ app: AppConfiguration) -> Bool {
        app.name == name && current.withLock { $0.app.hasGateway(of: app) }
    }

    /// Uses the configuration and credentials for new connections. Open connections first finish their pushes in
    /// flight, but this function does not wait for them.
    func reconfigure(_ app: AppConfiguration, credentials: AppCredentials) {
        current.withLock { $0 = (app, credentials) }
        gateway.reconfigure(app, credentials, tokens: stores.providerTokens)
    }
}
