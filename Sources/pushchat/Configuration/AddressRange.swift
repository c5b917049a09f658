import Foundation

/// An address or a network of addresses: `127.0.0.1`, `10.0.0.0/8`, `::1`, `fd00::/8`.
enum AddressRange {
    static func isValid(_ text: String) -> Bool {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        guard let bits = addressBits(parts[0]) else { return false }
        guard parts.count == 2 else { return true }
        guard (1...3).contains(parts[1].utf8.count), parts[1].utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            let prefix = Int(parts[1])
        else { return false }
        return prefix <= bits
    }

    private static func addressBits(_ text: String) -> Int? {
        var version4 = in_addr()
        var version6 = in6_addr()
        if inet_pton(AF_INET, text, &version4) == 1 { return 32 }
        if inet_pton(AF_INET6, text, &version6) == 1 { return 128 }
        return nil
    }
}

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
                if let wrong = ranges.first(where: { !AddressRange.isValid($0) }) {
                    throw BrokenRule(message: "contains \(SettingValue.text(wrong).quoted), but must be \(rule)")
                }
                return ranges
            }, text: { $0.isEmpty ? nil : $0.joined(separator: ", ") })
    }
}
