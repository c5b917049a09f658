import PushWire

/// The properties of a notification over the binary protocol.
struct BinaryDetails: InboxDetails {
    let gateway = GatewayProtocol.binary
    /// `nil` if the first byte is not a command.
    let command: BinaryCommand?
    let identifier: UInt32?
    /// The expiry in Unix seconds.
    var expiration: UInt32?
    var priority: UInt8?

    /// The frame's fields do not count against the inbox's limit.
    let headers: [String: String] = [:]
    let isForSimulator = true
    var logID: (key: String, text: String) { ("identifier", identifier.map { String($0) } ?? "none") }

    var json: JSONMembers {
        // Show the frame's fields under the names that they have over HTTP/2.
        var shown: [String: String] = [:]
        shown[ProviderHeader.expiration] = expiration.map { String($0) }
        shown[ProviderHeader.priority] = priority.map { String($0) }
        return ["command": command?.rawValue, "identifier": identifier, "headers": shown]
    }

    func effect(of payload: [UInt8], receiver: InboxEntry.PhoneDelivery.Receiver?) -> Screen.Effect? {
        .apple(payload, key: nil)
    }
}

extension InboxEntry.Response {
    /// The gateway rejected the notification with this status. If no packet can carry the status (command 0), it closed
    /// the connection for this reason.
    static func refused(_ status: BinaryStatus) -> Self { .error(status.name) }
}
