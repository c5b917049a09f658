extension Timestamp {
    /// Parses the header `Retry-After`, which has seconds or a date (RFC 9110 §10.2.3). `nil` for any other text.
    ///
    /// - Parameter longest: The maximum time from now on.
    package init?(retryAfter text: String, now: Timestamp, longest: Duration = PushLifeCycle.longestWait) {
        if let seconds = Int64(digits: FieldText.trimmed(text)) {
            self = now + min(.seconds(seconds), longest)
            return
        }
        let date = #/[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d:\d\d:\d\d) GMT/#
        let months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(separator: " ")
        guard let match = text.wholeMatch(of: date)?.output, let month = months.firstIndex(of: match.2) else {
            return nil
        }
        guard let time = Timestamp(sqlText: "\(match.3)-\(month + 1)-\(match.1) \(match.4)") else { return nil }
        self = min(time, now + longest)
    }
}
