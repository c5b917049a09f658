package import Foundation
import SwiftASN1
import X509

/// The parts of a certificate, Apple's or a server's, that `check` and the log show.
package struct CertificateSummary: Sendable, Hashable {
    package enum Environment: String, Sendable {
        case development, production, both, unstated
    }

    package let commonName: String
    /// The app: the subject's user id (UID), as Apple's certificates have it.
    package let topic: String?
    /// The topics for which it may be used: the app's own and, where the certificate lists them, those with suffixes.
    package let topics: [String]
    package let environment: Environment
    package let notBefore: Date
    package let notAfter: Date
    /// Who signed it, by its common name.
    package let issuer: String
    /// The host names for which a server may show it, as written there: `*.example.org` stands for one more part.
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

    /// Whether it is for a host, by its name.
    package func isFor(_ host: String) -> Bool {
        let host = host.lowercased()
        return hosts.contains { name in
            let name = name.lowercased()
            return name == host
                || (name.hasPrefix("*.") && !host.hasPrefix(".") && host.drop { $0 != "." } == name.dropFirst())
        }
    }

    /// Whole days until it expires; negative when it has.
    package func daysLeft(at now: Date) -> Int {
        Int((notAfter.timeIntervalSince(now) / 86_400).rounded(.down))
    }

    /// The list of topics: a SEQUENCE in which a topic, as UTF8String, and a SEQUENCE with the name of its kind alternate.
    /// As much of it as can be read.
    private static func topics(in value: ArraySlice<UInt8>) -> [String] {
        guard let node = try? BER.parse(value), case .constructed(let parts) = node.content else { return [] }
        return parts.prefix(Self.mostTopics * 2).compactMap { part in
            (try? ASN1UTF8String(berEncoded: part)).map { String($0) }
        }
    }

    /// Topics of a list that are read.
    private static let mostTopics = 100
    // Apple's extensions. Source: developer.apple.com, "Sending notification requests to APNs", for the topics, as of November
    // 2026; for the environments Apple's own certificates (apns-binary.md §1).
    private static let topicList: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 6]
    private static let userID: ASN1ObjectIdentifier = [0, 9, 2342, 19_200_300, 100, 1, 1]
    private static let development: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 1]
    private static let production: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 3, 2]
}
