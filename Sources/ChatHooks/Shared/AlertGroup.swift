import ChatDomain

/// The alerts of one notification, as Alertmanager and Grafana send them.
struct AlertGroup {
    /// The maximum number of alerts whose texts are shown.
    private static let shownLimit = 10
    /// The maximum number of bytes of the text that tells an alert from the others.
    private static let placeLimit = 100

    private struct Alert {
        let isFiring: Bool
        let labels: JSONObject
        let annotations: JSONObject
        let json: JSONObject

        init(_ json: JSONObject, groupState: HookDraft.State) {
            self.json = json
            labels = json.object("labels") ?? [:]
            annotations = json.object("annotations") ?? [:]
            isFiring = (HookDraft.State(word: json.text("status")) ?? groupState) == .firing
        }

        var name: String { labels.text("alertname") ?? "Alert" }
        var severity: String? { labels.text("severity") }
        var rank: Int { HookSeverity.rank(severity) }

        /// The sentences about the alert: a summary and a description, if they differ.
        var sentences: [String] {
            let texts = [annotations.text("summary"), annotations.text("description") ?? annotations.text("message")]
                .compactMap(\.self)
            return texts.count == 2 && texts[0].utf8.elementsEqual(texts[1].utf8) ? [texts[0]] : texts
        }

        /// The numbers that Grafana measured.
        var values: String? {
            guard let values = json.object("values")?.members.prefix(3), !values.isEmpty else {
                return json.text("valueString")
            }
            return values.compactMap { name, value in value.scalarText.map { "\(name) = \($0)" } }
                .joined(separator: ", ")
        }

        var id: String {
            HookKey.id([json.text("fingerprint") ?? "\(JSONValue.object(labels))"])
        }

        /// The page about the alert.
        var link: String? {
            for name in ["panelURL", "dashboardURL", "generatorURL"] {
                if let link = json.text(name), MessageContent.isLink(link) { return link }
            }
            return nil
        }
    }

    private let body: JSONObject
    private let alerts: [Alert]
    private let state: HookDraft.State

    init(_ body: JSONObject) throws(HookRefusal) {
        guard body.value(["alerts"])?.array != nil else {
            throw .unreadable("the JSON has no list alerts")
        }
        let alerts = body.objects("alerts")
        let stated = HookDraft.State(word: body.text("status") ?? body.text("state"))
        let state = stated ?? (alerts.contains { $0.text("status") == "firing" } ? .firing : .resolved)
        self.body = body
        self.state = state
        // Alerts that are firing come first: they are shown if there are too many.
        let all = alerts.map { Alert($0, groupState: state) }
        self.alerts = all.filter(\.isFiring) + all.filter { !$0.isFiring }
    }

    private var firing: ArraySlice<Alert> { alerts.prefix(while: \.isFiring) }

    /// The name of the alerts, how many there are, and whether they ended.
    private var title: String {
        let name =
            body.text("groupLabels", "alertname") ?? body.text("commonLabels", "alertname")
            ?? (alerts.count == 1 ? alerts[0].name : "Alerts")
        if state == .resolved { return "Resolved: \(name)" }
        return firing.count > 1 ? "\(name) (\(firing.count))" : name
    }

    /// The labels that tell an alert from the others of its group.
    private func place(of alert: Alert) -> String {
        var place = alert.labels.text("instance") ?? ""
        if alerts.count > 1 {
            // Comparing long names is costly.
            let labels = alert.labels.members.prefix(50).lazy.filter { $0.name.utf8.count <= Self.placeLimit }
            let values = labels.filter {
                !["alertname", "severity"].contains($0.name) && body.value(["commonLabels", $0.name]) == nil
            }
            place = values.prefix(3).compactMap(\.value.scalarText).joined(separator: ", ")
        }
        return FieldText.fitting(place, limit: Self.placeLimit, keepsLines: false)
    }

    private var text: String {
        var lines = alerts.prefix(Self.shownLimit).map { alert in
            let place = place(of: alert)
            let sentences = alert.sentences
            let text =
                alerts.count == 1
                ? sentences.isEmpty ? alert.values ?? "" : sentences.joined(separator: "\n")
                : sentences.first.map(HookText.firstLine)
                    ?? [alert.name, alert.values].compactMap(\.self).joined(separator: ": ")
            let isNamed = place.isEmpty || text.contains(place)
            let mark = alerts.count == 1 ? "" : alert.isFiring ? "• " : "✓ "
            return mark + (text.isEmpty ? place : isNamed ? text : "\(text) (\(place))")
        }
        let truncated = body.value(["truncatedAlerts"])?.integer.flatMap { Int32(exactly: $0) } ?? 0
        let hidden = (body.value(["alerts"])?.array?.count ?? 0) - lines.count + max(0, Int(truncated))
        if hidden > 0 { lines.append("… and \(hidden) more") }
        if alerts.count == 1, let image = alerts[0].json.text("imageURL"), MessageContent.isLink(image) {
            lines.append(image)
        }
        return lines.joined(separator: "\n")
    }

    /// Returns the message about the group.
    ///
    /// - Parameters:
    ///   - prefix: The prefix of the key.
    ///   - written: The title and the text that the sender made. `nil` for those of the alerts.
    func draft(prefix: String, title written: String? = nil, text: String? = nil) -> HookDraft {
        let ranks = firing.map { ($0.id, $0.rank) }
        let labels = body.object("groupLabels").flatMap { $0.isEmpty ? nil : "\(JSONValue.object($0))" }
        let pages = Set(alerts.compactMap(\.link))
        let worst = firing.max { $0.rank < $1.rank }
        return HookDraft(
            key: (body.text("groupKey") ?? labels).map { HookKey.make(prefix, $0) }, title: written ?? title,
            text: text ?? self.text,
            link: pages.count == 1 ? pages.first : body.text("externalURL"),
            tags: [worst?.severity ?? body.text("commonLabels", "severity")].compactMap(\.self),
            rank: ranks.map(\.1).max() ?? HookSeverity.usual, state: state,
            firing: Dictionary(ranks, uniquingKeysWith: max))
    }
}
