import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Grafana's notifications")
struct GrafanaTests {
    private static func body(status: String, message: String, severity: String = "critical") -> String {
        #"{"receiver":"kitchen","status":"\#(status)","orgId":1,"alerts":[{"status":"\#(status)","labels":{"alertname":"Hot","severity":"\#(severity)","#
            + #""instance":"oven"},"annotations":{"summary":"The oven is hot","description":"240 °C"},"fingerprint":"c1","#
            + #""panelURL":"https://grafana.example/d/1?viewPanel=2","dashboardURL":"https://grafana.example/d/1","silenceURL":"https://grafana.example/s","valueString":"[ A=240 ]"}],"#
            + #""groupLabels":{"alertname":"Hot"},"commonLabels":{"alertname":"Hot","severity":"\#(severity)"},"commonAnnotations":{},"externalURL":"https://grafana.example/","#
            + #""version":"1","groupKey":"{}/{x=\"y\"}:{alertname=\"Hot\"}","truncatedAlerts":0,"title":"[\#(status.uppercased()):1] Hot","state":"alerting","message":"\#(message)"}"#
    }

    @Test("An alert without a sentence shows its numbers and its image")
    func numbers() {
        let body =
            #"{"status":"firing","groupKey":"g","alerts":[{"status":"firing","labels":{"alertname":"Hot"},"values":{"B":240,"C":1},"imageURL":"https://grafana.example/i.png"}]}"#
        #expect(draft("grafana", body)?.text == "B = 240, C = 1\nhttps://grafana.example/i.png")
    }

    @Test("An alert that fires and ends is one message, with the title of Grafana's template")
    func life() throws {
        let one = try #require(
            draft(
                "grafana",
                Self.body(status: "firing", message: #"**Firing**\n\nValue: A=240\nLabels:\n - alertname = Hot"#)))
        #expect(one.title == "[FIRING:1] Hot" && one.text == "The oven is hot\n240 °C")
        #expect(one.link == "https://grafana.example/d/1?viewPanel=2" && one.tags == ["critical"])
        #expect(one.state == .firing && one.urgency == .urgent && one.firing.values.sorted() == [4])

        let end = try #require(draft("grafana", Self.body(status: "resolved", message: "Cool again")))
        #expect(end.title == "[RESOLVED:1] Hot" && end.text == "Cool again")
        #expect(end.state == .resolved && end.key == one.key)
        #expect(one.key != draft("alertmanager", Self.body(status: "firing", message: ""))?.key)
    }

    @Test("A rule of Grafana's old alerts that fires and ends is one message")
    func old() throws {
        func rule(_ state: String) -> HookOutcome {
            let body =
                #"{"title":"[\#(state)] Hot","ruleId":3,"ruleName":"Hot","state":"\#(state)","message":"Look at the oven","#
                + #""ruleUrl":"https://grafana.example/d/1","evalMatches":[{"metric":"oven","value":240.5,"tags":null}]}"#
            return read("grafana", body)
        }
        let one = try #require(rule("alerting").draft)
        #expect(one.title == "[alerting] Hot" && one.text == "Look at the oven\noven = 240.5")
        #expect(one.link == "https://grafana.example/d/1" && one.state == .firing)
        let end = try #require(rule("ok").draft)
        #expect(end.key == one.key && end.state == .resolved)
        #expect(rule("paused") == .ignored("a rule that is paused"))
    }
}
