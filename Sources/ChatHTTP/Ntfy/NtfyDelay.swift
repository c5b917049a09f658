import ChatDomain

/// The time at which ntfy's parameters `Delay`, `At` and `In` ask for a message.
enum NtfyDelay {
    /// The minimum, as on an ntfy server.
    static let minimum = Duration.seconds(10)
    /// The maximum length of the parameter, in bytes, and the maximum number of seconds of a duration in words.
    private static let limit = 64
    private static let maxSeconds = 1e10

    /// Reads the parameter in the order of an ntfy server: seconds since 1970, durations, times. Words such as
    /// `tomorrow` depend on the time zone of their writer, which the relay does not know.
    static func due(_ text: String, now: Timestamp) throws(ErrorResponse) -> Timestamp {
        guard let due = time(text, now: now) else {
            throw failure(
                40004,
                "must be UNIX seconds, a duration like 30m or 2 days, or a time like 2026-12-24T18:00:00+01:00; words like tomorrow have no time zone"
            )
        }
        guard due >= now + minimum else { throw failure(40005, "must be at least 10 s from now") }
        guard due <= now + ScheduledMessage.horizon else { throw failure(40006, "must be within 30 days") }
        return due
    }

    private static func failure(_ code: Int, _ rule: String) -> ErrorResponse {
        var response = ErrorResponse(ChatError.invalid("delay", rule))
        response.apiCode = code
        return response
    }

    private static func time(_ text: String, now: Timestamp) -> Timestamp? {
        guard text.utf8.count <= limit else { return nil }
        if let seconds = Int64(text) { return Timestamp(seconds: min(max(seconds, 0), Timestamp.latestSeconds)) }
        if let duration = NtfySince.duration(text) ?? duration(inWords: text) { return now + duration }
        // In a query, a plus that is not escaped is a blank.
        return Timestamp(rfc3339: text.replacing(#/ (?=\d\d:\d\d$)/#, with: "+"))
    }

    /// Reads a number and a unit: `2 days`, `30min`.
    private static func duration(inWords text: String) -> Duration? {
        let shape = #/(\d+)\s*(?:(d|days?)|(h|hours?)|(m|mins?|minutes?)|(?:s|secs?|seconds?))/#.ignoresCase()
        guard let match = text.wholeMatch(of: shape)?.output, let number = Double(match.1) else { return nil }
        let unit: Double =
            if match.2 != nil { 86_400 } else if match.3 != nil { 3600 } else if match.4 != nil { 60 } else { 1 }
        return .milliseconds(Int64(min(number * unit, maxSeconds) * 1000))
    }
}
