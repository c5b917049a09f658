import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Texts, JSON and templates")
struct JSONTests {
    private static func filled(_ template: String, _ body: String) throws -> HookDraft? {
        try read("json", HookRequest(body: Array(body.utf8)), template: HookTemplate(parsing: template)).draft
    }

    @Test("Without a template the usual names count")
    func usual() throws {
        let firing = try #require(
            draft(
                "json",
                #"{"alert_uid":"08d6891a","title":"Hot","state":"alerting","message":"240 °C","link_to_upstream_details":"https://example.com/a","severity":"critical"}"#
            ))
        #expect(firing.title == "Hot" && firing.text == "240 °C" && firing.link == "https://example.com/a")
        #expect(firing.state == .firing && firing.urgency == .urgent && firing.firing.count == 1)
        let end = draft("json", #"{"alert_uid":"08d6891a","title":"Hot","state":"ok"}"#)
        #expect(end?.state == .resolved && end?.key == firing.key && end?.text == "Hot" && end?.title == nil)
        let apprise = draft("json", #"{"version":"1.0","title":"T","message":"M","type":"failure"}"#)
        #expect(apprise?.title == "T" && apprise?.text == "M" && apprise?.key == nil && apprise?.state == .event)
        #expect(draft("json", #"{"title":"T","message":"M","type":"info"}"#)?.urgency == .usual)
        // A program that always sends the same id must not replace its last message silently.
        #expect(draft("json", #"{"id":"backup","message":"disk full"}"#)?.key == nil)
        #expect(draft("json", #"{"id":"backup","status":"error"}"#)?.state == .firing)
        #expect(draft("json", #"{"a":{"b":1}}"#)?.text == "{\n  \"a\": {\n    \"b\": 1\n  }\n}")
        #expect(draft("json", "", query: ["message": "M", "title": "T"])?.title == "T")
        #expect(draft("json", "message=M", form: ["message": "M"])?.text == "M")
    }

    @Test("A text may have a title, a link and an urgency in the query")
    func text() {
        let query = ["title": "T", "link": "https://example.com", "urgency": "urgent", "key": "k", "state": "firing"]
        let message = draft("text", "Käse\nund Brot", query: query)
        #expect(message?.title == "T" && message?.text == "Käse\nund Brot" && message?.link == "https://example.com")
        #expect(message?.urgency == .urgent && message?.state == .firing && message?.key != nil)
        #expect(draft("text", "x", query: ["urgency": "quiet"])?.urgency == .quiet)
        #expect(
            read("text", "x", query: ["key": "a", "state": "nonsense"])
                == .unreadable("the query's state must be firing, resolved or event"))
        #expect(read("text", "x", query: ["state": "firing"]) == .unreadable("the query's state needs a key"))
    }

