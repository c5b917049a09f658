package import ChatDomain

extension HookFormat {
    /// The number of characters of an unreadable body that its message shows.
    private static var shownLimit: Int { 500 }

    /// Returns the message about a delivery that the format could not read.
    package static func report(of request: HookRequest, _ reason: String) -> HookDraft {
        let start = request.body.prefix(4 * shownLimit)
        var shown = "(\(request.body.count) bytes that are not text)"
        // The start of a longer body may end within a character.
        let cut = start.count < request.body.count ? 3 : 0
        let text = (0...cut).lazy.compactMap { String(validating: start.dropLast($0), as: UTF8.self) }.first
        if let text, !text.contains("\0") {
            let scalars = text.unicodeScalars.prefix(shownLimit)
            let isWhole = scalars.endIndex == text.unicodeScalars.endIndex && start.count == request.body.count
            shown = "```\n\(String(scalars).replacing("```", with: "'''"))\(isWhole ? "" : "…")\n```"
        }
        return HookDraft(
            key: HookKey.make("un", reason),
            text: "A delivery to \(name) could not be read: \(reason)" + (request.body.isEmpty ? "" : "\n\(shown)"),
            isMarkdown: true)
    }

    /// Returns the result that a delivery would have, as JSON: for people who try a format or a template.
    package static func trial(_ request: HookRequest, _ settings: HookSettings) -> JSONObject {
        switch read(request, settings) {
        case .draft(let draft): ["messages": .array([.object(draft.json)])]
        case .ignored(let reason): ["messages": .array([]), "ignored": .string(reason)]
        case .unreadable(let reason):
            ["messages": .array([.object(report(of: request, reason).json)]), "unreadable": .string(reason)]
        }
    }
}

extension HookDraft {
    fileprivate var json: JSONObject {
        var json: JSONObject = ["text": .string(text)]
        json["title"] = title.map { .string($0) }
        json["link"] = link.map { .string($0) }
        json["key"] = key.map { .string($0.text) }
        json["state"] = .string(state.rawValue)
        json["urgency"] = .string(urgency.rawValue)
        if !tags.isEmpty { json["tags"] = .texts(tags) }
        if isMarkdown { json["markdown"] = .bool(true) }
        return json
    }
}
