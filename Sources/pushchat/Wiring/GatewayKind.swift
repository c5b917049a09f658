import APNSGateway
import ChatDomain
import FCMGateway
import GatewayPool
import Logging
import PushWire

/// A kind of gateway, which an app's setting `gateway` selects. It reads the credentials, defines the requirements for
/// pushes, and creates the gateway.
protocol GatewayKind: Sendable {
    /// Reads the app's files.
    func credentials() throws(CredentialsError) -> AppCredentials
    /// Returns the format of the app's pushes.
    /// - Parameters:
    ///   - sound: The sound of chat messages.
    ///   - threads: Names the rooms of chat messages to Apple. `nil` if no chat messages are sent.
    func format(sound: String?, threads: RoomThreads?) -> any PushFormat
    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway
}

/// The endpoints of an app, and its credentials for them. Empty while the app has no credentials.
struct AppCredentials: Sendable {
    /// The gateway.
    var push: GatewayEndpoint?
    /// The feedback service, which only the binary protocol has.
    var feedback: GatewayEndpoint?
    /// The key that signs provider tokens. `nil` if the app uses a certificate.
    var key: ProviderKey?
    var certificate: CertificateSummary?
    /// The access tokens for FCM. `nil` for Apple's gateways.
    var accessTokens: OAuthTokens?
}

/// A gateway that a reload can change.
protocol ConfiguredGateway: PushGateway {
    /// Uses the configuration and credentials for new connections. Open connections first finish their pushes in
    /// flight, but this function does not wait for them.
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore)
}

extension AppConfiguration {
    /// The kind of the app's gateway. To add a kind, add a case here.
    var gatewayKind: any GatewayKind {
        switch gateway {
        case .binary: BinaryKind(app: self)
        case .http2: HTTP2Kind(app: self)
        case .fcm: FCMKind(app: self)
        }
    }
}

// MARK: - The legacy binary protocol

private struct BinaryKind: GatewayKind {
    let app: AppConfiguration

    func credentials() throws(CredentialsError) -> AppCredentials {
        guard let credentials = try ClientCredentials(app) else { return AppCredentials() }
        return AppCredentials(
            push: try GatewayEndpoint(host: app.host, port: app.port, credentials: credentials, trust: app.trust),
            feedback: try GatewayEndpoint(
                host: app.feedbackHost, port: app.feedbackPort, credentials: credentials, trust: app.trust),
            certificate: credentials.summary)
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        APNSFormat(.binary, payloadLimit: app.payloadLimit, sound: sound, threads: threads)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        BinaryGateway(
            endpoint: credentials.push, format: APNSFormat(.binary, payloadLimit: app.payloadLimit),
            options: .init(
                connections: app.connections, command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                settleTime: app.settleTime),
            connectionIDs: connectionIDs, logger: logger)
    }
}

extension BinaryGateway: ConfiguredGateway {
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore) {
        reconfigure(endpoint: credentials.push)
    }
}

// MARK: - The HTTP/2 provider API

private struct HTTP2Kind: GatewayKind {
    let app: AppConfiguration

    func credentials() throws(CredentialsError) -> AppCredentials {
        func endpoint(_ credentials: ClientCredentials?) throws(CredentialsError) -> GatewayEndpoint {
            try GatewayEndpoint(
                host: app.host, port: app.port, credentials: credentials, trust: app.trust,
                applicationProtocols: [GatewayEndpoint.http2])
        }
        if let file = app.key, let keyID = app.keyID, let teamID = app.teamID {
            let key = try ProviderKey(file: file, keyID: keyID, teamID: teamID)
            return AppCredentials(push: try endpoint(nil), key: key)
        }
        guard let credentials = try ClientCredentials(app) else { return AppCredentials() }
        return AppCredentials(push: try endpoint(credentials), certificate: credentials.summary)
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        APNSFormat(
            .http2, payloadLimit: app.payloadLimit, sound: sound, threads: threads,
            fields: Set(ChatField.allCases).subtracting(app.leftOut.compactMap(ChatField.init(rawValue:))),
            showsUnread: app.badge)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        HTTP2Gateway(
            service: APNSService(app, credentials, tokens),
            format: APNSFormat(.http2, payloadLimit: app.payloadLimit),
            options: .init(connections: app.connections, answerLimit: app.answerTimeout), connectionIDs: connectionIDs,
            logger: logger)
    }
}

extension HTTP2Gateway: ConfiguredGateway where Service: ConfiguredService {
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore) {
        reconfigure(service: Service(app, credentials, tokens))
    }
}

/// A push service that an app's settings describe.
protocol ConfiguredService: HTTP2Service {
    /// `nil` without credentials.
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore)
}

// MARK: - Google's FCM

private struct FCMKind: GatewayKind {
    let app: AppConfiguration

    func credentials() throws(CredentialsError) -> AppCredentials {
        guard let file = app.serviceAccount else { return AppCredentials() }
        let account = try ServiceAccountFile(file: file)
        return AppCredentials(
            push: try GatewayEndpoint(
                host: app.host, port: app.port, trust: app.trust, applicationProtocols: [GatewayEndpoint.http2]),
            accessTokens: try OAuthTokens(account: account, trust: app.trust))
    }

    func format(sound: String?, threads: RoomThreads?) -> any PushFormat {
        let room: (@Sendable (SecretCode) -> String)? =
            if let threads { { code in threads.id(of: code) } } else { nil }
        return FCMFormat(
            app.androidMessages, payloadLimit: app.payloadLimit, channel: app.androidChannel, sound: sound, room: room)
    }

    func gateway(
        _ credentials: AppCredentials, tokens: any ProviderTokenStore, connectionIDs: ConnectionIDs, logger: Logger
    ) -> any ConfiguredGateway {
        HTTP2Gateway(
            service: FirebaseService(app, credentials, tokens), format: format(sound: nil, threads: nil),
            options: .init(connections: app.connections, answerLimit: app.answerTimeout), connectionIDs: connectionIDs,
            logger: logger)
    }
}

extension FirebaseService: ConfiguredService {
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore) {
        guard let endpoint = credentials.push, let accessTokens = credentials.accessTokens else { return nil }
        self.init(endpoint: endpoint, tokens: accessTokens)
    }
}

extension APNSService: ConfiguredService {
    init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore) {
        guard let endpoint = credentials.push else { return nil }
        self.init(
            endpoint: endpoint, bundleID: app.topic ?? credentials.certificate?.topic,
            tokens: credentials.key.map { TokenSource(key: $0, store: tokens) })
    }
}

extension ClientCredentials {
    /// `nil` for an app without a certificate.
    fileprivate init?(_ app: AppConfiguration) throws(CredentialsError) {
        guard let certificate = app.certificate else { return nil }
        try self.init(certificate: certificate, key: app.certificateKey, passphrase: app.passphrase?.text)
    }
}
