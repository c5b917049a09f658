import Crypto
package import Foundation
package import Logging
import NIOSSL

/// The sandbox's credentials on disk: their directory, and the names that belong to them.
///
/// The sandbox creates the credentials on first use and keeps them. It replaces certificates that expire within 30
/// days.
package struct SandboxCredentials: Sendable, Hashable {
    static let authorityName = "ca.pem"
    /// The authority's key. It is kept because a new authority for new leaf certificates would have to be trusted by
    /// every client.
    static let authorityKeyName = "ca-key.pem"
    static let clientName = "client.pem"
    static let clientArchiveName = "client.p12"
    static let productionClientName = "client-production.pem"
    static let serverName = "server.pem"
    static let providerKeyName = "AuthKey_SANDBOX.p8"
    static let productionKeyName = "AuthKey_PRODUCTION.p8"
    static let namesName = "credentials.json"
    /// The passphrase of `client.p12`. It is not secret, because the archive protects nothing but a local test.
    package static let archivePassphrase = "pushchat"

    package let directory: String
    /// The id of the key `AuthKey_SANDBOX.p8` in provider tokens.
    package let keyID: String
    /// The id of the key `AuthKey_PRODUCTION.p8`. The sandbox rejects its tokens, because they are for the wrong
    /// environment.
    package let productionKeyID: String
    package let teamID: String
    /// The topic for which the client certificate was issued.
    package let topic: String

    /// The certificate of the authority that clients have to trust.
    package var authorityFile: String { directory + "/" + Self.authorityName }
    /// The client certificate and its key.
    package var clientFile: String { directory + "/" + Self.clientName }
    /// The client certificate and its key as PKCS#12, with the passphrase ``archivePassphrase``.
    package var clientArchiveFile: String { directory + "/" + Self.clientArchiveName }
    /// A client certificate for production. The HTTP/2 listener rejects it, because it is for the wrong environment.
    package var productionClientFile: String { directory + "/" + Self.productionClientName }
    /// The listeners' certificate and key.
    package var serverFile: String { directory + "/" + Self.serverName }
    /// The key for provider tokens: P-256, PKCS#8.
    package var providerKeyFile: String { directory + "/" + Self.providerKeyName }
    /// A second key for provider tokens, which belongs to production.
    package var productionKeyFile: String { directory + "/" + Self.productionKeyName }
    package var namesFile: String { directory + "/" + Self.namesName }
    /// The service account for FCM. Its key stays, and its `token_uri` is that of the sandbox that started last.
    package var serviceAccountFile: String { directory + "/" + ServiceAccount.fileName }

    /// Ensures that the directory holds a complete and valid set of credentials, and returns it.
    ///
    /// Several processes may call this at the same time: one creates the set, the others find it.
    /// - Throws: ``SandboxError`` if the directory cannot be used.
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

    /// The time limit for closing TLS when the sandbox stops or closes a connection.
    private static let shutdownTimeout = Duration.seconds(1)

    /// Returns the settings of a TLS listener. It presents the server's certificate, and requires a client certificate
    /// of the authority.
    ///
    /// Over HTTP/2, the client certificate is optional. A certificate of another authority is refused in any case.
    func serverTLS(for listener: ListenerKind) throws -> NIOSSLContext {
        var configuration = try serverTLS()
        configuration.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(authorityFile))
        // A client has no host name to check. Its certificate is required nevertheless.
        configuration.certificateVerification =
            listener.speaksHTTP2 ? .optionalVerification : .noHostnameVerification
        if listener.speaksHTTP2 {
            configuration.applicationProtocols = [ListenerKind.http2Protocol]
        } else {
            // Providers of the binary protocol are old.
            configuration.minimumTLSVersion = .tlsv1
        }
        return try NIOSSLContext(configuration: configuration)
    }

    /// Returns TLS settings with the server's certificate. They do not ask for a client certificate.
    func serverTLS() throws -> TLSConfiguration {
        let certificate = try NIOSSLCertificate.fromPEMFile(serverFile).map(NIOSSLCertificateSource.certificate)
        let key = try NIOSSLPrivateKey(file: serverFile, format: .pem)
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: certificate, privateKey: .privateKey(key))
        configuration.shutdownTimeout = .init(Self.shutdownTimeout)
        configuration.minimumTLSVersion = .tlsv12
        return configuration
    }

    /// Returns the service account whose file points to this token endpoint. Writes the file first if needed. Another
    /// process, such as `--print-config`, gets the same account at the same time.
    ///
    /// - Parameter keepsFound: Whether a file that points to another token endpoint stays.
    func serviceAccount(tokenURL: String, keepsFound: Bool = false) async throws -> ServiceAccount {
        let files = CredentialDirectory(path: directory)
        return try await files.locked {
            let found = files.read(ServiceAccount.fileName).flatMap { ServiceAccount($0) }
            if let found, keepsFound || found.tokenURL == tokenURL { return found }
            var account = try found ?? ServiceAccount(tokenURL: tokenURL, randomBytes: SymmetricKey.randomBytes)
            account.tokenURL = tokenURL
            try files.replace([(ServiceAccount.fileName, account.file)])
            return account
        }
    }

    /// Reads the credentials that a client needs, for a client that cannot read the files. Leaves out the authority's
    /// key.
    func forClients() throws -> [String: String] {
        let texts = try [
            "authority": authorityFile, "certificate": clientFile, "key": providerKeyFile,
            "service_account": serviceAccountFile,
        ].mapValues { try String(contentsOfFile: $0, encoding: .utf8) }
        return texts.merging(["key_id": keyID, "team_id": teamID, "topic": topic]) { $1 }
    }

    /// Reads the public keys of the two keys for provider tokens.
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

/// The keys that may sign provider tokens, by key id (Apple, "Establishing a token-based connection to APNs").
struct SandboxKeyring: Sendable {
    struct Key: Sendable {
        var key: P256.Signing.PublicKey
        /// Whether the key belongs to Apple's production environment, which the sandbox does not simulate.
        var isForProduction = false
    }

    var teamID: String
    var keys: [String: Key]
}
