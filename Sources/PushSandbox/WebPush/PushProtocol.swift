import APNSWire
import Foundation
import WebPushWire

/// A message of a browser in Mozilla's push protocol, JSON (web-push.md §7).
enum BrowserMessage: Sendable, Hashable {
    struct Acknowledgement: Sendable, Hashable {
        let version: String
        /// What became of it (``InboxEntry/Delivery``); nil: not said.
        let code: Int?
    }

    /// Always the first; `userAgent` is the name that it got before.
    case hello(userAgent: String?)
    /// Asks for an endpoint. `key`: only this sender may send to it, 65 bytes.
    case register(channel: String, key: [UInt8]?)
    case unregister(channel: String)
    case acknowledge([Acknowledgement])
    /// The worker failed with a message that was acknowledged.
    case fail(Acknowledgement)
    /// News of the vendor's, of which there are none here.
    case subscribeToBroadcasts
    case ping

    /// - Throws: the field and the rule that it breaks.
    init(json: Data) throws(PushProtocolError) {
        let fields: Fields
        do {
            fields = try JSONDecoder().decode(Fields.self, from: json)
        } catch DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context) {
            let field = context.codingPath.first?.stringValue
            throw PushProtocolError(field.map { "\($0): has a value of the wrong type" } ?? "must be a JSON object")
        } catch {
            throw PushProtocolError("must be a JSON object")
        }
        switch fields.messageType {
        case nil, "ping": self = .ping
        case "hello":
            guard fields.usesWebPush == true else { throw PushProtocolError("use_webpush: must be true") }
            self = .hello(userAgent: fields.uaid)
        case "register":
            let key = try fields.key.map { (text) throws(PushProtocolError) in
                guard let key = BrowserRegistry.applicationServerKey(text) else {
                    throw PushProtocolError("key: must be an uncompressed point on the curve P-256 in base64url")
                }
                return key
            }
            self = .register(channel: try fields.channel(), key: key)
        case "unregister": self = .unregister(channel: try fields.channel())
        case "ack":
            self = .acknowledge(
                (fields.updates ?? []).compactMap { update in
                    update.version.map { Acknowledgement(version: $0, code: update.code) }
                })
        case "nack":
            guard let version = fields.version else { throw PushProtocolError("version: must be given") }
            self = .fail(Acknowledgement(version: version, code: fields.code))
        case "broadcast_subscribe": self = .subscribeToBroadcasts
        default:
            throw PushProtocolError(
                "messageType: must be hello, register, unregister, ack, nack, broadcast_subscribe or ping")
        }
    }

    private struct Fields: Decodable {
        struct Update: Decodable {
            let version: String?
            let code: Int?
        }
        let messageType, uaid, channelID, key, version: String?
        let usesWebPush: Bool?
        let code: Int?
        let updates: [Update]?

        private enum CodingKeys: String, CodingKey {
            case messageType, uaid, channelID, key, version, code, updates
            case usesWebPush = "use_webpush"
        }

        func channel() throws(PushProtocolError) -> String {
            guard let channelID, UUID(uuidString: channelID) != nil else {
                throw PushProtocolError("channelID: must be a UUID")
            }
            return channelID.lowercased()
        }
    }
}

/// A message that breaks the protocol; the connection is closed with it.
struct PushProtocolError: Error, Sendable, Hashable {
    let text: String

    init(_ text: String) {
        self.text = text
    }
}

/// A message of the service in Mozilla's push protocol.
struct ServiceMessage: Sendable, Hashable, Encodable {
    /// Nil: the answer to a ping, `{}`.
    let messageType: String?
    var status: Int?
    var uaid: String?
    var usesWebPush: Bool?
    var broadcasts: [String: String]?
    var channelID: String?
    var pushEndpoint: String?
    var version: String?
    /// Seconds.
    var ttl: Int?
    /// The message as it came, in base64url.
    var data: String?
    var headers: [String: String]?

    private enum CodingKeys: String, CodingKey {
        case messageType, status, uaid, broadcasts, channelID, pushEndpoint, version, ttl, data, headers
        case usesWebPush = "use_webpush"
    }
}

extension ServiceMessage {
    static let pong = ServiceMessage(messageType: nil)

    static func hello(_ userAgent: String) -> ServiceMessage {
        ServiceMessage(messageType: "hello", status: 200, uaid: userAgent, usesWebPush: true, broadcasts: [:])
    }

    /// - Parameter endpoint: nil where no more subscriptions can be made.
    static func registered(_ channel: String, endpoint: String?) -> ServiceMessage {
        ServiceMessage(
            messageType: "register", status: endpoint == nil ? 500 : 200, channelID: channel, pushEndpoint: endpoint)
    }

    static func unregistered(_ channel: String) -> ServiceMessage {
        ServiceMessage(messageType: "unregister", status: 200, channelID: channel)
    }

    static func notification(_ message: UserAgents.Message) -> ServiceMessage {
        ServiceMessage(
            messageType: "notification", channelID: message.channel, version: message.version, ttl: message.ttl,
            data: Base64URL.text(message.body), headers: ["encoding": MessageEncryption.coding])
    }
}
