import Foundation
import PushWire

/// A broadcast channel, encoded as in the response to `GET /channels`.
struct SandboxChannel: Sendable, Hashable, JSONRecord {
    /// A broadcast that the channel has accepted.
    struct Message: Sendable, Hashable {
        let payload: ActivityPayload
        /// The notification's id in the inbox.
        let notification: Int
        /// The size of the payload in bytes.
        let size: Int
        /// The time until which a late listener gets the message. `nil` if it is not kept.
        let expiresAt: Date?
    }

    /// Apple's name of the two policies.
    enum Policy: Int, Sendable, Hashable, Encodable {
        /// "No message stored".
        case storesNothing = 0
        /// "Most recent message stored".
        case storesNewest = 1
    }

    /// The channel's number: from 1, in the order of creation.
    let number: Int
    /// The id that Apple's service would give: base64.
    let id: String
    /// The app's bundle id.
    let app: String
    let policy: Policy
    let createdAt: Date
    /// The number of broadcasts that the channel has accepted.
    fileprivate(set) var broadcasts = 0
    /// The message that a late listener gets. Only with the policy ``Policy/storesNewest``.
    fileprivate(set) var newest: Message?
    /// A message that a fault holds back until the next one was delivered.
    fileprivate(set) var held: Message?

    fileprivate var size: Int { (newest?.size ?? 0) + (held?.size ?? 0) }

    var json: JSONMembers {
        [
            "number": number, "id": id, "app": app, "policy": policy, "created_at": createdAt, "broadcasts": broadcasts,
            "newest": newest?.notification, "newest_expires_at": newest?.expiresAt,
        ]
    }
}

/// The broadcast channels of all apps, and the messages that they keep.
struct ChannelRegistry: Sendable, PagedList {
    private var channels: [String: SandboxChannel] = [:]
    private var counts: [String: Int] = [:]
    private var lastNumber = 0
    private var bytes = 0

    var count: Int { channels.count }

    /// Returns the app's channel with this id. `nil` if the app has none.
    func channel(_ id: String, of app: String) -> SandboxChannel? {
        channels[id].flatMap { $0.app == app ? $0 : nil }
    }

    /// Returns the number of the app's channels.
    func count(of app: String) -> Int { counts[app] ?? 0 }

    /// Returns the ids of the app's channels, oldest first.
    func ids(of app: String) -> [String] {
        channels.values.filter { $0.app == app }.sorted { $0.number < $1.number }.map(\.id)
    }

    /// Creates a channel.
    /// - Parameter id: An id that was never used before.
    mutating func create(id: String, app: String, policy: SandboxChannel.Policy, at now: Date) {
        lastNumber += 1
        channels[id] = SandboxChannel(number: lastNumber, id: id, app: app, policy: policy, createdAt: now)
        counts[app, default: 0] += 1
    }

    mutating func remove(_ id: String) {
        guard let channel = channels.removeValue(forKey: id) else { return }
        bytes -= channel.size
        counts[channel.app, default: 1] -= 1
        if counts[channel.app] == 0 { counts[channel.app] = nil }
    }

    /// Counts a broadcast, and keeps it for late listeners if the channel's policy and the message's expiration say so.
    /// - Returns: Whether the message was dropped because all channels together keep too much.
    mutating func accept(_ message: SandboxChannel.Message, on id: String) -> Bool {
        guard channels[id] != nil else { return false }
        channels[id]?.broadcasts += 1
        guard channels[id]?.policy == .storesNewest, message.expiresAt != nil else { return false }
        return !keep(message, on: id, \.newest)
    }

    /// Holds a message back until ``release(_:)``.
    mutating func hold(_ message: SandboxChannel.Message, on id: String) {
        _ = keep(message, on: id, \.held)
    }

    /// Returns the message that a fault has held back, and forgets it.
    mutating func release(_ id: String) -> SandboxChannel.Message? {
        guard let held = channels[id]?.held else { return nil }
        bytes -= held.size
        channels[id]?.held = nil
        return held
    }

    /// Returns the message for a late listener. `nil` if the channel keeps none, or if it has expired.
    func newest(on id: String, at now: Date) -> SandboxChannel.Message? {
        guard let newest = channels[id]?.newest, let expiry = newest.expiresAt, expiry > now else { return nil }
        return newest
    }

    func page(since: Int, limit: Int) -> (items: [SandboxChannel], next: Int) {
        let page = channels.values.filter { $0.number > since }.sorted { $0.number < $1.number }.prefix(limit)
        return (Array(page), page.last?.number ?? lastNumber)
    }

    /// - Returns: Whether there was room.
    private mutating func keep(
        _ message: SandboxChannel.Message, on id: String,
        _ place: WritableKeyPath<SandboxChannel, SandboxChannel.Message?>
    ) -> Bool {
        guard let before = channels[id]?[keyPath: place]?.size ?? (channels[id] == nil ? nil : 0) else { return false }
        guard bytes - before + message.size <= ControlLimits.channelBytes else { return false }
        bytes += message.size - before
        channels[id]?[keyPath: place] = message
        return true
    }
}
