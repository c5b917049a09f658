/// The number of a notification. Later notifications have higher numbers.
package typealias NotificationID = Int64

/// The devices that a notification is for. Each device gets it once, even if several parts of the audience include it.
package enum Audience: Sendable, Hashable {
    /// Devices by token, registered or not.
    case tokens([DeviceToken])
    /// All devices of the users.
    case users([UserReference])
    /// All devices with at least one of the tags.
    case tags([Tag])
    /// The members of a room that have a device.
    case room(SecretCode)
    /// Every device.
    case all

    /// The maximum number of tokens or users in one notification.
    package static let mostNames = 1000
    /// The maximum number of tags in one notification.
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

/// A request to notify devices.
package struct NotificationRequest: Sendable, Hashable {
    package var audience: Audience
    /// The app whose devices to notify. `nil` for the devices of all apps.
    package var app: AppName?
    /// The payload: checked UTF-8 JSON, within the limit of every gateway concerned.
    package var payload: String
    /// The type in the gateway's terms (`alert`, `background`, …).
    package var pushType: String
    /// The time in UNIX seconds after which the notification is not worth sending. 0 means one attempt that the gateway
    /// does not store. `nil` for no limit.
    package var expiration: Int64?
    /// 10, 5 or 1. `nil` leaves it to the gateway.
    package var priority: UInt8?
    /// The device shows only one of the pushes with the same collapse id.
    package var collapseID: String?
    /// The time before which nothing is sent. `nil` sends at once.
    package var notBefore: Timestamp?
    /// Whether to leave out devices whose last push, sent or waiting, had the same payload.
    package var skipsUnchanged: Bool
    /// A second request with the same key and content is the same notification.
    package var idempotencyKey: String?
    /// The ``AccessToken`` of the sender. `nil` for the administrator.
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

/// The result of a notification that was accepted.
package struct NotificationReceipt: Sendable, Hashable {
    package let id: NotificationID
    /// The number of devices. It is exact if all of them were queued before the response. Otherwise it is the number at
    /// that time, and some devices may turn out to be named twice, or to be left out as unchanged.
    package let devices: Int
    /// Whether the key was used before. The receipt then belongs to the earlier notification, and nothing was written.
    package let isRepeat: Bool

    package init(id: NotificationID, devices: Int, isRepeat: Bool) {
        self.id = id
        self.devices = devices
        self.isRepeat = isRepeat
    }
}

/// A notification and its progress.
package struct NotificationStatus: Sendable, Hashable {
    package enum State: String, Sendable, Hashable, CaseIterable {
        /// Some pushes are not in the queue yet.
        case queueing
        /// All pushes are in the queue, and wait for the notification's time.
        case scheduled
        case sending
        /// All pushes are settled.
        case done
        case cancelled
    }

    package let id: NotificationID
    package let request: NotificationRequest
    package let createdAt: Timestamp
    package let cancelledAt: Timestamp?
    package let state: State
    /// The number of pushes in each state. `pending` does not count pushes that are not in the queue yet.
    package let counts: [PushState: Int]
    /// The number of devices that `skipsUnchanged` left out.
    package let skipped: Int
    /// The number of devices in the receipt.
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

/// The record of one push to one device.
package struct Delivery: Sendable, Hashable {
    /// The push id: `message_id` in `push_queue`.
    package let id: Int64
    package let notification: NotificationID?
    /// The chat message of the push, if it has one.
    package let message: MessageID?
    /// The token as the row has it. Another program may have stored an invalid one.
    package let token: String
    package let app: AppName
    package let state: PushState
    /// The gateway's reason why the push failed or is retried.
    package let reason: String?
    package let hint: String?
    package let attempts: Int
    package let queuedAt: Timestamp
    package let notBefore: Timestamp?
    package let sentAt: Timestamp?
    /// The time at which the push was sent, failed, expired or was cancelled.
    package let settledAt: Timestamp?
    /// The UUID that identifies the push at the push service. `nil` if nothing was sent yet.
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

    /// The JSON that the admin API and the command line show.
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
