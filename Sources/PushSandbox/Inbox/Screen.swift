import Foundation

/// The notifications that a device, a phone or a browser shows now, and the ends of the earlier ones, encoded as in the
/// response to `GET /screen`.
///
/// A pure value. It reads the notifications that reached the device, in the order of their arrival.
struct Screen: Sendable, JSONRecord {
    /// The effect of a notification on a screen.
    enum Effect: Sendable, Hashable {
        case show(Content)
        /// Removes the notifications with this key, and those of this message.
        case remove(key: String?, message: String?)
    }

    enum Ring: Sendable {
        case never, always
        /// A notification that replaces another one is silent.
        case unlessReplacing
    }

    /// A notification as it appears on the screen.
    struct Content: Sendable, Hashable {
        let title: String?
        let body: String?
        /// The name by which a later notification replaces this one: Apple's collapse id, or a tag. `nil` if none can.
        let key: String?
        /// The `message_id` in the payload.
        let message: String?
        let ring: Ring

        /// Returns `nil` without a text, because then nothing is shown.
        init?(title: String?, body: String?, key: String?, message: String?, ring: Ring) {
            guard title != nil || body != nil else { return nil }
            (self.title, self.body, self.key, self.message, self.ring) = (title, body, key, message, ring)
        }
    }

    private struct Shown: Sendable, JSONRecord {
        /// The notification's id in the inbox.
        let notification: Int
        let content: Content
        let rings: Bool
        let receivedAt: Date

        var json: JSONMembers {
            [
                "notification": notification, "title": content.title, "body": content.body, "key": content.key,
                "message_id": content.message, "rings": rings, "received_at": receivedAt,
            ]
        }
    }

    /// A notification that is no longer on the screen.
    private struct Past: Sendable, JSONRecord {
        let notification: Int
        /// The notification that ended it.
        let end: Int
        let isReplaced: Bool

        var json: JSONMembers {
            ["notification": notification, (isReplaced ? "replaced_by" : "removed_by"): end]
        }
    }

    /// The maximum number of notifications in each list of the response. The newest are listed.
    private static let limit = 1000

    /// The notifications on the screen, by their ids in the inbox.
    private var shown: [Int: Shown] = [:]
    private var ids: [String: Int] = [:]
    private var past: [Past] = []
    /// The number of notifications that made a sound.
    private var rings = 0

    /// Reads the notifications that reached a device.
    /// - Parameter phone: The number of the Android phone. `nil` for other devices.
    init(_ entries: [InboxEntry], phone: Int?) {
        for entry in entries {
            let receiver = entry.phones.first { $0.installation == phone }?.receiver
            if let effect = entry.details.effect(of: entry.payload, receiver: receiver) { apply(effect, of: entry) }
        }
    }

    private mutating func apply(_ effect: Effect, of entry: InboxEntry) {
        switch effect {
        case .show(let content):
            let earlier = content.key.flatMap { ids[$0] }
            if let earlier { end(earlier, by: entry.id, isReplaced: true) }
            let isRinging = content.ring == .always || content.ring == .unlessReplacing && earlier == nil
            if isRinging { rings += 1 }
            shown[entry.id] = Shown(
                notification: entry.id, content: content, rings: isRinging, receivedAt: entry.receivedAt)
            if let key = content.key { ids[key] = entry.id }
        case .remove(let key, let message):
            let ended = shown.values.filter { each in
                key != nil && each.content.key == key || message != nil && each.content.message == message
            }
            for each in ended.map(\.notification).sorted() { end(each, by: entry.id, isReplaced: false) }
        }
    }

    private mutating func end(_ id: Int, by end: Int, isReplaced: Bool) {
        if let key = shown.removeValue(forKey: id)?.content.key { ids[key] = nil }
        past.append(Past(notification: id, end: end, isReplaced: isReplaced))
    }

    var json: JSONMembers {
        let shown = shown.values.sorted { $0.notification < $1.notification }
        return ["shown": shown.suffix(Self.limit), "past": past.suffix(Self.limit), "rings": rings]
    }
}
