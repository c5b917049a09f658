import Foundation
import PushWire

/// A notification that the sandbox accepted or rejected, encoded as in the response to `GET /notifications`.
struct InboxEntry: Sendable, Encodable {
    /// The outcome of a notification: the gateway's response, or the effect of a fault.
    enum Response: Sendable, Hashable {
        /// The gateway accepted the notification. Over the binary protocol the client receives nothing.
        case accepted
        /// A fault dropped the notification. A binary client believes that it was accepted.
        case dropped
        /// A fault closed the connection without a response.
        case closed
        /// A fault reset the connection.
        case reset
        /// A fault ended the stream without processing the notification, by GOAWAY or RST_STREAM. The client may retry
        /// it.
        case unprocessed
        /// The gateway rejected the notification, by a rule or a fault. `message` is the sentence in the response. `nil`
        /// if it had none.
        case error(String, message: String? = nil)

        /// The name in the inbox, in counts and in the log.
        var name: String {
            switch self {
            case .accepted: "accepted"
            case .dropped: "dropped"
            case .closed: "closed"
            case .reset: "reset"
            case .unprocessed: "unprocessed"
            case .error(let name, _): name
            }
        }
    }

    /// The delivery state of a message for a real browser.
    struct Delivery: Sendable, Hashable {
        enum Progress: String, Sendable, Encodable {
            /// The browser is not connected, or it reads slowly.
            case waiting
            /// The browser has not acknowledged the message. It gets the message again when it connects the next time.
            case sent
            case acknowledged
            /// The browser acknowledged the message, but then the page's worker failed.
            case failed
            /// The message's TTL has passed.
            case expired
            /// A later message with the same topic replaced it.
            case replaced
            /// Too many messages were waiting.
            case dropped
            /// The subscription has ended.
            case unregistered
        }
        let progress: Progress
        /// The code that the browser sent: 100 to 102 with an acknowledgement, 301 to 303 with a failure. `nil` if it
        /// sent none.
        var code: Int?
    }

    /// The delivery state of a message with FCM on one phone.
    struct PhoneDelivery: Sendable, Hashable, JSONRecord {
        enum Progress: String, Sendable, Encodable {
            /// The phone is offline.
            case waiting
            case delivered
            /// The message's lifetime has passed, or was 0 while the phone was offline.
            case expired
            /// A later message with the same collapse key replaced it.
            case replaced
            /// The phone had too many waiting messages or collapse keys.
            case dropped
            /// The app was removed.
            case unregistered
        }

        /// The part of the phone that got a message.
        enum Receiver: String, Sendable, Encodable {
            /// The system, which shows the notification.
            case tray
            /// The app's callback.
            case onMessageReceived
        }

        /// The installation's number.
        let installation: Int
        var progress: Progress
        /// `nil` unless the message was delivered.
        var receiver: Receiver?

        var json: JSONMembers { ["installation": installation, "receiver": receiver, "delivery": progress] }
    }

    /// The maximum number of ``phones``.
    static let maxPhones = 100

    /// The notification's id: from 1, without gaps, in the order of arrival. No id is reused while the process runs.
    let id: Int
    /// The connection's number, from 1. `nil` with Web Push, where nothing depends on the connection.
    let connection: Int?
    /// The topic that the client named, otherwise the certificate's. `nil` if neither names one.
    let topic: String?
    /// The device's token. Empty if the notification could not be read that far.
    let token: [UInt8]
    /// The payload. With Web Push it is the decrypted text, or empty if the text could not be decrypted. For a real
    /// browser it is the encrypted message.
    let payload: [UInt8]
    let receivedAt: Date
    let answer: Response
    let details: any InboxDetails
    /// The delivery state of a message for a real browser. `nil` for all other notifications.
    var delivery: Delivery?
    /// The phones that a message with FCM is for, or the first of them.
    fileprivate(set) var phones: [PhoneDelivery] = []
    /// Mistakes that the push service does not report. They are for the developer.
    var warnings: [String] = []
    /// The Live Activity that the notification started, updated or ended. `nil` for all other notifications.
    var activity: Int?

    var gateway: GatewayProtocol { details.gateway }

    /// The number of bytes that count against the inbox's limit: payload and headers.
    var size: Int {
        details.headers.reduce(payload.count + phones.count * MemoryLayout<PhoneDelivery>.stride) {
            $0 + $1.key.utf8.count + $1.value.utf8.count
        }
    }

    func encode(to encoder: any Encoder) throws {
        let text = String(validating: payload, as: UTF8.self)
        let warnings = (answer == .accepted ? details.warnings(about: payload) : []) + warnings
        var message: String?
        if case .error(_, let text) = answer { message = text }
        let common: JSONMembers = [
            "id": id, "protocol": gateway, "connection": connection, "token": token.hex, "topic": topic,
            "payload": text,
            "payload_base64": text == nil ? Data(payload).base64EncodedString() : nil, "message": message,
            "warning": warnings.isEmpty ? nil : warnings.joined(separator: "; "), "activity": activity,
            "phones": phones.isEmpty ? nil : phones, "delivery": delivery?.progress, "delivery_code": delivery?.code,
            "received_at": receivedAt, "answer": answer.name,
        ]
        try common.encode(to: encoder)
        try details.json.encode(to: encoder)
    }
}

/// The properties of a notification besides token and payload. Each service has its own type.
protocol InboxDetails: Sendable, JSONRecord {
    var gateway: GatewayProtocol { get }
    /// The headers that the sender wrote. They count against the inbox's limit.
    var headers: [String: String] { get }
    /// The id of the notification in the log, with its key.
    var logID: (key: String, text: String) { get }
    /// Whether a simulator of Apple's can show the notification.
    var isForSimulator: Bool { get }

