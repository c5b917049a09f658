import ChatDomain
import Foundation
import GRDB

/// A row of the queue on its way to a gateway. Another program may have written it, so everything in it is checked here,
/// before it can do harm on a connection that carries others.
struct PushRow {
    let entry: Int64
    let token: DatabaseValue
    /// Text or a blob; unused where the notification has it.
    let payload: DatabaseValue
    /// The payload of the notification of which it is one push: known to be good JSON.
    let notificationPayload: [UInt8]?
    let expiration: Int64?
    let priority: Int64?
    /// Whether the chat made it: then its payload is known to be good, and shows something.
    let isOurs: Bool
    let type: String?
    let collapseID: String?
    let id: String?

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

    /// - Parameter idPrefix: what a new id begins with.
    /// - Returns: the push, and whether token and id stand in the row as they are sent.
    func checked(
        for slot: ConnectionSlot, identifier: UInt32, idPrefix: String
    ) throws(Poison) -> (push: Push, isPlain: Bool) {
        guard let text = String.fromDatabaseValue(token) else { throw .token }
        let isStoredForm = Hex.isLowerCase(text.utf8)
        let parsed =
            isStoredForm ? Hex.bytes(text.utf8).flatMap(DeviceToken.init(bytes:)) : try? DeviceToken(parsing: text)
        guard let token = parsed else { throw .token }
        let bytes: [UInt8]
        if let notificationPayload { bytes = notificationPayload } else { bytes = try ownPayload() }
        guard !bytes.isEmpty else { throw .missingPayload }
        let object = isOurs || notificationPayload != nil ? nil : try Self.object(bytes)
        let type = self.type ?? object.map(Self.type) ?? Push.alert
        guard bytes.count <= slot.largerLimits[type] ?? slot.payloadLimit else { throw .payloadSize }
        if slot.namesPushes { try checkHeaders(type: type) }
        let sentID = slot.namesPushes ? id?.lowercased() ?? Self.newID(idPrefix, entry) : nil
        let push = Push(
            entry: entry, identifier: identifier, token: token, payload: bytes, expiration: expiration,
            priority: priority.flatMap(UInt8.init(exactly:)), id: sentID, type: type, collapseID: collapseID)
        return (push, isStoredForm && (id == nil || id == sentID || sentID == nil))
    }

    private static func newID(_ prefix: String, _ entry: Int64) -> String {
        let digits = String(entry & 0xFFFF_FFFF_FFFF, radix: 16)
        return prefix + String(repeating: "0", count: 12 - digits.count) + digits
    }

    /// ``newID(_:_:)`` in SQL.
    static let newIDSQL = "? || substr(printf('%012x', message_id), -12)"

    private func ownPayload() throws(Poison) -> [UInt8] {
        switch payload.storage {
        case .string(let text): Array(text.utf8)
        case .blob(let data): Array(data)
        default: throw .noJSON
        }
    }

    /// What only a gateway that takes these things reads.
    private func checkHeaders(type: String) throws(Poison) {
        guard Self.isHeaderText(type, limit: Self.longestType) else { throw .type }
        guard collapseID.map({ Self.isHeaderText($0, limit: Self.longestCollapseID) }) != false else {
            throw .collapseID
        }
        guard id.map({ UUID(uuidString: $0) != nil }) != false else { throw .id }
    }

    private static func object(_ payload: [UInt8]) throws(Poison) -> [String: Any] {
        guard let object = (try? JSONSerialization.jsonObject(with: Data(payload))) as? [String: Any] else {
            throw .noJSON
        }
        return object
    }

    /// A payload that shows nothing and only wakes the app is a background push (aps-payload.md §2).
    private static func type(of object: [String: Any]) -> String {
        guard let aps = object["aps"] as? [String: Any], aps["content-available"] != nil,
            ["alert", "badge", "sound"].allSatisfy({ aps[$0] == nil })
        else { return Push.alert }
        return Push.background
    }

    /// What can stand in a header: a byte that cannot would end the connection, with all that is on it.
    private static func isHeaderText(_ text: String, limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && text.utf8.allSatisfy { (0x20...0x7E).contains($0) }
            && text.first != " " && text.last != " "
    }
}
