/// The apps that have pushes in the queue but no configuration. The relay reports them to the operator.
package struct UnconfiguredApps: Sendable {
    /// The maximum number of apps that a log line names.
    private static let maxNamed = 20

    private var reported: Set<AppName> = []

    package init() {}

    /// The names to report, as JSON strings, at most ``maxNamed`` of them. `nil` if all apps have been reported, and
    /// have had pushes ever since.
    package mutating func news(of waiting: Set<AppName>) -> String? {
        defer { reported = waiting }
        guard !waiting.isSubset(of: reported) else { return nil }
        return waiting.sorted().prefix(Self.maxNamed).map { JSONValue.string($0.text).description }
            .joined(separator: " ")
    }
}