    /// Returns mistakes in an accepted payload that the push service does not report.
    func warnings(about payload: [UInt8]) -> [String]
    /// Returns the effect of the notification on the screen of its device. `nil` if it has none.
    /// - Parameter receiver: The part of an Android phone that got the message. `nil` if that is not known.
    func effect(of payload: [UInt8], receiver: InboxEntry.PhoneDelivery.Receiver?) -> Screen.Effect?
}

extension InboxDetails {
    var logID: (key: String, text: String) { ("protocol", "\(gateway)") }
    var isForSimulator: Bool { false }

    func warnings(about payload: [UInt8]) -> [String] { [] }
}

/// Selects notifications of the inbox. A condition that is `nil` matches all of them.
struct InboxFilter: Sendable, Hashable {
    var token: [UInt8]?
    var gateway: GatewayProtocol?
    /// The ``InboxEntry/Response/name``.
    var answer: String?
    /// A text of the payload.
    var text: PayloadSearch?

    func matches(_ entry: InboxEntry) -> Bool {
        (token == nil || entry.token == token) && (gateway == nil || entry.gateway == gateway)
            && (answer == nil || entry.answer.name == answer) && text?.matches(entry.payload) != false
    }
}

/// The notifications that arrived, in order. The oldest are dropped if there are too many, or if their payloads
/// together are too large.
struct Inbox: Sendable {
    /// The maximum number of vacant slots at the front of the storage before the storage is compacted.
    private static let slack = 1024

    private let limit: Int
    private let byteLimit: Int
    /// The id of the newest notification that ever arrived. 0 before the first.
    private(set) var lastID = 0
    /// The number of notifications that were dropped to make room. Clearing the inbox does not count.
    private(set) var dropped = 0
    private(set) var bytes = 0
    private var entries: [InboxEntry?] = []
    private var first = 0

    init(limit: Int, byteLimit: Int) {
        self.limit = max(1, limit)
        self.byteLimit = byteLimit
    }

    var count: Int { entries.count - first }

    /// Appends the notification that `make` returns for the next id.
    mutating func append(_ make: (Int) -> InboxEntry) {
        lastID += 1
        let entry = make(lastID)
        bytes += entry.size
        entries.append(entry)
        while count > limit || bytes > byteLimit && count > 1 {
            dropFirst()
        }
    }

    /// Records the delivery state of a message, if the inbox still has it.
    mutating func recordDelivery(_ progress: InboxEntry.Delivery.Progress, code: Int? = nil, of id: Int) {
        guard let index = index(of: id) else { return }
        entries[index]?.delivery = .init(progress: progress, code: code)
    }

    /// Adds the phones that the newest notification is for.
    mutating func notePhones(_ phones: [InboxEntry.PhoneDelivery]) {
        guard let index = index(of: lastID) else { return }
        entries[index]?.phones = Array(phones.prefix(InboxEntry.maxPhones))
        bytes += (entries[index]?.phones.count ?? 0) * MemoryLayout<InboxEntry.PhoneDelivery>.stride
    }

    /// Records the delivery state of a message on one phone, if the inbox still has it.
    mutating func recordPhone(_ phone: InboxEntry.PhoneDelivery, of id: Int) {
        guard let index = index(of: id),
            let position = entries[index]?.phones.firstIndex(where: { $0.installation == phone.installation })
        else { return }
        entries[index]?.phones[position] = phone
    }

    /// Returns the storage index of a notification. `nil` if the inbox does not have it.
    private func index(of id: Int) -> Int? {
        let index = first + id - (lastID - count + 1)
        return index >= first && index < entries.count ? index : nil
    }

    /// Adds the results of an accepted Live Activity push to the newest notification.
    mutating func noteActivity(_ activity: Int?, warnings: [String]) {
        guard !entries.isEmpty else { return }
        entries[entries.count - 1]?.activity = activity
        entries[entries.count - 1]?.warnings = warnings
    }

    mutating func clear() {
        entries = []
        first = 0
        bytes = 0
    }

    /// Returns a page of the notifications that match `filter`.
    /// - Parameter since: The id after which the page begins.
    /// - Returns: At most `limit` notifications, oldest first, and the `since` of the next page.
    func page(
        since: Int = 0, filter: InboxFilter = InboxFilter(), limit: Int = .max
    ) -> (entries: [InboxEntry], next: Int) {
        var page: [InboxEntry] = []
        for case let entry? in entries[indices(since: since)] where filter.matches(entry) {
            page.append(entry)
            if page.count == limit { return (page, entry.id) }
        }
        return (page, lastID)
    }

    /// Returns all notifications that meet the condition, oldest first.
    func entries(where isIncluded: (InboxEntry) -> Bool) -> [InboxEntry] {
        entries[first...].compactMap(\.self).filter(isIncluded)
    }

    /// Returns the number of matching notifications with an id above `since`.
    func count(since: Int, filter: InboxFilter) -> Int {
        entries[indices(since: since)].count { $0.map(filter.matches) ?? false }
    }

    /// Returns the storage indices of the notifications with an id above `since`.
    private func indices(since: Int) -> Range<Int> {
        let oldest = lastID - count + 1
        return (first + min(max(0, since - oldest + 1), count))..<entries.count
    }

    private mutating func dropFirst() {
        bytes -= entries[first]?.size ?? 0
        entries[first] = nil
        first += 1
        dropped += 1
        // Compact only if half of the storage is vacant. Each notification is then moved once on average.
        if first > Self.slack, first > entries.count / 2 {
            entries.removeFirst(first)
            first = 0
        }
    }
}
