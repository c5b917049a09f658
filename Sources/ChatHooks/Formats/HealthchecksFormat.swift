import ChatDomain

/// Healthchecks' integration of the type webhook. Its body is a template, for which the documentation of hooks has a text
/// with these members. They may also be in the query.
enum HealthchecksFormat: HookFormat {
    static let name = "healthchecks"
    static let title = "Healthchecks"

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = request.body.isEmpty ? JSONObject(texts: request.query) : try request.object()
        guard let code = body.text("code") ?? body.text("uuid") ?? body.text("slug") ?? body.text("name"),
            let status = body.text("status")
        else { throw .unreadable("the body needs code and status: use the template of the documentation") }
        let name = body.text("name") ?? code
        guard ["up", "down"].contains(status) else { throw .ignored("the status \(status)") }
        let isDown = status == "down"
        // The code of a test, which no later delivery ends.
        let isTest = code.utf8.allSatisfy { "0-".utf8.contains($0) }
        return HookDraft(
            key: isTest ? nil : HookKey.make("hc", code), title: "\(name) is \(status)", text: body.text("body") ?? "",
            tags: (body.text("tags") ?? "").split(separator: " ").map { String($0) },
            rank: isTest ? HookSeverity.usual : HookSeverity.urgent, state: isDown ? .firing : .resolved)
    }
}
