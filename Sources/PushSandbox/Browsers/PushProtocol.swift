import Foundation
import PushWire

/// A browser's message in Mozilla's push protocol, in JSON.
///
/// Mozilla describes the protocol in "Push Service HTTP/WebSocket API" (autopush documentation). The parser follows
/// Firefox 153 ESR, and was tested with it.
enum BrowserMessage: Sendable, Hashable {
    struct Acknowledgement: Sendable, Hashable {
        let version: String
        /// The delivery code (``InboxEntry/Delivery``). `nil` if the browser sent none.
        let code: Int?
    }

    /// Identifies the browser. Only a ping may come before it. `userAgent` is the name that the service gave to the
    /// browser on an earlier connection. `nil` if the browser is new.
    case hello(userAgent: String?)
    /// Requests an endpoint. `key` is the public key of the only sender that may use it, 65 bytes. `nil` if every
    /// sender may.
    case register(channel: String, key: [UInt8]?)
    case unregister(channel: String)
    case acknowledge([Acknowledgement])
    /// Reports that the page's worker could not process a message.
    case fail(Acknowledgement)
    /// Subscribes to the vendor's broadcasts. The sandbox has none.
    case subscribeToBroadcasts
    case ping

    /// Parses a message.
    /// - Throws: ``PushProtocolError``, which names the field and the rule.
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
                guard let key = SandboxBrowser.applicationServerKey(text) else {
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

/// The rule of the protocol that a message breaks. The sandbox closes the connection with this text.
struct PushProtocolError: Error, Sendable, Hashable {
    let text: String

    init(_ text: String) {
        self.text = text
    }
}

/// A message from the push service in Mozilla's push protocol.
struct ServiceMessage: Sendable, Hashable, Encodable {
    /// The type. `nil` in the response to a ping, which is `{}`.
    let messageType: String?
    var status: Int?
    /// The browser's name.
    var uaid: String?
    var usesWebPush: Bool?
    var broadcasts: [String: String]?
    var channelID: String?
    var pushEndpoint: String?
    var version: String?
    /// The TTL in seconds.
    var ttl: Int?
    /// The encrypted message in base64url.
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

    /// Returns the response to a registration.
    /// - Parameter endpoint: The endpoint. `nil` if no more subscriptions can be created.
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
