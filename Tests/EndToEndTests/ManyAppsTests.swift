import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Many apps in one relay")
    struct ManyAppsTests {
        private static func yaml(_ sandbox: SandboxProcess, keyID: String, port: Int) throws -> String {
            let names = try sandbox.names()
            let http2 = "topic: com.example.PushChat, trust: \(sandbox.authority), host: localhost"
            let key = "key: \(sandbox.providerKey), team_id: \(names.teamID)"
            return """
                environment: development
                apps:
                  default: {\(http2), port: \(sandbox.http2), \(key), key_id: \(names.keyID)}
                  certificate: {\(http2), port: \(sandbox.http2), certificate: \(sandbox.credential)}
                  old: {gateway: binary, trust: \(sandbox.authority), host: 127.0.0.1, port: \(sandbox.binary),
                        certificate: \(sandbox.credential), settle: 1s, feedback_interval: off}
                  broken: {\(http2), port: \(sandbox.http2), \(key), key_id: \(keyID)}
                  dead: {\(http2), port: \(port), \(key), key_id: \(names.keyID)}
                  unarmed: {topic: com.example.PushChat}
                """
        }

        @Test(
            "Each app has its own gateway, protocol and credentials; a broken app delays no other; SIGHUP repairs it"
        )
        func apps() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let file = folder.file("apps.yaml")
            try Self.yaml(sandbox, keyID: "WRONGKEYID", port: 9).write(to: file, atomically: true, encoding: .utf8)
            let relay = try await RelayProcess.start(folder, configuration: file)
            let apps = ["default", "certificate", "old", "broken", "dead", "unarmed"]
            for (number, app) in apps.enumerated() {
                let (status, text) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), "token": Name.token(number), "name": "n\(number)",
                    "code": "c",
                    "appid": app,
                ])
                #expect(status == 200, "\(text)")
            }
            try await relay.call(["cmd": "join", "udid": Name.udid(9), "token": "0", "name": "writer", "code": "c"])
            let rounds = 20
            for round in 0..<rounds {
                let (status, _) = try await relay.call(["cmd": "message", "udid": Name.udid(9), "text": "\(round)"])
                #expect(status == 200)
            }
            let good = Dictionary(uniqueKeysWithValues: (0..<3).map { (Name.token($0), rounds) })
            try await eventually("the three that work have everything") { try await sandbox.accepted() == good }
            let waiting = "SELECT count(*) FROM push_queue WHERE state = 'pending'"
            try await eventually("silence has settled the binary one's") { try relay.count(waiting) == 3 * rounds }
            try await eventually("the wrong key was refused") {
                try relay.count("SELECT count(*) FROM push_queue WHERE reason = 'InvalidProviderToken'") > 0
            }
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'failed'") == 0)
            let arrivals = try await sandbox.notifications()
            for arrival in arrivals {
                #expect(arrival.payload?.contains("message_id") == (arrival.protocol == "http2"))
            }

            // Repair the files while the relay runs.
            try Self.yaml(sandbox, keyID: try sandbox.names().keyID, port: sandbox.http2)
                .write(to: file, atomically: true, encoding: .utf8)
            relay.process.kill(SIGHUP)
            for round in rounds..<(2 * rounds) {
                let (status, _) = try await relay.call(["cmd": "message", "udid": Name.udid(9), "text": "\(round)"])
                #expect(status == 200)
            }
            let all = Dictionary(uniqueKeysWithValues: (0..<5).map { (Name.token($0), 2 * rounds) })
            try await eventually("all that have credentials have everything, once") {
                try await sandbox.accepted() == all
            }
            try await eventually("and it is known") { try relay.count(waiting) == 2 * rounds }
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE app <> 'unarmed' AND state <> 'sent'") == 0)
        }

        @Test(
            "Topics get the suffix of the push type; only pushes that the credentials do not permit fail")
        func topics() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let file = folder.file("apps.yaml")
            try Self.yaml(sandbox, keyID: "WRONGKEYID", port: 9).write(to: file, atomically: true, encoding: .utf8)
            let relay = try await RelayProcess.start(folder, configuration: file)
            let wanted = [
                ("default", "voip", "com.example.PushChat.voip"), ("certificate", "voip", "com.example.PushChat.voip"),
                ("default", "location", "com.example.PushChat.location-query"),
                ("default", "NULL", "com.example.PushChat"),
                ("certificate", "complication", "com.example.PushChat.complication"),
                ("default", "liveactivity", "com.example.PushChat.push-type.liveactivity"),
                ("default", "accessory", "com.example.PushChat.push-type.accessory"),
                ("default", "novel", "com.example.PushChat"),
            ]
            let refused = [("certificate", "location", "Forbidden"), ("default", "no/type", "InvalidPushType")]
            for (number, (app, type, _)) in (wanted + refused).enumerated() {
                let type = type == "NULL" ? type : "'\(type)'"
                _ = try relay.query(
                    """
                    INSERT INTO push_queue (device_token, payload, app, push_type, priority)
                    VALUES ('\(Name.token(number))', '{"aps":{"content-available":1}}', '\(app)', \(type),
                        \(type == "NULL" ? "NULL" : "5"))
                    """)
            }
            try await relay.drained()
            let arrivals = try await sandbox.notifications()
            for (number, (_, type, topic)) in wanted.enumerated() {
                let arrival = try #require(arrivals.first { $0.token == Name.token(number) })
                #expect(arrival.answer == "accepted")
                #expect(arrival.topic == topic)
                #expect(arrival.headers["apns-priority"] == "5")
                #expect(arrival.headers["apns-push-type"] == (type == "NULL" ? "background" : type))
            }
            let failed = try relay.query("SELECT reason FROM push_queue WHERE state = 'failed' ORDER BY message_id")
            #expect(failed.map { $0[0] as String } == refused.map(\.2))
        }
    }
}
