import APNSWire
import Foundation

/// A notification as `GET /notifications` shows it.
struct NotificationBody: Encodable {
    var id: Int
    var `protocol`: String
    var connection: Int
    /// Over HTTP/2, as are the four after the topic.
    var stream: Int?
    var token: String
    var topic: String?
    var apnsID: String?
    var pushType: String?
    /// `certificate`, or `token` and the key's id.
    var authentication: String?
    /// On the binary protocol.
    var command: UInt8?
    var identifier: UInt32?
    /// The `apns-…` headers; of a binary frame, what it says under the names that the same things have there.
    var headers: [String: String]
    var payload: String?
    var payloadBase64: String?
    var receivedAt: String
    var answer: String

    enum CodingKeys: String, CodingKey {
        case id, `protocol`, connection, stream, token, topic, authentication, command, identifier, headers, payload
        case apnsID = "apns_id"
        case pushType = "push_type"
        case payloadBase64 = "payload_base64"
        case receivedAt = "received_at"
        case answer
    }

    init(_ entry: InboxEntry) {
        id = entry.id
        `protocol` = entry.gateway.rawValue
        connection = entry.connection
        stream = entry.request?.stream
        apnsID = entry.request?.apnsID
        pushType = entry.request?.pushType
        authentication = entry.request?.authentication
        token = entry.token.hex
        topic = entry.topic
        command = entry.command?.rawValue
        identifier = entry.identifier
        headers = entry.request?.headers ?? [:]
        if let expiration = entry.expiration { headers[ProviderHeader.expiration] = String(expiration) }
        if let priority = entry.priority { headers[ProviderHeader.priority] = String(priority) }
        payload = String(validating: entry.payload, as: UTF8.self)
        payloadBase64 = payload == nil ? Data(entry.payload).base64EncodedString() : nil
        receivedAt = entry.receivedAt.text
        answer = entry.answer.name
    }
}

struct NotificationPageBody: Encodable {
    var notifications: [NotificationBody]
    /// To be passed as `since` for what comes after these.
    var next: Int
}

struct DeviceBody: Encodable {
    var id: Int
    var token: String
    var topic: String
    /// Shown where it is not development.
    var environment: String?
    var createdAt: String
    var expiresAt: String?
    var removedAt: String?

    enum CodingKeys: String, CodingKey {
        case id, token, topic, environment
        case createdAt = "created_at"
        case expiresAt = "expires_at"
        case removedAt = "removed_at"
    }

    init(_ device: SandboxDevice) {
        id = device.id
        token = device.token.hex
        topic = device.topic
        environment = device.environment == .development ? nil : device.environment.rawValue
        createdAt = device.createdAt.text
        expiresAt = device.expiresAt?.text
        removedAt = device.removedAt?.text
    }
}

struct DevicePageBody: Encodable {
    var devices: [DeviceBody]
    var next: Int
}

struct HealthBody: Encodable {
    var healthy = true
}

extension Date {
    /// Reads RFC 3339, with or without fractions of a second.
    init?(rfc3339 text: String) {
        let date = [true, false].lazy.compactMap { fractions in
            try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: fractions))
        }.first
        guard let date else { return nil }
        self = date
    }

    /// RFC 3339 in UTC, with milliseconds.
    var text: String {
        formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}
