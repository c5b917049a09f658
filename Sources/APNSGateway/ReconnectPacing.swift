/// When the next connection may be tried.
///
/// At once after one that proved itself (an error answer ends a good connection, too); after failures with a delay
/// that doubles, spread at random, so that a gateway that comes back is not met by everyone at the same moment and Apple
/// does not see an attack.
struct ReconnectPacing: Sendable {
    static let first = Duration.milliseconds(250)
    static let longest = Duration.seconds(30)

    private var failures = 0

    /// - Parameter random: from 0 to 1.
    mutating func delay(afterProved isProved: Bool, random: Double) -> Duration {
        guard !isProved else {
            failures = 0
            return .zero
        }
        let full = min(Self.longest, Self.first * Double(1 << min(failures, 20)))
        failures += 1
        return full * (0.5 + random / 2)
    }
}
