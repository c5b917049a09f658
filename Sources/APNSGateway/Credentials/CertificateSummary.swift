package import Foundation
import SwiftASN1
import X509

/// The parts of a certificate that `check` and the log show. The certificate is an app's, in the form that Apple
/// issues, or a server's.
package struct CertificateSummary: Sendable, Hashable {
    package enum Environment: String, Sendable {
        case development, production, both, unstated
    }

    package let commonName: String
    /// The app's topic: the subject's user id (UID), as Apple's certificates have it. `nil` if the subject has none.
    package let topic: String?
    /// The topics for which the certificate is valid: the listed ones, which include topics with suffixes, or only
    /// ``topic`` if the certificate has no list.
    package let topics: [String]
    package let environment: Environment
    package let notBefore: Date
    package let notAfter: Date
    /// The issuer's common name, or its full name if it has no common name.
    package let issuer: String
    /// The host names for which a server may present the certificate, as the certificate writes them. `*.example.org`
    /// matches one more label.
    package let hosts: [String]

    package init(der: [UInt8]) throws {
        let certificate = try Certificate(derEncoded: der)
        let names = Self.attributes(of: certificate.subject)
        issuer = Self.attributes(of: certificate.issuer)[.NameAttributes.commonName] ?? certificate.issuer.description
        hosts =
            (try? certificate.extensions.subjectAlternativeNames)?.compactMap { name in
                if case .dnsName(let host) = name { host } else { nil }
            } ?? []
        commonName = names[.NameAttributes.commonName] ?? certificate.subject.description
        let topic = names[Self.userID]
        self.topic = topic
        let listed = certificate.extensions[oid: Self.topicList].map { Self.topics(in: $0.value) } ?? []
        topics = listed.isEmpty ? topic.map { [$0] } ?? [] : listed
        let isDevelopment = certificate.extensions[oid: Self.development] != nil
        let isProduction = certificate.extensions[oid: Self.production] != nil
        environment =
            switch (isDevelopment, isProduction) {
            case (true, true): .both
            case (true, false): .development
            case (false, true): .production
            case (false, false): .unstated
            }
        notBefore = certificate.notValidBefore
        notAfter = certificate.notValidAfter
    }

    private static func attributes(of name: DistinguishedName) -> [ASN1ObjectIdentifier: String] {
        name.flatMap { $0 }.reduce(into: [:]) { $0[$1.type] = String(describing: $1.value) }
    }

    /// Whether the certificate is valid for a host name.
    package func isFor(_ host: String) -> Bool {
        let host = host.lowercased()
        return hosts.contains { name in
            let name = name.lowercased()
            return name == host
                || (name.hasPrefix("*.") && !host.hasPrefix(".") && host.drop { $0 != "." } == name.dropFirst())
        }
    }

    /// Returns the number of whole days until the certificate expires. Negative if it has expired.
    package func daysLeft(at now: Date) -> Int {
        Int((notAfter.timeIntervalSince(now) / 86_400).rounded(.down))
    }

    /// Returns the topics of the list, as far as it can be read. The list is a SEQUENCE in which topics (UTF8String)
    /// alternate with SEQUENCEs that name the topic's kind.
    private static func topics(in value: ArraySlice<UInt8>) -> [String] {
        guard let node = try? BER.parse(value), case .constructed(let parts) = node.content else { return [] }
        return parts.prefix(Self.maxTopics * 2).compactMap { part in
            (try? ASN1UTF8String(berEncoded: part)).map { String($0) }
        }
    }

    /// The maximum number of topics that are read from a list.
    private static let maxTopics = 100
    // Apple's extensions. Apple documents the list of topics in "Sending notification requests to APNs" (as of November
    // 2026). The extensions for the environments are read from Apple's own certificates (node-apn 1.7.8,
    // `lib/credentials/oids.js`).
    private static let topicList: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 6]
    private static let userID: ASN1ObjectIdentifier = [0, 9, 2342, 19_200_300, 100, 1, 1]
    private static let development: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 1]
    private static let production: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 2]
}
