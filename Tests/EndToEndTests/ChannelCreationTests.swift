import Foundation
import TestSupport
import Testing

extension Waiting {
    /// Tests kills around the request for the broadcast channel of a Live Activity.
    @Suite("The creation of a channel")
    struct ChannelCreationTests {
        @Test("A relay that is killed while it asks for a channel, or before it stores one, creates another")
        func kills() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await relay.join()
            // The first request gets no response, and the second one creates a channel whose response is lost.
            try await sandbox.fault(["action": "delay", "delay_ms": 60_000], protocol: "channels")
            try await sandbox.fault(["action": "close_accepted", "after": 1], protocol: "channels")
            let (status, answer) = try await relay.admin(
                "POST", "/v1/activities",
                #"{"event":"start","tag":"match","to":{"room":"c"},"channel":true,"state":{},"alert":{"title":"1"}}"#)
            #expect(status == 202, "\(answer)")
            let requested = "SELECT count(*) FROM activities WHERE channel_state = 'requested'"
            try await eventually("the relay asks for a channel") { try relay.count(requested) == 1 }
            relay.process.kill(SIGKILL)
            try await relay.process.ended()
            relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            // The lease of the killed relay holds for a minute.
            let open = "SELECT channel FROM activities WHERE channel_state = 'open'"
            try await eventually("the activity has a channel", within: .seconds(180)) {
                try relay.query(open).count == 1
            }
            let id: String = try relay.query(open)[0][0]
            let channels = String(decoding: try await HTTP.get(sandbox.base + "/channels"), as: UTF8.self)
            #expect(channels.replacing("\\/", with: "/").contains(id))
            #expect(
                relay.process.log().contains {
                    $0.message.hasPrefix("an earlier request for a channel had no recorded response")
                })
        }
    }
}
