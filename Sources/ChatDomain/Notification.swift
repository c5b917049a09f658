/// A notification's number; grows with time.
package typealias NotificationID = Int64

/// Whom a notification is for. Each device gets it once, however many ways lead to it.
package enum Audience: Sendable, Hashable {
    /// Devices by their token, registered or not.
    case tokens([DeviceToken])
    /// All devices of users.
    case users([UserReference])
    /// All devices with at least one of the tags.
    case tags([Tag])
    /// The members of a room that have a device.
    case room(SecretCode)
    /// Every device.
    case all

    /// Tokens or users that one notification may name.
    package static let mostNames = 1000
    /// Tags that one notification may name.
    package static let mostTags = 20

    /// `{"tokens":["…"]}`, `{"users":["…"]}`, `{"tags":["…"]}`, `{"room":"…"}` or `{"all":true}`.
    package var json: JSONValue {
        switch self {
        case .tokens(let tokens): .object(["tokens": .texts(tokens.map(\.description))])
        case .users(let users): .object(["users": .texts(users.map(\.text))])
        case .tags(let tags): .object(["tags": .texts(tags.map(\.text))])
        case .room(let code): .object(["room": .string(code.text)])
        case .all: .object(["all": .bool(true)])
        }
    }
}

/// A request to show something on devices.
package struct NotificationRequest: Sendable, Hashable {
    package var audience: Audience
    /// Only devices of this app; nil for those of all.
    package var app: AppName?
    /// The payload: UTF-8 JSON, checked, within the limit of every gateway concerned.
    package var payload: String
    /// In the gateway's words (`alert`, `background`, …).
    package var pushType: String
    /// UNIX seconds after which it is not worth sending; 0 for one attempt that the gateway does not store; nil for ever.
    package var expiration: Int64?
    /// 10, 5 or 1; nil leaves it to the gateway.
    package var priority: UInt8?
    /// Of pushes with the same, the device shows one.
    package var collapseID: String?
    /// Nil for now.
    package var notBefore: Timestamp?
    /// Leaves out devices whose last push, sent or on its way, had the same payload.
    package var skipsUnchanged: Bool
    /// A repeat with the same key and content is the same notification.
    package var idempotencyKey: String?
    /// The ``AccessToken`` with which it is sent; nil for the administrator.
    package var token: Int64?

    package init(
        audience: Audience, app: AppName? = nil, payload: String, pushType: String = Push.alert,
        expiration: Int64? = nil, priority: UInt8? = nil, collapseID: String? = nil, notBefore: Timestamp? = nil,
        skipsUnchanged: Bool = false, idempotencyKey: String? = nil, token: Int64? = nil
    ) {
        self.audience = audience
        self.app = app
        self.payload = payload
        self.pushType = pushType
        self.expiration = expiration
        self.priority = priority
        self.collapseID = collapseID
        self.notBefore = notBefore
        self.skipsUnchanged = skipsUnchanged
        self.idempotencyKey = idempotencyKey
        self.token = token
    }
}

/// The answer to a notification that was accepted.
package struct NotificationReceipt: Sendable, Hashable {
    package let id: NotificationID
    /// Devices that it goes to: exact where all of them were queued before the answer; else how many there are now, of which
    /// some may turn out to be named twice, or unchanged.
    package let devices: Int
    /// The key was seen before: this is the earlier answer, nothing was written.
    package let isRepeat: Bool

    package init(id: NotificationID, devices: Int, isRepeat: Bool) {
        self.id = id
        self.devices = devices
        self.isRepeat = isRepeat
    }
}

