import Foundation
import PushWire

/// Checks the values of Apple's keys in a payload ("Generating a remote notification"). Apple accepts a push whose values
/// are wrong, and the device ignores them. The sandbox accepts it, too, and shows a warning.
struct APSCheck: Decodable {
    private var problems: [String] = []

    /// Returns the wrong values of an accepted payload. `nil` if there are none.
    static func warning(about payload: [UInt8], of type: PushType) -> String? {
        let decoder = JSONDecoder()
        decoder.userInfo[activity] = type == .liveactivity
        guard let check = try? decoder.decode(APSCheck.self, from: Data(payload)) else {
            return "the payload is not a JSON object with the object aps"
        }
        return check.problems.isEmpty ? nil : check.problems.joined(separator: "; ")
    }

    private static let levels = ["passive", "active", "time-sensitive", "critical"]
    private static let activity = CodingUserInfoKey(rawValue: "activity")!

    private enum Root: String, CodingKey { case aps, mdm }

    private enum Key: String, CodingKey {
        case alert, badge, sound, category
        case threadID = "thread-id"
        case targetContentID = "target-content-id"
        case contentAvailable = "content-available"
        case mutableContent = "mutable-content"
        case interruptionLevel = "interruption-level"
        case relevanceScore = "relevance-score"
    }

    /// An object with any members.
    private struct AnyObject: Decodable {
        private enum None: CodingKey {}
        init(from decoder: any Decoder) throws { _ = try decoder.container(keyedBy: None.self) }
    }

    init(from decoder: any Decoder) throws {
        let root = try decoder.container(keyedBy: Root.self)
        // Pushes of device management have no aps.
        if root.contains(.mdm), !root.contains(.aps) { return }
        let aps = try root.nestedContainer(keyedBy: Key.self, forKey: .aps)
        let isActivity = decoder.userInfo[Self.activity] as? Bool ?? false
        func check(_ key: Key, _ rule: String, _ isValid: () -> Bool) {
            if aps.contains(key), !isValid() { problems.append("aps.\(key.rawValue) must be \(rule)") }
        }
        func number(_ key: Key) -> Double? { try? aps.decode(Double.self, forKey: key) }
        func isText(_ key: Key) -> Bool { (try? aps.decode(String.self, forKey: key)) != nil }
        for key in [Key.alert, .sound] {
            check(key, "a string or an object") {
                isText(key) || (try? aps.decode(AnyObject.self, forKey: key)) != nil
            }
        }
        for key in [Key.category, .threadID, .targetContentID] { check(key, "a string") { isText(key) } }
        check(.badge, "a whole number from 0") { number(.badge).map { $0 >= 0 && $0 == $0.rounded() } ?? false }
        for key in [Key.contentAvailable, .mutableContent] { check(key, "1") { number(key) == 1 } }
        check(.interruptionLevel, "one of \(Self.levels.joined(separator: ", "))") {
            (try? aps.decode(String.self, forKey: .interruptionLevel)).map(Self.levels.contains) ?? false
        }
        check(.relevanceScore, isActivity ? "a number" : "a number from 0 to 1") {
            number(.relevanceScore).map { isActivity || (0...1).contains($0) } ?? false
        }
    }
}
