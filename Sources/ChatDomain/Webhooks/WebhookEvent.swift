/// An event of a webhook, with the progress and the result of its delivery.
package struct WebhookEvent: Sendable, Hashable {
    package enum State: String, Sendable, Hashable, CaseIterable {
        case waiting, delivered
        /// All attempts have failed, or the webhook has ended.
        case failed
        /// It was waiting in a copy of the database that was restored. It is sent only on request.
        case held

        package init(parsing text: String, field: String = "state") throws(ChatError) {
            guard let state = State(rawValue: text) else {
                throw .invalid(field, "must be one of " + Self.allCases.map(\.rawValue).joined(separator: ", "))
            }
            self = state
        }
    }

    /// The last response of the receiver, or the reason why there was none.
    package struct Response: Sendable, Hashable {
        /// The maximum number of bytes of a stored body.
        package static let longestBody = 1024

        /// `nil` if there was no response.
        package let status: Int?
        package let error: String?
        /// The beginning of the body.
        package let body: String?
        package let duration: Duration

        package init(status: Int?, error: String? = nil, body: String? = nil, duration: Duration) {
            self.status = status
            self.error = error
            self.body = body
            self.duration = duration
        }
    }

    /// Grows in a room in the order of the commits.
    package let id: Int64
    package let webhook: Int64
    /// A ``WebhookEventKind``, ``WebhookEventKind/test`` or ``WebhookEventKind/gap``.
    package let type: String
    package let room: SecretCode?
    package let message: MessageID?
    /// The number of pushes or devices that the event stands for.
    package let count: Int
    /// The members of `data` that the event does not get from the message.
    package let details: JSONObject
    package let time: Timestamp
    package let state: State
    /// The number of attempts, with one under way.
    package let attempts: Int
    /// The time before which the next attempt is not made. `nil` if it is due.
    package let notBefore: Timestamp?
    package let response: Response?

    package init(
        id: Int64, webhook: Int64, type: String, room: SecretCode? = nil, message: MessageID? = nil, count: Int = 1,
        details: JSONObject = JSONObject(), time: Timestamp, state: State = .waiting, attempts: Int = 0,
        notBefore: Timestamp? = nil, response: Response? = nil
    ) {
        self.id = id
        self.webhook = webhook
        self.type = type
        self.room = room
        self.message = message
        self.count = count
        self.details = details
        self.time = time
        self.state = state
        self.attempts = attempts
        self.notBefore = notBefore
        self.response = response
    }

    /// The member of the details of a gap that the store alone needs: the time of the first dropped event.
    package static let firstDropped = "since"

    /// The value of `webhook-id`, the same for every attempt. The time makes it unique even if a database that was
    /// restored gives an id again.
    package var deliveryID: String { "msg_\(id)_" + String(time.milliseconds, radix: 36) }
}

extension WebhookEvent {
    /// Returns the body of the request.
    ///
    /// - Parameter record: The message as it is now. `nil` if it was deleted, so that a deleted text is never sent.
    package func body(_ record: (message: Message, room: SecretCode)?) -> String {
        var data = JSONObject()
        if let room = record?.room ?? room { data["room"] = .string(room.text) }
        if let message { data["message_id"] = .number(message) }
        if let record, type != WebhookEventKind.pushFailed.rawValue {
            data["message"] = .object(record.message.eventJSON)
        }
        for (name, value) in details.members where name != Self.firstDropped { data[name] = value }
        if WebhookEventKind(rawValue: type)?.isFolded == true { data["count"] = .number(count) }
        let body: JSONObject = ["type": .string(type), "timestamp": .time(time), "data": .object(data)]
        return JSONValue.object(body).description
    }

    /// The delivery as JSON.
    package var json: JSONObject {
        [
            "id": .number(id), "type": .string(type), "room": .optional(room?.text),
            "message_id": message.map { .number($0) } ?? .null, "count": .number(count), "created_at": .time(time),
            "state": .string(state.rawValue), "attempts": .number(attempts), "next_attempt_at": .optional(notBefore),
            "status": response?.status.map { .number($0) } ?? .null, "error": .optional(response?.error),
            "response": .optional(response?.body),
            "duration_ms": response.map { .number(Int($0.duration / .milliseconds(1))) } ?? .null,
        ]
    }
}

extension Message {
    fileprivate var eventJSON: JSONObject {
        var json: JSONObject = [
            "id": .number(id), "name": .string(nickname), "text": .string(text), "sent_at": .time(sentAt),
        ]
        if let title = content.title { json["title"] = .string(title) }
        if let link = content.link { json["link"] = .string(link) }
        if sender.isProgram { json["program"] = .bool(true) }
        if content.isUrgent { json["urgent"] = .bool(true) }
        for (name, value) in content.extras.shown { json[name] = value }
        return json
    }
}
