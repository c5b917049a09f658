/// How many streams a connection may have open: what was announced to the client, and what it has acknowledged.
///
/// Only an acknowledged limit binds the client (RFC 9113 §6.5.3). With a provider token the limit is 1 until the first
/// request that is authenticated (apns-http2.md §7).
struct StreamLimit: Sendable, Hashable {
    /// What a client may have before it has acknowledged anything.
    static let unacknowledged = 10_000
    /// Changes that may wait for their acknowledgement; above it the limit stays as it is.
    static let changes = 100

    private let full: Int
    private let lowers: Bool
    private var isAuthenticated: Bool
    private var isLowered = false
    private var fault: Int?
    /// What was announced last.
    private(set) var announced: Int
    private var acknowledged = StreamLimit.unacknowledged
    /// Announced and not acknowledged, oldest first.
    private var waiting: [Int]

    /// - Parameter lowers: whether a refused notification lowers the limit to 1 until one is accepted.
    init(full: Int, lowers: Bool, isAuthenticated: Bool) {
        self.full = full
        self.lowers = lowers
        self.isAuthenticated = isAuthenticated
        announced = isAuthenticated ? full : 1
        waiting = [announced]
    }

    /// Streams above it are refused. While a change is on its way either limit may hold.
    var enforced: Int { waiting.reduce(acknowledged, max) }

    /// The client has acknowledged the oldest limit that waited for it.
    /// - Returns: a limit to announce.
    mutating func acknowledge() -> Int? {
        guard !waiting.isEmpty else { return nil }
        acknowledged = waiting.removeFirst()
        return change()
    }

    /// A notification was decided.
    /// - Returns: a limit to announce.
    mutating func decided(isAuthenticated: Bool, outcome: SandboxDecision.Outcome) -> Int? {
        if isAuthenticated { self.isAuthenticated = true }
        switch outcome {
        case .accepted: isLowered = false
        case .refused: isLowered = lowers
        case .neutral: break
        }
        return change()
    }

    /// A fault sets the limit, or (nil) removes its own.
    /// - Returns: a limit to announce.
    mutating func set(byFault limit: Int?) -> Int? {
        fault = limit
        return change()
    }

    private mutating func change() -> Int? {
        let wanted = fault ?? (isAuthenticated && !isLowered ? full : 1)
        guard wanted != announced, waiting.count < Self.changes else { return nil }
        announced = wanted
        waiting.append(wanted)
        return wanted
    }
}
