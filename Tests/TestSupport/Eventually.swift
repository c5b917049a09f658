/// A condition that did not hold within the limit of a test.
package struct TimedOut: Error, CustomStringConvertible {
    package let description: String

    package init(description: String) {
        self.description = description
    }
}

/// Waits until a condition holds. Tests wait in no other way. The limit is generous, because other tests keep the cores
/// busy.
package func eventually(
    _ what: String = "the condition holds", within limit: Duration = .seconds(120),
    every pause: Duration = .milliseconds(5),
    isolation: isolated (any Actor)? = #isolation, file: String = #fileID, line: Int = #line,
    _ holds: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + limit
    while try await !holds() {
        guard ContinuousClock.now < deadline else {
            throw TimedOut(description: "\(file):\(line): waited \(limit) until \(what)")
        }
        try await Task.sleep(for: pause)
    }
}
