import ChatDomain

/// Programs that know only Discord's webhooks: a text and embeds, in Markdown.
enum DiscordFormat: HookFormat {
    static let name = "discord"
    static let title = "Discord"
    static let rateStatus = 429

    /// The flag of a message that does not ring.
    private static let silent: Int64 = 4096

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = try request.object(in: "payload_json")
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
            isMarkdown: isMarkdown, urgency: flags & silent != 0 ? .quiet : .usual)
    }

    private static func markup(_ embed: JSONObject, hasTitle: Bool) -> MarkupText {
        var result = MarkupText()
        result.add(line: markup(embed.text("author", "name")))
        if hasTitle, let title = embed.text("title") {
            result.add(line: .heading(title, link: embed.text("url")))
        }
        result.add(line: markup(embed.text("description")))
        for field in embed.objects("fields").prefix(25) {
            result.add(field: field.text("name"), markup(field.text("value")))
        }
        if let image = embed.text("image", "url") { result.add(line: .link(image)) }
        result.add(line: markup(embed.text("footer", "text")))
        return result
    }

    /// Reads Discord's Markdown. Times, mentions and emoji become words.
    private static func markup(_ text: String?) -> MarkupText {
        var result = MarkupText()
        let words = HookText.replacingTags(in: text ?? "") { tag in
            let parts = tag.unicodeScalars.split(separator: ":").map { String($0) }
            switch tag.unicodeScalars.first {
            case "@", "#": return tag.replacing("!", with: "").replacing("&", with: "")
            case ":", "a", "t":
                guard parts.count >= 2, let number = Int64(parts[parts[0] == "t" ? 1 : parts.count - 1]) else {
                    return nil
                }
                guard parts[0] == "t" else { return ":\(parts[parts.count - 2]):" }
                // Until the year 9999.
                guard (0...253_402_300_799).contains(number) else { return nil }
                return "\(Timestamp(seconds: number).sqlText.prefix(16)) UTC"
            default: return nil
            }
        }
        result.add(markdown: words)
        return result
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
