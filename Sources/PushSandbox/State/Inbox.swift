import APNSWire
import Foundation

/// The protocols in which one can send.
enum GatewayProtocol: String, Sendable, Hashable, Encodable, CaseIterable {
    case binary
    case http2
    case webpush

    /// The rule that a wrong name breaks.
    static var rule: String { "must be one of \(allCases.map(\.rawValue).joined(separator: ", "))" }
}

/// One notification as the sandbox accepted or refused it, in JSON as `GET /notifications` shows it.
struct InboxEntry: Sendable, Hashable, Encodable {
    /// What became of a notification.
    enum Response: Sendable, Hashable {
        /// On the binary protocol the client receives nothing.
        case accepted
        /// A fault discarded it: a binary client believes that it was accepted.
        case dropped
        /// A fault closed the connection at it, without an answer.
        case closed
        /// A fault reset the connection at it.
        case reset
        /// A fault ended its stream unprocessed, by GOAWAY or a reset of the stream: the client may send it again.
        case unprocessed
        /// Refused with the status, or closed for that reason where no packet can carry it (command 0).
        case refused(BinaryStatus)
        /// Refused over HTTP/2, by a rule or a fault.
        case rejected(ProviderRefusal)
        /// Refused by the push service of browsers, by a rule or a fault.
        case denied(WebPushRefusal)

        /// As records, counts and logs show it.
        var name: String {
            switch self {
            case .accepted: "accepted"
            case .dropped: "dropped"
            case .closed: "closed"
            case .reset: "reset"
            case .unprocessed: "unprocessed"
            case .refused(let status): status.name
            case .rejected(let refusal): refusal.reason
            case .denied(let refusal): "\(refusal.status)"
            }
        }
    }

    /// What a notification has besides token and payload, by protocol.
    enum Details: Sendable, Hashable {
        /// `command` is nil where the first byte was none; `expiration` is in UNIX seconds.
        case binary(command: BinaryCommand?, identifier: UInt32?, expiration: UInt32? = nil, priority: UInt8? = nil)
        /// - `apnsID`: the one that was sent, else the one that was made for it.
        /// - `headers`: all `apns-…` headers that were sent; never the provider token.
        /// - `authentication`: `token` and the key's id, or `certificate`; nil where the notification was refused before
        ///   that was known.
        case http2(
            stream: Int, apnsID: String, pushType: String?, headers: [String: String], authentication: String?)
        /// `headers`: TTL, urgency and topic, as they were sent.
        case webPush(headers: [String: String])
    }

    /// How far a message for a real browser has come.
    struct Delivery: Sendable, Hashable {
        enum Progress: String, Sendable, Encodable {
            /// The browser is not connected, or reads slowly.
            case waiting
            /// The browser has not acknowledged it. It gets it again when it connects the next time.
            case sent
            case acknowledged
            /// The browser acknowledged it, and then the page's worker failed.
            case failed
            /// Its TTL has passed.
            case expired
            /// Another with the same topic came.
            case replaced
            /// Too many were waiting.
            case dropped
            /// The subscription has ended.
            case unregistered
        }
        let progress: Progress
        /// What the browser said: 100 to 102 of an acknowledged one, 301 to 303 of one that failed.
        var code: Int?
    }

    /// From 1, without gaps, in the order of arrival; never used twice while the process runs.
    let id: Int
    /// The connection's number, from 1; nil with Web Push, where nothing depends on it.
    let connection: Int?
    /// The topic that was asked for, else the certificate's; nil where neither names one.
    let topic: String?
    /// Empty where the notification could not be read that far.
    let token: [UInt8]
    /// With Web Push what the browser has decrypted, empty where it could not; for a real browser the message as it came.
    let payload: [UInt8]
    let receivedAt: Date
    let answer: Response
    let details: Details
    /// Of a message for a real browser.
    var delivery: Delivery?

    var gateway: GatewayProtocol {
        switch details {
        case .binary: .binary
        case .http2: .http2
        case .webPush: .webpush
        }
    }

    /// Bytes that the inbox counts for it: payload and headers.
    var size: Int {
        switch details {
        case .binary: payload.count
        case .http2(_, _, _, let headers, _), .webPush(let headers):
            headers.reduce(payload.count) { $0 + $1.key.utf8.count + $1.value.utf8.count }
        }
    }

