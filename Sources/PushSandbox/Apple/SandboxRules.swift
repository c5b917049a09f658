import Foundation
import PushWire

/// The rules of the HTTP/2 provider API, in the order in which they are checked.
///
/// Apple documents the reasons ("Handling notification responses from APNs"), but not their order. The sandbox checks
/// the request's form and path, the client's identity, push type and topic, delivery, the payload, and last the device.
/// `docs/sandbox-apple.md` has the rules as a list.
struct SandboxRules {
    let request: SandboxRequest
    let certificate: ClientCertificate?
    let configuration: SandboxConfiguration
    let now: Date

    /// Whether the text can be a topic: the characters of a bundle id with its suffix, and `_` in addition to Apple's
    /// characters.
    static func isTopic(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= ControlLimits.topic
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

    /// Returns a request's own id. `nil` if it is missing or malformed, so that a response cannot repeat it.
    static func responseID(_ id: String?) -> String? {
        id.flatMap { ProviderHeader.isID($0) ? $0 : nil }
    }

    // MARK: 5: the certificate (``SandboxAuthentication`` checks tokens)

    func checkCertificate(_ certificate: ClientCertificate) throws(ProviderRefusal) {
        guard certificate.topic != nil || !certificate.topics.isEmpty else { throw .init(.badCertificate) }
        if certificate.isForProduction, !certificate.isForDevelopment { throw .init(.badCertificateEnvironment) }
    }

    // MARK: 6 and 7: push type and topic

    /// Checks the push type and the topic.
    /// - Returns: The push type that applies, and the topic.
    func checkTopic() throws(ProviderRefusal) -> (PushType, topic: String) {
        let named = try request.pushType.map { (text) throws(ProviderRefusal) in
            let type = PushType(rawValue: text)
            guard configuration.strict ? type.isDocumented : Self.isTopic(text) && text.utf8.count <= PushType.longest
            else { throw ProviderRefusal(.invalidPushType) }
            return type
        }
        if certificate != nil, named?.needsProviderToken == true { throw .init(.forbidden) }
        // If a certificate lists several topics, the client has to choose one.
        let standard = certificate?.topics.count ?? 0 > 1 ? nil : certificate?.topic
        guard let topic = request.topic ?? standard else { throw .init(.missingTopic) }
        guard Self.isTopic(topic) else { throw .init(.badTopic) }
        if let named, !Self.fits(topic, named) { throw .init(.badTopic) }
        let type = named ?? Self.type(of: topic)
        if let certificate {
            let topics = certificate.topics.isEmpty ? [certificate.topic ?? ""] : certificate.topics
            // The other spelling of the complication's suffix counts as the usual one.
            let plain = Self.app(of: topic, type) + type.topicSuffix
            guard topics.contains(topic) || topics.contains(plain) else { throw .init(.topicDisallowed) }
        } else if configuration.strict, type != .mdm, Self.app(of: topic, type) != configuration.topic {
            throw .init(.topicDisallowed)
        }
        return (type, topic)
    }

    /// Returns the push type that a topic implies if the client names none.
    private static func type(of topic: String) -> PushType {
        PushType.documented.first { !$0.value.isEmpty && topic.hasSuffix($0.value) }?.key ?? .alert
    }

    /// The complication's suffix as Apple's page "Sending notification requests to APNs" prints it. Clients such as
    /// Pushy, APNSwift and apns2 send `.complication`. The sandbox accepts both.
    private static let otherComplicationSuffix = ".h.complication"

    private static func fits(_ topic: String, _ type: PushType) -> Bool {
        type.topicSuffix.isEmpty ? true : topic.hasSuffix(type.topicSuffix) && !app(of: topic, type).isEmpty
    }

    /// Returns the bundle id in a topic.
    static func app(of topic: String, _ type: PushType) -> String {
        if type == .complication, topic.hasSuffix(otherComplicationSuffix) {
            return String(topic.dropLast(otherComplicationSuffix.count))
        }
        // An undocumented type may have the suffix that Apple's newer types have.
        let suffix = type.isDocumented ? type.topicSuffix : ".push-type." + type.rawValue
        return topic.hasSuffix(suffix) ? String(topic.dropLast(suffix.count)) : topic
    }

    // MARK: 8 to 10: delivery

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

    /// Checks the device.
    /// - Parameter device: The device with the request's token. `nil` if the sandbox does not know it.
    func checkDevice(_ device: SandboxDevice?, topic: String, _ type: PushType) throws(ProviderRefusal) {
        guard let device else {
            if configuration.strict || SandboxDevice.isAllZeros(request.token) { throw .init(.badDeviceToken) }
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

    /// Checks an update token, which belongs to a Live Activity.
    func checkActivity(_ activity: SandboxActivity, topic: String) throws(ProviderRefusal) {
        guard activity.app == Self.app(of: topic, .liveactivity) else { throw .init(.deviceTokenNotForTopic) }
        if let end = activity.endedAt, !activity.keepsToken {
            throw .init(.unregistered, timestamp: Self.milliseconds(end))
        }
    }

    static func milliseconds(_ date: Date) -> Int64 { Int64((date.timeIntervalSince1970 * 1000).rounded()) }
}
