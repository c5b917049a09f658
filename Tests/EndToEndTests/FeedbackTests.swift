import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Feedback")
    struct FeedbackTests {
        @Test("Feedback deactivates a removed app, and registering again revives it")
        func feedback() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(
                folder, configuration: try await sandbox.relayConfiguration(gateway: "binary"),
                ["--set", "apps.default.feedback_interval=1s"])
            struct Device: Decodable { let token: String }
            let (status, body) = try await HTTP.post(
                "\(sandbox.base)/devices", body: Data("{}".utf8), headers: [("Content-Type", "application/json")])
            #expect((200..<300).contains(status), "\(body)")
            let token = try JSONDecoder().decode(Device.self, from: Data(body.utf8)).token
            let join: KeyValuePairs = ["cmd": "join", "udid": Name.udid(2), "token": token, "name": "n2", "code": "c"]
            try await relay.call([
                "cmd": "join", "udid": Name.udid(1), "token": Name.token(1), "name": "n1", "code": "c",
            ])
            try await relay.call(join)

            try await sandbox.removeApp(token: token)
            let inactive = "SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL"
            try await eventually("the device is deactivated") { try relay.count(inactive) == 1 }
            #expect(try relay.count("SELECT count(*) FROM feedback WHERE result = 'deactivated'") == 1)
            #expect(try relay.count("SELECT count(*) FROM active_users") == 2, "the member stays")
            try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "nobody gets it"])
            #expect(try relay.count("SELECT count(*) FROM push_queue") == 0)

            try await relay.call(join)
            #expect(try relay.count(inactive) == 0)
            try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "again"])
            #expect(try relay.count("SELECT count(*) FROM push_queue") == 1)
        }
    }
}
