import APNSGateway
import APNSWire
import ChatDispatch
import ChatDomain
import ChatStore
import Logging
import ServiceLifecycle
import Synchronization

/// One app at work: its gateway, and its credentials as they were read last.
final class AppRuntime: Sendable {
    /// What an app's files come to.
    struct Endpoints: Sendable {
        var push: GatewayEndpoint?
        var feedback: GatewayEndpoint?
        var certificate: CertificateSummary?

        /// Reads the certificate; nothing for an app without.
        init(_ app: AppConfiguration) throws(CredentialsError) {
            guard let certificate = app.certificate else { return }
            let credentials = try ClientCredentials(
                certificate: certificate, key: app.certificateKey, passphrase: app.passphrase?.text)
            push = try GatewayEndpoint(host: app.host, port: app.port, credentials: credentials, trust: app.trust)
            feedback = try GatewayEndpoint(
                host: app.feedbackHost, port: app.feedbackPort, credentials: credentials, trust: app.trust)
            self.certificate = credentials.summary
        }
    }

    let name: AppName
    private let gateway: BinaryGateway
    private let configuration: Mutex<AppConfiguration>
    private let endpoints: Mutex<Endpoints>
    private let logger: Logger

    init(_ app: AppConfiguration, endpoints: Endpoints, epochs: ConnectionEpochs, logger: Logger) {
        name = app.name
        configuration = Mutex(app)
        self.endpoints = Mutex(endpoints)
        var logger = logger
        logger[metadataKey: "app"] = "\(app.name)"
        self.logger = logger
        gateway = BinaryGateway(
            endpoint: endpoints.push,
            options: .init(
                connections: app.connections, command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                payloadLimit: app.payloadLimit, settleTime: app.settleTime),
            epochs: epochs, logger: logger)
        if app.isRetired, endpoints.push != nil { logger.warning("\(AppConfiguration.retirement)") }
        if endpoints.push == nil {
            logger.warning("no credentials: messages are accepted and queued, and sent once there is a certificate")
        }
    }

    /// What the certificate in use names.
    var certificateTopic: String? { endpoints.withLock { $0.certificate?.topic } }

    /// What runs for this app.
    func services(store: SQLiteStore, showsTokens: Bool) -> [any Service] {
        [
            Dispatcher(app: name, queue: store, gateway: gateway, logger: logger, showsTokens: showsTokens),
            FeedbackReader(
                app: name, store: store,
                source: { [self] in
                    guard configuration.withLock({ $0.feedbackInterval != nil }) else { return nil }
                    return endpoints.withLock { $0.feedback.map(BinaryFeedbackSource.init(endpoint:)) }
                },
                interval: { [self] in configuration.withLock { $0.feedbackInterval } ?? .hours(1) }, logger: logger),
        ]
    }

    /// New connections use these; the open ones finish what is in flight first.
    func reconfigure(_ app: AppConfiguration, endpoints: Endpoints) async {
        configuration.withLock { $0 = app }
        self.endpoints.withLock { $0 = endpoints }
        await gateway.reconfigure(endpoint: endpoints.push)
    }
}
