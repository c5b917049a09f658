import APNSWire
import Foundation

/// The rules of the HTTP/2 provider API, in the order in which they are checked.
///
/// Apple documents the reasons (apns-http2.md §3), not their order. Ours: the form of the request, the path, who the
/// client is, what it wants, the payload, and last the device. `docs/sandbox.md` has it as a table.
struct SandboxRules {
    let request: SandboxRequest
    let certificate: ClientCertificate?
    let configuration: SandboxConfiguration
    let now: Date

    /// Characters of a bundle id with its suffix; `_` beside Apple's own.
    private static func isTopic(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= ControlAPI.topicLimit
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    // MARK: 1 to 4: the request's form

    func checkForm() throws(ProviderRefusal) {
        if request.hasDuplicates { throw .init(.duplicateHeaders) }
        guard let token = request.tokenText else { throw .init(.badPath) }
        guard request.method == "POST" else { throw .init(.methodNotAllowed) }
        if let id = request.id, !ProviderHeader.isID(id) { throw .init(.badMessageID) }
        if token.isEmpty { throw .init(.missingDeviceToken) }
        guard configuration.acceptedTokenSizes.contains(request.token.count) else { throw .init(.badDeviceToken) }
    }

    /// The request's own id, if it is one that an answer can repeat.
    static func answerID(_ request: SandboxRequest) -> String? {
        request.id.flatMap { ProviderHeader.isID($0) ? $0 : nil }
    }

    // MARK: 5: the certificate (the token has a state of its own, ``SandboxAuthentication``)

    func checkCertificate(_ certificate: ClientCertificate) throws(ProviderRefusal) {
        guard certificate.topic != nil || !certificate.topics.isEmpty else { throw .init(.badCertificate) }
        if certificate.isForProduction, !certificate.isForDevelopment { throw .init(.badCertificateEnvironment) }
    }

    // MARK: 6 and 7: what is wanted

    /// - Returns: the push type that counts, and the topic.
    func checkTopic() throws(ProviderRefusal) -> (PushType, topic: String) {
        let named = try request.pushType.map { (text) throws(ProviderRefusal) in
            let type = PushType(rawValue: text)
            guard configuration.strict ? type.isDocumented : Self.isTopic(text) && text.utf8.count <= PushType.longest
            else { throw ProviderRefusal(.invalidPushType) }
            return type
        }
        if certificate != nil, named?.needsProviderToken == true { throw .init(.forbidden) }
        // A certificate that lists several topics leaves the choice to the client.
        let standard = certificate?.topics.count ?? 0 > 1 ? nil : certificate?.topic
        guard let topic = request.topic ?? standard else { throw .init(.missingTopic) }
        guard Self.isTopic(topic) else { throw .init(.badTopic) }
        if let named, !Self.fits(topic, named) { throw .init(.badTopic) }
        let type = named ?? Self.type(of: topic)
        if let certificate {
            let topics = certificate.topics.isEmpty ? [certificate.topic ?? ""] : certificate.topics
            // The other spelling of the complication's suffix stands for the first.
            let plain = Self.app(of: topic, type) + type.topicSuffix
            guard topics.contains(topic) || topics.contains(plain) else { throw .init(.topicDisallowed) }
        } else if configuration.strict, type != .mdm, Self.app(of: topic, type) != configuration.topic {
            throw .init(.topicDisallowed)
        }
        return (type, topic)
    }

    /// The push type that a topic stands for where none is named.
    private static func type(of topic: String) -> PushType {
        PushType.documented.first { !$0.value.isEmpty && topic.hasSuffix($0.value) }?.key ?? .alert
    }

    /// Apple's page prints one suffix in a form that no client sends (apns-http2.md §2); both are accepted.
    private static let otherComplicationSuffix = ".h.complication"

    private static func fits(_ topic: String, _ type: PushType) -> Bool {
        type.topicSuffix.isEmpty ? true : topic.hasSuffix(type.topicSuffix) && !app(of: topic, type).isEmpty
    }

    /// The bundle id in a topic.
    static func app(of topic: String, _ type: PushType) -> String {
        if type == .complication, topic.hasSuffix(otherComplicationSuffix) {
            return String(topic.dropLast(otherComplicationSuffix.count))
        }
        // What Apple's newer types have: a type that is not documented may come with it.
        let suffix = type.isDocumented ? type.topicSuffix : ".push-type." + type.rawValue
        return topic.hasSuffix(suffix) ? String(topic.dropLast(suffix.count)) : topic
    }

    // MARK: 8 to 10: how

    func checkDelivery(_ type: PushType) throws(ProviderRefusal) {
        if let priority = request.priority {
            guard ["10", "5", "1"].contains(priority) else { throw .init(.badPriority) }
            if type == .background, priority == "10" { throw .init(.badPriority) }
        }
        if let expiration = request.expiration {
            guard let seconds = Int64(expiration), seconds >= 0, expiration.first != "+" else {
                throw .init(.badExpirationDate)
            }
        }
        if let collapseID = request.collapseID, collapseID.utf8.count > ProviderHeader.longestCollapseID {
            throw .init(.badCollapseID)
        }
    }

    // MARK: 11: the payload

    func checkPayload(_ type: PushType) throws(ProviderRefusal) {
        if request.bodySize == 0 { throw .init(.payloadEmpty) }
        if request.bodySize > type.payloadLimit { throw .init(.payloadTooLarge) }
    }

    // MARK: 12: the device

    /// What the sandbox knows of the device; `nil` where it knows nothing.
    func checkDevice(_ device: SandboxDevice?, topic: String, _ type: PushType) throws(ProviderRefusal) {
        guard let device else {
            if configuration.strict || DeviceRegistry.isImpossible(request.token) { throw .init(.badDeviceToken) }
            return
        }
        if device.environment != .development { throw .init(.badDeviceToken) }
        guard device.topic == topic || device.topic == Self.app(of: topic, type) else {
            throw .init(.deviceTokenNotForTopic)
        }
        if let removal = device.removedAt { throw .init(.unregistered, timestamp: Self.milliseconds(removal)) }
        if let expiry = device.expiresAt, expiry <= now {
            throw .init(.expiredToken, timestamp: Self.milliseconds(expiry))
        }
    }

    static func milliseconds(_ date: Date) -> Int64 { Int64((date.timeIntervalSince1970 * 1000).rounded()) }
}
