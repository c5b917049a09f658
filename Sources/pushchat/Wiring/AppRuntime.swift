import APNSGateway
import APNSWire
import ChatDispatch
import ChatDomain
import ChatStore
import Foundation
import Logging
import ServiceLifecycle
import Synchronization

/// One app at work: its gateway, and its credentials as they were read last.
final class AppRuntime: Sendable {
    private enum Gateway: Sendable {
        case binary(BinaryGateway)
        case http2(ProviderGateway)
    }

    let name: AppName
    private let store: SQLiteStore
    private let gateway: Gateway
    private let configuration: Mutex<AppConfiguration>
    private let credentials: Mutex<AppCredentials>
    private let logger: Logger

    init(
        _ app: AppConfiguration, credentials: AppCredentials, store: SQLiteStore, epochs: ConnectionEpochs,
        logger: Logger
    ) {
        name = app.name
        self.store = store
        configuration = Mutex(app)
        self.credentials = Mutex(credentials)
        var logger = logger
        logger[metadataKey: "app"] = "\(app.name)"
        self.logger = logger
        gateway =
            switch app.gateway {
            case .binary:
                .binary(
                    BinaryGateway(
                        endpoint: credentials.push,
                        options: .init(
                            connections: app.connections,
                            command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                            payloadLimit: app.payloadLimit, settleTime: app.settleTime),
                        epochs: epochs, logger: logger))
            case .http2:
                .http2(
                    ProviderGateway(
                        target: Self.target(app, credentials, store),
                        options: .init(
                            connections: app.connections, payloadLimit: app.payloadLimit,
                            answerLimit: app.answerTimeout),
                        epochs: epochs, logger: logger))
            }
        if app.isRetired, credentials.push != nil { logger.warning("\(AppConfiguration.retirement)") }
        if credentials.push == nil { logger.warning("\(AppConfiguration.nothingToLogInWith)") }
    }

    /// How it is configured, and what its gateway is doing.
    var status: AppStatus {
        let app = configuration.withLock { $0 }
        let credentials = credentials.withLock { $0 }
        let (connections, largerLimits): (Int, [String: Int]) =
            switch gateway {
            case .binary(let gateway): (gateway.openConnections, [:])
            case .http2(let gateway):
                (gateway.openConnections, ProviderGateway.Options(payloadLimit: app.payloadLimit).largerLimits)
            }
        return AppStatus(
            app: name, gateway: app.gateway.rawValue, address: credentials.push.map { "\($0.host):\($0.port)" },
            topic: app.topic ?? credentials.certificate?.topic, payloadLimit: app.payloadLimit,
            largerLimits: largerLimits, connections: connections,
            certificateExpiresAt: credentials.certificate.map {
                Timestamp(seconds: Int64($0.notAfter.timeIntervalSince1970))
            })
    }

    private static func target(
        _ app: AppConfiguration, _ credentials: AppCredentials, _ store: SQLiteStore
    ) -> ProviderGateway.Target? {
        credentials.push.map {
            ProviderGateway.Target(
                endpoint: $0, bundleID: app.topic ?? credentials.certificate?.topic,
                tokens: credentials.key.map { TokenSource(key: $0, store: store) })
        }
    }

    /// What the certificate in use names.
    var certificateTopic: String? { credentials.withLock { $0.certificate?.topic } }

    /// What runs for this app.
    func services(showsTokens: Bool) -> [any Service] {
        switch gateway {
        case .http2(let gateway):
            // Nothing to read: who is gone stands in the answers.
            return [Dispatcher(app: name, queue: store, gateway: gateway, logger: logger, showsTokens: showsTokens)]
        case .binary(let gateway):
            return [
                Dispatcher(app: name, queue: store, gateway: gateway, logger: logger, showsTokens: showsTokens),
                FeedbackReader(
                    app: name, store: store,
                    source: { [self] in
                        guard configuration.withLock({ $0.feedbackInterval != nil }) else { return nil }
                        return credentials.withLock { $0.feedback.map(BinaryFeedbackSource.init(endpoint:)) }
                    },
                    interval: { [self] in configuration.withLock { $0.feedbackInterval } ?? .hours(1) },
                    logger: logger),
            ]
        }
    }

    /// New connections use these; the open ones finish what is in flight first.
    func reconfigure(_ app: AppConfiguration, credentials: AppCredentials) async {
        configuration.withLock { $0 = app }
        self.credentials.withLock { $0 = credentials }
        switch gateway {
        case .binary(let gateway): await gateway.reconfigure(endpoint: credentials.push)
        case .http2(let gateway): await gateway.reconfigure(target: Self.target(app, credentials, store))
        }
    }
}
