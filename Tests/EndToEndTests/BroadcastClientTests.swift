import Foundation
import Testing

extension Clients {
    /// Runs curl as Apple's pages print the calls: "Sending channel management requests to APNs", "Sending broadcast push
    /// notification requests to APNs" and "Sending push notifications using command-line tools".
    @Suite("curl manages channels and broadcasts", .onlySQLite("no relay takes part"))
    struct BroadcastClientTests {
        private static let app = "com.example.PushChat"

        private struct Answer {
            let status: Int
            let headers: [String: String]
            let body: String
        }

        /// Runs curl over HTTP/2 as against one of Apple's hosts, whose port leads to the sandbox.
        private static func curl(
            _ sandbox: SandboxProcess, _ host: String, port: Int, at local: Int, _ path: String, _ options: [String]
        ) async throws -> Answer {
            let client = try await ClientProgram.run(
                [
                    "curl", "-sS", "-i", "--http2", "--cacert", sandbox.authority, "--connect-to",
                    "\(host):\(port):127.0.0.1:\(local)", "--header",
                    "authorization: bearer \(try await sandbox.providerToken())",
                ] + options + ["https://\(host):\(port)\(path)"])
            try #require(client.status == 0, "\(client.errors)")
            let parts = client.text.replacing("\r\n", with: "\n").split(
                separator: "\n\n", maxSplits: 1, omittingEmptySubsequences: false)
            let lines = parts[0].split(separator: "\n")
            let headers = lines.dropFirst().map { $0.split(separator: ":", maxSplits: 1) }
            return Answer(
                status: try #require(Int(lines[0].split(separator: " ")[1])),
                headers: Dictionary(
                    headers.map { (String($0[0]), $0.last.map { $0.trimmingCharacters(in: .whitespaces) } ?? "") }
                ) { $1 },
                body: parts.count > 1 ? String(parts[1]) : "")
        }

        private static func manage(_ sandbox: SandboxProcess, _ path: String, _ options: [String]) async throws
            -> Answer
        {
            try await curl(
                sandbox, "api-manage-broadcast.sandbox.push.apple.com", port: 2195, at: sandbox.channels,
                "/1/apps/\(app)/\(path)", options)
        }

        @Test("Create, broadcast, read, list and delete, with the headers of Apple's samples")
        func life() async throws {
            let sandbox = try await SandboxProcess.start(try Folder())
            let created = try await Self.manage(
                sandbox, "channels",
                [
                    "--header", "apns-request-id: 2288c4fc-d3fc-457a-8402-b7c1f5b0ac0f", "--data",
                    #"{"message-storage-policy": 1, "push-type": "LiveActivity"}"#,
                ])
            #expect((created.status, created.body) == (201, ""))
            #expect(created.headers["apns-request-id"] == "2288c4fc-d3fc-457a-8402-b7c1f5b0ac0f")
            let channel = try #require(created.headers["apns-channel-id"])
            let header = ["--header", "apns-channel-id: \(channel)"]
            let (status, made) = try await HTTP.post(
                sandbox.base + "/activities", body: Data(#"{"channel":"\#(channel)"}"#.utf8),
                headers: [("Content-Type", "application/json")])
            #expect(status == 201, "\(made)")

            let expiration = Int(Date().timeIntervalSince1970) + 600
            let payload =
                #"{"aps":{"timestamp":1796169600,"event":"update","content-state":{"score":"1:0"},"#
                + #""alert":{"title":"Goal","body":"1:0","sound":"chime.aiff"}}}"#
            for host in ["api.sandbox.push.apple.com", "api-broadcast.sandbox.push.apple.com"] {
                let sent = try await Self.curl(
                    sandbox, host, port: 443, at: sandbox.http2, "/4/broadcasts/apps/\(Self.app)",
                    header + [
                        "--header", "apns-expiration: \(expiration)", "--header", "apns-priority: 10", "--header",
                        "apns-push-type: Liveactivity", "--data", payload,
                    ])
                #expect((sent.status, sent.body) == (200, ""), "\(sent)")
                #expect(sent.headers["apns-request-id"] != nil && sent.headers["apns-unique-id"] != nil)
            }
            let shown = try await HTTP.get(sandbox.base + "/activities")
            let text = String(decoding: shown, as: UTF8.self)
            #expect(text.matches(of: /score/).count == 2, "\(text)")
            #expect(try await sandbox.notifications().map(\.protocol) == ["broadcast", "broadcast"])

            let read = try await Self.manage(sandbox, "channels", header)
            #expect((read.status, read.body) == (200, #"{"message-storage-policy":1,"push-type":"LiveActivity"}"#))
            #expect(read.headers["content-type"] == "application/json")
            let list = try await Self.manage(sandbox, "all-channels", [])
            #expect((list.status, list.body) == (200, #"{"channels":["\#(channel)"]}"#))
            let deleted = try await Self.manage(sandbox, "channels", header + ["--request", "DELETE"])
            #expect((deleted.status, deleted.body) == (204, ""))
            let gone = try await Self.manage(sandbox, "channels", header + ["--request", "DELETE"])
            #expect((gone.status, gone.body) == (404, #"{"reason":"BadPath"}"#))
        }

        @Test("nghttp reads and lists channels", arguments: [10, 3000])
        func nghttp(count: Int) async throws {
            try await sandboxWithChannels(count) { sandbox in
                let client = try await ClientProgram.run([
                    "nghttp", "-H", "authorization: bearer \(try await sandbox.providerToken())",
                    "https://127.0.0.1:\(sandbox.channels)/1/apps/\(Self.app)/all-channels",
                ])
                let list = try JSONDecoder().decode([String: [String]].self, from: Data(client.text.utf8))
                #expect(Set(list["channels"] ?? []).count == count)
            }
        }

        /// Starts a sandbox in which curl has created `count` channels over one connection.
        private func sandboxWithChannels(
            _ count: Int, _ body: (SandboxProcess) async throws -> Void
        ) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let request = """
                silent
                http2
                cacert = "\(sandbox.authority)"
                header = "authorization: bearer \(try await sandbox.providerToken())"
                data = "{\\"message-storage-policy\\":0,\\"push-type\\":\\"LiveActivity\\"}"
                url = "https://localhost:\(sandbox.channels)/1/apps/\(Self.app)/channels"

                """
            let file = folder.file("curl.conf")
            try Array(repeating: request, count: count).joined(separator: "next\n").write(
                to: file, atomically: true, encoding: .utf8)
            let made = try await ClientProgram.run(["curl", "--config", file.path], within: 120)
            #expect(made.status == 0, "\(made.errors)")
            try await body(sandbox)
        }
    }
}
