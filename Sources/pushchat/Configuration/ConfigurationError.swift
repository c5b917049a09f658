/// Everything that is wrong with a configuration; the process does not start with it.
struct ConfigurationError: Error, Sendable, Equatable, CustomStringConvertible {
    /// One wrong thing.
    struct Problem: Sendable, Equatable, CustomStringConvertible {
        /// `pushchat.yaml:12:3`, `PUSHCHAT_HTTP_PORT`, `--port`; nil if it has no place.
        let place: String?
        /// The setting, the value, the rule, and how to mend it.
        let message: String

        init(at place: String?, _ message: String) {
            self.place = place
            self.message = message
        }

        init(at origin: Origin, _ message: String) {
            self.init(at: origin.position, message)
        }

        var description: String { place.map { "\($0): \(message)" } ?? message }
    }

    /// At least one, in the order in which the sources are read.
    let problems: [Problem]

    /// A line each.
    var description: String { problems.map(\.description).joined(separator: "\n") }
}
