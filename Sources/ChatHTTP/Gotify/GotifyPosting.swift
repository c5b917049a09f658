import ChatDomain
import Hummingbird

extension FormField {
    fileprivate static let message = FormField(key: "message")
    fileprivate static let title = FormField(key: "title")
    fileprivate static let priority = FormField(key: "priority")
}

/// Posting, with a token or a credential.
extension GotifyAPI {
    /// `POST /gotify/message`, in JSON, as a form, or in the query.
    func post(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try context.caller()
        guard caller != .administrator else {
            throw ChatError.unauthorized(
                "Send X-Gotify-Key with a token of the relay for one room (pushchat token create)")
        }
        let message = try await Message(request)
        // Find the room first, because a client that sees an error posts again.
        let room = try await room(message.application, for: caller)
        let text = FieldText.fitting(message.text, limit: MessageText.highestLimit)
        let title = message.title.map { title in
            FieldText.fitting(title, limit: MessageContent.longestTitle, keepsLines: false)
        }
        let priority = message.priority ?? Self.usualPriority
        let draft = PostingAPI.Draft(
            room: room.code,
            content: try MessageContent(
                parsing: text, title: title.flatMap { FieldText.isBlank($0) ? nil : $0 },
                link: message.link.flatMap { MessageContent.isLink($0) ? $0 : nil },
                priority: priority <= Self.quietPriority ? 5 : nil, sound: priority <= Self.quietPriority ? "" : nil,
                isUrgent: priority >= Self.urgentPriority, memberLimit: posting.memberLimit(of: caller)))
        let receipt = try await posting.post(draft, request, context)
        let sender = caller.member?.nickname ?? caller.token?.name
        var response: JSONObject = [
            "id": .number(receipt.message), "appid": .number(room.id), "message": .string(text),
            "title": .string(title ?? sender?.text ?? ""), "priority": .number(priority),
            "date": .time(receipt.time),
        ]
        if let extras = message.extras { response["extras"] = extras }
        return Responses.json(response)
    }

    /// Returns the room in which the caller posts.
    ///
    /// - Parameter id: The id that the client has chosen. `nil` for the only room of the caller.
    private func room(_ id: Int64?, for caller: Caller) async throws(ChatError) -> ClientRoom {
        guard let id else {
            guard let code = caller.onlyRoom else {
                throw ChatError(
                    .forbidden,
                    "This token has no room: create one for a room (pushchat token create), or send the room's appid")
            }
            return try await clients.room(code)
        }
        guard let room = try await clients.room(id: id), caller.onlyRoom == nil || caller.onlyRoom == room.code else {
            throw ChatError.notFound("application")
        }
        return room
    }

    /// The content of a request, before the relay's own rules apply.
    private struct Message {
        let text: String
        let title: String?
        let priority: Int64?
        let extras: JSONValue?
        /// The id of the room. Some programs send 0 for none.
        let application: Int64?

        init(_ request: Request) async throws {
            var application: Int64?
            if request.headers.mediaType == "application/json" {
                let body = try await AdminBody.readLenient(
                    request, members: ["message", "title", "priority", "extras", "appid"])
                guard let text = try body.text("message") else { throw ChatError.missing("message") }
                (self.text, title) = (text, try body.text("title"))
                priority = try Self.value(body, "priority", "a whole number") { $0.integer }
                extras = try Self.value(body, "extras", "an object") { $0.object }.map { .object($0) }
                application = try Self.value(body, "appid", "a whole number") { $0.integer }
            } else {
                let form = try await FormFields.read(request)
                let query = try URLEncodedForm.parse(Array((request.uri.query ?? "").utf8), charset: .utf8)
                // As on Gotify's server, a field of the body takes precedence over one of the query.
                func value(_ field: FormField) throws(ChatError) -> String? {
                    try form.has(field) ? form.text(field) : query.text(field)
                }
                guard let text = try value(.message) else { throw ChatError.missing("message") }
                (self.text, title) = (text, try value(.title))
                priority = try value(.priority).flatMap { Int64($0) }
                extras = nil
                if let text = try value(.appID), !text.isEmpty {
                    guard let number = Int64(digits: text) else {
                        throw ChatError.invalid("appid", "must be a whole number")
                    }
                    application = number
                }
            }
            self.application = application == 0 ? nil : application
        }

        private static func value<Value>(
            _ body: AdminBody, _ name: String, _ what: String, _ read: (JSONValue) -> Value?
        ) throws(ChatError) -> Value? {
            guard let value = body.object[name], value != .null else { return nil }
            guard let result = read(value) else { throw .invalid(name, "must be \(what), is \(value.kind)") }
            return result
        }

        /// `{"client::notification":{"click":{"url":"…"}}}`
        var link: String? {
            extras?.object?["client::notification"]?.object?["click"]?.object?["url"]?.text
        }
    }
}
