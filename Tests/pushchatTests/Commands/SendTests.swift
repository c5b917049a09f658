import ArgumentParser
import ChatDomain
import Foundation
import Testing

@testable import pushchat

@Suite("pushchat send") struct SendTests {
    private static let token = String(repeating: "a", count: 64)
    private static let now = Timestamp(seconds: 1_800_000_000)

    private static func command(_ arguments: [String]) throws -> Send {
        try Send.parse(arguments)
    }

    private static func body(_ arguments: [String], input: String = "") throws -> String {
        let command = try command(arguments)
        return JSONValue.object(command.body(try command.content.fields(now: now) { Array(input.utf8) })).description
    }

    @Test(
        "The flags are the fields of the admin API",
        arguments: [
            (["--all", "--alert", "hi"], #"{"to":{"all":true},"alert":"hi"}"#),
            (["--user", "a", "--user", "b", "--alert", "-5 °C"], #"{"to":{"users":["a","b"]},"alert":"-5 °C"}"#),
            (["--tag", "x", "--badge", "0"], #"{"to":{"tags":["x"]},"badge":0}"#),
            (["--room", "tea", "--sound", "default"], #"{"to":{"room":"tea"},"sound":"default"}"#),
            (
                ["--token", "aa", "--app", "other", "--alert", "b", "--title", "t", "--subtitle", "s"],
                #"{"to":{"tokens":["aa"]},"app":"other","alert":{"title":"t","subtitle":"s","body":"b"}}"#
            ),
            (
                ["--all", "--content-available", "--custom", #"{"acme":[1,2.50]}"#, "--priority", "5"],
                #"{"to":{"all":true},"content_available":true,"custom":{"acme":[1,2.50]},"priority":5}"#
            ),
            (
                ["--all", "--payload", #"{"aps":{"badge":1}}"#, "--collapse-id", "c", "--push-type", "alert"],
                #"{"to":{"all":true},"payload":{"aps":{"badge":1}},"collapse_id":"c","push_type":"alert"}"#
            ),
            (
                ["--all", "--app", "android", "--payload", #"{"data":{"kind":"sync"}}"#],
                #"{"to":{"all":true},"app":"android","payload":{"data":{"kind":"sync"}}}"#
            ),
            (
                ["--all", "--alert", "x", "--expires", "1h", "--not-before", "10m"],
                #"{"to":{"all":true},"alert":"x","expiration":1800003601,"not_before":1800000601}"#
            ),
            (
                ["--all", "--alert", "x", "--expires", "0", "--not-before", "2027-01-16T00:00:00Z"],
                #"{"to":{"all":true},"alert":"x","expiration":0,"not_before":1800057600}"#
            ),
            (["--all", "--alert", "x", "--skip-unchanged"], #"{"to":{"all":true},"alert":"x","skip_unchanged":true}"#),
            (
                [
                    "--all", "--alert", "x", "--category", "c", "--thread-id", "t", "--mutable-content", "--link",
                    "https://a.example/",
                ],
                #"{"to":{"all":true},"alert":"x","category":"c","thread_id":"t","link":"https://a.example/","mutable_content":true}"#
            ),
            (
                [
                    "--all", "--alert", "x", "--interruption-level", "passive", "--relevance-score", "0.5",
                    "--target-content-id", "w", "--image", "https://a.example/p.png",
                ],
                #"{"to":{"all":true},"alert":"x","interruption_level":"passive","relevance_score":0.5,"#
                    + #""target_content_id":"w","image":"https://a.example/p.png"}"#
            ),
            (["--all", "--alert", "x", "--urgent"], #"{"to":{"all":true},"alert":"x","urgent":true}"#),
        ])
    func fields(arguments: [String], expected: String) throws {
        #expect(try Self.body(arguments) == expected)
    }

    @Test("A document can come from a file or from standard input")
    func documents() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "payload-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        try Data("{\"aps\": {\"alert\": \"f\"}}\n".utf8).write(to: file)
        #expect(
            try Self.body(["--all", "--payload", "@" + file.path])
                == #"{"to":{"all":true},"payload":{"aps":{"alert":"f"}}}"#)
        #expect(
            try Self.body(["--all", "--payload", "-"], input: #"{"aps":{"alert":"i"}}"#)
                == #"{"to":{"all":true},"payload":{"aps":{"alert":"i"}}}"#)
    }

    @Test(
        "An invalid value is an error before anything is sent",
        arguments: [
            (["--alert", "x"], "Choose the audience with one of --token, --user, --tag, --room, --all."),
            (["--all", "--user", "a", "--alert", "x"], "Choose the audience with one of"),
            (["--all"], "Missing content"),
            (["--all", "--badge", "-1"], "Invalid badge: must be a whole number from 0"),
            (["--all", "--alert", "x", "--priority", "7"], "Invalid priority: must be 10, 5 or 1"),
            (
                ["--all", "--alert", "x", "--relevance-score", "2"],
                "Invalid relevance_score: must be a number from 0 to 1"
            ),
            (
                ["--all", "--alert", "x", "--interruption-level", "loud"],
                "Invalid interruption_level: must be passive, active, time-sensitive or critical"
            ),
            (["--all", "--alert", "x", "--custom", "[1]"], "Invalid custom: must be an object"),
            (["--all", "--alert", "x", "--custom", "{"], "--custom is not JSON"),
            (["--all", "--payload", "@/nowhere.json"], "--payload names /nowhere.json, which does not exist"),
            (["--all", "--alert", "x", "--expires", "soon"], "--expires soon: must be a duration like 1h"),
            (
                ["--all", "--alert", "x", "--expires", "106751991167d"],
                "--expires 106751991167d: must be at most ten years"
            ),
            (
                ["--all", "--alert", "x", "--expires", "1h", "--idempotency-key", "k"],
                "--idempotency-key: a second call must"
            ),
            (["--all", "--alert", "x", "--timeout", "0s"], "--timeout 0s: must be a duration like 60s"),
            (["--all", "--alert", "x", "--key", "k.p8"], "--key is for --direct."),
            (
                ["--direct", "--all", "--alert", "x"],
                "--direct sends to tokens only, not to users, tags or rooms: give --token."
            ),
            (["--direct", "--token", "aa", "--alert", "x", "--not-before", "1h"], "--not-before needs a relay"),
            (["--direct", "--token", "aa", "--alert", "x", "--skip-unchanged"], "--skip-unchanged needs a relay"),
        ])
    func refusals(arguments: [String], expected: String) throws {
        let error = #expect(throws: (any Error).self) { try Self.body(arguments) }
        let message = error.map { Pushchat.message(for: $0) } ?? ""
        #expect(message.contains(expected), "\(message)")
    }

    @Test(
        "Flags name the credentials, and a key needs its team and topic",
        arguments: [
            (["--key", "AuthKey_ABC123DEFG.p8", "--topic", "t"], "key requires team_id"),
            (["--key", "AuthKey_ABC123DEFG.p8", "--team-id", "ABCDEFGHIJ"], "key requires topic"),
            (["--certificate", "nowhere.p12"], "--certificate: apps.default.certificate names"),
            (["--certificate", "AuthKey_ABC123DEFG.p8", "--port", "0"], "--port: apps.default.port is \"0\""),
            ([], "app default has no credentials: give --certificate, --key or --service-account"),
            (["--app", "other"], "no app other is configured"),
            (["--config", "pushchat.yaml", "--key", "AuthKey_ABC123DEFG.p8"], "--config is for a configured app"),
        ])
    func credentials(arguments: [String], expected: String) throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "direct-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let (key, empty) = (folder.appending(path: "AuthKey_ABC123DEFG.p8"), folder.appending(path: "pushchat.yaml"))
        try Data("key".utf8).write(to: key)
        try Data("environment: development\n".utf8).write(to: empty)
        var arguments = arguments.map {
            $0 == "AuthKey_ABC123DEFG.p8" ? key.path : $0 == "pushchat.yaml" ? empty.path : $0
        }
        if !arguments.contains(where: { $0 == "--key" || $0 == "--certificate" }) {
            arguments += ["--config", empty.path]
        }
        let command = try Self.command(["--direct", "--token", Self.token, "--alert", "x"] + arguments)
        let error = #expect(throws: (any Error).self) {
            try command.direct.app(named: command.app, command.relay)
        }
        #expect("\(error.map { "\($0)" } ?? "")".contains(expected), "\(String(describing: error))")
    }

    @Test("Flags override the settings of a configured app")
    func configured() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "direct-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let file = folder.appending(path: "pushchat.yaml")
        try Data("pem".utf8).write(to: folder.appending(path: "a.pem"))
        try Data("apps: {chat: {certificate: a.pem, gateway: binary, connections: 7}}\n".utf8).write(to: file)
        let command = try Self.command(
            ["--direct", "--token", Self.token, "--alert", "x", "--config", file.path, "--host", "h", "--port", "9"])
        let app = try command.direct.app(named: nil, command.relay)
        #expect((app.name.text, app.host, app.port, app.connections) == ("chat", "h", 9, 7))
        #expect(app.gateway == .binary && app.certificate == folder.path + "/a.pem")
        #expect(app.payloadLimit == 2048)
    }

    @Test(
        "The path of a call is escaped where necessary",
        arguments: [
            ([("a", nil), ("b", nil)], "/p"), ([("a", "1"), ("b", nil)], "/p?a=1"),
            ([("user_reference", "a+b &=é/?")], "/p?user_reference=a%2Bb%20%26%3D%C3%A9%2F%3F"),
        ] as [([(String, String?)], String)])
    func escaping(query: [(String, String?)], expected: String) {
        #expect("/p".adding(query) == expected)
    }

    @Test("Rows are in columns for people and tab-separated for programs; no value ends a row")
    func table() {
        var lines: [String] = []
        for inColumns in [true, false] {
            var table = OutputTable(["A", "LONG", "C"], inColumns: inColumns) { lines.append($0) }
            table.add(["aaaa", "b\n\u{1B}[2J", ""])
            table.add(["a", "b", "c"])
            table.end()
        }
        #expect(
            lines == [
                "A     LONG    C", "aaaa  b  [2J", "a     b       c",
                "aaaa\tb  [2J\t", "a\tb\tc",
            ])
    }
}
