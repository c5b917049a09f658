import AsyncHTTPClient
import Foundation
import Testing

extension EndToEnd {
    @Suite("Moderation of rooms")
    struct ModerationTests {
        private static func join(_ number: Int, token: Int? = nil) -> KeyValuePairs<String, String> {
            [
                "cmd": "join", "udid": Name.udid(number), "token": Name.token(token ?? number), "name": "n\(number)",
                "code": "tea",
            ]
        }

        private static func post(_ number: Int, _ text: String) -> KeyValuePairs<String, String> {
            ["cmd": "message", "udid": Name.udid(number), "text": text]
        }

        private static func command(_ relay: RelayProcess, _ arguments: [String]) async throws {
            let run = try await ClientProgram.run(
                [Running.executable.path] + arguments + ["--relay", "http://127.0.0.1:\(relay.port)"])
            #expect(run.status == 0, "\(arguments): \(run.errors)")
        }

        @Test("A removed and banned member's stream, posts and pushes end at once, and stay ended after a restart")
        func ban() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            for number in 1...3 { #expect(try await relay.call(Self.join(number)).0 == 200) }
            var request = HTTPClientRequest(url: "http://127.0.0.1:\(relay.port)/events")
            request.headers.add(name: "X-Udid", value: Name.udid(2))
            let stream = try await HTTP.client.execute(request, timeout: .seconds(120))
            #expect(stream.status == .ok)
            #expect(try await relay.call(Self.post(1, "one")).0 == 200)
            try await relay.drained()

            let id = try relay.count("SELECT member_id FROM active_users WHERE udid = '\(Name.udid(2))'")
            try await Self.command(relay, ["members", "ban", "\(id)", "--for", "7d", "--reason", "spam"])
            let seen = String(buffer: try await stream.body.collect(upTo: 1 << 20))
            #expect(seen.contains("\"one\"") && seen.hasSuffix("event: left\ndata: {\"reason\":\"removed\"}\n\n"))

            for round in 0..<2 {
                #expect(try await relay.call(Self.post(2, "no")).0 == 404)
                for join in [Self.join(2), Self.join(2, token: 9), Self.join(9, token: 2)] {
                    let (status, text) = try await relay.call(join)
                    #expect(status == 403 && text.contains("banned from this room until "), "\(text)")
                }
                #expect(try await relay.call(Self.post(1, "more \(round)")).0 == 200)
                try await relay.drained()
                guard round == 0 else { break }
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            }
            #expect(try await sandbox.accepted() == [Name.token(2): 1, Name.token(3): 3])

            let message = try relay.count("SELECT max(message_id) FROM messages")
            try await Self.command(relay, ["messages", "delete", "\(message)"])
            let history = try await relay.call(["cmd": "messages", "udid": Name.udid(3)]).1
            #expect(history.contains("more 0") && !history.contains("more 1"), "\(history)")
            try await Self.command(relay, ["rooms", "close", "tea"])
            let program = #"{"room":"tea","text":"done"}"#
            #expect(try await relay.call(Self.post(1, "no")).0 == 404)
            #expect(try await relay.admin("POST", "/v1/messages", program).0 == 403)
            try await Self.command(relay, ["rooms", "open", "tea"])
            #expect(try await relay.admin("POST", "/v1/messages", program).0 == 201)
            let bans = try relay.query("SELECT ban_id FROM bans WHERE udid IS NOT NULL")[0][0] as Int
            try await Self.command(relay, ["bans", "end", "\(bans)"])
            #expect(try await relay.call(Self.join(2)).0 == 200)
            let actions = try relay.query("SELECT action FROM moderation ORDER BY moderation_id").map {
                $0[0] as String
            }
            #expect(actions == ["ban", "delete", "close", "open", "unban"])
        }
    }
}
