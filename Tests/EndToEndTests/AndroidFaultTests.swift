import Foundation
import TestSupport
import Testing

extension Surroundings {
    @Suite("Failing FCM")
    struct AndroidFaultTests {
        private static let phones = Stress.scaled(10_000)
        private static let kills = 5
        /// The number of phones whose messages FCM refuses, for each of its errors.
        private static let refusals = 20
        /// The number of times that FCM ends a connection, for each way of doing so.
        private static let ends = 3

        private struct Phone: Decodable {
            let token: String
            let address: String

            private enum CodingKeys: String, CodingKey {
                case token
                case address = "registration_token"
            }
        }

        private func phone(_ sandbox: SandboxProcess) async throws -> Phone {
            let (status, body) = try await HTTP.post(
                sandbox.base + "/installations", body: Data(#"{"kind":"token"}"#.utf8),
                headers: [("Content-Type", "application/json")])
            guard status == 201 else { throw Child.Failure(description: "POST /installations: \(status) \(body)") }
            return try JSONDecoder().decode(Phone.self, from: Data(body.utf8))
        }

        @Test(
            "With every error of FCM, connections that end, a token endpoint that fails, and five kills, no push is lost"
        )
        func faults() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--inbox-limit", "100000"])
            var phones: [Phone] = []
            for _ in 0..<Self.phones { phones.append(try await phone(sandbox)) }
            let seed = Stress.seed
            print("FCM fault test: seed \(seed)")
            var random = Seeded(state: seed)
            func fault(_ fields: [String: any Sendable]) async throws {
                try await sandbox.fault(
                    fields.merging(["after": Int.random(in: 0..<Self.phones, using: &random)]) { own, _ in own },
                    protocol: "fcm")
            }
            // These phones get the same error each time.
            var refused: [String: String] = [:]
            for (index, reason) in [
                "UNREGISTERED", "SENDER_ID_MISMATCH", "INVALID_ARGUMENT", "THIRD_PARTY_AUTH_ERROR",
            ].enumerated() {
                for phone in phones[(index * Self.refusals)...].prefix(Self.refusals) {
                    refused[phone.address] = reason
                    try await sandbox.fault(
                        ["action": "status", "reason": reason, "token": phone.token, "times": 1_000_000],
                        protocol: "fcm")
                }
            }
            for reason in ["INTERNAL", "UNAVAILABLE"] {
                try await fault(["action": "status", "reason": reason, "times": 3])
            }
            for seconds in [1, 2] {
                try await fault(["action": "status", "reason": "QUOTA_EXCEEDED", "retry_after": seconds])
            }
            for status in [502, 302, 421] { try await fault(["action": "status", "status": status]) }
            for end in ["close", "reset", "goaway"] {
                for _ in 0..<Self.ends { try await fault(["action": end]) }
            }
            try await fault(["action": "expire_token"])
            try await sandbox.fault(["action": "status", "status": 503, "times": 5], protocol: "fcm_token")

            let configuration = try await sandbox.relayConfiguration()
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join(1...2)
            for phone in phones {
                let (status, answer) = try await relay.admin("PUT", "/v1/devices/\(phone.address)")
                #expect(status == 201, "\(answer)")
            }
            let (status, answer) = try await relay.admin(
                "POST", "/v1/notifications", #"{"to":{"all":true},"app":"android","alert":"to every phone"}"#)
            #expect(status == 202 && answer.contains(#""devices":\#(Self.phones)"#), "\(answer)")
            // FCM gets nothing yet, because there is no access token. Pushes for iPhones go past.
            #expect(try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "past"]).0 == 200)
            try await eventually("the iPhone has its message") {
                try await sandbox.accepted()[Name.token(2)] == 1
            }

            let settled = "SELECT count(*) FROM push_queue WHERE state <> 'pending' AND app = 'android'"
            for kill in 1...Self.kills {
                let goal = Self.phones * kill / (Self.kills + 2)
                try await eventually("\(goal) are settled", within: .seconds(240), every: .milliseconds(10)) {
                    try relay.count(settled) >= goal
                }
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                relay = try await RelayProcess.start(folder, configuration: configuration)
            }
            try await eventually("all are settled", within: .seconds(240), every: .milliseconds(100)) {
                try relay.count(settled) == Self.phones
            }

            func tokens(_ sql: String) throws -> [String: String] {
                try relay.query(sql).reduce(into: [:]) { $0[$1[0]] = $1[1] }
            }
            #expect(
                try tokens("SELECT device_token, reason FROM push_queue WHERE state = 'failed' AND app = 'android'")
                    == refused)
            #expect(
                try Set(tokens("SELECT device_token, app FROM devices WHERE time_deactivated IS NOT NULL").keys)
                    == Set(refused.filter { $0.value == "UNREGISTERED" }.keys))
            let counts = try await sandbox.accepted()
            let lost = phones.filter { refused[$0.address] == nil && counts[$0.token] == nil }
            #expect(lost.map(\.address) == [])
            let repeats = phones.reduce(0) { $0 + max(0, (counts[$1.token] ?? 0) - 1) }
            print("FCM fault test: \(repeats) repeats in \(Self.kills) kills")
            // A kill, or a connection that ends, loses the responses to pushes that FCM has accepted: up to a hundred on
            // each of four connections.
            #expect(repeats <= (Self.kills * 4 + 3 * Self.ends) * 100)
        }
    }
}
