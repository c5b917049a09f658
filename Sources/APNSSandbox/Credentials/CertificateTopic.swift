import Foundation
import NIOSSL
import SwiftASN1
import X509

/// Finds the topic (the app) for which a client certificate was issued (apns-binary.md §1).
enum CertificateTopic {
    /// What Apple's development certificates have before the topic in their common name.
    static let commonNamePrefix = "Apple Development IOS Push Services: "
    /// The same of the certificates for production.
    static let productionCommonNamePrefix = "Apple Production IOS Push Services: "

    /// The subject's UID; where there is none, what follows the last `": "` of the common name.
    static func topic(of certificate: Certificate) -> String? {
        if let identifier = value(of: .userIdentifier, in: certificate.subject), !identifier.isEmpty {
            return identifier
        }
        let commonName = value(of: .RDNAttributeType.commonName, in: certificate.subject)
        guard let commonName, let separator = commonName.range(of: ": ", options: .backwards) else { return nil }
        let topic = commonName[separator.upperBound...]
        return topic.isEmpty ? nil : String(topic)
    }

    static func topic(of certificate: NIOSSLCertificate) -> String? {
        guard let bytes = try? certificate.toDERBytes(), let parsed = try? Certificate(derEncoded: bytes) else {
            return nil
        }
        return topic(of: parsed)
    }

    private static func value(of type: ASN1ObjectIdentifier, in name: DistinguishedName) -> String? {
        for part in name {
            for attribute in part where attribute.type == type {
                return String(attribute.value)
            }
        }
        return nil
    }
}

extension ASN1ObjectIdentifier {
    /// `userId`, where Apple's push certificates have the topic.
    static let userIdentifier: ASN1ObjectIdentifier = [0, 9, 2342, 19_200_300, 100, 1, 1]
}
