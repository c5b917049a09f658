import ChatHTTP
import Foundation

extension SettingKind where Value == [String] {
    /// A list, or a text with commas between.
    static var addressRanges: Self {
        let rule =
            "a list of at most \(SettingLimits.list) addresses and networks, for example `127.0.0.1, 10.0.0.0/8`"
        return Self(
            rule: rule,
            parse: { value, _ throws(BrokenRule) in
                let items =
                    switch value {
                    case .list(let items): items
                    case .text(let text): text.split(separator: ",").map(String.init)
                    }
                let ranges = items.map { $0.trimmingCharacters(in: .whitespaces) }
                guard ranges.count <= SettingLimits.list else {
                    throw BrokenRule(message: "has \(ranges.count) entries, but must be \(rule)")
                }
                if let wrong = ranges.first(where: { AddressRange($0) == nil }) {
                    throw BrokenRule(message: "contains \(SettingValue.text(wrong).quoted), but must be \(rule)")
                }
                return ranges
            }, text: { $0.isEmpty ? nil : $0.joined(separator: ", ") })
    }
}
