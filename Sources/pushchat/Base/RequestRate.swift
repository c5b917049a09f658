/// A limit for requests: the long-term rate per unit of time, and the burst that is allowed after a pause.
struct RequestRate: Sendable, Equatable, CustomStringConvertible {
    enum Unit: String, Sendable, CaseIterable {
        case second = "s"
        case minute = "min"
        case hour = "h"

        var seconds: Double {
            switch self {
            case .second: 1
            case .minute: 60
            case .hour: 3600
            }
        }
    }

    /// The highest count and burst. A higher limit would have no effect.
    static let highest = 1_000_000

    let count: Int
    let unit: Unit
    /// The maximum number of requests in a burst, at least 1.
    let burst: Int

    var perSecond: Double { Double(count) / unit.seconds }

    /// The limit in the form that ``init(parsing:)`` reads.
    var description: String { "\(count)/\(unit.rawValue) burst \(burst)" }
}

extension RequestRate {
    /// Parses `10/s`, `10/s burst 50`, `600/min burst 100` or `1000/h`. Without a burst, the burst equals the count.
    init?(parsing text: String) {
        let words = text.split(whereSeparator: \.isWhitespace)
        guard words.count == 1 || (words.count == 3 && words[1] == "burst") else { return nil }
        let rate = words[0].split(separator: "/", omittingEmptySubsequences: false)
        guard rate.count == 2, let count = Self.number(rate[0]), let unit = Unit(rawValue: String(rate[1])),
            let burst = words.count == 3 ? Self.number(words[2]) : count
        else { return nil }
        self.init(count: count, unit: unit, burst: burst)
    }

    private static func number(_ text: Substring) -> Int? {
        text.wholeNumber.flatMap { (1...highest).contains($0) ? $0 : nil }
    }
}
