import Foundation

/// A moment in milliseconds since 1970-01-01T00:00:00Z.
package struct Timestamp: Sendable, Hashable, Comparable, Codable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    package init(seconds: Int64) {
        self.init(milliseconds: seconds * 1000)
    }

    /// Whole seconds, rounded down.
    package var seconds: Int64 { milliseconds >= 0 ? milliseconds / 1000 : (milliseconds - 999) / 1000 }

    /// Returns the time of the wall clock. Code whose tests must control the time takes a ``TimeSource`` instead.
    package static func now() -> Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    package static func < (left: Timestamp, right: Timestamp) -> Bool {
        left.milliseconds < right.milliseconds
    }

    package static func + (moment: Timestamp, duration: Duration) -> Timestamp {
        Timestamp(milliseconds: moment.milliseconds + duration.milliseconds)
    }

    package static func - (moment: Timestamp, duration: Duration) -> Timestamp {
        Timestamp(milliseconds: moment.milliseconds - duration.milliseconds)
    }

    /// `2026-05-07 21:57:29.123`, in UTC. SQLite's own date functions read and write this form, and it sorts as text.
    package var sqlText: String { text(separator: " ", suffix: nil) }

    /// The day in UTC, with which ``sqlText`` begins.
    package var day: String { String(sqlText.prefix(10)) }

    /// `2026-05-07T21:57:29.123Z` (RFC 3339).
    package var rfc3339: String { text(separator: "T", suffix: "Z") }

    /// Reads ``sqlText`` with or without a fraction. SQLite's `CURRENT_TIMESTAMP` writes it without one.
    package init?(sqlText: String) {
        let digits = sqlText.utf8.split(whereSeparator: { !$0.isASCIIDigit })
        let parts = digits.compactMap { Int(Substring($0)) }
        guard (6...7).contains(parts.count), parts.count == digits.count, (0...9999).contains(parts[0]) else {
            return nil
        }
        var broken = tm()
        broken.tm_year = Int32(clamping: parts[0] - 1900)
        broken.tm_mon = Int32(clamping: parts[1] - 1)
        broken.tm_mday = Int32(clamping: parts[2])
        broken.tm_hour = Int32(clamping: parts[3])
        broken.tm_min = Int32(clamping: parts[4])
        broken.tm_sec = Int32(clamping: parts[5])
        var fraction = 0
        if parts.count == 7 {
            guard let padded = Int(String(Substring(digits[6])).padding(toLength: 3, withPad: "0", startingAt: 0))
            else { return nil }
            fraction = padded
        }
        self.init(milliseconds: Int64(timegm(&broken)) * 1000 + Int64(fraction))
    }

    /// Reads ``sqlText`` with no fraction or one of three digits. `nil` for any other form. Allocates nothing, because
    /// it runs for each push.
    package init?(sqlText bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 23 || bytes.count == 19 else { return nil }
        var isValid = true
        func number(_ start: Int, _ count: Int, after mark: Unicode.Scalar?) -> Int64 {
            if let mark, bytes[start - 1] != UInt8(ascii: mark) { isValid = false }
            return bytes[start..<start + count].reduce(0) { number, byte in
                if !byte.isASCIIDigit { isValid = false }
                return number * 10 + Int64(byte & 0x0F)
            }
        }
        let (year, month, day) = (number(0, 4, after: nil), number(5, 2, after: "-"), number(8, 2, after: "-"))
        let clock = (number(11, 2, after: " ") * 60 + number(14, 2, after: ":")) * 60 + number(17, 2, after: ":")
        let fraction = bytes.count == 23 ? number(20, 3, after: ".") : 0
        guard isValid, (1...12).contains(month) else { return nil }
        // The days since 1970 in the Gregorian calendar. Years begin in March here, so that leap days come last.
        let shifted = month <= 2 ? year - 1 : year
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        // January and February of the year 0 belong to the year -1 here. Adding 400 years keeps the divisions correct.
        let days =
            shifted * 365 + (shifted + 400) / 4 - (shifted + 400) / 100 + (shifted + 400) / 400 - 97 + dayOfYear
            - 719_468
        self.init(milliseconds: (days * 86_400 + clock) * 1000 + fraction)
    }

    /// 0000-01-01T00:00:00Z.
    private static let earliestSeconds: Int64 = -62_167_219_200
    /// 9999-12-31T23:59:59Z, the last moment with a year of four digits.
    package static let latestSeconds: Int64 = 253_402_300_799

    /// Reads RFC 3339. The fraction is optional, the zone is required.
    package init?(rfc3339 text: String) {
        // The longest form has 35 characters.
        guard text.utf8.count <= 40 else { return nil }
        let shape = #/(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))/#
        guard let match = text.wholeMatch(of: shape)?.output,
            let time = Timestamp(sqlText: "\(match.1) \(match.2).\(match.3 ?? "0")"),
            // A date that the calendar does not have would have been carried over.
            time.sqlText.hasPrefix("\(match.1) \(match.2)")
        else { return nil }
        guard let sign = match.4 else {
            self = time
            return
        }
        guard let hours = match.5.flatMap({ Int($0) }), let minutes = match.6.flatMap({ Int($0) }), hours < 24,
            minutes < 60
        else { return nil }
        let offset = Duration.seconds((hours * 60 + minutes) * 60)
        self = sign == "+" ? time - offset : time + offset
    }

    /// Formats the moment. Does not create a string for each part, because it runs for each message. A moment whose
    /// year does not have four digits becomes the first or last moment whose year does.
    private func text(separator: Unicode.Scalar, suffix: Unicode.Scalar?) -> String {
        let moment = min(max(milliseconds, Self.earliestSeconds * 1000), Self.latestSeconds * 1000 + 999)
        var clock = time_t(Timestamp(milliseconds: moment).seconds)
        var broken = tm()
        gmtime_r(&clock, &broken)
        return String(unsafeUninitializedCapacity: 24) { bytes in
            var end = 0
            func put(_ value: Int, digits: Int, then mark: Unicode.Scalar?) {
                var rest = value
                for place in stride(from: end + digits - 1, through: end, by: -1) {
                    bytes[place] = UInt8(ascii: "0") + UInt8(rest % 10)
                    rest /= 10
                }
                end += digits
                guard let mark else { return }
                bytes[end] = UInt8(ascii: mark)
                end += 1
            }
            put(Int(broken.tm_year) + 1900, digits: 4, then: "-")
            put(Int(broken.tm_mon) + 1, digits: 2, then: "-")
            put(Int(broken.tm_mday), digits: 2, then: separator)
            put(Int(broken.tm_hour), digits: 2, then: ":")
            put(Int(broken.tm_min), digits: 2, then: ":")
            put(Int(broken.tm_sec), digits: 2, then: ".")
            put(Int(moment - Int64(clock) * 1000), digits: 3, then: suffix)
            return end
        }
    }
}

extension Timestamp {
    /// The maximum time ahead at which a request may let something end: ten years.
    package static let longestTerm = Duration.seconds(10 * 366 * 86_400)

    /// Reads the end of something from a request. It must be in the future, within ``longestTerm``.
    package init(end text: String, field: String, now: Timestamp) throws(ChatError) {
        guard let time = Timestamp(rfc3339: text) else {
            throw .invalid(field, "must be a time like 2026-05-07T21:57:29Z")
        }
        guard time > now, time <= now + Self.longestTerm else {
            throw .invalid(field, "must lie in the future, at most ten years ahead")
        }
        self = time
    }
}

/// Returns the time of the wall clock.
package typealias TimeSource = @Sendable () -> Timestamp

extension Duration {
    /// Whole milliseconds, rounded towards zero.
    package var milliseconds: Int64 {
        components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000
    }
}
