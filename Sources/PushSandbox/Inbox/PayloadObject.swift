import Foundation

/// An object in a payload, which may be any JSON.
struct PayloadObject {
    private let members: [String: Any]

    /// Returns `nil` unless the payload is a JSON object.
    init?(_ payload: [UInt8]) {
        self.init(value: try? JSONSerialization.jsonObject(with: Data(payload)))
    }

    private init?(value: Any?) {
        guard let members = value as? [String: Any] else { return nil }
        self.members = members
    }

    /// Returns a member that is a text or a number. `nil` if it is neither, or an empty text.
    func text(_ name: String) -> String? {
        switch members[name] {
        case let text as String: text.isEmpty ? nil : text
        case let number as NSNumber: number.stringValue
        default: nil
        }
    }

    func object(_ name: String) -> PayloadObject? { PayloadObject(value: members[name]) }
    func has(_ name: String) -> Bool { members[name] != nil }
    func isTrue(_ name: String) -> Bool { members[name] as? Bool == true }
}
