import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Monitors: Uptime Kuma and Healthchecks")
struct MonitorTests {
    private static func kuma(_ status: Int, _ message: String) -> String {
        #"{"heartbeat":{"monitorID":3,"status":\#(status),"time":"2026-12-02 00:00:00.000","msg":"\#(message)","ping":null,"important":true,"duration":60,"retries":0},"#
            + #""monitor":{"id":3,"name":"Shop","url":"https://shop.example"},"msg":"[Shop] [x] \#(message)"}"#
    }

    @Test("A monitor of Uptime Kuma that goes down and comes up is one message")
    func life() throws {
        let down = try #require(draft("uptime-kuma", Self.kuma(0, "timeout")))
        #expect(down.title == "Shop is down" && down.text == "timeout" && down.link == "https://shop.example")
        #expect(down.state == .firing && down.urgency == .urgent && down.firing.count == 1)
        let pending = try #require(draft("uptime-kuma", Self.kuma(2, "retry")))
        let up = try #require(draft("uptime-kuma", Self.kuma(1, "200 - OK")))
        #expect(up.title == "Shop is up" && up.state == .resolved && up.urgency == .quiet)
        #expect(pending.state == .event && Set([down.key, pending.key, up.key]).count == 1 && up.key != nil)
    }

    @Test("Uptime Kuma's tests have no heartbeat, and it sends JSON, a form or a query")
    func forms() {
        #expect(draft("uptime-kuma", #"{"heartbeat":null,"monitor":null,"msg":"Testing"}"#)?.text == "Testing")
        #expect(draft("uptime-kuma", "--b", form: ["data": Self.kuma(0, "timeout")])?.title == "Shop is down")
        let query = [
            "msg": "[Shop] down", "monitor": #"{"id":3,"name":"Shop"}"#, "heartbeat": #"{"monitorID":3,"status":0}"#,
        ]
        #expect(draft("uptime-kuma", "", query: query)?.title == "Shop is down")
        #expect(draft("uptime-kuma", "", query: ["msg": "Testing", "heartbeat": "null"])?.text == "Testing")
    }

    @Test("A check of Healthchecks that goes down and comes up is one message")
    func healthchecks() throws {
        func check(_ status: String) -> String {
            #"{"code":"0c8983c9","status":"\#(status)","name":"Backup","tags":"db nightly","body":"disk full"}"#
        }
        let down = try #require(draft("healthchecks", check("down")))
        #expect(down.title == "Backup is down" && down.text == "disk full" && down.tags == ["db", "nightly"])
        let up = try #require(draft("healthchecks", check("up")))
        #expect(up.title == "Backup is up" && up.state == .resolved && up.key == down.key && down.key != nil)
        #expect(draft("healthchecks", "", query: ["code": "0c8983c9", "status": "down"])?.key == down.key)
        let test = draft(
            "healthchecks", #"{"code":"00000000-0000-0000-0000-000000000000","status":"down","name":"TEST"}"#)
        #expect(test?.state == .event && test?.urgency == .usual && test?.key == nil)
        #expect(read("healthchecks", check("grace")) == .ignored("the status grace"))
    }

    @Test("An issue of Sentry that fires and is resolved is one message")
    func sentry() throws {
        let fired = try #require(
            draft(
                "sentry",
                #"{"action":"triggered","data":{"event":{"title":"TypeError","culprit":"door.open","web_url":"https://sentry.example/17","issue_id":"17","level":"error"},"triggered_rule":"All"},"actor":{"type":"application"}}"#
            ))
        #expect(
            fired.title == "TypeError" && fired.text == "door.open\nAll" && fired.link == "https://sentry.example/17")
        #expect(fired.state == .firing && fired.firing.values.sorted() == [3])
        let resolved = try #require(
            draft("sentry", #"{"action":"resolved","data":{"issue":{"id":17,"title":"TypeError","level":"error"}}}"#))
        #expect(resolved.text == "Resolved: TypeError" && resolved.state == .resolved && resolved.key == fired.key)
        #expect(
            read("sentry", #"{"action":"assigned","data":{"issue":{"id":17}}}"#)
                == .ignored("assigned of an issue is not shown"))
        #expect(
            read(
                "sentry", #"{"action":"created","data":{"installation":{}}}"#,
                headers: ["sentry-hook-resource": "installation"])
                == .ignored("installation is not shown"))
    }

    @Test("Sentry's older plugin has no member data")
    func plugin() {
        let message = draft(
            "sentry",
            #"{"id":"17","project_name":"Shop","level":"error","culprit":"door.open","message":"It broke","url":"https://sentry.example/17","event":{"title":"TypeError"}}"#
        )
        #expect(message?.title == "TypeError" && message?.text == "door.open\nShop")
        #expect(message?.link == "https://sentry.example/17" && message?.state == .firing && message?.key != nil)
    }

    @Test("A metric alert of Sentry has three severities and an end")
    func metric() throws {
        func metric(_ action: String) -> HookDraft? {
            draft(
                "sentry",
                #"{"action":"\#(action)","data":{"metric_alert":{"id":"5"},"description_title":"\#(action): Too many errors","description_text":"1000 events","web_url":"https://sentry.example/a"}}"#
            )
        }
        let (warning, critical, end) = (metric("warning"), metric("critical"), metric("resolved"))
        #expect(warning?.urgency == .usual && critical?.urgency == .urgent && end?.state == .resolved)
        #expect(warning?.key == critical?.key && critical?.key == end?.key && end?.text == "1000 events")
    }
}
