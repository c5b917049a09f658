/// When the next connection may be tried.
///
/// At once after one that was good for something (an error answer ends a good connection, too), but for long rows of
/// nothing but refusals; after failures with a delay
/// that doubles, spread at random, so that a gateway that comes back is not met by everyone at the same moment and Apple
/// does not see an attack.
struct ReconnectPacing: Sendable {
    static let first = Duration.milliseconds(250)
    static let longest = Duration.seconds(30)
    /// The same where pushes have been taken just before: what ended the connection was probably a push.
    static let longestAmidProgress = Duration.milliseconds(250)

    /// Connections in a row that were good for nothing but refusals, after which they are spaced.
    static let refusals = 20
    static let spacing = Duration.milliseconds(200)

    /// What a connection was good for.
    enum Merit: Sendable {
        case nothing
        /// The gateway refused a push, and took none.
        case refusal
        case progress
    }

    private var failures = 0
    private var refusals = 0

    /// - Parameters:
    ///   - isAmidProgress: the connection came up, and the gateway takes pushes of the app.
    ///   - random: from 0 to 1.
    mutating func delay(after merit: Merit, isAmidProgress: Bool = false, random: Double) -> Duration {
        guard merit == .nothing else {
            failures = 0
            refusals = merit == .refusal ? refusals + 1 : 0
            return refusals > Self.refusals ? Self.spacing : .zero
        }
        let full = min(
            isAmidProgress ? Self.longestAmidProgress : Self.longest, Self.first * Double(1 << min(failures, 20)))
        failures += 1
        return full * (0.5 + random / 2)
    }
}
