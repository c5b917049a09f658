import ChatDomain

/// The topics of a subscription.
struct NtfyTopics: Sendable {
    /// The maximum number of topics in one request.
    static let most = 20

    struct Topic: Sendable {
        let source: StreamSource
        /// The name as the client wrote it.
        let name: String
        let isAlias: Bool
    }

    /// The names as the client wrote them, joined by commas.
    let text: String
    /// The topics, each with the first of its names. A room may have two: its code and its alias.
    let all: [Topic]

    init(text: String, _ topics: [Topic]) {
        self.text = text
        var seen: Set<StreamSource> = []
        all = topics.filter { seen.insert($0.source).inserted }
    }

    func name(of source: StreamSource) -> String { all.first { $0.source == source }?.name ?? text }

    /// Whether a text is one or more names, joined by commas.
    static func areNames(_ text: Substring) -> Bool {
        text.split(separator: ",", omittingEmptySubsequences: false).allSatisfy(isName)
    }

    /// Whether a text may name a topic, or a message: ntfy has the same rule for both, and that of keys.
    static func isName(_ text: Substring) -> Bool { MessageKey.areAllowed(text.utf8) }
}
