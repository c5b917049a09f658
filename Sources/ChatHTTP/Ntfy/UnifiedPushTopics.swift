import ChatDomain

/// The topics of a subscription that are topics of UnifiedPush instead of rooms. The caller owns them.
struct UnifiedPushTopics: Sendable {
    private(set) var topics: Set<UnifiedPushTopic> = []

    /// No topics.
    init() {}

    /// Finds the topics among names, without aliases. Makes the caller the owner of those that have none.
    ///
    /// - Throws: ``NtfyAPI/forbidden`` for the topic of another owner, or if the caller cannot own topics.
    init(_ names: [String], _ caller: Caller, _ environment: ChatEnvironment) async throws(ChatError) {
        let named = environment.settings.ntfy.unifiedPush ? names.compactMap { UnifiedPushTopic($0) } : []
        guard !named.isEmpty else { return }
        guard let owner = caller.pushOwner else { throw NtfyAPI.forbidden }
        let claims = try await environment.stores.unifiedPush.claim(named, for: owner)
        guard !claims.values.contains(.foreign) else { throw NtfyAPI.forbidden }
        topics = Set(claims.filter { $0.value == .owned }.keys)
    }

    func contains(_ room: SecretCode) -> Bool {
        UnifiedPushTopic(room.text).map(topics.contains) ?? false
    }
}

extension Caller {
    /// The owner of the topics to which the caller subscribes. `nil` for the administrator.
    fileprivate var pushOwner: UnifiedPushOwner? { member.map { .member($0.id) } ?? token.map { .token($0.id) } }
}
