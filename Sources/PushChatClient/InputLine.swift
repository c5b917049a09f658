/// A line that was typed or read.
package enum InputLine: Equatable, Sendable {
    case text(String)
    /// A line that cannot be used, and the reason.
    case unusable(String)
}
