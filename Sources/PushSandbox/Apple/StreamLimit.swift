/// The limits on the open streams of a connection: the announced ones, and the one that the client has acknowledged.
///
/// Only an acknowledged limit binds the client (RFC 9113 §6.5.3). With a provider token the limit is 1 until the first
/// authenticated request (Apple, "Establishing a connection to APNs").
struct StreamLimit: Sendable, Hashable {
    /// The limit before the client has acknowledged any.
    static let initialLimit = 10_000
    /// The maximum number of unacknowledged changes. Above it, a change waits until the client has acknowledged one.
    static let maxUnacknowledged = 100

    private let full: Int
    private let lowers: Bool
    private var isAuthenticated: Bool
    private var isLowered = false
    private var fault: Int?
    /// The limit that was announced last.
    private(set) var announced: Int
    private var acknowledged = StreamLimit.initialLimit
    /// The limits that were announced but not acknowledged, oldest first.
    private var unacknowledged: [Int]

    /// - Parameter lowers: Whether a rejected notification lowers the limit to 1 until one is accepted.
    init(full: Int, lowers: Bool, isAuthenticated: Bool) {
        self.full = full
        self.lowers = lowers
        self.isAuthenticated = isAuthenticated
        announced = isAuthenticated ? full : 1
        unacknowledged = [announced]
    }

    /// The number of open streams from which a new stream is refused. While a change is not acknowledged, the old or
    /// the new limit may apply, so this is the highest of them.
    var enforced: Int { unacknowledged.reduce(acknowledged, max) }

    /// Records that the client has acknowledged the oldest unacknowledged limit.
    /// - Returns: A limit to announce. `nil` if there is none.
    mutating func acknowledge() -> Int? {
        guard !unacknowledged.isEmpty else { return nil }
        acknowledged = unacknowledged.removeFirst()
        return change()
    }

    /// Records the decision on a notification.
    /// - Returns: A limit to announce. `nil` if there is none.
    mutating func decided(isAuthenticated: Bool, outcome: SandboxDecision.Outcome) -> Int? {
        if isAuthenticated { self.isAuthenticated = true }
        switch outcome {
        case .accepted: isLowered = false
        case .refused: isLowered = lowers
        case .neutral: break
        }
        return change()
    }

    /// Sets the limit of a fault. `nil` removes the fault's limit.
    /// - Returns: A limit to announce. `nil` if there is none.
    mutating func set(byFault limit: Int?) -> Int? {
        fault = limit
        return change()
    }

    private mutating func change() -> Int? {
        let wanted = fault ?? (isAuthenticated && !isLowered ? full : 1)
        guard wanted != announced, unacknowledged.count < Self.maxUnacknowledged else { return nil }
        announced = wanted
        unacknowledged.append(wanted)
        return wanted
    }
}
