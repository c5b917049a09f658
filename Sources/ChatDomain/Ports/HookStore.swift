/// Stores what a webhook's sender reported as firing, by token and key.
package protocol HookStore: Sendable {
    /// Returns what is firing under a key. `nil` if nothing is known.
    func memory(of token: Int64, _ key: MessageKey) async throws(ChatError) -> HookMemory?
    /// Remembers what is firing under a key. The oldest keys beyond ``HookMemory/keyLimit`` are forgotten.
    func remember(_ memory: HookMemory, of token: Int64, _ key: MessageKey) async throws(ChatError)
    /// Forgets a key, whose message is resolved.
    func forget(_ key: MessageKey, of token: Int64) async throws(ChatError)
    /// Counts a delivery that could not be read, and keeps the reason for the operator.
    func countUnreadable(_ token: Int64, reason: String) async throws(ChatError)
}

/// The alerts that a webhook's sender last reported as firing under one key.
package struct HookMemory: Sendable, Hashable {
    /// The maximum number of keys per token.
    package static let keyLimit = 1000
    /// The maximum number of alerts. Drafts have no more.
    package static let alertLimit = 1000
    /// The same alerts within this time are the second attempt of one delivery.
    private static let retryTime = Duration.seconds(60)
    /// The time after which an unused memory is deleted.
    package static let lifetime = Duration.seconds(30 * 86_400)

    /// The severity of each alert by its id, from 0.
    package var firing: [String: Int]
    /// The time of the last delivery.
    package var time: Timestamp

    package init(firing: [String: Int], time: Timestamp) {
        self.firing = firing
        self.time = time
    }

    /// Whether the next delivery rings: if an alert is new, if its severity rose, or if the sender repeats the alarm.
    package func rings(for firing: [String: Int], at now: Timestamp) -> Bool {
        if firing == self.firing { return now >= time + Self.retryTime }
        return firing.contains { id, rank in self.firing[id].map { rank > $0 } ?? true }
    }
}
