/// The apps with pushes that are not configured, of which the operator is told.
package struct UnconfiguredApps: Sendable {
    /// Apps that a log line names.
    private static let mostNamed = 20

    private var told: Set<AppName> = []

    package init() {}

    /// What to tell of those that have pushes now: their names, as JSON strings. Nil where all of them were told before, and have
    /// been there since.
    package mutating func news(of waiting: Set<AppName>) -> String? {
        defer { told = waiting }
        guard !waiting.isSubset(of: told) else { return nil }
        return waiting.sorted().prefix(Self.mostNamed).map { JSONValue.string($0.text).description }
            .joined(separator: " ")
    }
}
