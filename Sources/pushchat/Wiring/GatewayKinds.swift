import APNSGateway
import APNSWire
import ChatDomain
import Logging

/// A kind of gateway, as an app's setting `gateway` names it: how its files are read, what it requires of pushes, and how its
/// connections are made.
protocol GatewayKind: Sendable {
    /// What an app's files come to.
    func credentials(_ app: AppConfiguration) throws(CredentialsError) -> AppCredentials
    /// - Parameter sound: of chat messages.
    func format(_ app: AppConfiguration, sound: String?) -> any PushFormat
    func gateway(_ parts: GatewayParts) -> any ConfiguredGateway
}

/// What a gateway is made of.
struct GatewayParts: Sendable {
    let app: AppConfiguration
    let credentials: AppCredentials
    let tokens: any ProviderTokenStore
    let epochs: ConnectionEpochs
    let logger: Logger
}

/// A gateway that a reload can change.
protocol ConfiguredGateway: PushGateway {
    /// New connections use these; the open ones finish what is in flight first.
    func reconfigure(_ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore) async
}

extension AppConfiguration.Gateway {
    /// Every kind that there is: a further one is a line here.
    var kind: any GatewayKind {
        switch self {
        case .binary: BinaryKind()
        case .http2: HTTP2Kind()
        }
    }
}

extension AppConfiguration {
    func format(sound: String? = "default") -> any PushFormat { gateway.kind.format(self, sound: sound) }
}

// MARK: - The legacy binary protocol

private struct BinaryKind: GatewayKind {
    func credentials(_ app: AppConfiguration) throws(CredentialsError) -> AppCredentials {
        guard let credentials = try ClientCredentials(app) else { return AppCredentials() }
        return AppCredentials(
            push: try GatewayEndpoint(host: app.host, port: app.port, credentials: credentials, trust: app.trust),
            feedback: try GatewayEndpoint(
                host: app.feedbackHost, port: app.feedbackPort, credentials: credentials, trust: app.trust),
            certificate: credentials.summary)
    }

    func format(_ app: AppConfiguration, sound: String?) -> any PushFormat {
        APNSFormat(.binary, payloadLimit: app.payloadLimit, sound: sound)
    }

    func gateway(_ parts: GatewayParts) -> any ConfiguredGateway {
        let app = parts.app
        return BinaryGateway(
            endpoint: parts.credentials.push, format: APNSFormat(.binary, payloadLimit: app.payloadLimit),
            options: .init(
                connections: app.connections, command: BinaryCommand(rawValue: UInt8(app.command)) ?? .framed,
                settleTime: app.settleTime),
            epochs: parts.epochs, logger: parts.logger)
    }
}

extension BinaryGateway: ConfiguredGateway {
    func reconfigure(
        _ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore
    ) async {
        await reconfigure(endpoint: credentials.push)
    }
}

// MARK: - The HTTP/2 provider API

private struct HTTP2Kind: GatewayKind {
    func credentials(_ app: AppConfiguration) throws(CredentialsError) -> AppCredentials {
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

    func format(_ app: AppConfiguration, sound: String?) -> any PushFormat {
        APNSFormat(.http2, payloadLimit: app.payloadLimit, sound: sound)
    }

    func gateway(_ parts: GatewayParts) -> any ConfiguredGateway {
        let app = parts.app
        return HTTP2Gateway(
            target: HTTP2Gateway.Target(app, parts.credentials, parts.tokens),
            format: APNSFormat(.http2, payloadLimit: app.payloadLimit),
            options: .init(connections: app.connections, answerLimit: app.answerTimeout), epochs: parts.epochs,
            logger: parts.logger)
    }
}

extension HTTP2Gateway: ConfiguredGateway {
    func reconfigure(
        _ app: AppConfiguration, _ credentials: AppCredentials, tokens: any ProviderTokenStore
    ) async {
        await reconfigure(target: Target(app, credentials, tokens))
    }
}

extension HTTP2Gateway.Target {
    /// Nil while there is nothing to log in with.
    fileprivate init?(_ app: AppConfiguration, _ credentials: AppCredentials, _ tokens: any ProviderTokenStore) {
        guard let endpoint = credentials.push else { return nil }
        self.init(
            endpoint: endpoint, bundleID: app.topic ?? credentials.certificate?.topic,
            tokens: credentials.key.map { TokenSource(key: $0, store: tokens) })
    }
}

extension ClientCredentials {
    /// Nil for an app without a certificate.
    fileprivate init?(_ app: AppConfiguration) throws(CredentialsError) {
        guard let certificate = app.certificate else { return nil }
        try self.init(certificate: certificate, key: app.certificateKey, passphrase: app.passphrase?.text)
    }
}
