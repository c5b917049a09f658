import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Android phones, from the room to the phone")
    struct AndroidTests {
        private struct Phone: Decodable {
            let id: Int
            let token: String
            let address: String

            private enum CodingKeys: String, CodingKey {
                case id, token
                case registration = "registration_token"
                case fid
            }

            init(from decoder: any Decoder) throws {
                let values = try decoder.container(keyedBy: CodingKeys.self)
                id = try values.decode(Int.self, forKey: .id)
                token = try values.decode(String.self, forKey: .token)
                address =
                    try values.decodeIfPresent(String.self, forKey: .registration)
                    ?? values.decode(String.self, forKey: .fid)
            }
        }

        private func phone(_ sandbox: SandboxProcess, kind: String = "token") async throws -> Phone {
            let (status, body) = try await HTTP.post(
                sandbox.base + "/installations", body: Data(#"{"kind":"\#(kind)"}"#.utf8),
                headers: [("Content-Type", "application/json")])
            guard status == 201 else { throw Child.Failure(description: "POST /installations: \(status) \(body)") }
            return try JSONDecoder().decode(Phone.self, from: Data(body.utf8))
        }

        private func join(_ relay: RelayProcess, _ number: Int, _ token: String) async throws {
            let (status, body) = try await relay.call([
                "cmd": "join", "udid": Name.udid(number), "token": token, "name": "n\(number)", "code": "c",
            ])
            guard status == 200 else { throw Child.Failure(description: "join: \(status) \(body)") }
        }

        private func say(_ relay: RelayProcess, _ text: String) async throws {
            let (status, body) = try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": text])
            guard status == 200 else { throw Child.Failure(description: "message: \(status) \(body)") }
        }

        /// Returns the texts that the phone has got, in their order.
        private func texts(_ sandbox: SandboxProcess, _ phone: Phone) async throws -> [String] {
            struct Message: Decodable {
                let data: [String: String]
            }
            struct Body: Decodable {
                let message: Message
            }
            return try await sandbox.notifications().filter { $0.token == phone.token && $0.answer == "accepted" }
                .map { push in
                    let payload = Data((push.payload ?? "").utf8)
                    let data =
                        try (try? JSONDecoder().decode(Body.self, from: payload))?.message.data
                        ?? JSONDecoder().decode(Message.self, from: payload).data
                    return data["text"] ?? data["body"] ?? ""
                }
        }

        @Test("A room with an iPhone and Android phones; `all` reaches each of them")
        func room() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: sandbox.relayConfiguration())
            let (token, installation) = (try await phone(sandbox), try await phone(sandbox, kind: "fid"))
            try await relay.join(1...2)
            try await join(relay, 3, token.address)
            try await join(relay, 4, installation.address)
            try await say(relay, "Hello")
            try await eventually("both phones have it") {
                let first = try await texts(sandbox, token)
                let second = try await texts(sandbox, installation)
                return first == ["Hello"] && second == ["Hello"]
            }
            let (status, body) = try await relay.admin(
                "POST", "/v1/notifications", #"{"to":{"all":true},"alert":{"title":"T","body":"News"}}"#)
            #expect(status == 202 && body.contains(#""devices":4"#), "\(body)")
            try await eventually("all have it") {
                let phones = try await [texts(sandbox, token), texts(sandbox, installation)]
                let iPhones = try await sandbox.notifications().count {
                    $0.protocol == "http2" && $0.payload?.contains("News") == true
                }
                return phones.allSatisfy { $0 == ["Hello", "News"] } && iPhones == 2
            }
            let (wrong, error) = try await relay.call([
                "cmd": "join", "udid": Name.udid(5), "token": token.address, "name": "n", "code": "c",
                "appid": "default",
            ])
            #expect(wrong == 400 && error.contains("token"), "\(error)")
        }

        @Test(
            "Nothing is lost while Google fails, refuses tokens, or the relay is killed; an uninstalled app is left out"
        )
        func faults() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            let (stays, goes) = (try await phone(sandbox), try await phone(sandbox))
            try await relay.join(1...1)
            try await join(relay, 2, stays.address)
            try await join(relay, 3, goes.address)
            try await say(relay, "1")
            try await eventually("the first has arrived") { try await texts(sandbox, stays) == ["1"] }

            // The access token becomes invalid, and the endpoint fails once.
            try await sandbox.fault(["action": "status", "status": 503], protocol: "fcm_token")
            try await sandbox.fault(["action": "expire_token"], protocol: "fcm")
            try await sandbox.fault(["action": "close", "after": 1], protocol: "fcm")
            try await say(relay, "2")
            try await eventually("it has arrived with another access token", within: .seconds(120)) {
                try await texts(sandbox, stays).contains("2")
            }
            // The app is removed, and the relay is killed with an accepted message.
            _ = try await tool("/usr/bin/curl", ["-s", "-X", "DELETE", "\(sandbox.base)/installations/\(goes.id)"])
            try await say(relay, "3")
            relay.process.kill(SIGKILL)
            _ = try await relay.process.ended()
            let second = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await eventually("the message has arrived", within: .seconds(180)) {
                try await texts(sandbox, stays).contains("3")
            }
            try await eventually("the removed app is known") {
                let (_, list) = try await second.admin("GET", "/v1/devices?app=android&active=false")
                return list.contains(goes.address) && list.contains("UNREGISTERED")
            }
            let (_, active) = try await second.admin("GET", "/v1/devices?app=android&active=true")
            #expect(active.contains(stays.address) && !active.contains(goes.address))
        }

        @Test("Three phones over their quota do not delay a fourth")
        func busyPhones() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            func notify(_ phones: [Phone]) async throws {
                for phone in phones {
                    let (status, answer) = try await relay.admin("PUT", "/v1/devices/\(phone.address)")
                    #expect(status == 201, "\(answer)")
                }
                let tokens = phones.map { "\"\($0.address)\"" }.joined(separator: ",")
                let (status, answer) = try await relay.admin(
                    "POST", "/v1/notifications", #"{"to":{"tokens":[\#(tokens)]},"app":"android","alert":"hello"}"#)
                #expect(status == 202, "\(answer)")
            }
            var busy: [Phone] = []
            for _ in 0..<3 { busy.append(try await phone(sandbox)) }
            for phone in busy {
                try await sandbox.fault(
                    [
                        "action": "status", "reason": "QUOTA_EXCEEDED", "retry_after": 60, "token": phone.token,
                        "times": 1000,
                    ], protocol: "fcm")
            }
            try await notify(busy)
            try await eventually("Google has refused all three") {
                try relay.count("SELECT count(*) FROM push_queue WHERE attempts = 1 AND reason = 'QUOTA_EXCEEDED'") == 3
            }
            let healthy = try await phone(sandbox)
            try await notify([healthy])
            // A pause of the app would last a minute, and would be renewed after it.
            try await eventually("the fourth phone has its message", within: .seconds(45)) {
                try await sandbox.accepted()[healthy.token] == 1
            }
        }

        @Test("`check --send` proves the service account")
        func check() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--strict"])
            let configuration = try await sandbox.relayConfiguration()
            let arguments = ["check", "--send", "--config", configuration.path]
            let good = try await tool(Running.executable.path, arguments)
            #expect(good.contains("Google issues access tokens"), "\(good)")
            #expect(good.contains("service account and project are accepted"), "\(good)")
            try await sandbox.fault(
                ["action": "status", "reason": "invalid_grant", "times": 100], protocol: "fcm_token")
            let bad = try Running(arguments, in: folder, name: "check")
            #expect(try await bad.ended() == 1)
        }
    }
}
