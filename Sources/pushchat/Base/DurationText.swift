import ChatDomain

/// Durations as people write them: `30 days`, `7d`, `1h 30m`, `90s`, `500ms`.
enum DurationText {
    /// The units with their milliseconds, the largest first.
    private static let units: [(names: Set<String>, singular: String, plural: String, milliseconds: Int64)] = [
        (["d", "day", "days"], "day", "days", 86_400_000),
        (["h", "hour", "hours"], "hour", "hours", 3_600_000),
        (["m", "min", "minute", "minutes"], "minute", "minutes", 60_000),
        (["s", "sec", "second", "seconds"], "second", "seconds", 1000),
        (["ms", "millisecond", "milliseconds"], "ms", "ms", 1),
    ]

    /// Parses whole numbers, each with its unit. `nil` for any other text, for example a number without a unit, and if
    /// the milliseconds do not fit into an `Int64`.
    static func duration(_ text: String) -> Duration? {
        var rest = Substring(text)
        var total: Int64 = 0
        var parts = 0
        while true {
            rest = rest.drop(while: \.isWhitespace)
            guard !rest.isEmpty else { break }
            let digits = rest.prefix { $0.isASCII && $0.isNumber }
            rest = rest.dropFirst(digits.count).drop(while: \.isWhitespace)
            let unit = rest.prefix { $0.isLetter }
            rest = rest.dropFirst(unit.count)
            guard let number = Int64(digits), let size = milliseconds(of: unit.lowercased()) else { return nil }
            let (part, tooLarge) = number.multipliedReportingOverflow(by: size)
            let (sum, overflow) = total.addingReportingOverflow(part)
            guard !tooLarge, !overflow else { return nil }
            total = sum
            parts += 1
        }
        return parts > 0 ? .milliseconds(total) : nil
    }

    /// The duration as a whole number of its largest possible unit: `30 days`, `1 hour`, `90 seconds`.
    static func text(_ duration: Duration) -> String {
        let milliseconds = duration.milliseconds
        guard milliseconds != 0 else { return "0 seconds" }
        for unit in units where milliseconds.isMultiple(of: unit.milliseconds) {
            let number = milliseconds / unit.milliseconds
            return "\(number) \(number == 1 ? unit.singular : unit.plural)"
        }
        return "\(milliseconds) ms"
    }

    private static func milliseconds(of unit: String) -> Int64? {
        // Weeks are accepted as input, but never printed.
        if ["w", "week", "weeks"].contains(unit) { return 7 * 86_400_000 }
        return units.first { $0.names.contains(unit) }?.milliseconds
    }
}
