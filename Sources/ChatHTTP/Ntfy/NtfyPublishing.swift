import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird

/// ntfy's calls with which programs and apps publish (https://docs.ntfy.sh/publish).
extension NtfyAPI {
    /// The text with which ntfy replaces an empty message.
    private static let empty = "triggered"

    /// `POST` or `PUT /ntfy/{topic}` or `/ntfy/{topic}/{sequence}`, with the text as body; `GET /ntfy/{topic}/publish`.
    func publish(_ request: Request, _ context: ChatContext) async throws -> Response {
        var parameters = NtfyParameters(request)
        let topic = try Self.topic(context)
        if let sequence = try Self.sequence(context) { parameters[.sequence] = sequence }
        if let template = parameters[.template] {
            return try await publish(parameters, topic: topic, template: template, request, context)
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
        guard parameters[.template] == nil else {
            throw ChatError.invalid("template", "is only possible with the topic in the path")
        }
        try parameters.add(body.object)
        return try await publish(
            parameters, topic: topic, NtfyBody(text: parameters[.message] ?? ""), request, context)
    }

    // MARK: - Templates

    /// The names of an ntfy server's own templates, which are formats of webhooks here.
    private static let templates = ["alertmanager", "github", "grafana"]

    /// The message that a template made.
    private struct Templated {
        let draft: HookDraft
        /// The delivery, if a token makes it. Other callers own no keys: each of their deliveries is another message.
        let delivery: HookDelivery?
        let rateStatus: Int
    }

    /// Posts a body that one of ntfy's own templates reads. Unlike on an ntfy server, a message changes and ends with the
    /// alert that it is about.
    private func publish(
        _ parameters: NtfyParameters, topic: String, template: String, _ request: Request, _ context: ChatContext
    ) async throws -> Response {
        guard Self.templates.contains(template), let format = HookFormats.named(template) else {
            let isInline = ["1", "yes", "true"].contains(template.lowercased())
            let reason = isInline ? "templates in the request are not supported" : "the relay has no other templates"
            throw ChatError.invalid(
                "template", "must be one of \(Self.templates.joined(separator: ", ")): \(reason)")
        }
        guard request.method != .get else { throw ChatError.invalid("template", "needs a body: send POST or PUT") }
        let (room, token) = (try await room(of: topic, context), try context.caller().token)
        let read = try await HookRequest(request)
        let delivery = token.map { token in
            HookDelivery(
                posting: posting, token: token, room: room, format: format,
                idempotencyKey: HookDelivery.idempotencyKey(format, read))
        }
        let draft: HookDraft
        switch format.read(read, HookSettings(format: format.name)) {
        case .draft(let made): draft = made
        case .unreadable(let reason):
            draft = format.report(of: read, reason)
            await delivery?.unreadable(reason, context)
        case .ignored(let reason):
            delivery?.ignored(reason, context)
            return Responses.json(["topic": .string(topic), "ignored": .string(reason)])
        }
        var parameters = parameters
        parameters.add(draft)
        return try await publish(
            parameters, topic: topic, NtfyBody(text: draft.text), request, context,
            templated: Templated(draft: draft, delivery: delivery, rateStatus: format.rateStatus))
    }

    // MARK: - Posting

    private func publish(
        _ parameters: NtfyParameters, topic: String, _ body: NtfyBody, _ request: Request, _ context: ChatContext,
        templated: Templated? = nil
    ) async throws -> Response {
        let (priority, sequence) = (try parameters.priority(), try parameters.sequence())
        let due = try parameters[.delay].map { try NtfyDelay.due($0, now: environment.now()) }
        var text = FieldText.fitting(body.text, limit: MessageText.highestLimit)
        if FieldText.isBlank(text) { text = Self.empty }
        let title = parameters[.title].map { title in
            FieldText.fitting(title, limit: MessageContent.longestTitle, keepsLines: false)
        }
        let link = parameters[.click].flatMap { MessageContent.isLink($0) ? $0 : nil }
        let icon = parameters[.icon].flatMap { NotificationContent.isLink($0) ? $0 : nil }
        let tags = parameters.tags.map {
            FieldText.fitting(FieldText.trimmed($0), limit: MessageExtras.tagLimit, keepsLines: false)
        }.filter { !FieldText.isBlank($0) }.prefix(MessageExtras.tagCount)
        let isMarkdown = parameters.flag(.markdown) || request.headers.mediaType == "text/markdown"
        var draft = PostingAPI.Draft(
            room: try await room(of: topic, context),
            content: try MessageContent(
                parsing: text, title: title.flatMap { FieldText.isBlank($0) ? nil : $0 }, link: link,
                priority: priority.ofPushes, sound: priority.sound, isUrgent: priority == .max,
                extras: MessageExtras(tags: Array(tags), markdown: isMarkdown, icon: icon),
                memberLimit: posting.memberLimit(of: context.caller())))
        draft.notBefore = due
        if case .key(let key)? = sequence { draft.key = key }
        let (receipt, name) = try await post(draft, as: sequence, templated, request, context)
        guard let receipt else {
            return Responses.json([
                "topic": .string(topic), "ignored": .string("a repetition, or an end without a start"),
            ])
        }
        var response = Self.event(receipt, "message", topic: topic, sequence: name)
        response["message"] = .string(text)
        response["priority"] = .number(priority.rawValue)
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

    /// Posts a message, or replaces the one with the name.
    ///
    /// - Returns: The receipt, `nil` if a template had nothing to post, and the name of the message.
    private func post(
        _ draft: PostingAPI.Draft, as sequence: MessageReference?, _ templated: Templated?, _ request: Request,
        _ context: ChatContext
    ) async throws -> (ChangeReceipt?, name: MessageReference?) {
        do throws(ChatError) {
            if case .id(let id)? = sequence { return (try await replace(id, with: draft, request, context), sequence) }
            guard let templated, let delivery = templated.delivery, draft.notBefore == nil else {
                return (try await posting.post(draft, request, context), sequence)
            }
            try posting.admit(context.caller())
            let key = draft.key ?? templated.draft.key
            let receipt = try await delivery.post(templated.draft, as: key, draft.content, request, context)
            return (receipt, key.map { .key($0) })
        } catch {
            throw ErrorResponse(rate: error, status: templated?.rateStatus ?? 429)
        }
    }

    /// The time in which a message for later is posted if it is published again for now.
    private static let soon = Duration.seconds(2)

    /// Replaces a message that its id names. As on an ntfy server, a message for later that is published again without a
    /// delay does not wait any longer.
    private func replace(
        _ id: MessageID, with draft: PostingAPI.Draft, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt {
        var due = draft.notBefore
        if due == nil, try await isForLater(id, draft, request, context) { due = environment.now() + Self.soon }
        do throws(ChatError) {
            return try await edit(id, draft, notBefore: due, request, context)
        } catch {
            guard error.field == "not_before" else { throw error }
            guard draft.notBefore == nil else {
                throw .invalid("delay", "the message is posted already: only one with a name can change later")
            }
            // It was posted since the read.
            guard try await !isForLater(id, draft, request, context) else { throw error }
            return try await edit(id, draft, notBefore: nil, request, context)
        }
    }

    private func edit(
        _ id: MessageID, _ draft: PostingAPI.Draft, notBefore due: Timestamp?, _ request: Request,
        _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt {
        try await posting.change(.id(id), in: draft.room, .edit(draft.content, notBefore: due), request, context)
    }

    private func isForLater(
        _ id: MessageID, _ draft: PostingAPI.Draft, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> Bool {
        let author = try posting.author(of: .id(id), in: draft.room, request, context)
        let found: FoundMessage
        do throws(ChatError) {
            found = try await environment.stores.changes.find(.id(id), for: author)
        } catch {
            // The edit decides: the request may be a repeated one.
            guard error.code == .notFound else { throw error }
            return false
        }
        if case .scheduled = found { return true } else { return false }
    }

    /// Returns the first members of an event. Its id is that of the last change, after which clients continue.
    private static func event(
        _ receipt: ChangeReceipt, _ event: String, topic: String, sequence: MessageReference?
    ) -> JSONObject {
        let id = NtfyMessageID.text(receipt.change ?? receipt.message)
        var key: MessageKey?
        if case .key(let given)? = sequence { key = given }
        let sequence = NtfyFormat.sequence(receipt.message, key, isApart: receipt.isApart)
        var response: JSONObject = ["id": .string(id)]
        if sequence != id { response["sequence_id"] = .string(sequence) }
        response["time"] = .number((receipt.due ?? receipt.time).seconds)
        response["event"] = .string(event)
        response["topic"] = .string(topic)
        return response
    }

    // MARK: - Clearing and deleting

    /// `PUT /ntfy/{topic}/{sequence}/clear`, and `read`
    func clear(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await remove(.clear, "message_clear", request, context)
    }

    /// `DELETE /ntfy/{topic}/{sequence}`
    func delete(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await remove(.delete, "message_delete", request, context)
    }

    /// Removes a message's notification, or the message. As on an ntfy server, the call also succeeds without such a message:
    /// senders that end an alarm need not know whether it was ever posted. A message for later has no notification, so
    /// clearing it changes nothing.
    private func remove(
        _ action: MessageChangeRequest.Action, _ event: String, _ request: Request, _ context: ChatContext
    ) async throws -> Response {
        guard let sequence = try Self.sequence(context) else { throw ErrorResponse.notFound }
        let topic = try Self.topic(context)
        let room = try await room(of: topic, context)
        do throws(ChatError) {
            let message = try NtfyParameters.sequence(sequence)
            let receipt = try await posting.change(message, in: room, action, request, context)
            return Responses.json(Self.event(receipt, event, topic: topic, sequence: message))
        } catch {
            let waits = action == .clear && error.code == .conflict && error.ids.isEmpty
            guard error.code == .notFound || waits else { throw error }
            return Responses.json([
                "id": .string(NtfyMessageID.random()), "sequence_id": .string(sequence),
                "time": .number(environment.now().seconds), "event": .string(event), "topic": .string(topic),
            ])
        }
    }

    /// Returns the name of a message in the path. `nil` if the path has none.
    ///
    /// - Throws: ``ErrorResponse/notFound``, because an ntfy server has no such path.
    private static func sequence(_ context: ChatContext) throws -> String? {
        guard let text = context.parameters.get("sequence") else { return nil }
        guard isSequence(text[...]), try topic(context) != "v1" else { throw ErrorResponse.notFound }
        return text
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