    @Test("A template makes a message of any body")
    func template() throws {
        let template = #"""
            {"title": "{monitor.name|Monitor}: {state}", "text": "{{{events[1].text}}} {missing|none} {labels[\"a.b\"]} {list}",
             "key": "{monitor.id}", "link": "{url}", "tags": ["{events[0].text}", "fixed", "{missing}"],
             "urgency": {"path": "level", "cases": {"5": "urgent", "1": "quiet"}, "default": "usual"},
             "state": {"path": "state", "cases": {"bad": "firing", "good": "resolved"}, "default": "event"}}
            """#
        let body =
            #"{"monitor":{"name":"Shop","id":3},"state":"bad","events":[{"text":"a"},{"text":"b"}],"labels":{"a.b":true},"list":[1,{}],"url":"https://example.com","level":5}"#
        let message = try #require(try Self.filled(template, body))
        #expect(
            message.title == "Shop: bad" && message.text == "{b} none true [1,{}]"
                && message.link == "https://example.com")
        #expect(message.tags == ["a", "fixed"] && message.urgency == .urgent && message.state == .firing)
        let end = try #require(try Self.filled(template, body.replacing("bad", with: "good")))
        #expect(end.state == .resolved && end.key == message.key && end.firing.isEmpty)
        #expect(try Self.filled(template, #"{"state":null}"#)?.title == "Monitor:")
    }

    @Test("Values are escaped if the template is Markdown")
    func escaped() throws {
        let message = try Self.filled(#"{"text":"**{a}**","markdown":true}"#, #"{"a":"x_[y](z)*"}"#)
        #expect(message?.text == "**x_\\[y\\](z)\\***" && message?.isMarkdown == true)
    }

    @Test("A template that finds nothing makes the body unreadable")
    func empty() throws {
        let template = try HookTemplate(parsing: #"{"text":"{a}"}"#)
        #expect(
            read("json", HookRequest(body: Array("{}".utf8)), template: template)
                == .unreadable("the template found no title and no text in the body"))
    }

    @Test(
        "An error names the field and the rule",
        arguments: [
            ("[]", "Invalid template: must be a JSON object, is an array"),
            ("{", "Invalid template: must be JSON: expected a member's name in quotes at byte 2"),
            ("{}", "Invalid template: needs a title or a text"),
            (#"{"text":1}"#, "Invalid template.text: must be a string, is a number"),
            (
                #"{"text":"{a"}"#,
                "Invalid template.text: has a single brace; write {{ or }} for a brace"
            ),
            (
                #"{"text":"a}"}"#,
                "Invalid template.text: has a single brace; write {{ or }} for a brace"
            ),
            (
                #"{"text":"{a..b}"}"#,
                #"Invalid template.text: has the path a..b, which must have the form a.b[0] or a["b.c"]"#
            ),
            (
                #"{"text":"{a[x]}"}"#,
                #"Invalid template.text: has the path a[x], which must have the form a.b[0] or a["b.c"]"#
            ),
            (#"{"text":"{}"}"#, #"Invalid template.text: has the path , which must have the form a.b[0] or a["b.c"]"#),
            (
                #"{"text":"x","color":"red"}"#,
                "Invalid template: has the unknown member color; known are title, text, key, link, urgency, state, tags, markdown"
            ),
            (#"{"text":"x","urgency":"loud"}"#, "Invalid template.urgency: must be one of quiet, usual, urgent"),
            (
                #"{"text":"x","urgency":{"path":"a","cases":{"1":"loud"},"default":"usual"}}"#,
                "Invalid template.urgency.cases: must be one of quiet, usual, urgent"
            ),
            (
                #"{"text":"x","urgency":{"path":"a","cases":{"1":"quiet"}}}"#,
                "Invalid template.urgency.default: must be one of quiet, usual, urgent"
            ),
            (
                #"{"text":"x","urgency":{"path":"a"}}"#,
                "Invalid template.urgency: must be a word, or have path, cases (1 to 32) and default"
            ),
            (#"{"text":"x","state":"firing"}"#, "Invalid template.state: needs a key"),
            (#"{"text":"x","tags":"a"}"#, "Invalid template.tags: must be an array of at most 20 texts"),
            (#"{"text":"x","markdown":1}"#, "Invalid template.markdown: must be true or false"),
            (
                #"{"text":"\#(String(repeating: "{a}", count: 33))"}"#,
                "Invalid template: must have at most 32 placeholders and choices"
            ),
            (
                #"{"text":"\#(String(repeating: "a", count: 4097))"}"#,
                "Invalid template: must have at most 4096 bytes of JSON"
            ),
        ])
    func errors(template: String, message: String) {
        let error = #expect(throws: ChatError.self) { try HookTemplate(parsing: template) }
        #expect(error?.message == message)
    }

    @Test("A template cannot explode")
    func bounded() throws {
        let text = String(repeating: "{a}", count: 30)
        let long = String(repeating: "x", count: 1 << 20)
        let message = try #require(
            try Self.filled(#"{"text":"\#(text)","title":"{a}","link":"{a}"}"#, #"{"a":"\#(long)"}"#))
        #expect(message.text.utf8.count <= 4000 && (message.title?.utf8.count ?? 0) <= 255 && message.link == nil)
    }
}
