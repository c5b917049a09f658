/// A text that must not be shown: printed, interpolated or dumped it reads `(secret)`.
struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    static let shown = "(secret)"

    let text: String

    init(_ text: String) {
        self.text = text
    }

    var description: String { Self.shown }
    var debugDescription: String { Self.shown }
    var customMirror: Mirror { Mirror(self, children: []) }
}
