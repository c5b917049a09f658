/// A notification as it is stored, without its remaining work.
package struct NotificationRecord: Sendable {
    package let id: NotificationID
    package let request: NotificationRequest
    package let devices: Int
    package let createdAt: Timestamp
    package let cancelledAt: Timestamp?

    package init(
        id: NotificationID, request: NotificationRequest, devices: Int, createdAt: Timestamp, cancelledAt: Timestamp?
    ) {
        self.id = id
        self.request = request
        self.devices = devices
        self.createdAt = createdAt
        self.cancelledAt = cancelledAt
    }

    /// The receipt for a later request with the same idempotency key.
    ///
    /// - Throws: ``ChatError/Code/idempotencyConflict`` if the key was used for another notification.
    package func receipt(repeating request: NotificationRequest, now: Timestamp) throws(ChatError)
        -> NotificationReceipt
    {
        var stored = self.request
        // Reading a request drops a delivery time that has passed. A retry may therefore lack the first request's time.
        if request.notBefore == nil, let time = stored.notBefore, time <= now { stored.notBefore = nil }
        guard stored == request else {
            throw ChatError(
                .idempotencyConflict, "Idempotency-Key was used before, for another notification",
                field: "Idempotency-Key")
        }
        return NotificationReceipt(id: id, devices: devices, isRepeat: true)
    }

    /// Returns the notification's status.
    ///
    /// - Parameters:
    ///   - isQueueing: Whether pushes remain to be queued.
    ///   - counts: The notification's devices by the state of their push.
    package func status(
        isQueueing: Bool, counts: [PushState: Int], skipped: Int, now: Timestamp
    ) -> NotificationStatus {
        NotificationStatus(
            id: id, request: request, createdAt: createdAt, cancelledAt: cancelledAt,
            state: state(isQueueing: isQueueing, counts, now: now), counts: counts, skipped: skipped, devices: devices)
    }

    private func state(
        isQueueing: Bool, _ counts: [PushState: Int], now: Timestamp
    ) -> NotificationStatus.State {
        if cancelledAt != nil { return .cancelled }
        if isQueueing { return .queueing }
        if counts[.pending, default: 0] == 0 { return .done }
        if let time = request.notBefore, time > now, counts[.sent, default: 0] == 0 { return .scheduled }
        return .sending
    }
}

/// A part of an audience, processed in the order of ids: the device with a token, the devices of a user, of a tag, of a
/// room, or all devices.
package enum AudienceItem: Sendable, Hashable {
    case token(String)
    case user(String)
    case tag(String)
    case room(String)
    case all

    package static func items(of audience: Audience) -> [AudienceItem] {
        switch audience {
        case .tokens(let tokens): tokens.map { .token($0.description) }
        case .users(let users): users.map { .user($0.text) }
        case .tags(let tags): tags.map { .tag($0.text) }
        case .room(let code): [.room(code.text)]
        case .all: [.all]
        }
    }

    /// `nil` if the item is not a token.
    package var token: String? {
        if case .token(let text) = self { text } else { nil }
    }

    /// The name of the token, user, tag or room. `nil` for all devices.
    package var value: String? {
        switch self {
        case .token(let text), .user(let text), .tag(let text), .room(let text): text
        case .all: nil
        }
    }
}

extension Audience {
    /// Reads the text that ``json`` wrote.
    package init(stored text: String) {
        let object = (try? JSONValue(parsing: text))?.object
        func texts(_ name: String) -> [String]? { object?[name]?.array?.compactMap(\.text) }
        if let tokens = texts("tokens") {
            self = .tokens(tokens.compactMap { try? DeviceToken(parsing: $0) })
        } else if let users = texts("users") {
            self = .users(users.map(UserReference.init(stored:)))
        } else if let tags = texts("tags") {
            self = .tags(tags.map(Tag.init(stored:)))
        } else if let code = object?["room"]?.text {
            self = .room(SecretCode(stored: code))
        } else if object?["all"] == .bool(true) {
            self = .all
        } else {
            // Another program has changed the row. Send to no device rather than to all.
            self = .tokens([])
        }
    }
}

extension NotificationRequest {
    /// The request without duplicate names in the audience.
    package var distinct: NotificationRequest {
        func distinct<Name: Hashable>(_ names: [Name]) -> [Name] {
            var seen: Set<Name> = []
            return names.filter { seen.insert($0).inserted }
        }
        var request = self
        switch audience {
        case .tokens(let tokens): request.audience = .tokens(distinct(tokens))
        case .users(let users): request.audience = .users(distinct(users))
        case .tags(let tags): request.audience = .tags(distinct(tags))
        case .room, .all: break
        }
        return request
    }

    /// The badge of a payload that contains nothing else. `nil` for any other payload.
    package var badgeAlone: Int64? {
        guard let document = try? JSONValue(parsing: payload).object, document.members.count == 1,
            let aps = document["aps"]?.object, aps.members.count == 1
        else { return nil }
        return aps["badge"]?.integer
    }
}
