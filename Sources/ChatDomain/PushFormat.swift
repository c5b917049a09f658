/// What a gateway kind requires of pushes, and what it makes of content. A value: it needs no connection.
///
/// Everything that is one vendor's stands behind it: payloads, their limits, types of pushes, the names of refusals. It is
/// asked before something is queued, and again for each row before that is sent, because other programs write rows, too.
package protocol PushFormat: Sendable {
    /// The payload of a chat message, shortened so that the gateway takes it.
    /// - Throws: what the writer reads where not one character fits.
    func payload(of alert: ChatAlert) throws(ChatError) -> String
    /// Checks what a notification says and composes its payload.
    /// - Throws: what the caller reads: the field and the rule.
    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification
    /// What to tell the caller of a push type that ``compose(_:for:)`` took and does not know; nil for a known one.
    func warning(pushType: String) -> String?
    /// A row of the queue as a push.
    /// - Parameter identifier: the push's number on its connection.
    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push
}

extension PushFormat {
    package func warning(pushType: String) -> String? { nil }
}

/// A message of a room on its way to a device.
package struct ChatAlert: Sendable, Hashable {
    package let nickname: Nickname
    package let text: MessageText
    package let code: SecretCode
    package let message: MessageID
    package let extras: MessageExtras

    package init(
        nickname: Nickname, text: MessageText, code: SecretCode, message: MessageID, extras: MessageExtras = .none
    ) {
        self.nickname = nickname
        self.text = text
        self.code = code
        self.message = message
        self.extras = extras
    }
}

/// A notification as its gateway kind sends it.
package struct ComposedNotification: Sendable, Hashable {
    /// UTF-8, within the gateway's limit.
    package let payload: String
    /// In the gateway's words.
    package let pushType: String
    package let priority: UInt8?

    package init(payload: String, pushType: String, priority: UInt8?) {
        self.payload = payload
        self.pushType = pushType
        self.priority = priority
    }
}

/// Why a gateway can never take a row, in its own words where it has any.
package struct PushRefusal: Error, Sendable, Hashable {
    package let reason: String

    package init(_ reason: String) {
        self.reason = reason
    }
}

/// A row of the queue as it was read. Another program may have written it: nothing in it is checked but what has a type
/// of its own.
package struct QueuedPush: Sendable, Hashable {
    package let id: Int64
    package let lane: PushLane
    package let history: PushHistory
    /// Nil for what is no address of any kind.
    package let address: Address?
    /// Of the row itself, or of its notification; nil for what is neither text nor a blob.
    package let payload: [UInt8]?
    /// The relay made the payload: it is known to be well-formed, and shows something.
    package let isOurs: Bool
    /// UNIX seconds; nil for never; 0: not repeated once the gateway has answered.
    package let expiration: Int64?
    package let priority: Int64?
    package let type: String?
    package let collapseID: String?
    /// A UUID that is the same each time the row is read. Not checked where another program chose it.
    package let apnsID: String
    package let notification: NotificationID?
    /// Of the chat, of which it is one push; for the log.
    package let message: MessageID?
    /// Since when it can go: when it was queued, or the time that it was to wait for; for metrics. Nil where another program
    /// wrote what is no time.
    package let dueSince: Timestamp?
    /// Why it is not to be sent any more.
    package let obstacle: Obstacle?
    /// Of the chat's pushes to browsers: how many messages the browser has not fetched (``UnreadCount``), counted when the push
    /// was leased. `nil` if that is not known, and for all other pushes.
    package var unread: Int64?

    package enum Obstacle: Sendable, Hashable {
        /// The push service said that the device is gone.
        case deviceInactive
        /// The device has unregistered since the push was queued.
        case deviceForgotten
        case notificationCancelled
        /// The push's message was deleted (``DeletedMessage``).
        case messageDeleted
        /// Of the chat, for a member who was removed from the room, or whose room was closed.
        case memberRemoved
    }

    package init(
        id: Int64, lane: PushLane = .normal, history: PushHistory = PushHistory(), address: Address?,
        payload: [UInt8]?, isOurs: Bool = false, expiration: Int64? = nil, priority: Int64? = nil, type: String? = nil,
        collapseID: String? = nil, apnsID: String, notification: NotificationID? = nil, message: MessageID? = nil,
        dueSince: Timestamp? = nil, obstacle: Obstacle? = nil, unread: Int64? = nil
    ) {
        self.id = id
        self.lane = lane
        self.history = history
        self.address = address
        self.payload = payload
        self.isOurs = isOurs
        self.expiration = expiration
        self.priority = priority
        self.type = type
        self.collapseID = collapseID
        self.apnsID = apnsID
        self.notification = notification
        self.message = message
        self.dueSince = dueSince
        self.obstacle = obstacle
        self.unread = unread
    }
}
