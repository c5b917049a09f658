/// A gateway kind's requirements for pushes, and its translation of content. A value that needs no connection.
///
/// Everything vendor-specific is behind this protocol: payloads, their limits, types of pushes, the names of refusals.
/// The relay calls it before it queues a push. Before it sends a push, the relay calls it again for the row, because
/// other programs also write rows.
package protocol PushFormat: Sendable {
    /// Returns the payload of a chat message, shortened to fit the gateway's limit.
    ///
    /// - Throws: The error for the writer if not even one character fits.
    func payload(of alert: ChatAlert) throws(ChatError) -> String
    /// Returns the push about a changed message.
    ///
    /// - Parameter endpoint: The address of a browser's subscription. `nil` for other devices.
    /// - Returns: `nil` if the device cannot do this without a visible push. It gets no push then.
    /// - Throws: The errors of ``payload(of:)``.
    func update(_ update: AlertUpdate, of alert: ChatAlert, endpoint: String?) throws(ChatError) -> PushUpdate?
    /// Checks the content of a notification and composes its payload.
    ///
    /// - Throws: The error for the caller, which names the field and the rule.
    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification
    /// The kind of the tokens that the gateway's service issues.
    var tokens: TokenKind { get }
    /// Whether chat pushes show the number of unread messages. The store then counts them when it leases the pushes.
    var showsUnread: Bool { get }
    /// Composes a push of a Live Activity, and checks its size.
    ///
    /// - Parameter timestamp: The time of the content in UNIX seconds. Devices ignore content that is older than the one
    ///   they show.
    /// - Throws: The error for the caller. Gateways without Live Activities always throw.
    func compose(
        _ content: ActivityContent, tag: ActivityTag, timestamp: Int64
    ) throws(ChatError) -> ComposedNotification
    /// Returns a warning for the caller about a push type that ``compose(_:for:)`` accepted but does not know. `nil`
    /// for a known type.
    func warning(pushType: String) -> String?
    /// Converts a row of the queue into a push.
    ///
    /// - Parameter identifier: The push's number on its connection.
    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push
}

extension PushFormat {
    package var tokens: TokenKind { .bytes }
    package var showsUnread: Bool { false }

    /// Checks whether the gateway's service issues tokens of this kind.
    ///
    /// - Throws: The error for the caller, which names the field and the rule.
    package func check(_ token: DeviceToken, field: String) throws(ChatError) {
        guard token.kind == tokens else { throw .invalid(field, tokens.rule) }
    }
    package func warning(pushType: String) -> String? { nil }

    package func update(
        _ update: AlertUpdate, of alert: ChatAlert, endpoint: String?
    ) throws(ChatError) -> PushUpdate? {
        guard update == .ring else { return nil }
        return PushUpdate(payload: try payload(of: alert), priority: alert.content.priority)
    }

    package func compose(
        _ content: ActivityContent, tag: ActivityTag, timestamp: Int64
    ) throws(ChatError) -> ComposedNotification {
        throw .invalid("app", "has a gateway without Live Activities")
    }
}

/// A chat message for a device.
package struct ChatAlert: Sendable, Hashable {
    package let nickname: Nickname
    /// The content as people read it: Markdown has become plain text.
    package let content: MessageContent
    package let code: SecretCode
    package let message: MessageID
    /// Whether a program wrote the message. Payloads mark it, because a member may have the name of a program.
    package let isOfProgram: Bool

    package init(
        nickname: Nickname, content: MessageContent, code: SecretCode, message: MessageID, isOfProgram: Bool = false
    ) {
        self.nickname = nickname
        self.content = content.extras.isMarkdown ? content.withoutMarkdown : content
        self.code = code
        self.message = message
        self.isOfProgram = isOfProgram
    }
}

/// The effect of a changed message's push on the device.
package enum AlertUpdate: Sendable, Hashable {
    /// Shows the newest form as a notification that rings.
    case ring
    /// Shows the newest form in place of the notification, without a ring.
    case replace
    /// Removes the notification.
    case remove
}

/// A push about a changed message.
package struct PushUpdate: Sendable, Hashable {
    /// The notification that the push replaces, in the terms of a gateway with collapse ids.
    package enum Collapse: Sendable, Hashable {
        case none
        /// The notification of the message's first push for the device.
        case firstPush
        /// The notification whose collapse id is the message's id.
        case message
    }

    package let payload: String
    /// The type in the gateway's terms. `nil` for the usual one.
    package let pushType: String?
    package let priority: UInt8?
    package let collapse: Collapse

    package init(payload: String, pushType: String? = nil, priority: UInt8? = nil, collapse: Collapse = .none) {
        self.payload = payload
        self.pushType = pushType
        self.priority = priority
        self.collapse = collapse
    }
}

