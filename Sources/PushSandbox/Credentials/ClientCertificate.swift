import Foundation
import NIOSSL
import SwiftASN1
import X509

/// What a client certificate says about itself (apns-binary.md §1, apns-http2.md §6).
struct ClientCertificate: Sendable, Hashable {
    /// What Apple's development certificates have before the topic in their common name.
    static let commonNamePrefix = "Apple Development IOS Push Services: "
    /// The same of the certificates for production.
    static let productionCommonNamePrefix = "Apple Production IOS Push Services: "

    /// The app for which it was issued: the subject's UID; where there is none, what follows the last `": "` of the common
    /// name.
    var topic: String?
    /// All topics for which it is good, from Apple's extension; empty where it has none.
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

    /// The topics, each followed by a sequence of what it is for (`app`, `voip`, `complication`).
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

    /// The topics that Apple lists in an app's certificate, with what each is for.
    static func topics(of app: String) -> [(topic: String, kind: String)] {
        [(app, "app"), (app + ".voip", "voip"), (app + ".complication", "complication")]
    }

    /// The value of Apple's extension for an app.
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
    /// `userId`, where Apple's push certificates have the topic.
    static let userIdentifier: ASN1ObjectIdentifier = [0, 9, 2342, 19_200_300, 100, 1, 1]
    /// Apple's marks of the two environments; some clients choose the host by them.
    static let appleDevelopmentPush: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 1]
    static let appleProductionPush: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 2]
    /// Apple's list of topics.
    static let appleTopics: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 3, 6]
}
