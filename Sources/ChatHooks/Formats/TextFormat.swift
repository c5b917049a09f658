import ChatDomain

/// Any program that posts a text. The query may have `title`, `link`, `key`, `state` and `urgency`.
enum TextFormat: HookFormat {
    static let name = "text"
    static let title = "Text"

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        guard let text = String(validating: request.body, as: UTF8.self), !request.body.contains(0) else {
            throw .unreadable("the body is not a text in UTF-8")
        }
        guard !FieldText.isBlank(text) || request.query["title"] != nil else { throw .unreadable("the body is empty") }
        var members: JSONObject = [:]
        for name in ["title", "link", "key", "state", "urgency"] {
            members[name] = request.query[name].map { .string($0) }
        }
        // A person has written the address.
        let state = members.text("state")
        guard state == nil || HookDraft.State(word: state) != nil else {
            throw .unreadable("the query's state must be firing, resolved or event")
        }
        guard state == nil || members["key"] != nil else { throw .unreadable("the query's state needs a key") }
        members["text"] = .string(text)
        return JSONFormat.draft(members)
    }
}
