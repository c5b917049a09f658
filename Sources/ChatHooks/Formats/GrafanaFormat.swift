import ChatDomain

/// Grafana's contact point of the type webhook.
enum GrafanaFormat: HookFormat {
    static let name = "grafana"
    static let title = "Grafana"
    static let isSigned = true

    private static let signature = "x-grafana-alerting-signature"
    /// The header for the time has no name by default. The documentation of hooks names this one.
    private static let timestamp = "x-grafana-alerting-timestamp"

    static func verify(_ request: HookRequest, secret: String, now: Timestamp) -> Bool {
        var signed = request.body
        if let time = request.headers[timestamp] {
            guard HookSignature.isRecent(time, now: now) else { return false }
            signed = Array("\(time):".utf8) + signed
        }
        return HookSignature.isHMAC(request.headers[signature], of: signed, secret: secret)
    }

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = try request.object()
        if body["alerts"] == nil, let rule = body.text("ruleId") { return try draft(body, ofRule: rule) }
        // The message of Grafana's own template is a list of all labels. The alerts' sentences are shorter.
        let message = body.text("message").flatMap { text in
            ["**Firing**", "**Resolved**"].contains { text.hasPrefix($0) } ? nil : text
        }
        return try AlertGroup(body).draft(prefix: "gr", title: body.text("title"), text: message)
    }

    /// Reads the alerts of Grafana before version 9, which had their own form.
    private static func draft(_ body: JSONObject, ofRule rule: String) throws(HookRefusal) -> HookDraft {
        let state = body.text("state") ?? ""
        guard ["alerting", "no_data", "ok"].contains(state) else { throw .ignored("a rule that is \(state)") }
        let values = body.objects("evalMatches").prefix(10).compactMap { match in
            match.text("value").map { "\(match.text("metric") ?? "value") = \($0)" }
        }
        return HookDraft(
            key: HookKey.make("gr", "rule", rule), title: body.text("title") ?? body.text("ruleName"),
            text: ([body.text("message")].compactMap(\.self) + values).joined(separator: "\n"),
            link: body.text("ruleUrl"), rank: HookSeverity.rank(body.text("tags", "severity")),
            state: state == "ok" ? .resolved : .firing)
    }
}
