import Foundation

/// A notification as `GET /notifications` shows it.
struct NotificationBody: Encodable {
    var id: Int
    var `protocol` = "binary"
    var connection: Int
    var token: String
    var topic: String?
    var command: UInt8?
    var identifier: UInt32?
    /// What the frame says, under the names that the same things have in Apple's HTTP/2 API.
    var headers: [String: String]
    var payload: String?
    var payloadBase64: String?
    var receivedAt: String
    var answer: String

    enum CodingKeys: String, CodingKey {
        case id, `protocol`, connection, token, topic, command, identifier, headers, payload
        case payloadBase64 = "payload_base64"
        case receivedAt = "received_at"
        case answer
    }

    init(_ entry: InboxEntry) {
        id = entry.id
        connection = entry.connection
        token = entry.token.hex
        topic = entry.topic
        command = entry.command?.rawValue
        identifier = entry.identifier
        headers = [:]
        headers["apns-expiration"] = entry.expiration.map(String.init)
        headers["apns-priority"] = entry.priority.map(String.init)
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
    var createdAt: String
    var removedAt: String?

    enum CodingKeys: String, CodingKey {
        case id, token, topic
        case createdAt = "created_at"
        case removedAt = "removed_at"
    }

    init(_ device: SandboxDevice) {
        id = device.id
        token = device.token.hex
        topic = device.topic
        createdAt = device.createdAt.text
        removedAt = device.removedAt?.text
    }
}

struct DevicePageBody: Encodable {
    var devices: [DeviceBody]
    var next: Int
}

struct FaultBody: Encodable {
    var id: Int
    var `protocol` = "binary"
    var token: String?
    var after: Int
    var times: Int
    /// Of `after`, those that have passed.
    var passed: Int
    /// Of `times`, those that were hit.
    var hit: Int
    var action: String
    var status: UInt8?
    var identifier: UInt32?
    var delayMilliseconds: Int?

    enum CodingKeys: String, CodingKey {
        case id, `protocol`, token, after, times, passed, hit, action, status, identifier
        case delayMilliseconds = "delay_ms"
    }

    init(_ fault: Fault) {
        id = fault.id
        token = fault.token?.hex
        after = fault.after
        times = fault.times
        passed = fault.passed
        hit = fault.hit
        switch fault.action {
        case .status(let status, let delay, let identifier):
            action = FaultAction.status.rawValue
            self.status = status.rawValue
            self.identifier = identifier
            delayMilliseconds = delay
        case .close:
            action = FaultAction.close.rawValue
        case .reset:
            action = FaultAction.reset.rawValue
        case .stopReading(let milliseconds):
            action = FaultAction.stopReading.rawValue
            delayMilliseconds = milliseconds
        case .delay(let milliseconds):
            action = FaultAction.delay.rawValue
            delayMilliseconds = milliseconds
        case .drop:
            action = FaultAction.drop.rawValue
        }
    }
}

struct FaultListBody: Encodable {
    var faults: [FaultBody]
}

/// What the sandbox counted, as `GET /stats` shows it.
struct StatsBody: Encodable {
    struct Connections: Encodable {
        var open: Int
        var seen: Int
        var refused: Int
        var handshakesFailed: Int

        enum CodingKeys: String, CodingKey {
            case open, seen, refused
            case handshakesFailed = "handshakes_failed"
        }

        init(_ stats: ListenerStats) {
            open = stats.open
            seen = stats.seen
            refused = stats.refused
            handshakesFailed = stats.handshakesFailed
        }
    }

    struct Binary: Encodable {
        var answers: [String: Int]
        var discarded: Int
        var discardedBytes: Int
        var connections: Connections

        enum CodingKeys: String, CodingKey {
            case answers, discarded, connections
            case discardedBytes = "discarded_bytes"
        }
    }

    struct Feedback: Encodable {
        var waiting: Int
        var sent: Int
        var cleared: Int
        var connections: Connections
    }

    struct Inbox: Encodable {
        var count: Int
        var dropped: Int
        var last: Int
    }

    struct Devices: Encodable {
        var installed: Int
        var removed: Int
    }

    var binary: Binary
    var feedback: Feedback
    var inbox: Inbox
    var devices: Devices

    init(_ state: SandboxState) {
        let stats = state.stats
        var answers = stats.otherAnswers
        answers[InboxEntry.Answer.accepted.name] = stats.accepted
        binary = Binary(
            answers: answers, discarded: stats.discarded, discardedBytes: stats.discardedBytes,
            connections: Connections(stats.binary))
        feedback = Feedback(
            waiting: state.feedback.count, sent: stats.tuplesSent, cleared: stats.tuplesCleared,
            connections: Connections(stats.feedback))
        inbox = Inbox(count: state.inbox.count, dropped: state.inbox.dropped, last: state.inbox.lastID)
        devices = Devices(
            installed: state.devices.installedCount,
            removed: state.devices.count - state.devices.installedCount)
    }
}

struct HealthBody: Encodable {
    var healthy = true
}

extension Date {
    /// RFC 3339 in UTC, with milliseconds.
    var text: String {
        formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}
