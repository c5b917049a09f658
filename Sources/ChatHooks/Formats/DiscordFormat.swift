import ChatDomain

/// Programs that know only Discord's webhooks: a text and embeds, in Markdown.
enum DiscordFormat: HookFormat {
    static let name = "discord"
    static let title = "Discord"
    static let rateStatus = 429

    /// The flag of a message that does not ring.
    private static let silent: Int64 = 4096

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = try object(request)
        var text = markup(body.text("content"))
        // As many as Discord accepts.
        let embeds = body.objects("embeds").prefix(10)
        let isWhole = text.isEmpty && embeds.count == 1
        for embed in embeds { text.add(line: markup(embed, hasTitle: !isWhole)) }
        let title = isWhole ? embeds.first?.text("title") : nil
        guard !text.isEmpty || title != nil else {
            throw .unreadable("the JSON has no content and no embeds with a text")
        }
        let (result, isMarkdown) = text.result
        let flags = body.value(["flags"])?.integer ?? 0
        return HookDraft(
            title: title, text: result, link: embeds.count == 1 ? embeds.first?.text("url") : nil,
            isMarkdown: isMarkdown, rank: flags & silent != 0 ? HookSeverity.quiet : HookSeverity.usual)
    }

    /// Discord also accepts the members as a form. Some programs send files in a second request.
    private static func object(_ request: HookRequest) throws(HookRefusal) -> JSONObject {
        if request.form["payload_json"] == nil {
            if request.form["content"] != nil { return JSONObject(texts: request.form) }
            if request.body.prefix(4096).contains("filename=".utf8) { throw .ignored("a file without a text") }
        }
        return try request.object(in: "payload_json")
    }

    private static func markup(_ embed: JSONObject, hasTitle: Bool) -> MarkupText {
        var result = MarkupText()
        result.add(line: MarkupText(embed.text("author", "name") ?? ""))
        if hasTitle, let title = embed.text("title") {
            result.add(line: .heading(title, link: embed.text("url")))
        }
        result.add(line: markup(embed.text("description")))
        for field in embed.objects("fields").prefix(25) {
            result.add(field: field.text("name"), markup(field.text("value")))
        }
        if let image = embed.text("image", "url") { result.add(line: .link(image)) }
        result.add(line: MarkupText(embed.text("footer", "text") ?? ""))
        return result
    }

    /// Reads Discord's Markdown. Times, mentions and emoji become words.
    private static func markup(_ text: String?) -> MarkupText {
        ForeignMarkdown.read(text ?? "") { tag in words(tag).map { MarkupText($0) } }
    }

    /// Returns the text of a tag such as `@1`, `:tea:5` or `t:1796169600:R`. `nil` for another one.
    private static func words(_ tag: String) -> String? {
        if tag.hasPrefix("@") || tag.hasPrefix("#") { return tag.replacing("!", with: "").replacing("&", with: "") }
        let parts = tag.unicodeScalars.split(separator: ":", omittingEmptySubsequences: false).map { String($0) }
        switch (parts[0], parts.count) {
        case ("t", 2...3):
            // Until the year 9999.
            guard let time = Int64(parts[1]), (0...253_402_300_799).contains(time) else { return nil }
            return "\(Timestamp(seconds: time).sqlText.prefix(16)) UTC"
        case ("", 3), ("a", 3): return Int64(parts[2]) == nil ? nil : ":\(parts[1]):"
        default: return nil
        }
    }

    /// Discord answers without a body, or with the message if the program asks for it.
    static func accepted(_ request: HookRequest, message: MessageID?) -> HookAnswer {
        guard request.query["wait"] == "true" else { return HookAnswer(status: 204) }
        let (none, id) = (JSONValue.array([]), JSONValue.string("\(message ?? 0)"))
        return HookAnswer(json: [
            "id": id, "type": .number(0), "content": .string(""), "channel_id": id, "webhook_id": id,
            "flags": .number(0),
            "tts": .bool(false), "pinned": .bool(false), "mention_everyone": .bool(false), "edited_timestamp": .null,
            "embeds": none, "attachments": none, "mentions": none, "mention_roles": none,
        ])
    }

    static func described(_ name: String) -> HookAnswer? {
        HookAnswer(json: ["id": .string("0"), "type": .number(1), "name": .string(name), "avatar": .null])
    }

    static func refused(_ error: ChatError, status: Int) -> HookAnswer? {
        var json: JSONObject = ["message": .string(error.message)]
        let code =
            switch status {
            case 401, 403: 50027
            case 404: 10015
            case 413: 40005
            case 400: 50109
            default: 0
            }
        json["code"] = .number(code)
        if status == 429 {
            json["retry_after"] = .number(error.retryAfter?.components.seconds ?? 1)
            json["global"] = .bool(false)
        }
        return HookAnswer(json: json, status: status)
    }
}
