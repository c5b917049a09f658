extension Timestamp {
    /// Parses the header `Retry-After`, which has seconds or a date (RFC 9110 §10.2.3). `nil` for any other text.
    package init?(retryAfter text: String, now: Timestamp) {
        if let seconds = Int64(digits: FieldText.trimmed(text)) {
            self = now + min(.seconds(seconds), PushLifeCycle.longestWait)
            return
        }
        let date = #/[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d:\d\d:\d\d) GMT/#
        let months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(separator: " ")
        guard let match = text.wholeMatch(of: date)?.output, let month = months.firstIndex(of: match.2) else {
            return nil
        }
        self.init(sqlText: "\(match.3)-\(month + 1)-\(match.1) \(match.4)")
    }
}
