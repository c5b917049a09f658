import ChatDomain

/// The point after which a subscription begins.
enum NtfySince: Sendable, Hashable {
    case none, all
    /// The newest message of each topic.
    case latest
    case message(MessageID)
    /// This time, inclusive.
    case time(Timestamp)

    var time: Timestamp? { if case .time(let time) = self { time } else { nil } }

    /// Whether there may be several messages from before the call.
    var includesEarlier: Bool { self != .none && self != .latest }

    /// Reads the parameter in the order of an ntfy server: words, ids, seconds since 1970, durations before now.
    ///
    /// - Parameter text: `nil` for all messages of a poll, and for none of a stream.
    init(_ text: String?, isPoll: Bool, now: Timestamp) throws(ChatError) {
        switch text {
        case nil: self = isPoll ? .all : .none
        case "all"?: self = .all
        case "none"?: self = .none
        case "latest"?: self = .latest
        case let text?:
            if NtfyMessageID.isID(text) || NtfyMessageID.message(text) != nil {
                // An id of another server is after no message here.
                self = NtfyMessageID.message(text).map { .message($0) } ?? .all
            } else if let seconds = Int64(text) {
                self = .time(min(Timestamp(seconds: min(max(seconds, 0), Timestamp.latestSeconds)), now))
            } else if let duration = Self.duration(text) {
                self = .time(min(Timestamp(seconds: (now - duration).seconds), now))
            } else {
                throw .invalid("since", "must be all, none, latest, an id, UNIX seconds, or a duration like 10m")
            }
        }
    }

    /// The maximum length of a duration, in bytes, and its maximum in seconds.
    private static let longest = 64
    private static let most = 1e10

    private static let units: [String: Double] = [
        "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600,
    ]

    /// Reads a duration of Go: `1h30m`, `-1.5h`, `100ms`.
    static func duration(_ text: String) -> Duration? {
        guard text.utf8.count <= longest else { return nil }
        var rest = text[...]
        let isNegative = rest.first == "-"
        if isNegative || rest.first == "+" { rest.removeFirst() }
        guard !rest.isEmpty else { return nil }
        var seconds = 0.0
        while !rest.isEmpty {
            let number = rest.prefix { $0 == "." || ("0"..."9").contains($0) }
            rest = rest[number.endIndex...]
            let unit = rest.prefix { $0 != "." && !("0"..."9").contains($0) }
            rest = rest[unit.endIndex...]
            // A number may begin or end with its point.
            let text = number.contains(".") ? "0\(number)0" : String(number)
            guard number != ".", let value = Double(text), let factor = units[String(unit)] else { return nil }
            seconds += value * factor
        }
        guard seconds <= most else { return nil }
        return .milliseconds(Int64((isNegative ? -seconds : seconds) * 1000))
    }
}
