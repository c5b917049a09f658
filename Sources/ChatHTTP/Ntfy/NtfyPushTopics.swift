import ChatDomain

extension NtfyAPI {
    /// Finds the topics of UnifiedPush among names that are not aliases. Makes the caller the owner of those that have
    /// none. A room whose messages the caller reads wins against a topic of its name.
    ///
    /// - Throws: ``forbidden`` for the topic of another owner, or if the caller cannot own topics.
    func pushTopics(
        among names: [String], of caller: Caller
    ) async throws(ChatError) -> Set<UnifiedPushTopic> {
        guard environment.settings.ntfy.unifiedPush else { return [] }
        let named = names.compactMap { $0 == caller.onlyRoom?.text ? nil : UnifiedPushTopic($0) }
        guard !named.isEmpty else { return [] }
        guard let owner = caller.pushOwner else { throw Self.forbidden }
        let claims = try await environment.stores.unifiedPush.claim(named, for: owner)
        guard !claims.values.contains(.foreign) else { throw Self.forbidden }
        return Set(claims.filter { $0.value == .owned }.keys)
    }
}
