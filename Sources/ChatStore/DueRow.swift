import ChatDomain
import Foundation
import GRDB

/// A row of the queue on its way to a gateway. Another program may have written it, so everything in it is checked here,
/// before it can do harm on a connection that carries others.
struct DueRow: ~Copyable {
    /// Of `push_queue q` and the device `d` that has its token.
    static let columns = """
        q.message_id, q.device_token, q.payload, q.expires_at, q.priority, q.unanswered,
        q.chat_message IS NOT NULL, d.time_deactivated IS NOT NULL, q.reason IS '\(LeaseScreening.recovered)',
        q.push_type, q.collapse_id, q.apns_id, q.notification,
        CASE WHEN q.device IS NULL AND q.notification IS NULL THEN d.device_id END,
        q.device IS NOT NULL AND d.device_id IS NULL
            AND NOT EXISTS (SELECT 1 FROM devices e WHERE e.device_id = q.device),
        \(Lane.sql)
        """

    let entry: Int64
    private let token: UnsafeRawBufferPointer?
    /// Text or a blob; unused where the notification has it.
    private let payload: UnsafeRawBufferPointer?
    let expiration: Int64?
    private let priority: Int64?
    let unanswered: Int
    /// Whether the chat made it: then its payload is known to be good, and shows something.
    private let isOurs: Bool
    let isDeviceInactive: Bool
    let isRecovered: Bool
    private let type: String?
    private let collapseID: String?
    private let id: String?
    let notification: NotificationID?
    /// The device, if the entry does not name it.
    let recognizedDevice: Int64?
    let isDeviceForgotten: Bool
    let lane: Lane

    /// - Parameter row: with ``columns``; good until its next step.
    init(_ row: borrowing RawStatement) {
        entry = row.int(0)
        token = row.bytes(1)
        payload = row.bytes(2)
        expiration = row.optionalInt(3)
        priority = row.optionalInt(4)
        unanswered = Int(row.int(5))
        isOurs = row.bool(6)
        isDeviceInactive = row.bool(7)
        isRecovered = row.bool(8)
        type = row.text(9)
        collapseID = row.text(10)
        id = row.text(11)
        notification = row.optionalInt(12)
        recognizedDevice = row.optionalInt(13)
        isDeviceForgotten = row.bool(14)
        lane = Lane(rawValue: row.int(15)) ?? .first
    }

    /// Why a row can never be written.
    enum Poison: Error {
        case token, missingPayload, payloadSize, noJSON, type, collapseID, id

        /// Spelt as the gateway would say it, where it would.
        func name(for slot: ConnectionSlot) -> String {
            switch self {
            case .token: slot.namesPushes ? "BadDeviceToken" : "InvalidToken"
            case .missingPayload: slot.namesPushes ? "PayloadEmpty" : "MissingPayload"
            case .payloadSize: slot.namesPushes ? "PayloadTooLarge" : "InvalidPayloadSize"
            case .noJSON: "InvalidJSON"
            case .type: "InvalidPushType"
            case .collapseID: "BadCollapseId"
            case .id: "BadMessageId"
            }
        }
    }

    /// Bytes of a collapse id (apns-http2.md §2).
    private static let longestCollapseID = 64
    /// Bytes of a push type: far longer than any there is.
    private static let longestType = 64

    /// - Parameters:
    ///   - idPrefix: what a new id begins with.
    ///   - notificationPayload: of the notification of which it is one push: known to be good JSON.
    /// - Returns: the push, and whether token and id stand in the row as they are sent.
    func checked(
        for slot: ConnectionSlot, identifier: UInt32, idPrefix: String, notificationPayload: [UInt8]?
    ) throws(Poison) -> (push: Push, isPlain: Bool) {
        guard let digits = token else { throw .token }
        let isStoredForm = Hex.isLowerCase(digits)
        let parsed =
            isStoredForm
            ? Hex.bytes(digits).flatMap(DeviceToken.init(bytes:))
            : try? DeviceToken(parsing: String(decoding: digits, as: UTF8.self))
        guard let token = parsed else { throw .token }
        let (payload, usualType) =
            if let notificationPayload { (notificationPayload, type: Push.alert) } else { try ownPayload() }
        guard !payload.isEmpty else { throw .missingPayload }
        let type = self.type ?? usualType
        guard payload.count <= slot.largerLimits[type] ?? slot.payloadLimit else { throw .payloadSize }
        if slot.namesPushes { try checkHeaders(type: type) }
        let sentID = slot.namesPushes ? id?.lowercased() ?? Self.newID(idPrefix, entry) : nil
        let push = Push(
            entry: entry, identifier: identifier, token: token, payload: payload, expiration: expiration,
            priority: priority.flatMap(UInt8.init(exactly:)), id: sentID, type: type, collapseID: collapseID)
        return (push, isStoredForm && (id == nil || id == sentID || sentID == nil))
    }

    /// What stands in the row itself, and of which type it is unless the row says so.
    private func ownPayload() throws(Poison) -> ([UInt8], type: String) {
        guard let payload else { throw .noJSON }
        if payload.isEmpty || isOurs { return (Array(payload), Push.alert) }
        guard let scan = PayloadScan(payload) else { throw .noJSON }
        return (Array(payload), scan.isBackground ? Push.background : Push.alert)
    }

    private static func newID(_ prefix: String, _ entry: Int64) -> String {
        let digits = String(entry & 0xFFFF_FFFF_FFFF, radix: 16)
        return prefix + String(repeating: "0", count: 12 - digits.count) + digits
    }

    /// ``newID(_:_:)`` in SQL.
    static let newIDSQL = "? || substr(printf('%012x', message_id), -12)"

    /// What only a gateway that takes these things reads.
    private func checkHeaders(type: String) throws(Poison) {
        guard Self.isHeaderText(type, limit: Self.longestType) else { throw .type }
        guard collapseID.map({ Self.isHeaderText($0, limit: Self.longestCollapseID) }) != false else {
            throw .collapseID
        }
        guard id.map({ UUID(uuidString: $0) != nil }) != false else { throw .id }
    }

    /// What can stand in a header: a byte that cannot would end the connection, with all that is on it.
    private static func isHeaderText(_ text: String, limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && text.utf8.allSatisfy { (0x20...0x7E).contains($0) }
            && text.first != " " && text.last != " "
    }
}
