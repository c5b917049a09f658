import ChatDomain

/// The topics of a subscription.
struct NtfyTopics: Sendable {
    /// The maximum number of topics in one request.
    static let most = 20

    struct Room: Sendable {
        let code: SecretCode
        /// The name as the client wrote it.
        let name: String
        let isAlias: Bool
    }

    /// The names as the client wrote them, joined by commas.
    let text: String
    /// The rooms, each with the first of its names. A room may have two: its code and its alias.
    let rooms: [Room]
    /// The rooms that are topics of UnifiedPush.
    let pushTopics: UnifiedPushTopics

    init(text: String, rooms: [Room], pushTopics: UnifiedPushTopics = UnifiedPushTopics()) {
        self.text = text
        self.pushTopics = pushTopics
        var seen: Set<SecretCode> = []
        self.rooms = rooms.filter { seen.insert($0.code).inserted }
    }

    func name(of room: SecretCode) -> String { rooms.first { $0.code == room }?.name ?? text }

    /// Whether a text is one or more names, joined by commas.
    static func areNames(_ text: Substring) -> Bool {
        text.split(separator: ",", omittingEmptySubsequences: false).allSatisfy { name in
            (1...64).contains(name.utf8.count)
                && name.utf8.allSatisfy { byte in
                    byte.isASCIIDigit || byte.isASCIILetter || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
                }
        }
    }
}
