import Foundation
import Testing

extension Clients {
    /// Runs third-party clients against the sandbox's HTTP/2 side.
    @Suite("Independent clients of the HTTP/2 provider API", .onlySQLite("no relay takes part"))
    struct IndependentProviderTests {
        let sandbox: SandboxProcess

        init() async throws {
            sandbox = try await SandboxProcess.start(try Folder())
        }

        // MARK: curl

        /// - Returns: The response's headers and body, as curl prints them with `-i`.
        private func curl(_ token: String, _ options: [String], payload: String = #"{"aps":{"alert":"hi"}}"#)
            async throws
            -> String
        {
            let client = try await ClientProgram.run(
                [
                    "curl", "-sS", "--http2", "-i", "--cacert", sandbox.authority, "-d", payload,
                    "https://localhost:\(sandbox.http2)/3/device/\(token)",
                ] + options)
            try #require(client.status == 0, "\(client.errors)")
            return client.text.replacing("\r\n", with: "\n")
        }

        @Test("curl with a client certificate gets 200 with ids and no body, and the push is in the inbox")
        func certificate() async throws {
            let id = "0f7e2c9a-5b1d-4c3e-8f6a-7d9b2e4c1a05"
            let answer = try await curl(
                Name.token(1),
                [
                    "--cert", sandbox.credential, "-H", "apns-topic: com.example.PushChat", "-H",
                    "apns-push-type: alert",
                    "-H", "apns-id: \(id)", "-H", "apns-collapse-id: score",
                ])
            #expect(answer.hasPrefix("HTTP/2 200"))
            #expect(answer.contains("\napns-id: \(id)\n"))
            #expect(answer.contains("\napns-unique-id: "))
            #expect(answer.hasSuffix("\n\n"))
            let arrival = try #require(try await sandbox.notifications().first)
            #expect(arrival.protocol == "http2")
            #expect(arrival.apnsID == id)
            #expect(arrival.token == Name.token(1))
            #expect(arrival.topic == "com.example.PushChat")
            #expect(arrival.headers["apns-collapse-id"] == "score")
            #expect(arrival.payload == #"{"aps":{"alert":"hi"}}"#)
            #expect(arrival.answer == "accepted")
        }

        @Test("curl is accepted with a provider token that openssl signed, and rejected with a forged one or none")
        func token() async throws {
            let token = try await sandbox.providerToken()
            let headers = ["-H", "authorization: bearer \(token)", "-H", "apns-topic: com.example.PushChat"]
            let accepted = try await curl(Name.token(1), headers)
            #expect(accepted.hasPrefix("HTTP/2 200"), "\(accepted)")
            let forged = try await curl(Name.token(1), ["-H", "authorization: bearer \(token.dropLast(8))AAAAAAAA"])
            #expect(forged.hasPrefix("HTTP/2 403"))
            #expect(forged.hasSuffix(#"{"reason":"InvalidProviderToken"}"#))
            let none = try await curl(Name.token(1), ["-H", "apns-topic: com.example.PushChat"])
            #expect(none.hasSuffix(#"{"reason":"MissingProviderToken"}"#))
        }

        @Test("curl sees Apple's errors: a removed app with its time, a bad token, an overlong payload")
        func errors() async throws {
            let credential = ["--cert", sandbox.credential, "-H", "apns-topic: com.example.PushChat"]
            let removed = try await curl(try await sandbox.removedDevice(), credential)
            #expect(removed.hasPrefix("HTTP/2 410"))
            #expect(removed.contains("\ncontent-type: application/json\n"))
            let body = try #require(removed.split(separator: "\n").last)
            let answer = try JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any]
            #expect(answer?["reason"] as? String == "Unregistered")
            let time = try #require(answer?["timestamp"] as? Int)
            #expect(abs(Double(time) / 1000 - Date().timeIntervalSince1970) < 60)
            #expect(try await curl("xyz", credential).hasSuffix(#"{"reason":"BadDeviceToken"}"#))
            let long = try await curl(
                Name.token(1), credential, payload: #"{"a":"\#(String(repeating: "x", count: 4090))"}"#)
            #expect(long.hasPrefix("HTTP/2 413"))
            #expect(long.hasSuffix(#"{"reason":"PayloadTooLarge"}"#))
        }

        // MARK: h2load

        @Test(
            "h2load sends thousands of pushes over one connection, 100 at once",
            .enabled("h2load (Debian: nghttp2-client) is missing") {
                try await ClientProgram.run(["h2load", "--version"]).status == 0
            })
        func h2load() async throws {
            let payload = sandbox.folder.file("payload.json")
            try Data(#"{"aps":{"alert":"hi"}}"#.utf8).write(to: payload)
            // h2load cannot present a client certificate.
            let token = try await sandbox.providerToken()
            let client = try await ClientProgram.run(
                [
                    "h2load", "-n2000", "-c1", "-m100", "-d", payload.path, "-H", ":method: POST", "-H",
                    "authorization: bearer \(token)", "-H", "apns-topic: com.example.PushChat",
                    "https://127.0.0.1:\(sandbox.http2)/3/device/\(Name.token(1))",
                ], within: 270)
            #expect(client.status == 0, "\(client.errors)")
            #expect(client.text.contains("2000 succeeded"), "\(client.text)")
            #expect(client.text.contains("2000 2xx"), "\(client.text)")
            #expect(try await sandbox.notifications().filter { $0.answer == "accepted" }.count == 2000)
        }

        // MARK: Python libraries

        struct Result: Decodable {
            let token: String
            let status: String
            let reason: String?
            let timestamp: Int?
            let isEchoed: Bool

            enum CodingKeys: String, CodingKey {
                case token, status, reason, timestamp
                case isEchoed = "id_is_echoed"
            }
        }

        @Test(
            "aioapns delivers with a provider token and with a certificate, and sees removed devices")
        func aioapns() async throws {
            let removed = try await sandbox.removedDevice()
            var tokens = (0..<500).map(Name.token)
            tokens[120] = removed
            tokens[121] = "nothex"
            let names = try sandbox.names()
            for credentials in [
                ["token", sandbox.providerKey, names.keyID, names.teamID, "com.example.PushChat"],
                ["certificate", sandbox.credential],
            ] {
                let client = try await Python.run(
                    "aioapns_client.py", ["\(sandbox.http2)", sandbox.authority] + credentials,
                    input: Data(tokens.joined(separator: "\n").utf8))
                #expect(client.status == 0, "\(client.errors)")
                let results = try JSONDecoder().decode([Result].self, from: client.output)
                #expect(results.count == tokens.count)
                for result in results where result.token != removed && result.token != "nothex" {
                    #expect(result.status == "200", "\(result)")
                    #expect(result.isEchoed)
                }
                let gone = try #require(results.first { $0.token == removed })
                #expect(gone.status == "410")
                #expect(gone.reason == "Unregistered")
                #expect(gone.timestamp != nil)
                #expect(results.first { $0.token == "nothex" }?.reason == "BadDeviceToken")
            }
            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            #expect(arrivals.count == 2 * (tokens.count - 2))
        }

        struct Answer: Decodable {
            struct Body: Decodable, Equatable {
                let reason: String
            }
            let token: String
            let version: String
            let status: Int
            let apnsID: String?
            let uniqueID: String?
            let body: Body?

            enum CodingKeys: String, CodingKey {
                case token, version, status, body
                case apnsID = "apns_id"
                case uniqueID = "unique_id"
            }
        }

        @Test(
            "httpx sends over HTTP/2 with a certificate, and reads the ids of the response and errors as JSON")
        func httpx() async throws {
            let tokens = (0..<100).map(Name.token) + ["abc"]
            let client = try await Python.run(
                "httpx_client.py", ["\(sandbox.http2)", sandbox.authority, sandbox.credential, "com.example.PushChat"],
                input: Data(tokens.joined(separator: "\n").utf8))
            #expect(client.status == 0, "\(client.errors)")
            let answers = try JSONDecoder().decode([Answer].self, from: client.output)
            #expect(answers.count == tokens.count)
            for answer in answers {
                #expect(answer.version == "HTTP/2")
                #expect(UUID(uuidString: answer.apnsID ?? "") != nil)
                #expect(answer.status == (answer.token == "abc" ? 400 : 200))
                #expect(answer.body?.reason == (answer.token == "abc" ? "BadDeviceToken" : nil))
            }
            #expect(try await sandbox.notifications().filter { $0.answer == "accepted" }.count == 100)
        }
    }
}
