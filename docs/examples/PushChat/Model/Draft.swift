/// The text of a message that the user writes, and its counter.
struct Draft: Hashable {
    /// The relay's limit in bytes of UTF-8 (`push.text_limit`). It is 190 if an app of the relay uses the binary protocol.
    static let limit = 1000

    var text = ""

    /// The number of bytes that the text may still grow. Below 0 the relay would reject it.
    var remaining: Int { Self.limit - text.utf8.count }
    var canBeSent: Bool { remaining >= 0 && text.contains { !$0.isWhitespace } }
}
