import Foundation
import TestSupport
import Testing

extension Clients {
    /// Runs unmodified programs that send to Gotify and ntfy servers, and the executable's own ways to post.
    @Suite("Posts from servers")
    struct PostingClientTests {
        let folder: Folder
        let sandbox: SandboxProcess

        init() async throws {
            folder = try Folder()
            sandbox = try await SandboxProcess.start(folder)
        }

        private struct History: Decodable {
            struct Message: Decodable {
                let id: Int
                let name: String
                let text: String
                let title: String?
                let link: String?
            }
            let messages: [Message]
        }

        @Test(
            "Apprise's senders for Gotify and ntfy reach history, stream, phone and browser; a wrong token is rejected")
        func apprise() async throws {
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let browser = try await sandbox.makeBrowser(key: try await relay.pushchat(["webpush", "key"]))
            try await relay.call([
                "cmd": "join", "udid": Name.udid(1), "subscription": browser.subscription.json, "name": "Ann",
                "code": "kitchen",
            ])
            try await relay.call([
                "cmd": "join", "udid": Name.udid(2), "token": Name.token(2), "name": "Bob", "code": "kitchen",
            ])
            let events = folder.file("events")
            let stream = try Child(
                ["curl", "-sN", "--max-time", "100", "http://127.0.0.1:\(relay.port)/events?udid=\(Name.udid(2))"],
                output: events)
            func streamed() throws -> String { try String(contentsOf: events, encoding: .utf8) }
            try await eventually("the stream has begun") { try streamed().contains("retry:") }

            let token = try await relay.pushchat([
                "token", "create", "--name", "cron", "--room", "kitchen", "--may", "post",
            ])
            func apprise(_ title: String, _ address: String) async throws -> ClientProgram {
                try await ClientProgram.run(
                    [try Python.program("apprise"), "-v", "-t", title, "-b", "all well, größer", address], within: 60)
            }
            let place = "127.0.0.1:\(relay.port)"
            let gotify = try await apprise("By Gotify", "gotify://\(place)/gotify/\(token)?priority=high")
            #expect(gotify.status == 0, "\(gotify.text)\(gotify.errors)")
            let ntfy = try await apprise(
                "By ntfy", "ntfy://\(place)/kitchen?auth=token&token=\(token)&click=https://example.org/x")
            #expect(ntfy.status == 0, "\(ntfy.text)\(ntfy.errors)")
            for address in ["gotify://\(place)/gotify/pct_wrong", "ntfy://\(place)/kitchen?auth=token&token=pct_wrong"]
            {
                let wrong = try await apprise("Wrong", address)
                #expect(wrong.status == 1 && (wrong.text + wrong.errors).contains("401"))
            }

            let (status, answer) = try await relay.call(["cmd": "messages", "udid": Name.udid(2)])
            #expect(status == 200)
            let history = try JSONDecoder().decode(History.self, from: Data(answer.utf8)).messages
            #expect(history.map(\.title) == ["By Gotify", "By ntfy"] && history.map(\.name) == ["cron", "cron"])
            #expect(history.map(\.text) == ["all well, größer", "all well, größer"])
            #expect(history.map(\.link) == [nil, "https://example.org/x"])
            try await eventually("the stream has both") {
                try streamed().contains(#""title":"By Gotify""#) && streamed().contains(#""title":"By ntfy""#)
            }
            for (device, body) in [
                (Name.token(2), #""body":"cron: all well, größer""#), (browser.token, "cron: all well"),
            ] {
                try await eventually("both have arrived") {
                    try await sandbox.notifications().filter { $0.token == device }.count == 2
                }
                for (title, arrived) in zip(
                    ["By Gotify", "By ntfy"], try await sandbox.notifications().filter { $0.token == device })
                {
                    let payload = arrived.payload ?? ""
                    #expect(payload.contains(body) && payload.contains("\"title\":\"\(title)\""), "\(payload)")
                }
            }
            stream.kill(SIGTERM)
            #expect(try relay.count("SELECT count(*) FROM messages") == 2)
            try await eventually("the token's last use is recorded") {
                try await relay.pushchat(["token", "list"]).contains("127.0.0.1")
            }

            // A revoked token grants nothing, at once and after a restart.
            _ = try await relay.pushchat(["token", "revoke", "cron"])
            #expect(try await apprise("Revoked", "gotify://\(place)/gotify/\(token)").status == 1)
            #expect(try relay.count("SELECT count(*) FROM messages") == 2)
        }

        @Test("pushchat post sends an argument or standard input with a room's token, once per key")
        func post() async throws {
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let token = try await relay.pushchat([
                "token", "create", "--name", "cron", "--room", "kitchen", "--may", "post", "--expires", "1d",
            ])
            func post(_ arguments: [String], input: String = "") async throws -> ClientProgram {
                try await ClientProgram.run(
                    [Running.executable.path, "post", "kitchen"] + arguments
                        + ["--relay", "http://127.0.0.1:\(relay.port)", "--token", token], input: Data(input.utf8))
            }
            for arguments in [["one", "--key", "k"], ["one", "--key", "k"], ["-", "--title", "T", "--name", "df"]] {
                let posted = try await post(arguments, input: "two\n")
                #expect(posted.status == 0, "\(posted.errors)")
            }
            let rows = try relay.query("SELECT nickname, text, title FROM messages ORDER BY message_id")
            #expect(rows.map { $0[0] as String } == ["cron", "df"] && rows.map { $0[1] as String } == ["one", "two"])
            #expect(rows.map { $0[2] as String? } == [nil, "T"])
            let refused = try await ClientProgram.run(
                [
                    Running.executable.path, "post", "hall", "x", "--relay", "http://127.0.0.1:\(relay.port)",
                    "--token",
                    token,
                ])
            #expect(refused.status == 1 && refused.errors.contains("another room"), "\(refused.errors)")
        }
    }
}
