import ChatDomain

/// Any program that posts a JSON object. A ``HookTemplate`` says which members the message has. Without one, the usual
/// names count, among them those of Grafana OnCall's formatted webhooks and of Apprise.
enum JSONFormat: HookFormat {
    static let name = "json"
    static let title = "JSON"
    static let isSigned = true
    static let postsByGET = true

    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        HookSignature.isStandard(request, secret: secret, now: now)
    }

    static func deliveryID(_ request: HookRequest) -> String? {
        request.deliveryID("webhook-id", "idempotency-key")
    }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        // Some programs send the members as a form or in the query.
        let isForm = !request.form.isEmpty
        let body =
            isForm || request.body.isEmpty && !request.query.isEmpty
            ? JSONObject(texts: isForm ? request.form : request.query) : try request.object()
        guard let template = settings.template else { return draft(body) }
        return try template.draft(body)
    }

    /// Returns the message of an object with members of the usual names.
    static func draft(_ body: JSONObject) -> HookDraft {
        func first(_ names: String...) -> String? {
            for name in names { if let text = body.text(name) { return text } }
            return nil
        }
        let title = first("title", "summary", "subject")
        let text = first("message", "text", "body", "description", "content")
        let severity = first("urgency", "severity", "level", "priority")
        // Apprise calls its usual messages "info". They make a sound.
        let rank = severity.map(HookSeverity.rank) ?? max(HookSeverity.rank(nil), HookSeverity.rank(body.text("type")))
        let known = HookDraft.State(word: first("state", "status"))
        // Many programs send the same id each time. Without a state, a second message must not replace the first silently.
        let key = known == nil ? nil : first("key", "alert_uid", "fingerprint", "id")
        return HookDraft(
            key: key.map { HookKey.make("js", $0) }, title: title,
            text: text ?? (title == nil ? shown(body) : ""),
            link: first("link", "url", "link_to_upstream_details"), rank: rank, state: known ?? .event)
    }

    /// Returns the start of an object that has no text.
    private static func shown(_ body: JSONObject) -> String {
        let json = JSONValue.object(body)
        // Indented, a number may need 64 blanks.
        let text = json.utf8.count > 4 * shownLimit ? json.description : json.indented
        return FieldText.fitting(text, limit: shownLimit)
    }

    private static let shownLimit = 1000
}
