import PushWire

/// The properties of a push to a device, or of a broadcast, over HTTP/2.
struct ProviderDetails: InboxDetails {
    /// The protocol: ``GatewayProtocol/http2`` or ``GatewayProtocol/broadcast``.
    let gateway: GatewayProtocol
    let stream: Int
    /// The id that the client sent, otherwise the id that the sandbox created.
    let id: String
    /// All `apns-…` headers that the client sent, but never the provider token.
    let headers: [String: String]
    /// `token` and the key's id, or `certificate`. `nil` if the notification was rejected before the client was
    /// authenticated.
    let authentication: String?

    private var isPush: Bool { gateway == .http2 }
    private var pushType: String? { headers[ProviderHeader.pushType] }

    var logID: (key: String, text: String) { (isPush ? ProviderHeader.id : ProviderHeader.requestID, id) }
    var isForSimulator: Bool {
        isPush && pushType.map([PushType.alert, .background].map(\.rawValue).contains) ?? true
    }

    var json: JSONMembers {
        [
            "stream": stream, "apns_id": isPush ? id : nil, "request_id": isPush ? nil : id,
            "push_type": isPush ? pushType : nil, "channel": isPush ? nil : headers[ProviderHeader.channelID],
            "headers": headers, "authentication": authentication,
        ]
    }

    func warnings(about payload: [UInt8]) -> [String] {
        guard isPush else { return [] }
        let type = pushType.map { PushType(rawValue: $0) }
        return [type?.warning, APSCheck.warning(about: payload, of: type ?? .alert)].compactMap(\.self)
    }

    func effect(of payload: [UInt8], receiver: InboxEntry.PhoneDelivery.Receiver?) -> Screen.Effect? {
        isForSimulator ? .apple(payload, key: headers[ProviderHeader.collapseID]) : nil
    }
}

extension Screen.Effect {
    /// Reads a payload of Apple's. A `clear` has the form in which the relay asks an app to remove a notification.
    /// - Parameter key: The collapse id.
    static func apple(_ payload: [UInt8], key: String?) -> Self? {
        guard let root = PayloadObject(payload), let aps = root.object("aps") else { return nil }
        let alert = aps.object("alert")
        let isSilent = !aps.has("sound") || aps.text("interruption-level") == "passive"
        let message = root.text("message_id")
        let content = Screen.Content(
            title: alert?.text("title") ?? alert?.text("title-loc-key"),
            body: aps.text("alert") ?? alert?.text("body") ?? alert?.text("loc-key"), key: key, message: message,
            ring: isSilent ? .never : .always)
        if let content { return .show(content) }
        return root.text("type") == "clear" && message != nil ? .remove(key: nil, message: message) : nil
    }
}

extension InboxEntry.Response {
    static func rejected(_ refusal: ProviderRefusal) -> Self { .error(refusal.reason) }
}
