import Crypto
package import Foundation
package import Logging
import NIOSSL

/// The sandbox's credentials on disk: where they are, and the names that go with them.
///
/// Made on first use, kept from then on; certificates that end within thirty days are made anew.
package struct SandboxCredentials: Sendable, Hashable {
    static let authorityName = "ca.pem"
    /// Kept, so that leaves can be made anew without every client having to trust another authority.
    static let authorityKeyName = "ca-key.pem"
    static let clientName = "client.pem"
    static let clientArchiveName = "client.p12"
    static let productionClientName = "client-production.pem"
    static let serverName = "server.pem"
    static let providerKeyName = "AuthKey_SANDBOX.p8"
    static let productionKeyName = "AuthKey_PRODUCTION.p8"
    static let namesName = "credentials.json"
    /// Passphrase of `client.p12`. Not a secret: the archive protects nothing but a local test.
    package static let archivePassphrase = "pushchat"

    package let directory: String
    /// What the private key of `AuthKey_SANDBOX.p8` is called in provider tokens.
    package let keyID: String
    /// The same of `AuthKey_PRODUCTION.p8`, which the sandbox refuses as one of the wrong environment.
    package let productionKeyID: String
    package let teamID: String
    /// For which the client certificate was issued.
    package let topic: String

    /// The authority that clients have to trust.
    package var authorityFile: String { directory + "/" + Self.authorityName }
    /// Certificate and key in one file.
    package var clientFile: String { directory + "/" + Self.clientName }
    /// The same as PKCS#12; the passphrase is ``archivePassphrase``.
    package var clientArchiveFile: String { directory + "/" + Self.clientArchiveName }
    /// A client certificate for production, which the HTTP/2 listener refuses as one of the wrong environment.
    package var productionClientFile: String { directory + "/" + Self.productionClientName }
    /// The listeners' certificate and key.
    package var serverFile: String { directory + "/" + Self.serverName }
    /// P-256, PKCS#8, for provider tokens.
    package var providerKeyFile: String { directory + "/" + Self.providerKeyName }
    /// Another, of production.
    package var productionKeyFile: String { directory + "/" + Self.productionKeyName }
    package var namesFile: String { directory + "/" + Self.namesName }

    /// Makes sure that the directory holds a whole and lasting set, and says where it is.
    ///
    /// Safe to call from several processes at once: one makes the set, the others find it.
    /// - Throws: ``SandboxError`` when the directory cannot be used.
    package static func prepare(
        directory path: String, topic: String, host: String = "127.0.0.1", logger: Logger, now: Date = Date()
    ) async throws -> SandboxCredentials {
        let directory = CredentialDirectory(path: URL(fileURLWithPath: path).standardizedFileURL.path)
        return try await directory.locked {
            let set = try CredentialSet(topic: topic, host: host, now: now, read: directory.read)
            if !set.files.isEmpty {
                try directory.replace(set.files)
                logger.info(
                    "Sandbox credentials written",
                    metadata: [
                        "directory": "\(directory.path)", "files": "\(set.files.map(\.name).joined(separator: " "))",
                    ])
            }
            return SandboxCredentials(
                directory: directory.path, keyID: set.names.keyID,
                productionKeyID: set.names.productionKeyID ?? "", teamID: set.names.teamID, topic: topic)
        }
    }

    /// How long TLS may take to close when the sandbox stops or closes a connection.
    private static let shutdownTimeout = Duration.seconds(1)

    /// What the TLS listeners present and demand: the server's certificate, and a client's that the authority signed.
    ///
    /// For HTTP/2 a client may come without one. A certificate of another authority is refused in any case.
    func serverTLS(for listener: ListenerKind) throws -> NIOSSLContext {
        var configuration = try serverTLS()
        configuration.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(authorityFile))
        // A client has no host name to check; its certificate is demanded all the same.
        configuration.certificateVerification =
            listener == .http2 ? .optionalVerification : .noHostnameVerification
        if listener == .http2 { configuration.applicationProtocols = [SandboxHTTP2Handshake.protocolName] }
        return try NIOSSLContext(configuration: configuration)
    }

    /// The server's certificate, and nothing demanded of a client.
    func serverTLS() throws -> TLSConfiguration {
        let certificate = try NIOSSLCertificate.fromPEMFile(serverFile).map(NIOSSLCertificateSource.certificate)
        let key = try NIOSSLPrivateKey(file: serverFile, format: .pem)
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: certificate, privateKey: .privateKey(key))
        configuration.shutdownTimeout = .init(Self.shutdownTimeout)
        return configuration
    }

    /// Reads the public halves of the two provider token keys.
    func keyring() throws -> SandboxKeyring {
        func key(_ path: String) throws -> P256.Signing.PublicKey {
            try P256.Signing.PrivateKey(pemRepresentation: String(contentsOfFile: path, encoding: .utf8)).publicKey
        }
        return SandboxKeyring(
            teamID: teamID,
            keys: [
                keyID: .init(key: try key(providerKeyFile)),
                productionKeyID: .init(key: try key(productionKeyFile), isForProduction: true),
            ])
    }
}

/// The keys with which provider tokens can be signed, by key id (apns-http2.md §5).
struct SandboxKeyring: Sendable {
    struct Key: Sendable {
        var key: P256.Signing.PublicKey
        /// Belongs to Apple's production environment, which the sandbox does not play.
        var isForProduction = false
    }

    var teamID: String
    var keys: [String: Key]
}
