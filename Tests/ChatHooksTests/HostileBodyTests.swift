import ChatDomain
import Testing

@testable import ChatHooks

/// Bodies that no program of the format sends, or that are made to cost much.
///
/// The limit of time is generous: work that grows with the square of a text's length takes many minutes.
@Suite("Hostile bodies", .timeLimit(.minutes(1)))
struct HostileBodyTests {
    /// The headers with which formats find out that a request is theirs.
    private static let headers = ["x-github-event": "push", "x-gitea-event": "push"]
    private static let names = HookFormats.all.map { $0.name }

    private static func outcome(_ format: String, _ body: [UInt8]) -> HookOutcome {
        read(format, HookRequest(headers: headers, body: body))
    }

    @Test("A body without a JSON object is unreadable, with a reason that people understand", arguments: names)
    func wrong(format: String) {
        for body in ["", " ", "{", "[]", "null", "\"x\"", "{\"a\":1,}", "<html>", "a=b", "\u{FEFF}{"]
        where format != "text" {
            guard case .unreadable(let reason) = Self.outcome(format, Array(body.utf8)) else {
                Issue.record("\(format) reads \(body)")
                continue
            }
            #expect(reason.contains("JSON") || reason.contains("body"), "\(reason)")
        }
        for body in [[0xFF, 0xFE, 0x00, 0x01], [0], Array(repeating: UInt8(0x89), count: 100_000)] as [[UInt8]] {
            guard case .unreadable = Self.outcome(format, body) else {
                Issue.record("\(format) reads binary data")
                continue
            }
        }
    }

    @Test("An object with other members is unreadable or ignored, and never a failure", arguments: names)
    func other(format: String) {
        let members = [
            "alerts", "heartbeat", "monitor", "data", "object_kind", "object_attributes", "project", "embeds", "blocks",
            "attachments", "content", "text", "commits", "ref", "status", "code", "labels", "groupLabels", "title",
            "action",
        ]
        for value in [
            "null", "true", "0", "-1e999", "\"\"", "\"x\"", "[]", "{}", "[[]]", "[{}]", "[null]",
            #"{"a":[{"b":null}]}"#,
        ] {
            let body = "{" + members.map { "\"\($0)\":\(value)" }.joined(separator: ",") + "}"
            if let draft = Self.outcome(format, Array(body.utf8)).draft {
                #expect(throws: Never.self) { try draft.content() }
            }
        }
    }

    /// Returns bodies of about `size` bytes.
    private static func costly(size: Int) -> KeyValuePairs<String, [UInt8]> {
        func list(_ count: Int = size / 14, _ item: (Int) -> String) -> String {
            (0..<count).map(item).joined(separator: ",")
        }
        func repeated(_ text: String) -> [UInt8] {
            members(String(repeating: text, count: size / (10 * text.utf8.count)))
        }
        // As long as the longest text that formats read, and many of them: the square of one alone takes seconds.
        let openings = String(repeating: "*a ", count: 5400) + "x*"
        return [
            "nested arrays": Array((#"{"text":"# + String(repeating: "[", count: size)).utf8),
            "nested objects": Array(String(repeating: #"{"a":"#, count: size / 5).utf8),
            "many members": Array("{\(list { "\"m\($0)\":1" })}".utf8),
            "many alerts": Array(#"{"alerts":[\#(list { _ in "{}" })]}"#.utf8),
            "many embeds": Array(#"{"embeds":[\#(list { _ in #"{"title":"a"}"# })]}"#.utf8),
            "many labels": Array(#"{"alerts":[{"labels":{\#(list { "\"l\($0)\":\"v\"" })}}],"content":"x"}"#.utf8),
            "a long text": repeated("x"), "openings": repeated("*a _b ~c `d <e "),
            "openings with an end": Array(
                #"{"blocks":[\#(list(size / 40_000) { _ in #"{"type":"section","text":{"type":"mrkdwn","text":"\#(openings)"}}"# })]}"#
                    .utf8),
            "tags and brackets": repeated("<a ](`[b "), "ends": repeated("a* b_ c~ d` e> "),
            "fences": repeated("``` "), "combining marks": repeated("\u{301}\u{316}"), "joiners": repeated("👩\u{200D}"),
            "escapes": repeated(#"\ud83d"#), "line feeds": repeated(#"\n#"#),
        ]
    }

    /// A body that has the text under the names that formats read.
    private static func members(_ text: String) -> [UInt8] {
        let names = ["text", "content", "title", "message", "status", "msg", "ref", "key"]
        let alert =
            #"{"status":"firing","labels":{"alertname":"\#(text)","x":"y"},"annotations":{"summary":"\#(text)"}}"#
        return Array(
            ("{" + names.map { "\"\($0)\":\"\(text)\"" }.joined(separator: ",") + #","alerts":[\#(alert)]}"#).utf8)
    }

    @Test("A costly body is read within the limits", arguments: names)
    func cost(format: String) throws { try check(format, size: 1 << 16) }

    @Test("A costly body of the full size is read within the limits", arguments: ["alertmanager", "slack"])
    func fullCost(format: String) throws { try check(format, size: HookRequest.bodyLimit) }

    private func check(_ format: String, size: Int) throws {
        for (name, body) in Self.costly(size: size) {
            switch Self.outcome(format, body) {
            case .draft(let draft):
                let content = try draft.content()
                #expect(content.text.text.utf8.count <= MessageText.highestLimit && draft.firing.count <= 1000)
            case .ignored(let reason), .unreadable(let reason): #expect(reason.utf8.count <= 300, "\(name)")
            }
        }
    }
}
