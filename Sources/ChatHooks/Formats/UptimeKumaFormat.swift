import ChatDomain

/// Uptime Kuma's notification of the type webhook: JSON, a form with the field `data`, or a query.
enum UptimeKumaFormat: HookFormat {
    static let name = "uptime-kuma"
    static let title = "Uptime Kuma"
    static let postsByGET = true

    static func draft(_ request: HookRequest, _ settings: HookSettings) throws(HookRefusal) -> HookDraft {
        let body = request.body.isEmpty ? try query(request.query) : try request.object(in: "data")
        let (beat, monitor) = (body.object("heartbeat") ?? [:], body.object("monitor") ?? [:])
        let message = body.text("msg")
        let number = beat.text("monitorID") ?? monitor.text("id")
        guard let number, let status = beat.value(["status"])?.integer else {
            // A test, or a warning about a certificate.
            guard let message else { throw .unreadable("the JSON has no heartbeat and no msg") }
            return HookDraft(title: monitor.text("name"), text: message)
        }
        let name = monitor.text("name") ?? "Monitor \(number)"
        let (word, state, rank): (String, HookDraft.State, Int) =
            switch status {
            case 0: ("is down", .firing, HookSeverity.urgent)
            case 1: ("is up", .resolved, HookSeverity.quiet)
            case 2: ("is being checked again", .event, HookSeverity.quiet)
            case 3: ("is in maintenance", .event, HookSeverity.quiet)
            default: ("has status \(status)", .event, HookSeverity.usual)
            }
        return HookDraft(
            key: HookKey.make("uk", number), title: "\(name) \(word)", text: beat.text("msg") ?? message ?? "",
            link: monitor.text("url"), tags: monitor.objects("tags").compactMap { $0.text("name") }, rank: rank,
            state: state)
    }

    /// Reads the query of a GET, in which two values are JSON.
    private static func query(_ query: [String: String]) throws(HookRefusal) -> JSONObject {
        var body: JSONObject = [:]
        body["msg"] = query["msg"].map { .string($0) }
        for name in ["heartbeat", "monitor"] {
            guard let text = query[name], text != "null", !text.isEmpty else { continue }
            body[name] = .object(try HookRequest.object(Array(text.utf8)))
        }
        return body
    }
}
