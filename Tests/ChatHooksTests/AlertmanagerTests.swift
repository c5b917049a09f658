import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Alertmanager's notifications")
struct AlertmanagerTests {
    /// A notification about alerts, each with its instance, its status and its severity.
    private static func body(
        _ alerts: [(instance: String, status: String, severity: String)], status: String, extra: String = ""
    ) -> String {
        let alerts = alerts.map { instance, status, severity in
            #"{"status":"\#(status)","labels":{"alertname":"DiskFull","instance":"\#(instance)","severity":"\#(severity)"},"#
                + #""annotations":{"summary":"/srv is full"},"startsAt":"2026-12-02T00:00:00Z","endsAt":"0001-01-01T00:00:00Z","#
                + #""generatorURL":"http://prom.example/graph?\#(instance)","fingerprint":"id-\#(instance)"}"#
        }
        return #"{"version":"4","groupKey":"{}:{alertname=\"DiskFull\"}","truncatedAlerts":0,"status":"\#(status)","#
            + #""receiver":"kitchen","groupLabels":{"alertname":"DiskFull"},"commonLabels":{"alertname":"DiskFull"},"#
            + #""commonAnnotations":{},"externalURL":"http://am.example:9093",\#(extra)"alerts":[\#(alerts.joined(separator: ","))]}"#
    }

    @Test("An alert that fires, changes and ends is one message")
    func life() throws {
        let one = try #require(draft("alertmanager", Self.body([("nas", "firing", "page")], status: "firing")))
        #expect(one.title == "DiskFull" && one.text == "/srv is full (nas)")
        #expect(one.state == .firing && one.urgency == .urgent && one.tags == ["page"])
        #expect(one.link == "http://prom.example/graph?nas")

        let two = try #require(
            draft(
                "alertmanager", Self.body([("nas", "resolved", "page"), ("pi", "firing", "warning")], status: "firing"))
        )
        #expect(two.title == "DiskFull" && two.urgency == .usual)
        #expect(two.text == "• /srv is full (pi)\n✓ /srv is full (nas)")
        #expect(two.link == "http://am.example:9093")

        let end = try #require(draft("alertmanager", Self.body([("pi", "resolved", "warning")], status: "resolved")))
        #expect(end.title == "Resolved: DiskFull" && end.state == .resolved && end.urgency == .quiet)
        #expect(Set([one, two, end].map(\.key)).count == 1 && one.key != nil)
        #expect(one.firing.values.sorted() == [4] && two.firing.values.sorted() == [2] && end.firing.isEmpty)
        #expect(Set(one.firing.keys).isDisjoint(with: two.firing.keys))

        let mixed = draft(
            "alertmanager", Self.body([("pi", "firing", "warning"), ("nas", "firing", "page")], status: "firing"))
        #expect(mixed?.tags == ["page"])
    }

    @Test("Of many alerts ten are shown and the rest is counted")
    func many() throws {
        let alerts = (1...1500).map { ("host\($0)", "firing", "info") }
        let many = try #require(
            draft(
                "alertmanager",
                Self.body(alerts, status: "firing").replacing(#""truncatedAlerts":0"#, with: #""truncatedAlerts":7"#)))
        #expect(many.title == "DiskFull (1500)")
        #expect(many.text.hasSuffix("• /srv is full (host10)\n… and 1497 more"))
        #expect(many.urgency == .quiet)
    }

    @Test("Of more alerts than the relay remembers, one more rings, a higher severity rings, and one less is silent")
    func remembered() throws {
        func firing(_ count: Int, _ severity: String = "info") throws -> [String: Int] {
            let alerts = (1...count).map { ("host\($0)", "firing", $0 == 1 ? severity : "info") }
            return try #require(draft("alertmanager", Self.body(alerts, status: "firing"))).firing
        }
        let time = Timestamp(seconds: 0)
        let memory = HookMemory(firing: try firing(1500), time: time)
        #expect(memory.firing.count <= HookMemory.alertLimit)
        #expect(try !memory.rings(for: firing(1499), at: time))
        #expect(try memory.rings(for: firing(1501), at: time) && memory.rings(for: firing(1500, "page"), at: time))
        #expect(try firing(1000).count == HookMemory.alertLimit)
    }

    @Test("Numbers that are too large, and long labels, do no harm")
    func extremes() throws {
        let many = Self.body([("a", "firing", "info"), ("b", "firing", "info")], status: "firing")
        for number in ["9223372036854775807", "-9223372036854775808", "1e99"] {
            let body = many.replacing(#""truncatedAlerts":0"#, with: #""truncatedAlerts":\#(number)"#)
            #expect(draft("alertmanager", body)?.text == "• /srv is full (a)\n• /srv is full (b)")
        }
        let long = String(repeating: "x", count: 200)
        let wide = try #require(draft("alertmanager", Self.body([(long, "firing", "info")], status: "firing")))
        #expect(wide.text.hasSuffix("x…)") && wide.text.utf8.count < 130)
    }

    @Test("A body without alerts is unreadable")
    func other() {
        #expect(read("alertmanager", #"{"status":"firing"}"#) == .unreadable("the JSON has no list alerts"))
        #expect(draft("alertmanager", #"{"alerts":[]}"#)?.text == "Resolved: Alerts")
        // Nothing tells such a group from others.
        #expect(draft("alertmanager", #"{"status":"firing","alerts":[{"status":"firing"}]}"#)?.key == nil)
    }
}
