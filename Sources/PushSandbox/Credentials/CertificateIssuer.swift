import Crypto
import Foundation
import NIOCore
import SwiftASN1
import X509

/// A certificate and its key, both P-256.
struct Identity {
    var certificate: Certificate
    var key: P256.Signing.PrivateKey

    /// The certificate and its key as one text, the certificate first.
    var pem: String {
        get throws { try certificate.serializeAsPEM().pemString + "\n" + key.pemRepresentation + "\n" }
    }

    /// Parses the text of ``pem``, in either order.
    /// - Throws: An error if one of the two is missing, or if the key does not belong to the certificate.
    init(pem: String) throws {
        let documents = try PEMDocument.parseMultiple(pemString: pem)
        guard let certificate = documents.first(where: { $0.discriminator == Certificate.defaultPEMDiscriminator }),
            let key = documents.first(where: { $0.discriminator != Certificate.defaultPEMDiscriminator })
        else { throw Mismatch() }
        self.init(
            certificate: try Certificate(pemDocument: certificate),
            key: try P256.Signing.PrivateKey(pemRepresentation: key.pemString))
        guard Certificate.PublicKey(self.key.publicKey) == self.certificate.publicKey else { throw Mismatch() }
    }

    init(certificate: Certificate, key: P256.Signing.PrivateKey) {
        self.certificate = certificate
        self.key = key
    }

    /// The text does not contain a certificate with its own key.
    struct Mismatch: Error {}
}

/// Issues the sandbox's certificates: its own authority, and leaf certificates below it.
struct CertificateIssuer {
    private static let authorityName = "PushChat Sandbox CA"
    private static let day: TimeInterval = 86_400
    private static let authorityValidity = 3650 * day
    /// The maximum for a server certificate on the strictest platform, which is Apple's.
    private static let leafValidity = 825 * day
    /// Certificates that expire sooner than this are replaced at start.
    private static let renewalPeriod = 30 * day
    /// The time by which certificates are backdated, for clients whose clock is behind.
    private static let backdating = day

    var authority: Identity
    var now: Date

    /// Creates an authority that is valid for ten years.
    init(now: Date) throws {
        let key = P256.Signing.PrivateKey()
        let name = try DistinguishedName { CommonName(Self.authorityName) }
        let certificate = try Certificate(
            version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: .init(key.publicKey),
            notValidBefore: now - Self.backdating, notValidAfter: now + Self.authorityValidity, issuer: name,
            subject: name,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
                Critical(KeyUsage(keyCertSign: true, cRLSign: true))
                SubjectKeyIdentifier(hash: Certificate.PublicKey(key.publicKey))
            },
            issuerPrivateKey: .init(key))
        self.init(authority: Identity(certificate: certificate, key: key), now: now)
    }

    init(authority: Identity, now: Date) {
        self.authority = authority
        self.now = now
    }

    /// Issues a certificate for the listeners, with the names of this machine, of `host`, and of the push services
    /// that the sandbox plays.
    func server(host: String) throws -> Identity {
        try leaf(
            subject: DistinguishedName { CommonName("localhost") },
            extensions: Certificate.Extensions {
                try ExtendedKeyUsage([.serverAuth])
                SubjectAlternativeNames(Self.names(host: host))
            })
    }

    /// The names in the listeners' certificate.
    static func names(host: String) -> [GeneralName] {
        let local: [GeneralName] = [
            .dnsName("localhost"),
            .ipAddress(ASN1OctetString(contentBytes: [127, 0, 0, 1])),
            .ipAddress(ASN1OctetString(contentBytes: [UInt8](repeating: 0, count: 15) + [1])),
        ]
        func address(_ bytes: some Any) -> GeneralName {
            .ipAddress(ASN1OctetString(contentBytes: withUnsafeBytes(of: bytes) { Array($0) }[...]))
        }
        let name: GeneralName =
            switch try? SocketAddress(ipAddress: host, port: 0) {
            case .v4(let v4): address(v4.address.sin_addr)
            case .v6(let v6): address(v6.address.sin6_addr)
            default: .dnsName(host)
            }
        return (local.contains(name) ? local : local + [name]) + ServiceHost.all.map { .dnsName($0.name) }
    }

    /// Issues a certificate that looks like Apple's certificate for an environment.
    ///
    /// The topic is the subject's UID, because the gateway reads it from there ("Binary Provider API"). An extension
    /// lists all topics that the certificate is valid for ("Sending notification requests to APNs").
    func client(topic: String, environment: PushEnvironment = .development) throws -> Identity {
        let isForProduction = environment == .production
        let prefix =
            isForProduction ? ClientCertificate.productionCommonNamePrefix : ClientCertificate.commonNamePrefix
        return try leaf(
            subject: DistinguishedName([
                .init(type: .userIdentifier, value: .init(utf8String: topic)),
                .init(type: .RDNAttributeType.commonName, value: .init(utf8String: prefix + topic)),
            ]),
            extensions: Certificate.Extensions {
                try ExtendedKeyUsage([.clientAuth])
                Certificate.Extension(
                    oid: isForProduction ? .appleProductionPush : .appleDevelopmentPush, critical: false,
                    value: [0x05, 0x00])
                try ClientCertificate.topicsExtension(app: topic)
            })
    }

    /// Whether this authority issued the certificate, and it is valid now and for at least 30 more days.
    func isValid(_ certificate: Certificate) -> Bool {
        certificate.issuer == authority.certificate.subject
            && authority.certificate.publicKey.isValidSignature(certificate.signature, for: certificate)
            && certificate.notValidBefore <= now && certificate.notValidAfter >= now + Self.renewalPeriod
    }

    /// Issues a certificate below the authority. Tests call this with other extensions.
    func leaf(subject: DistinguishedName, extensions: Certificate.Extensions) throws -> Identity {
        let key = P256.Signing.PrivateKey()
        let authorityKey = SubjectKeyIdentifier(hash: authority.certificate.publicKey)
        let certificate = try Certificate(
            version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: .init(key.publicKey),
            notValidBefore: max(now - Self.backdating, authority.certificate.notValidBefore),
            notValidAfter: min(now + Self.leafValidity, authority.certificate.notValidAfter),
            issuer: authority.certificate.subject, subject: subject,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.notCertificateAuthority)
                Critical(KeyUsage(digitalSignature: true))
                SubjectKeyIdentifier(hash: Certificate.PublicKey(key.publicKey))
                AuthorityKeyIdentifier(keyIdentifier: authorityKey.keyIdentifier)
                extensions
            },
            issuerPrivateKey: .init(authority.key))
        return Identity(certificate: certificate, key: key)
    }
}
