import ChatDomain

/// Sentry's internal integrations: alerts about issues and metrics, and changes of issues.
enum SentryFormat: HookFormat {
    static let name = "sentry"
    static let title = "Sentry"
    static let isSigned = true
    static let makesSecret = true

    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        HookSignature.isHMAC(request.headers["sentry-hook-signature"], of: request.body, secret: secret)
    }

    static func deliveryID(_ request: HookRequest) -> String? {
        HookSignature.deliveryID(request, ["sentry-hook-signature"]) ?? request.deliveryID("request-id")
    }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = try request.object()
        guard let data = body.object("data") else {
            // The older plugin for webhooks has the issue's members outside.
            guard let event = body.object("event") else { throw .unreadable("the JSON has no object data") }
            return draft(
                "issue", body.text("id"), event.text("title") ?? body.text("message") ?? "Error",
                [body.text("culprit"), body.text("project_name")].compactMap(\.self).joined(separator: "\n"),
                link: body.text("url"), level: body.text("level"), .firing)
        }
        let action = body.text("action") ?? ""
        if let metric = data.object("metric_alert") {
            let state: HookDraft.State = action == "resolved" ? .resolved : .firing
            return draft(
                "metric", metric.text("id"), data.text("description_title") ?? "Metric alert",
                data.text("description_text"), link: data.text("web_url"), level: action, state)
        }
        if let event = data.object("event") ?? data.object("error") {
            let text = [event.text("culprit"), data.text("triggered_rule")].compactMap(\.self)
            return draft(
                "issue", event.text("issue_id"), event.text("title") ?? "Error", text.joined(separator: "\n"),
                link: event.text("web_url"), level: event.text("level"), .firing)
        }
        guard let issue = data.object("issue"), data.object("comment") == nil else {
            throw .ignored("\(request.headers["sentry-hook-resource"] ?? "this resource") is not shown")
        }
        let state: HookDraft.State
        switch action {
        case "created", "unresolved": state = .firing
        case "resolved", "ignored", "archived": state = .resolved
        default: throw .ignored("\(action) of an issue is not shown")
        }
        let project = issue.text("project", "name") ?? issue.text("project", "slug")
        return draft(
            "issue", issue.text("id"), issue.text("title") ?? "Issue",
            [issue.text("culprit"), project].compactMap(\.self).joined(separator: "\n"),
            link: issue.text("web_url") ?? issue.text("permalink"), level: issue.text("level"), state)
    }

    private static func draft(
        _ kind: String, _ id: String?, _ title: String, _ text: String?, link: String?, level: String?,
        _ state: HookDraft.State
    ) -> HookDraft {
        let isResolved = state == .resolved && !title.hasPrefix("Resolved")
        return HookDraft(
            key: id.map { HookKey.make("se", kind, $0) }, title: isResolved ? "Resolved: \(title)" : title,
            text: text ?? "", link: link, rank: HookSeverity.rank(level), state: state)
    }
}
