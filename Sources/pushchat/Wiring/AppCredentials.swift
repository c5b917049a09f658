import APNSGateway
import APNSWire

/// What an app's files come to: where it connects to, and as whom.
struct AppCredentials: Sendable {
    /// The gateway; nil while there is nothing to log in with.
    var push: GatewayEndpoint?
    /// The feedback service, which only the binary gateway has beside it.
    var feedback: GatewayEndpoint?
    /// Signs provider tokens; nil where the certificate is what the app proves itself with.
    var key: ProviderKey?
    var certificate: CertificateSummary?

    init(_ app: AppConfiguration) throws(CredentialsError) {
        switch app.gateway {
        case .http2:
            if let file = app.key, let keyID = app.keyID, let teamID = app.teamID {
                key = try ProviderKey(file: file, keyID: keyID, teamID: teamID)
                push = try GatewayEndpoint(
                    host: app.host, port: app.port, credentials: nil, trust: app.trust,
                    applicationProtocols: [GatewayEndpoint.http2])
            } else if let credentials = try Self.certificate(app) {
                certificate = credentials.summary
                push = try GatewayEndpoint(
                    host: app.host, port: app.port, credentials: credentials, trust: app.trust,
                    applicationProtocols: [GatewayEndpoint.http2])
            }
        case .binary:
            guard let credentials = try Self.certificate(app) else { return }
            certificate = credentials.summary
            push = try GatewayEndpoint(host: app.host, port: app.port, credentials: credentials, trust: app.trust)
            feedback = try GatewayEndpoint(
                host: app.feedbackHost, port: app.feedbackPort, credentials: credentials, trust: app.trust)
        }
    }

    private static func certificate(_ app: AppConfiguration) throws(CredentialsError) -> ClientCredentials? {
        guard let certificate = app.certificate else { return nil }
        return try ClientCredentials(
            certificate: certificate, key: app.certificateKey, passphrase: app.passphrase?.text)
    }
}
