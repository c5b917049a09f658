import APNSGateway
import APNSWire

/// What an app's files come to: where it connects to, and as whom. Empty while there is nothing to log in with.
struct AppCredentials: Sendable {
    /// The gateway.
    var push: GatewayEndpoint?
    /// The feedback service, which only the binary gateway has beside it.
    var feedback: GatewayEndpoint?
    /// Signs provider tokens; nil where the certificate is what the app proves itself with.
    var key: ProviderKey?
    var certificate: CertificateSummary?
}

extension AppConfiguration {
    /// Reads the app's files.
    func credentials() throws(CredentialsError) -> AppCredentials { try gateway.kind.credentials(self) }
}