/// A notification and how far it has come.
package struct NotificationStatus: Sendable, Hashable {
    package enum State: String, Sendable, Hashable, CaseIterable {
        /// Not every device has its place in the queue yet.
        case queueing
        /// All are in the queue, and none may go before its time.
        case scheduled
        case sending
        /// Each has come to its end.
        case done
        case cancelled
    }

    package let id: NotificationID
    package let request: NotificationRequest
    package let createdAt: Timestamp
    package let cancelledAt: Timestamp?
    package let state: State
    /// Devices by what became of their push. `pending` does not count those that have no place in the queue yet.
    package let counts: [PushState: Int]
    /// Devices that `skipsUnchanged` left out.
    package let skipped: Int
    /// As the receipt said.
    package let devices: Int

    package init(
        id: NotificationID, request: NotificationRequest, createdAt: Timestamp, cancelledAt: Timestamp?, state: State,
        counts: [PushState: Int], skipped: Int, devices: Int
    ) {
        self.id = id
        self.request = request
        self.createdAt = createdAt
        self.cancelledAt = cancelledAt
        self.state = state
        self.counts = counts
        self.skipped = skipped
        self.devices = devices
    }
}

/// One push to one device: the record of what became of it.
package struct Delivery: Sendable, Hashable {
    /// The row of `push_queue`.
    package let id: Int64
    package let notification: NotificationID?
    /// The chat message, where it was one.
    package let message: MessageID?
    /// As the row has it: another program may have written something that is no token.
    package let token: String
    package let app: AppName
    package let state: PushState
    /// The gateway's own word: why it failed, or why it is tried again.
    package let reason: String?
    package let hint: String?
    package let attempts: Int
    package let queuedAt: Timestamp
    package let notBefore: Timestamp?
    package let sentAt: Timestamp?
    /// Became sent, failed, expired or cancelled.
    package let settledAt: Timestamp?
    /// What the push service is told that it is: a UUID; nil while nothing was sent.
    package let apnsID: String?

    package init(
        id: Int64, notification: NotificationID?, message: MessageID?, token: String, app: AppName,
        state: PushState, reason: String?, hint: String?, attempts: Int, queuedAt: Timestamp, notBefore: Timestamp?,
        sentAt: Timestamp?, settledAt: Timestamp?, apnsID: String?
    ) {
        self.id = id
        self.notification = notification
        self.message = message
        self.token = token
        self.app = app
        self.state = state
        self.reason = reason
        self.hint = hint
        self.attempts = attempts
        self.queuedAt = queuedAt
        self.notBefore = notBefore
        self.sentAt = sentAt
        self.settledAt = settledAt
        self.apnsID = apnsID
    }

    /// As the admin API and the command line show it.
    package var json: JSONObject {
        [
            "id": .number(id), "notification": .optional(notification), "message": .optional(message),
            "token": .string(token), "app": .string(app.text), "state": .string(state.rawValue),
            "reason": .optional(reason), "hint": .optional(hint), "attempts": .number(attempts),
            "queued_at": .time(queuedAt), "not_before": .optional(notBefore), "sent_at": .optional(sentAt),
            "settled_at": .optional(settledAt), "apns_id": .optional(apnsID),
        ]
    }
}

/// Keeps notifications, and queues their pushes.
package protocol NotificationStore: Sendable {
    /// Writes notifications, in one transaction, and the pushes to the first devices; the rest follows behind the answer, and
    /// goes on after a crash where it stood. What is wrong with one concerns none of the others.
    func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>]
    /// The answer to an earlier request with the same key; nil if there was none.
    func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt?
    /// Lists notifications, the newest first, from before `cursor` on; with a `token`, those that were sent with it. A page
    /// may have fewer than `limit`, even none, and still a next one.
    func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus>
    /// Throws ``ChatError/Code/notFound``.
    func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus
    /// Its pushes, in the order of the queue, those after `cursor`; only those in `state` if one is given. A page may
    /// have fewer than `limit`, even none, and still a next one.
    func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery>
    /// Takes back what was not handed to a gateway yet. Again is no error. Throws ``ChatError/Code/notFound``.
    func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus
}

extension NotificationStore {
    package func send(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt {
        guard let result = try await send([request]).first else {
            throw ChatError(.internalError, "the store has no answer")
        }
        return try result.get()
    }
}
