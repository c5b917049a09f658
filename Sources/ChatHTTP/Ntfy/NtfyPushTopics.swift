import ChatDomain

extension NtfyAPI {
    /// Finds the topics of UnifiedPush among names that are not aliases. Makes the caller the owner of those that have
    /// none. A room whose messages the caller reads wins against a topic of its name.
    ///
    /// - Throws: ``forbidden`` for the topic of another owner, or if the caller cannot own topics. An error if the
    ///   address has claimed too many topics.
    func pushTopics(
        among names: [String], of caller: Caller, from address: IPAddress?
    ) async throws(ChatError) -> Set<UnifiedPushTopic> {
        guard environment.settings.ntfy.unifiedPush else { return [] }
        let named = names.compactMap { $0 == caller.onlyRoom?.text ? nil : UnifiedPushTopic($0) }
        guard !named.isEmpty else { return [] }
        guard let owner = caller.pushOwner else { throw Self.forbidden }
        let store = environment.stores.unifiedPush
        var guesses: RequestLimiter.CountedJoin?
        var hasSucceeded = false
        defer { if let guesses, !hasSucceeded { limiter.refund(guesses) } }
        // The response tells whether a room has the name, except to callers that may read every room.
        if caller.onlyRoom != nil, let address, let limit = environment.settings.joinRate {
            let new = Set(named).subtracting(try await store.owned(named, by: owner)).count
            if new > 0 { guesses = try limiter.admitJoin(address, limit: limit, names: new) }
        }
        let claims = try await store.claim(named, for: owner)
        hasSucceeded = true
        guard !claims.values.contains(.foreign) else { throw Self.forbidden }
        return Set(claims.filter { $0.value == .owned }.keys)
    }
}