    private enum CodingKeys: String, CodingKey {
        case id, `protocol`, connection, stream, token, topic, authentication, command, identifier, headers, payload
        case answer, message, delivery, warning
        case deliveryCode = "delivery_code"
        case apnsID = "apns_id"
        case pushType = "push_type"
        case payloadBase64 = "payload_base64"
        case receivedAt = "received_at"
    }

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(id, forKey: .id)
        try fields.encode(gateway, forKey: .protocol)
        try fields.encodeIfPresent(connection, forKey: .connection)
        try fields.encode(token.hex, forKey: .token)
        try fields.encodeIfPresent(topic, forKey: .topic)
        switch details {
        case .binary(let command, let identifier, let expiration, let priority):
            try fields.encodeIfPresent(command?.rawValue, forKey: .command)
            try fields.encodeIfPresent(identifier, forKey: .identifier)
            // What the frame has, under the names that the same things have over HTTP/2.
            var headers: [String: String] = [:]
            headers[ProviderHeader.expiration] = expiration.map { String($0) }
            headers[ProviderHeader.priority] = priority.map { String($0) }
            try fields.encode(headers, forKey: .headers)
        case .http2(let stream, let apnsID, let pushType, let headers, let authentication):
            try fields.encode(stream, forKey: .stream)
            try fields.encode(apnsID, forKey: .apnsID)
            try fields.encodeIfPresent(pushType, forKey: .pushType)
            if case .accepted = answer {
                try fields.encodeIfPresent(pushType.flatMap { PushType(rawValue: $0).warning }, forKey: .warning)
            }
            try fields.encode(headers, forKey: .headers)
            try fields.encodeIfPresent(authentication, forKey: .authentication)
        case .webPush(let headers):
            try fields.encode(headers, forKey: .headers)
            if case .denied(let refusal) = answer { try fields.encode(refusal.message, forKey: .message) }
        }
        if let text = String(validating: payload, as: UTF8.self) {
            try fields.encode(text, forKey: .payload)
        } else {
            try fields.encode(Data(payload).base64EncodedString(), forKey: .payloadBase64)
        }
        try fields.encodeIfPresent(delivery?.progress, forKey: .delivery)
        try fields.encodeIfPresent(delivery?.code, forKey: .deliveryCode)
        try fields.encode(receivedAt.rfc3339, forKey: .receivedAt)
        try fields.encode(answer.name, forKey: .answer)
    }
}

/// Selects notifications of the inbox. A condition that is `nil` holds for all.
struct InboxFilter: Sendable, Hashable {
    var token: [UInt8]?
    var gateway: GatewayProtocol?
    /// The ``InboxEntry/Response/name``.
    var answer: String?

    func matches(_ entry: InboxEntry) -> Bool {
        (token == nil || entry.token == token) && (gateway == nil || entry.gateway == gateway)
            && (answer == nil || entry.answer.name == answer)
    }
}

/// What arrived, in order, bounded: the oldest entries are dropped when there are too many, or their payloads too large
/// together.
struct Inbox: Sendable {
    /// Entries that are kept when nothing else is asked for.
    static let defaultLimit = 100_000
    /// Bytes of all payloads and headers kept: enough for a full inbox of notifications of ordinary size.
    static let byteLimit = 64 << 20
    /// Vacated places at the front of the storage before it is moved up.
    private static let slack = 1024

    private let limit: Int
    private let byteLimit: Int
    /// The id of the newest entry there ever was; 0 before the first.
    private(set) var lastID = 0
    /// Entries that were dropped to make room. Clearing is not counted.
    private(set) var dropped = 0
    private(set) var bytes = 0
    private var entries: [InboxEntry?] = []
    private var first = 0

    init(limit: Int = Inbox.defaultLimit, byteLimit: Int = Inbox.byteLimit) {
        self.limit = max(1, limit)
        self.byteLimit = byteLimit
    }

    var count: Int { entries.count - first }

    /// Appends the entry that `make` makes with the next id.
    mutating func append(_ make: (Int) -> InboxEntry) {
        lastID += 1
        let entry = make(lastID)
        bytes += entry.size
        entries.append(entry)
        while count > limit || bytes > byteLimit && count > 1 {
            dropFirst()
        }
    }

    /// Notes how far a message has come, if it is still here.
    mutating func note(_ progress: InboxEntry.Delivery.Progress, code: Int? = nil, of id: Int) {
        let index = first + id - (lastID - count + 1)
        guard index >= first, index < entries.count else { return }
        entries[index]?.delivery = .init(progress: progress, code: code)
    }

    mutating func clear() {
        entries = []
        first = 0
        bytes = 0
    }

    /// A page of entries.
    /// - Parameter since: only entries with a higher id.
    /// - Returns: at most `limit` entries, oldest first, and the id to pass as `since` for what comes after them.
    func page(
        since: Int = 0, filter: InboxFilter = InboxFilter(), limit: Int = .max
    ) -> (entries: [InboxEntry], next: Int) {
        var page: [InboxEntry] = []
        for case let entry? in entries[places(since: since)] where filter.matches(entry) {
            page.append(entry)
            if page.count == limit { return (page, entry.id) }
        }
        return (page, lastID)
    }

    /// The number of entries with a higher id than `since` that match.
    func count(since: Int, filter: InboxFilter) -> Int {
        entries[places(since: since)].count { $0.map(filter.matches) ?? false }
    }

    /// The places in the storage of the entries with a higher id.
    private func places(since: Int) -> Range<Int> {
        let oldest = lastID - count + 1
        return (first + min(max(0, since - oldest + 1), count))..<entries.count
    }

    private mutating func dropFirst() {
        bytes -= entries[first]?.size ?? 0
        entries[first] = nil
        first += 1
        dropped += 1
        // Moved only when half of the storage is vacant, so that each entry is moved once on average.
        if first > Self.slack, first > entries.count / 2 {
            entries.removeFirst(first)
            first = 0
        }
    }
}
