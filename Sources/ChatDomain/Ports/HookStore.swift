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
    /// The maximum number of alerts. The caller combines the others into one.
    package static let alertLimit = 500
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
}