/// A notification in the form that its gateway kind sends.
package struct ComposedNotification: Sendable, Hashable {
    /// The payload in UTF-8, within the gateway's limit.
    package let payload: String
    /// The type in the gateway's terms.
    package let pushType: String
    package let priority: UInt8?

    package init(payload: String, pushType: String, priority: UInt8?) {
        self.payload = payload
        self.pushType = pushType
        self.priority = priority
    }
}

/// The reason why a gateway can never accept a row, in the gateway's own terms if it has any.
package struct PushRefusal: Error, Sendable, Hashable {
    /// The maximum number of characters of a reason.
    private static let longest = 200

    /// Printable ASCII characters. The reason may quote the row, and the database must be able to store it.
    package let reason: String
    /// The likely cause, for people. `nil` if the reason says enough.
    package let hint: String?

    package init(_ reason: String, hint: String? = nil) {
        self.reason = reason.printableASCII(limit: Self.longest)
        self.hint = hint?.printableASCII(limit: Self.longest)
    }

    /// The push would show nothing.
    package static let noText = PushRefusal(
        "NoText", hint: "the alert has no text to show: set a text, or an object with title or body")

    /// Refuses a payload that is not a JSON object.
    ///
    /// - Parameter limit: The maximum size of a payload to parse, in bytes. `nil` if there is none.
    package static func notJSON(_ payload: [UInt8], limit: Int? = nil) -> PushRefusal {
        let problem: String
        if let limit, payload.count > limit {
            problem = "it has \(payload.count) bytes, at most \(limit) are read"
        } else {
            do throws(JSONValue.Malformed) {
                problem = "it is \(try JSONValue(parsing: payload).kind)"
            } catch {
                problem = error.description
            }
        }
        return PushRefusal(
            "InvalidJSON", hint: #"the payload must be a JSON object such as {"aps":{"alert":"Hello"}}: "# + problem)
    }

    /// Refuses a payload that is larger than the gateway's limit.
    package static func tooLarge(_ reason: String, _ size: Int, limit: Int) -> PushRefusal {
        PushRefusal(reason, hint: "the payload has \(size) bytes, and the limit is \(limit)")
    }
}

/// A row of the queue as it was read. Another program may have written the row. Only values with a type of their own
/// are checked.
package struct QueuedPush: Sendable, Hashable {
    package let id: Int64
    package let lane: PushLane
    package let history: PushHistory
    /// `nil` if the stored text is not an address of any kind.
    package let address: Address?
    /// The payload of the row itself or of its notification. `nil` if the value is neither text nor a blob.
    package let payload: [UInt8]?
    /// Whether the relay composed the payload. Such a payload is well-formed and shows something.
    package let isOurs: Bool
    /// The expiration in UNIX seconds. `nil` for never. 0 means that the push is not retried once the gateway has
    /// responded.
    package let expiration: Int64?
    package let priority: Int64?
    package let type: String?
    package let collapseID: String?
    /// The time before which another program does not want the push sent, in UNIX milliseconds. `nil` for none.
    package let notBefore: Int64?
    /// A UUID that is the same each time the row is read. It is not checked if another program chose it.
    package let apnsID: String
    package let notification: NotificationID?
    /// The chat message to which the push belongs, for the log.
    package let message: MessageID?
    /// The time since which the push can be sent, for metrics: the time at which it was queued, or the later time for
    /// which it had to wait. `nil` if another program stored an invalid time.
    package let dueSince: Timestamp?
    /// The reason why the push must not be sent any more.
    package let obstacle: Obstacle?
    /// Whether the push belongs to the chat, and its member has fetched messages since it joined, as far as known.
    package let isOfReader: Bool
    /// The number of messages that the device has not fetched (``UnreadCount``), counted at the lease. `nil` if the
    /// number is not known, if it is not shown (``PushFormat/showsUnread``), and for pushes that are not the chat's.
    package var unread: Int64?

    package enum Obstacle: Sendable, Hashable {
        /// The push service reported that the device is gone.
        case deviceInactive
        /// The device has unregistered since the push was queued.
        case deviceForgotten
        case notificationCancelled
        /// The push's message was deleted (``DeletedMessage``).
        case messageDeleted
        /// The push belongs to the chat, and its member was removed from the room, or the room was closed.
        case memberRemoved
    }

    package init(
        id: Int64, lane: PushLane = .normal, history: PushHistory = PushHistory(), address: Address?,
        payload: [UInt8]?, isOurs: Bool = false, expiration: Int64? = nil, priority: Int64? = nil, type: String? = nil,
        collapseID: String? = nil, notBefore: Int64? = nil, apnsID: String, notification: NotificationID? = nil,
        message: MessageID? = nil,
        dueSince: Timestamp? = nil, obstacle: Obstacle? = nil, isOfReader: Bool = false, unread: Int64? = nil
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
        self.notBefore = notBefore
        self.apnsID = apnsID
        self.notification = notification
        self.message = message
        self.dueSince = dueSince
        self.obstacle = obstacle
        self.isOfReader = isOfReader
        self.unread = unread
    }
}
