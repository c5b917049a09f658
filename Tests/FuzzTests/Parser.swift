import ChatDomain
import ChatStore
import Crypto
import Foundation
import HTTPTypes
import Logging
import NIOCore

@testable import APNSGateway
@testable import ChatHTTP
@testable import ChatHooks
@testable import HTTP2Wire
@testable import PushChatCore
@testable import PushWire
@testable import WebPushGateway
@testable import pushchat

/// Ends the process with the message if the condition does not hold, even in an optimised build.
private func require(_ holds: Bool, _ message: @autoclosure () -> String) {
    if !holds { fatalError(message()) }
}

/// Parsers of bytes that strangers send, or that an operator or another program has written.
enum Parser: String, CaseIterable {
    case form, multipart, json, binary, feedback, http2, providerToken, sessionToken, configuration, subscription,
        webPush, headers, dump, csv, metrics, events, hooks, hookText, hookTemplate

    /// Valid inputs from which libFuzzer derives others.
    var seeds: [[UInt8]] {
        switch self {
        case .form:
            [
                "cmd=message&udid=0123456789abcdef0123456789abcdef01234567&text=Hello+%F0%9F%91%8B",
                "cmd=join&udid=1&token=0&name=n%C3%A4me&code=room&appid=com.example&os_version=6.0",
            ].map { Array($0.utf8) }
        case .multipart:
            [
                "--b\r\nContent-Disposition: form-data; name=\"cmd\"\r\n\r\nmessage\r\n--b--\r\n",
                "x\n--b\nContent-Disposition: form-data; name=text; filename=\"a\"\nContent-Type: text/plain; charset=latin1\n\nv\n--b--",
                "multipart/form-data; boundary=\"b\"; charset=utf-8",
            ].map { Array($0.utf8) }
        case .json:
            [
                #"{"aps":{"alert":{"title":"t","body":"\u00e4\ud83d\ude00"},"badge":1,"sound":"default"},"x":[1,-2.5e3,null,true]}"#,
                #"{"aps":{"content-available":1}}"#, #" [ "a" , {} ] "#,
            ].map { Array($0.utf8) }
        case .binary:
            [
                [7, 0, 0, 2, 0xAA, 0xBB, 0, 2, 0x7B, 0x7D],
                [7, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 2, 0xAA, 0xBB, 0, 2, 0x7B, 0x7D],
                [
                    3, 2, 0, 0, 0, 29, 1, 0, 2, 0xAA, 0xBB, 2, 0, 2, 0x7B, 0x7D, 3, 0, 4, 0, 0, 0, 1, 4, 0, 4, 0, 0, 0,
                    0, 5,
                    0, 1, 10,
                ],
            ]
        case .feedback: [[0x50, 0, 0, 0, 0, 2, 0xAA, 0xBB, 0x50, 0, 0, 1, 0, 1, 0xCC], [8, 8, 0, 0, 0, 1]]
        case .http2:
            [
                [
                    0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100, 0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 0, 2, 0, 1, 0, 0,
                    0, 1,
                    0x7B, 0x7D,
                ],
                [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
                [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0],
                [
                    0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88, 0, 0, 12, 9, 4, 0, 0, 0, 1, 0x40, 4, 0x61, 0x70, 0x6E, 0x73, 5, 1,
                    2, 3, 4,
                    5,
                ],
            ]
        case .providerToken:
            ["eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ.eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzAwMDAwMDAwfQ.AAAA"]
                .map { Array($0.utf8) }
        case .sessionToken:
            [
                "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMH0.AAAA",
                "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
            ].map { Array($0.utf8) }
        case .subscription:
            [
                #"{"endpoint":"https://updates.push.services.mozilla.com/wpush/v2/gAAAA","expirationTime":null,"keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#,
                "https://push.test:8443/a?b#c", "https://[::ffff:127.0.0.1]/", "https://0x7f.1/",
            ].map { Array($0.utf8) }
        case .webPush:
            [
                "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
            ].map { Array($0.utf8) }
        case .headers:
            [
                "req-1\n00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nfor=\"[2001:db8::1]:47\";proto=https, for=10.1.2.3\n"
                    + "192.0.2.1, 10.0.0.1:80\nMozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
            ].map { Array($0.utf8) }
        case .dump:
            [
                "\u{4}INSERT INTO `active_users` VALUES ('\(Self.udid)','0','O\\'Neil','tea','1.2.3.4'),('b',NULL,0xFF,'',x'00');",
                "\u{9}CREATE TABLE `push_queue` (\n `message_id` int COMMENT 'a, (b)',\n `device_token` text, `payload` text, `time_queued` "
                    + "datetime, `time_sent` datetime, PRIMARY KEY (`message_id`)\n);\n-- x\n/* y */ INSERT INTO push_queue VALUES "
                    + "(1,'\(Self.token)','{\\\"aps\\\":{}}','2013-01-02 03:04:05',NULL) ON DUPLICATE KEY UPDATE x = 1;",
                "0REPLACE INTO active_users (user_id, device_token) VALUE (-1, _binary 'a''b\\0');",
            ].map { Array($0.utf8) }
        case .csv:
            [
                "\u{7}token,app,tags\r\n\(Self.token),news,a;b\\;c\n",
                DeviceTable.names.joined(separator: ",")
                    + "\n\(Self.token),,ann,\"a \"\"b\"\"\nc\",,x;y,1.0,17,iPhone,2026-01-02T03:04:05.678Z,2026-01-02 03:04:05,,"
                    + "2026-02-03T04:05:06+01:00,Unregistered\n",
            ].map { Array($0.utf8) }
        case .metrics:
            [
                #"{"at":"2027-01-15T07:59:00.000Z","queue":3,"oldest_age_seconds":1.5,"sent":2,"failed":0,"messages":1,"streams":9}"#
                    + "\n" + #"{"at":"2027-01-15T08:00:00Z","oldest_age_seconds":1e300}"#
            ].map { Array($0.utf8) }
        case .events:
            [": hi\n\nid: 7\r\nevent: message\ndata: {\ndata: }\n\n", "retry: 1\ndata\n\n"].map { Array($0.utf8) }
        case .hooks:
            HookFormats.all.indices.flatMap { format in Self.hookSeeds.map { [UInt8(format)] + $0 } }
        case .hookText:
            // The number of a format, and parts of a text.
            HookFormats.all.indices.flatMap { format -> [[UInt8]] in
                let texts = [
                    "*a _b ~c `d ```e <f ", "*a _b ~c \0x*", "<a ](`[b ", "a* b_ c~ d` e> &lt;",
                    "[a](<https://b> ![c](",
                    "``` ", "\n#> - 1. ", "https://www.a.b@c/\\", "\0<t:\0>", "[www.\0a.\0](https://b)", "<a|b|",
                    "<@!&#",
                ]
                return texts.map { [UInt8(format)] + Array($0.utf8) }
            }
        case .hookTemplate:
            [
                #"{"title":"{a.b|x} {{}}","text":"{c[0][\"d.e\"]}","key":"{k}","urgency":{"path":"u","cases":{"1":"urgent"},"default":"usual"},"#
                    + #""state":{"path":"s","cases":{"up":"resolved"},"default":"firing"},"tags":["{t}"],"markdown":true}"#
                    + "\n" + #"{"a":{"b":"*"},"c":[{"d.e":1}],"k":7,"u":1,"s":"up","t":null}"#
            ].map { Array($0.utf8) }
        case .configuration:
            [
                """
                environment: development
                http: {host: 127.0.0.1, port: 44447, trusted_proxies: [10.0.0.0/8, "::1"]}
                database: {path: pushchat.db}
                push: {sound: default, text_limit: 190}
                messages: {retention: 30d}
                apps:
                  default: {topic: com.example.App, gateway: binary, connections: 2, settle: 500ms}
                development:
                  http: {port: 1}
                """
            ].map { Array($0.utf8) }
        }
    }

    /// Returns the function that parses one input. An error that the parser throws is not a finding.
    func function() async throws -> ([UInt8]) -> Void {
        switch self {
        case .form: Self.form
        case .multipart: Self.multipart
        case .json: Self.json
        case .binary: Self.binary
        case .feedback: Self.feedback
        case .http2: Self.http2
        case .providerToken: Self.providerToken
        case .sessionToken: try await Self.sessionToken()
        case .configuration: Self.configuration()
        case .subscription: try Self.subscription()
        case .webPush: Self.webPush()
        case .headers: try Self.headers()
        case .dump: Self.dump
        case .csv: Self.csv
        case .metrics: Self.metrics()
        case .events: Self.events
        case .hooks: Self.hooks()
        case .hookText: Self.hookText
        case .hookTemplate: Self.hookTemplate
        }
    }

    private static let udid = String(repeating: "a", count: 40)
    private static let token = String(repeating: "c", count: 64)

    /// Returns the length of the pieces in which the rest of the input is read. The first byte determines it.
    private static func size(of bytes: [UInt8]) -> Int { Int(bytes.first ?? 0) + 1 }

    private static func reader(_ bytes: ArraySlice<UInt8>, pieces size: Int) -> ByteReader {
        var rest = bytes
        return ByteReader {
            defer { rest = rest.dropFirst(size) }
            return Array(rest.prefix(size))
        }
    }

    private static func readFields(_ form: FormFields) {
        for field in form.fields { _ = try? form.text(field) }
    }

    private static let charsets = [Charset.utf8, .latin1, .windows1252]

    /// The part of a request that has the content. The second byte of an input chooses it.
    private enum HookPlace: UInt8, CaseIterable {
        case body
        /// A field of a form has the JSON.
        case fieldOfForm
        /// A value of the query has the JSON.
        case valueOfQuery
        case form
        /// A query, and the body on the next line.
        case query
    }

    private static let hookEvents = [
        "push", "pull_request", "issues", "issue_comment", "pull_request_review", "workflow_run", "release",
        "action_run_failure", "action_run_recover", "action_run_success",
    ]

    /// The part and the event of a request, and its content.
    private static let hookSeeds: [[UInt8]] = {
        // One on each line.
        let json = #"""
            {"groupKey":"g","status":"firing","title":"t","message":"m","truncatedAlerts":1,"groupLabels":{"alertname":"a"},"alerts":\#
            [{"status":"firing","labels":{"severity":"page","instance":"i"},"annotations":{"summary":"s"},"fingerprint":"f"}]}
            {"title":"[Alerting] t","ruleId":1,"ruleName":"n","state":"alerting","ruleUrl":"https://x.example","message":"m",\#
            "evalMatches":[{"value":1.5,"metric":"m","tags":{"a":"b"}}],"orgId":1}
            {"action":"closed","number":5,"pull_request":{"title":"t","merged":true},"ref":"refs/heads/x","after":"000","commits":\#
            [{"message":"m"}],"issue":{"number":5},"comment":{"body":"b"},"review":{"state":"approved","body":"b"}}
            {"action":"completed","workflow_run":{"conclusion":"failure","id":7,"workflow_id":1,"head_branch":"x","head_repository":{"full_name":"e/r"}},\#
            "run":{"id":7,"index_in_repo":3,"prettyref":"x","workflow_id":"ci.yml","is_fork_pull_request":true,"status":"failure"},\#
            "last_run":{"status":"failure"},"repository":{"full_name":"o/r","default_branch":"x"},"release":{"tag_name":"v"}}
            {"object_kind":"pipeline","object_attributes":{"id":1,"status":"failed","ref":"x"},"project":{"default_branch":"x"},\#
            "merge_request":{"iid":4,"source_project_id":2,"target_project_id":1}}
            {"object_kind":"build","build_id":1,"build_name":"b","build_status":"failed","ref":"x","pipeline_id":2,"commit":{"message":"m"}}
            {"object_kind":"merge_request","object_attributes":{"iid":1,"action":"merge","title":"t"},"user":{"username":"u"}}
            {"object_kind":"note","object_attributes":{"note":"n"},"issue":{"iid":1},"commits":[{"message":"m"}],"after":"000"}
            {"heartbeat":{"monitorID":3,"status":0,"msg":"m"},"monitor":{"name":"n","tags":[{"name":"t"}]},"monitorID":3,"status":0,"msg":"m"}
            {"code":"c","name":"n","status":"up","tags":"a b","body":"b"}
            {"action":"resolved","data":{"event":{"issue_id":"1","title":"t","level":"error"}}}
            {"action":"resolved","data":{"metric_alert":{"id":"1"},"description_text":"d"}}
            {"action":"created","data":{"issue":{"id":"1","title":"t","project":{"name":"p"}}}}
            {"id":"1","event":{"title":"t"},"culprit":"c","level":"fatal"}
            {"text":"*b* _i_ ~s~ `c` <https://x.example|y> &amp; ```z``` <> <|> <!> <@|> <#|n> <!date^1^{d}|t> *a _b ~c `d ```e <f",\#
            "blocks":[{"type":"header","text":{"text":"h"}},{"type":"section","text":{"type":"mrkdwn","text":"x"},"fields":[{"text":"*a"}]},\#
            {"type":"rich_text","elements":[{"elements":[{"text":"t"},{"url":"https://x.example"}]}]},{"type":"markdown","text":"![i](u) <t"}]}
            {"text":"**b** [www.x.example](https://y.example) ![i](https://y.example) <https://x.example|y> <!here> <> [a]: b `c",\#
            "attachments":[{"title":"a","title_link":"https://x.example","pretext":"_p","text":"[t](","fields":[{"title":"n","value":"v"}],\#
            "actions":[{"text":"a","url":"https://x.example"}],"footer":"f","fallback":"f"}]}
            {"content":"<t:1:F> <:a:1> <:> <:x> <a> <a:> <a:1> <t> <t:> <@!1> <@&1> <#1> < ** _ ~~ || `","flags":4096,"embeds":[{"title":"t",\#
            "url":"https://x.example","description":"[d](","fields":[{"name":"n","value":"<:v"}],"author":{"name":"a"},"footer":{"text":"f"}}]}
            {"id":7,"title":"t","message":"m","state":"firing","urgency":"urgent","link":"https://x.example"}
            """#.split(separator: "\n").map { String($0) }
        let pairs = [
            "content=c&username=u", "code=c&status=down&name=n",
            "msg=m&heartbeat={\"monitorID\":3,\"status\":1}&monitor=null",
            "key=k&title=t&message=m&state=down",
            "title=t&link=https://x.example&state=up&key=k&urgency=quiet\nThe text",
            "wait=true&payload={}",
        ]
        func seed(_ place: HookPlace, _ event: Int, _ text: String) -> [UInt8] {
            [UInt8(event * HookPlace.allCases.count) + place.rawValue] + Array(text.utf8)
        }
        var seeds: [[UInt8]] = []
        for text in json {
            for event in hookEvents.indices { seeds.append(seed(.body, event, text)) }
            for place in [HookPlace.fieldOfForm, .valueOfQuery] { seeds.append(seed(place, 0, text)) }
        }
        for text in pairs {
            for place in [HookPlace.form, .query] { seeds.append(seed(place, 0, text)) }
        }
        return seeds
    }()

    /// Returns the format and the request that an input describes. `nil` if it is too short.
    private static func hookRequest(_ bytes: [UInt8]) -> (format: any HookFormat.Type, request: HookRequest)? {
        guard bytes.count >= 2 else { return nil }
        let body = Array(bytes.dropFirst(2))
        let event = hookEvents[Int(bytes[1]) / HookPlace.allCases.count % hookEvents.count]
        var request = HookRequest(
            headers: ["x-github-event": event, "x-gitea-event": event, "x-hub-signature-256": "sha256=00"], body: body)
        let text = String(decoding: body, as: UTF8.self)
        let line = text.prefix { $0 != "\n" }
        let pairs = line.split(separator: "&").map { $0.split(separator: "=", maxSplits: 1).map { String($0) } }
        let values = Dictionary(pairs.map { ($0.first ?? "", $0.count > 1 ? $0[1] : "") }) { $1 }
        let names = ["payload", "payload_json", "data", "heartbeat", "monitor"]
        switch HookPlace.allCases[Int(bytes[1]) % HookPlace.allCases.count] {
        case .body: break
        case .fieldOfForm:
            request.form = Dictionary(uniqueKeysWithValues: names.map { ($0, text) })
            request.body = Array("payload=".utf8) + body
        case .valueOfQuery:
            request.query = Dictionary(uniqueKeysWithValues: names.map { ($0, text) })
            request.body = []
        case .form: request.form = values
        case .query:
            request.query = values
            request.body = Array(text[line.endIndex...].dropFirst().utf8)
        }
        return (HookFormats.all[Int(bytes[0]) % HookFormats.all.count], request)
    }

    /// The first byte chooses the format. Every message that a body asks for fits the limits. Of each format, one seed
    /// or more is a message, so that libFuzzer begins within it.
    private static func hooks() -> ([UInt8]) -> Void {
        let read = Parser.hooks.seeds.compactMap(hookRequest).filter { format, request in
            if case .draft = format.read(request, HookSettings(format: format.name)) { true } else { false }
        }
        for format in HookFormats.all {
            require(read.contains { $0.format == format }, "no seed is a message of \(format.name)")
        }
        return { bytes in
            guard let (format, request) = hookRequest(bytes) else { return }
            check { format.read(request, HookSettings(format: format.name)) }
            _ = (format.deliveryID(request), format.accepted(request, message: 1))
            require(
                !format.verify(request, secret: "a secret", now: Timestamp(seconds: 0)),
                "a forged signature is accepted")
        }
    }

    /// The first byte chooses the format. The rest is a part that fills the longest text that formats read. With zeros in
    /// it, it is a part and an end, or a beginning, a part and an end. libFuzzer's own inputs are too short to show work
    /// that grows with the square of their length.
    private static func hookText(_ bytes: [UInt8]) {
        guard let first = bytes.first else { return }
        let format = HookFormats.all[Int(first) % HookFormats.all.count]
        var parts = bytes.dropFirst().split(separator: 0, maxSplits: 2, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        if parts.count < 3 { parts.insert("", at: 0) }
        let size = 16_384 - parts[0].utf8.count - (parts.count > 2 ? parts[2].utf8.count : 0)
        guard size > 0, !parts[1].isEmpty else { return }
        let text =
            parts[0] + String(repeating: parts[1], count: size / parts[1].utf8.count)
            + (parts.count > 2 ? parts[2] : "")
        let value = "\(JSONValue.string(text))"
        let body = """
            {"text":\(value),"content":\(value),"title":\(value),"ref":\(value),"object_kind":"push","commits":[{"message":\(value)}],
            "embeds":[{"title":"t","description":\(value),"fields":[{"name":\(value)}]}],"code":"c","status":"down","body":\(value),
            "attachments":[{"title_link":"https://x.example","title":\(value)}],"blocks":[{"type":"rich_text","elements":[{"text":\(value),
            "url":"https://x.example"}]}],"data":{"event":{"title":\(value),"culprit":\(value)}},"msg":\(value),"monitor":{"name":\(value)},
            "alerts":[{"status":"firing","labels":{"alertname":\(value),"x":\(value)},"annotations":{"summary":\(value)}}]}
            """
        let bytes = Array((format.name == "text" ? text : body).utf8)
        check {
            format.read(
                HookRequest(headers: ["x-github-event": "push", "x-gitea-event": "push"], body: bytes),
                HookSettings(format: format.name))
        }
    }

    /// The seconds of this thread's work.
    private static func work() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Checks the result of a request. A request of this size needs some hundredths of a second.
    private static func check(_ read: () -> HookOutcome) {
        let start = work()
        let outcome = read()
        let seconds = work() - start
        require(seconds < 2, "reading took \(seconds) s")
        guard case .draft(let draft) = outcome else { return }
        require((try? draft.content()) != nil, "a draft that does not fit")
        require((draft.key?.text.utf8.count ?? 1) <= MessageKey.limit && draft.firing.count <= 1000, "a long key")
    }

    /// The first line is a template, the rest a body.
    private static func hookTemplate(_ bytes: [UInt8]) {
        let parts = bytes.split(separator: UInt8(ascii: "\n"), maxSplits: 1).map { Array($0) }
        guard parts.count == 2, let template = try? HookTemplate(parsing: String(decoding: parts[0], as: UTF8.self)),
            let format = HookFormats.named("json")
        else { return }
        let settings = HookSettings(format: "json", template: template)
        require((try? HookFormats.settings(stored: settings.stored)) == settings, "the settings read back differently")
        check { format.read(HookRequest(body: parts[1]), settings) }
    }

    private static func form(_ bytes: [UInt8]) {
        for charset in charsets {
            if let form = try? URLEncodedForm.parse(bytes, charset: charset) { readFields(form) }
        }
    }

    private static func multipart(_ bytes: [UInt8]) {
        _ = try? FormType(parsing: String(decoding: bytes, as: UTF8.self))
        if let form = try? MultipartForm.parse(bytes, boundary: [UInt8(ascii: "b")], charset: .utf8) {
            readFields(form)
        }
    }

    /// The queue's scanner accepts every object that the parser accepts. Of all other inputs it accepts only those that
    /// are nested deeper or have a duplicate member.
    private static func json(_ bytes: [UInt8]) {
        let isScanned = bytes.withUnsafeBytes { PayloadScan($0) } != nil
        do {
            let value = try JSONValue(parsing: bytes)
            require(isScanned == (value.object != nil), "the scanner and the parser differ")
            let again = try JSONValue(parsing: Array("\(value)".utf8))
            require(again == value, "it reads back differently")
        } catch {
            require(
                !isScanned || ["nested deeper", "duplicate member name"].contains { "\(error)".contains($0) },
                "the scanner accepts invalid JSON: \(error)")
        }
    }

    /// Reading in pieces has the same result as reading the whole.
    private static func binary(_ bytes: [UInt8]) {
        func read(piece: Int) -> (notifications: [BinaryNotification], refused: BinaryNotificationParser.Malformed?) {
            var parser = BinaryNotificationParser()
            var notifications: [BinaryNotification] = []
            var rest = bytes.dropFirst()
            repeat {
                var buffer = ByteBuffer(bytes: rest.prefix(piece))
                rest = rest.dropFirst(piece)
                parser.append(&buffer)
                do throws(BinaryNotificationParser.Malformed) {
                    while let notification = try parser.next() { notifications.append(notification) }
                } catch {
                    return (notifications, error)
                }
            } while !rest.isEmpty
            return (notifications, nil)
        }
        let whole = read(piece: .max)
        let pieces = read(piece: size(of: bytes))
        require(
            whole.notifications == pieces.notifications && whole.refused == pieces.refused,
            "pieces are read differently")
    }

    private static func feedback(_ bytes: [UInt8]) {
        var buffer = ByteBuffer(bytes: bytes)
        var written = ByteBuffer()
        while let tuple = FeedbackTuple.read(from: &buffer) { tuple.write(to: &written) }
        require(
            written.readableBytesView.elementsEqual(bytes.prefix(written.readableBytes)), "written differently")
        var answer = ByteBuffer(bytes: bytes)
        _ = try? BinaryErrorResponse.read(from: &answer)
    }

    /// Reads the input as a gateway's responses to requests on two streams.
    private static func http2(_ bytes: [UInt8]) {
        var session = HTTP2Session()
        do throws(HTTP2Failure) {
            for stream in [1, 3] {
                try session.open(stream, headers: [":method": "POST", ":path": "/3/device/00"], body: [0x7B, 0x7D])
            }
            session.feed(ByteBuffer(bytes: bytes), now: .uptimeNanoseconds(1))
            while try session.next() != nil { _ = session.takeOutput() }
        } catch {
            session.goAway(error.code)
        }
        _ = session.takeOutput()
    }

    private static let publicKey = P256.Signing.PrivateKey().publicKey

    private static func providerToken(_ bytes: [UInt8]) {
        guard let token = try? ProviderToken(parsing: String(decoding: bytes, as: UTF8.self)) else { return }
        require(!token.isSigned(by: publicKey), "a forged token is accepted")
    }

    private static func sessionToken() async throws -> ([UInt8]) -> Void {
        let key = Array(P256.Signing.PrivateKey().rawRepresentation)
        let verifier = try await TokenVerifier([.secret(key)])
        return { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            let isDone = DispatchSemaphore(value: 0)
            Task.detached {
                if (try? await verifier.session(of: text)) != nil { fatalError("a forged token is accepted") }
                isDone.signal()
            }
            isDone.wait()
        }
    }

    /// A subscription that the reader accepts has keys of the right size and an endpoint of at most 1,000 bytes.
    private static func subscription() throws -> ([UInt8]) -> Void {
        let rules = try EndpointRules()
        let reader = WebPushSubscriptions(key: VAPIDKey(), rules: rules)
        return { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            if let subscription = try? reader.subscription(text) {
                require(subscription.publicKey.count == 65 && subscription.secret.count == 16, "keys of a wrong size")
                require(subscription.endpoint.utf8.count <= 1000, "an endpoint that is too long")
            }
            if let endpoint = try? PushEndpoint(text) { _ = try? rules.check(endpoint) }
        }
    }

    /// Reads the input as a push service does: the sender in the header, and the encrypted body.
    private static func webPush() -> ([UInt8]) -> Void {
        let key = P256.KeyAgreement.PrivateKey()
        let secret = MessageEncryption.randomSalt()
        return { bytes in
            _ = try? VAPIDAuthorization(header: String(decoding: bytes, as: UTF8.self))
            require((try? MessageEncryption.decrypt(bytes, key: key, secret: secret)) == nil, "it was not encrypted")
        }
    }

    /// Reads one header per line. A request id fits into a log line, and a trace id has W3C's form. Only a trusted
    /// proxy can name the client.
    private static func headers() throws -> ([UInt8]) -> Void {
        guard let trusted = AddressRange("10.0.0.0/8"), let proxy = IPAddress("10.1.1.1"),
            let stranger = IPAddress("192.0.2.9")
        else { fatalError("no addresses") }
        let names = [HTTPField.Name.requestID, .traceParent, .forwarded, .xForwardedFor]
        return { bytes in
            let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
                .map { String(decoding: $0, as: UTF8.self) }
            var headers = HTTPFields()
            for (name, line) in zip(names, lines) where !line.isEmpty {
                headers.append(HTTPField(name: name, value: line))
            }
            let ids = RequestIDs(headers, otherwise: "none")
            require(
                (1...128).contains(ids.request.utf8.count)
                    && ids.request.utf8.allSatisfy { (0x21...0x7E).contains($0) },
                "a bad request id")
            if let trace = ids.trace {
                require(
                    trace.utf8.count == 32 && trace.utf8.allSatisfy { "0123456789abcdef".utf8.contains($0) }
                        && headers[.traceParent]?.contains(trace) == true, "a bad trace id")
            }
            require(
                ClientAddress.find(peer: stranger, headers: headers, trusted: [trusted]) == stranger,
                "a stranger's header counts")
            let client = ClientAddress.find(peer: proxy, headers: headers, trusted: [trusted])
            require(IPAddress(client.description) == client, "an address reads back differently")
            for line in lines {
                // A proxy appends the address of its peer to the client's header.
                let appended: HTTPFields = [.xForwardedFor: line + ", 198.51.100.7"]
                let found = ClientAddress.find(peer: proxy, headers: appended, trusted: [trusted])
                require(found == IPAddress("198.51.100.7"), "the client is hidden")
                require(HeaderText.split(line[...], at: ",").joined(separator: ",") == line, "a piece is lost")
                require((UserAgent(line).browser?.utf8.count ?? 0) <= 24, "a long name")
            }
        }
    }

    /// Reading in pieces has the same result as reading the whole. A value in mysqldump's notation reads back as the
    /// value.
    private static func dump(_ bytes: [UInt8]) {
        func read(piece: Int) -> (rows: [ImportRow], end: UnreadableFile?) {
            var rows = TutorialDump(reader(bytes.dropFirst(), pieces: piece), app: AppName("chat"))
            var all: [ImportRow] = []
            do {
                while let row = try rows.next() { all.append(row) }
            } catch {
                return (all, error as? UnreadableFile)
            }
            return (all, nil)
        }
        let (whole, pieces) = (read(piece: .max), read(piece: size(of: bytes)))
        require(whole.rows == pieces.rows && whole.end == pieces.end, "pieces are read differently")

        var statement = Array("INSERT INTO `t` VALUES (NULL,'".utf8)
        for byte in bytes {
            if [UInt8(ascii: "'"), UInt8(ascii: "\\")].contains(byte) { statement.append(UInt8(ascii: "\\")) }
            statement.append(byte)
        }
        statement += Array("');".utf8)
        var dump = MySQLDump(reader(statement[...], pieces: size(of: bytes)), tables: ["t": ["a", "b"]])
        do {
            require(try dump.next()?.values == ["a": nil, "b": bytes], "a value is read differently")
            require(try dump.next() == nil, "there is more than one value")
        } catch {
            fatalError("a value cannot be read: \(error)")
        }
    }

    /// Reading in pieces has the same result as reading the whole, and a written record reads back as the same record.
    private static func csv(_ bytes: [UInt8]) {
        func read(_ bytes: ArraySlice<UInt8>, piece: Int) -> (records: [CSVReader.Record], end: UnreadableFile?) {
            var csv = CSVReader(reader(bytes, pieces: piece))
            var all: [CSVReader.Record] = []
            do {
                while let record = try csv.next() { all.append(record) }
            } catch {
                return (all, error as? UnreadableFile)
            }
            return (all, nil)
        }
        let (whole, pieces) = (read(bytes.dropFirst(), piece: .max), read(bytes.dropFirst(), piece: size(of: bytes)))
        require(whole.records == pieces.records && whole.end == pieces.end, "pieces are read differently")
        for fields in whole.records.compactMap(\.fields) where fields != [""] {
            let again = read(Array(CSVReader.line(fields).utf8)[...], piece: .max)
            require(again.records.map(\.fields) == [fields] && again.end == nil, "it reads back differently")
        }

        func devices(_ bytes: ArraySlice<UInt8>) -> [String] {
            var lines: [String] = []
            let table = try? DeviceTable(reader(bytes, pieces: .max)) { name throws(ChatError) in
                AppName(name ?? "chat")
            }
            guard var table else { return [] }
            while let row = try? table.next() {
                guard case .device(let record) = row else { continue }
                lines.append(DeviceTable.line(Device(record)))
            }
            return lines
        }
        let written = devices(bytes.dropFirst())
        let table = CSVReader.line(DeviceTable.names) + written.joined()
        require(devices(Array(table.utf8)[...]) == written, "a device is read differently")
    }

    /// From any file, at most a day of metrics is read, in order. After one more minute the file is valid.
    private static func metrics() -> ([UInt8]) -> Void {
        let file = memoryFile("metrics")
        let now = Timestamp(seconds: 1_800_000_000)
        let logger = Logger(label: "fuzz") { _ in SwiftLogNoOpLogHandler() }
        func history() -> MetricsHistory { MetricsHistory(file: file, now: { now }, logger: logger) }
        return { bytes in
            _ = FileManager.default.createFile(atPath: file, contents: Data(bytes))
            let first = history()
            let minutes = Array(first.latest(.max))
            require(minutes.allSatisfy { $0.at > now - .seconds(86_400) && $0.at <= now }, "not of this day")
            require(zip(minutes, minutes.dropFirst()).allSatisfy { $0.at < $1.at }, "not in order")
            first.add(MetricsHistory.Totals())
            require(Array(history().latest(.max)) == Array(first.latest(.max)), "it reads back differently")
        }
    }

    /// Reading in pieces has the same result as reading the whole.
    private static func events(_ bytes: [UInt8]) {
        func read(piece: Int) -> (events: [ServerSentEvent], isRefused: Bool) {
            var (parser, all, rest) = (ServerSentEventParser(), [ServerSentEvent](), bytes.dropFirst())
            do {
                while !rest.isEmpty {
                    all += try parser.read(rest.prefix(piece))
                    rest = rest.dropFirst(piece)
                }
            } catch {
                return (all, true)
            }
            return (all, false)
        }
        let (whole, pieces) = (read(piece: .max), read(piece: size(of: bytes)))
        // If the parser rejects a piece, the events in the same piece are lost.
        require(
            whole.isRefused == pieces.isRefused && (whole.isRefused || whole.events == pieces.events),
            "pieces are read differently")
    }

    /// Returns a path in memory if there is such a file system, otherwise one in the temporary folder.
    private static func memoryFile(_ name: String) -> String {
        let folder = FileManager.default.isWritableFile(atPath: "/dev/shm") ? "/dev/shm" : NSTemporaryDirectory()
        return "\(folder)/pushchat-fuzz-\(getpid()).\(name)"
    }

    private static func configuration() -> ([UInt8]) -> Void {
        let file = memoryFile("yaml")
        return { bytes in
            _ = FileManager.default.createFile(atPath: file, contents: Data(bytes))
            var sources = ConfigurationSources(file: file)
            sources.variables = [:]
            _ = try? Configuration.load(sources)
        }
    }
}

extension Device {
    /// The device that an import makes of the record.
    fileprivate init(_ record: DeviceRecord) {
        self.init(
            id: 1, token: record.token, app: record.app, user: record.user, clientInfo: record.clientInfo,
            serverInfo: record.serverInfo, client: record.client, tags: record.tags.sorted(),
            createdAt: record.createdAt ?? Timestamp(seconds: 1),
            registeredAt: record.registeredAt ?? Timestamp(seconds: 1),
            seenAt: record.seenAt, deactivatedAt: record.deactivatedAt, deactivatedReason: record.deactivatedReason)
    }
}
