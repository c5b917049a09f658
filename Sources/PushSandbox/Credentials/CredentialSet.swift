import Crypto
import Foundation
import NIOSSL
import X509

/// The checked content of the credential files. Every certificate was issued by the authority, has its key, and is
/// valid for at least 30 days.
struct CredentialSet {
    /// The content of `credentials.json`: the names that belong to the provider token keys.
    struct Names: Codable, Equatable {
        var keyID: String
        /// `nil` in files of versions that had no such key.
        var productionKeyID: String?
        var teamID: String
        var topic: String

        enum CodingKeys: String, CodingKey {
            case keyID = "key_id"
            case productionKeyID = "production_key_id"
            case teamID = "team_id"
            case topic
        }

        /// The length of key and team identifiers. Like Apple's, they are ten upper-case letters and digits.
        static let identifierLength = 10

        static func newIdentifier() -> String {
            let letters = Array("ABCDEFGHJKLMNPQRSTUVWXYZ23456789")
            return String((0..<identifierLength).map { _ in letters[Int.random(in: 0..<letters.count)] })
        }
    }

    private(set) var names: Names
    /// The files to write. Empty if all existing files were valid.
    let files: [(name: String, bytes: [UInt8])]

    /// Keeps the valid files, and creates the content of the others.
    ///
    /// A new authority requires new leaf certificates. Another topic requires new client certificates, and another host
    /// a new server certificate.
    init(topic: String, host: String, now: Date, read: (String) -> [UInt8]?) throws {
        typealias File = SandboxCredentials
        var files: [(name: String, bytes: [UInt8])] = []
        func add(_ name: String, _ text: String) { files.append((name, Array(text.utf8))) }

        let kept = Self.authority(read, now: now)
        let issuer = try kept ?? CertificateIssuer(now: now)
        if kept == nil {
            add(File.authorityName, try issuer.authority.certificate.serializeAsPEM().pemString + "\n")
            add(File.authorityKeyName, issuer.authority.key.pemRepresentation + "\n")
        }
        /// Returns the existing leaf certificate, if it is valid for at least 30 more days and passes `isRight`.
        func leaf(_ name: String, where isRight: (Identity) -> Bool) -> Identity? {
            Self.identity(read(name)).flatMap { issuer.isValid($0.certificate) && isRight($0) ? $0 : nil }
        }
        if leaf(File.serverName, where: { Self.names($0, host: host) }) == nil {
            add(File.serverName, try issuer.server(host: host).pem)
        }
        let archive = read(File.clientArchiveName)
        if leaf(File.clientName, where: { Self.isFor(topic, $0) && Self.holds($0, archive) }) == nil {
            let client = try issuer.client(topic: topic)
            add(File.clientName, try client.pem)
            files.append((File.clientArchiveName, try Self.archive(client, topic: topic)))
        }
        if leaf(File.productionClientName, where: { Self.isFor(topic, $0) }) == nil {
            add(File.productionClientName, try issuer.client(topic: topic, environment: .production).pem)
        }
        for name in [File.providerKeyName, File.productionKeyName] where Self.providerKey(read(name)) == nil {
            add(name, P256.Signing.PrivateKey().pemRepresentation + "\n")
        }
        let found = read(File.namesName).flatMap { try? JSONDecoder().decode(Names.self, from: Data($0)) }
        names = found ?? Names(keyID: Names.newIdentifier(), teamID: Names.newIdentifier(), topic: topic)
        names.topic = topic
        names.productionKeyID = names.productionKeyID ?? Names.newIdentifier()
        if names != found {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
            files.append((File.namesName, Array(try encoder.encode(names)) + [0x0A]))
        }
        self.files = files
    }

    private static func authority(_ read: (String) -> [UInt8]?, now: Date) -> CertificateIssuer? {
        guard let certificate = read(SandboxCredentials.authorityName),
            let key = read(SandboxCredentials.authorityKeyName),
            let authority = identity(certificate + [0x0A] + key)
        else { return nil }
        let issuer = CertificateIssuer(authority: authority, now: now)
        return issuer.isValid(authority.certificate) ? issuer : nil
    }

    /// Whether the certificate has all names for this host.
    private static func names(_ server: Identity, host: String) -> Bool {
        guard let names = try? server.certificate.extensions.subjectAlternativeNames else { return false }
        return CertificateIssuer.names(host: host).allSatisfy(names.contains)
    }

    /// Whether the certificate names the app and lists its topics. The certificates of earlier versions do not list
    /// them.
    private static func isFor(_ topic: String, _ client: Identity) -> Bool {
        let certificate = ClientCertificate(client.certificate)
        return certificate.topic == topic && certificate.topics == ClientCertificate.topics(of: topic).map(\.topic)
    }

    private static func identity(_ bytes: [UInt8]?) -> Identity? {
        bytes.flatMap { try? Identity(pem: String(decoding: $0, as: UTF8.self)) }
    }

    private static func providerKey(_ bytes: [UInt8]?) -> P256.Signing.PrivateKey? {
        bytes.flatMap { try? P256.Signing.PrivateKey(pemRepresentation: String(decoding: $0, as: UTF8.self)) }
    }

    private static func archive(_ client: Identity, topic: String) throws -> [UInt8] {
        let archive = PKCS12Archive(
            certificate: try client.certificate.serializeAsPEM().derBytes,
            privateKey: Array(client.key.pkcs8DERRepresentation),
            friendlyName: ClientCertificate.commonNamePrefix + topic)
        return try archive.serialized(
            passphrase: SandboxCredentials.archivePassphrase, randomBytes: SymmetricKey.randomBytes)
    }

    /// Whether the passphrase opens the archive, and the archive holds the same certificate.
    private static func holds(_ client: Identity, _ archive: [UInt8]?) -> Bool {
        guard let archive,
            let bundle = try? NIOSSLPKCS12Bundle(
                buffer: archive, passphrase: Array(SandboxCredentials.archivePassphrase.utf8)),
            let certificate = try? bundle.certificateChain.first?.toDERBytes(),
            let expected = try? client.certificate.serializeAsPEM().derBytes
        else { return false }
        return certificate == expected
    }
}
