import Foundation
import TestSupport
import Testing

extension Surroundings {
    @Suite("A paused app")
    struct PauseTests {
        private static let messages = 20

        @Test("A pause outlives a kill of the relay, and after its end every push is sent once")
        func killed() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await relay.join(1...3)
            let (status, paused) = try await relay.admin(
                "POST", "/v1/queue:pause", #"{"app":"default","reason":"a bad build"}"#)
            #expect(status == 200 && paused.contains(#""pause_reason":"a bad build""#), "\(paused)")
            for number in 1...Self.messages {
                if number == Self.messages / 2 {
                    relay.process.kill(SIGKILL)
                    try await relay.process.ended()
                    relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
                }
                let answer = try await relay.call([
                    "cmd": "message", "udid": Name.udid(1), "text": "m\(number)",
                ])
                #expect(answer.0 == 200)
            }
            let total = Self.messages * 2
            let queue = try await relay.admin("GET", "/v1/queue").1
            #expect(queue.contains(#""waits_for":"pause","due":\#(total),"#), "\(queue)")
            #expect(try await relay.admin("GET", "/metrics").1.contains(#"pushchat_queue_paused{app="default"} 1"#))
            #expect(try await relay.admin("GET", "/readyz").0 == 200)
            let list = try await relay.store.pushchat(
                "queue", "list", "--state", "pending", "--max-age", "1d", "--json")
            #expect(list.text.split(separator: "\n").count == total, "\(list.errors)")
            let check = try await relay.store.pushchat("check", "--config", configuration.path)
            #expect(
                check.text.contains("is paused since") && check.text.contains("by admin: a bad build"), "\(check.text)")
            #expect(try await sandbox.notifications().isEmpty)

            let dry = try await relay.store.pushchat(
                "queue", "resume", "default", "--dry-run", "--config", configuration.path)
            #expect(dry.text == "default would be resumed; \(total) pushes waiting\n", "\(dry.errors)")
            #expect(try await sandbox.notifications().isEmpty)
            let resumed = try await relay.store.pushchat("queue", "resume", "default", "--config", configuration.path)
            #expect(resumed.status == 0, "\(resumed.errors)")
            try await relay.drained()
            let arrivals = try await sandbox.notifications()
            #expect(arrivals.count == total && Set(arrivals.map(\.content)).count == total)
            #expect(arrivals.allSatisfy { $0.answer == "accepted" })
            let records = try await relay.admin("GET", "/v1/moderation").1
            #expect(records.contains(#""action":"resume","room":null,"subject":"app default","actor":"command line""#))
            #expect(
                records.contains(#""action":"pause","room":null,"subject":"app default: a bad build","actor":"admin""#))
        }
    }
}
