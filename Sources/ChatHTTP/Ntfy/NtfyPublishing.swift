import ChatDomain
import HTTPTypes
import Hummingbird

/// ntfy's calls with which programs and apps publish (https://docs.ntfy.sh/publish).
extension NtfyAPI {
    /// The text with which ntfy replaces an empty message.
    private static let empty = "triggered"

    /// `POST` or `PUT /ntfy/{topic}`, with the text as body; `GET /ntfy/{topic}/publish`.
    func publish(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (topic, parameters) = (try Self.topic(context), NtfyParameters(request))
        guard parameters[.template] == nil else {
            throw ChatError.invalid(
                "template", "is not supported: send the text itself, or JSON with topic and message")
        }
        let body =
            request.method == .get
            ? NtfyBody(text: parameters.message ?? "") : try await NtfyBody(request, parameters)
        return try await publish(parameters, topic: topic, body, request, context)
    }

    /// `POST /ntfy` and `POST /`, with a JSON body. As on an ntfy server, its media type does not matter.
    func publishJSON(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.readLenient(request, members: NtfyParameters.members, hasAnyType: true)
        guard let topic = try body.text("topic") else { throw ChatError.missing("topic") }
        var parameters = NtfyParameters(request)
        try parameters.add(body.object)
        return try await publish(
            parameters, topic: topic, NtfyBody(text: parameters[.message] ?? ""), request, context)
    }

    private func publish(
        _ parameters: NtfyParameters, topic: String, _ body: NtfyBody, _ request: Request, _ context: ChatContext
    ) async throws -> Response {
        guard parameters[.delay] == nil else {
            throw ChatError.invalid("delay", "is not supported: messages are sent at once")
        }
        let priority = try parameters.priority()
        var text = PostingAPI.Draft.fitting(body.text, limit: MessageText.highestLimit)
        if FieldText.isBlank(text) { text = Self.empty }
        let title = parameters[.title].map { title in
            PostingAPI.Draft.fitting(title, limit: MessageContent.longestTitle, keepsLines: false)
        }
        let link = parameters[.click].flatMap { MessageContent.isLink($0) ? $0 : nil }
        let icon = parameters[.icon].flatMap { NotificationContent.isLink($0) ? $0 : nil }
        let tags = parameters.tags.map {
            PostingAPI.Draft.fitting(FieldText.trimmed($0), limit: MessageExtras.tagLimit, keepsLines: false)
        }.filter { !FieldText.isBlank($0) }.prefix(MessageExtras.tagCount)
        let isMarkdown = parameters.flag(.markdown) || request.headers.mediaType == "text/markdown"
        let draft = PostingAPI.Draft(
            room: try await room(of: topic, context),
            content: try MessageContent(
                parsing: text, title: title.flatMap { FieldText.isBlank($0) ? nil : $0 }, link: link,
                priority: priority.ofPushes, sound: priority.sound, isUrgent: priority == .max,
                extras: MessageExtras(tags: Array(tags), markdown: isMarkdown, icon: icon),
                memberLimit: posting.memberLimit(of: context.caller())))
        let receipt = try await posting.post(draft, request, context)
        var response: JSONObject = [
            "id": .string(NtfyMessageID.text(receipt.message)), "time": .number(receipt.time.seconds),
            "event": .string("message"), "topic": .string(topic), "message": .string(text),
            "priority": .number(priority.rawValue),
        ]
        if let title { response["title"] = .string(title) }
        if let link { response["click"] = .string(link) }
        if let icon { response["icon"] = .string(icon) }
        if !tags.isEmpty { response["tags"] = .texts(Array(tags)) }
        if isMarkdown { response["content_type"] = .string("text/markdown") }
        var leftOut = (body.hasFile ? ["file"] : []) + parameters.leftOut
        if parameters[.click] != nil, link == nil { leftOut.append("click") }
        if parameters[.icon] != nil, icon == nil { leftOut.append("icon") }
        if tags.count < parameters.tags.count { leftOut.append("tags") }
        if !leftOut.isEmpty { response["left_out"] = .texts(leftOut) }
        return Responses.json(response)
    }

    /// Returns the topic in the path.
    static func topic(_ context: ChatContext) throws -> String {
        let escaped = Array(try context.parameters.require("topic").utf8)
        return String(decoding: URLEncodedForm.unescaped(escaped[...], plusIsBlank: false), as: UTF8.self)
    }

    /// Returns the room of a topic to which the caller posts.
    private func room(of topic: String, _ context: ChatContext) async throws(ChatError) -> SecretCode {
        guard topic != "v1" else { throw .invalid("topic", "is reserved") }
        let given = try SecretCode(parsing: topic, field: "topic")
        let code = try await environment.stores.records.room(named: given, field: "topic")
        let room = try await environment.stores.clients.room(aliased: RoomAlias(stored: topic)) ?? code
        // The response for a room that the caller may not use does not depend on whether it exists.
        if let own = try context.caller().onlyRoom, own != room { throw Self.forbidden }
        return room
    }

    /// The rejection of a topic that the caller may not use, whether or not it exists.
    static let forbidden = ChatError(.forbidden, "This credential gives no access to the topic")
}
