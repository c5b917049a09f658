import Foundation
import NIOSSL
import SwiftASN1
import X509

/// One of Apple's two environments.
enum PushEnvironment: String, Sendable, Encodable {
    case development
    case production
}

/// The properties of a client certificate (Apple, "Binary Provider API" and "Establishing a certificate-based
/// connection to APNs").
struct ClientCertificate: Sendable, Hashable {
    /// The text before the topic in the common name of Apple's development certificates.
    static let commonNamePrefix = "Apple Development IOS Push Services: "
    /// The text before the topic in the common name of Apple's production certificates.
    static let productionCommonNamePrefix = "Apple Production IOS Push Services: "

    /// The app's topic: the subject's UID, otherwise the text after the last `": "` of the common name. `nil` if there
    /// is neither.
    var topic: String?
    /// All topics that the certificate is valid for, from Apple's extension. Empty if the extension is missing or
    /// malformed.
    var topics: [String] = []
    var isForDevelopment = false
    var isForProduction = false

    init(topic: String?, topics: [String] = [], isForDevelopment: Bool = false, isForProduction: Bool = false) {
        self.topic = topic
        self.topics = topics
        self.isForDevelopment = isForDevelopment
        self.isForProduction = isForProduction
    }

    init(_ certificate: Certificate) {
        topic = Self.topic(of: certificate.subject)
        isForDevelopment = certificate.extensions[oid: .appleDevelopmentPush] != nil
        isForProduction = certificate.extensions[oid: .appleProductionPush] != nil
        if let value = certificate.extensions[oid: .appleTopics]?.value {
            topics = (try? Self.topics(derEncoded: value)) ?? []
        }
    }

    init?(_ certificate: NIOSSLCertificate) {
        guard let bytes = try? certificate.toDERBytes(), let parsed = try? Certificate(derEncoded: bytes) else {
            return nil
        }
        self.init(parsed)
    }

    private static func topic(of subject: DistinguishedName) -> String? {
        func value(of type: ASN1ObjectIdentifier) -> String? {
            subject.lazy.flatMap { $0 }.first { $0.type == type }.flatMap { String($0.value) }
        }
        if let identifier = value(of: .userIdentifier), !identifier.isEmpty { return identifier }
        guard let name = value(of: .RDNAttributeType.commonName),
            let separator = name.range(of: ": ", options: .backwards)
        else { return nil }
        let topic = name[separator.upperBound...]
        return topic.isEmpty ? nil : String(topic)
    }

    /// Parses the topics. Each is followed by a sequence with its kind (`app`, `voip`, `complication`).
    private static func topics(derEncoded bytes: ArraySlice<UInt8>) throws -> [String] {
        try DER.sequence(try DER.parse(bytes), identifier: .sequence) { nodes in
            var topics: [String] = []
            while let node = nodes.next() {
                topics.append(String(try ASN1UTF8String(derEncoded: node)))
                _ = nodes.next()
            }
            return topics
        }
    }

    /// Returns the topics that Apple lists in an app's certificate, with the kind of each.
    static func topics(of app: String) -> [(topic: String, kind: String)] {
        [(app, "app"), (app + ".voip", "voip"), (app + ".complication", "complication")]
    }

    /// Returns Apple's extension for an app.
    static func topicsExtension(app: String) throws -> Certificate.Extension {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { serializer in
            for (topic, kind) in topics(of: app) {
                try serializer.serialize(ASN1UTF8String(topic))
                try serializer.appendConstructedNode(identifier: .sequence) { serializer in
                    try serializer.serialize(ASN1UTF8String(kind))
                }
            }
        }
        return Certificate.Extension(oid: .appleTopics, critical: false, value: serializer.serializedBytes[...])
    }
}

extension ASN1ObjectIdentifier {
    /// `userId`, the attribute with the topic in Apple's push certificates.
    static let userIdentifier: ASN1ObjectIdentifier = [0, 9, 2342, 19_200_300, 100, 1, 1]
    /// Apple's marks of the two environments. Some clients choose the host by them.
    static let appleDevelopmentPush: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 1]
    static let appleProductionPush: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 2]
    /// Apple's list of topics.
    static let appleTopics: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 6]
}
