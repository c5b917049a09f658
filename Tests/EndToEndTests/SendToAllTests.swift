import Foundation
import TestSupport
import Testing

extension Stress {
    @Suite("A notification to everyone")
    struct SendToAllTests {
        private static let devices = Stress.scaled(100_000)

        @Test(
            "Tens of thousands of devices get it despite two kills; only pushes in flight at a kill arrive twice"
        )
        func killed() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            // Use the binary gateway: HTTP/2 in a debug build would take minutes.
            let configuration = try await sandbox.relayConfiguration(gateway: "binary")
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            try relay.register(Self.devices)

            let (status, answer) = try await relay.admin(
                "POST", "/v1/notifications", #"{"to":{"all":true},"alert":"to everyone"}"#)
            #expect(status == 202, "\(answer)")
            let receipt = try JSONDecoder().decode(Receipt.self, from: Data(answer.utf8))
            #expect(receipt.devices == Self.devices)

            // Kill the relay once while it still queues the pushes, and once while it sends them.
            /// The number of kills at which each push was in flight.
            var inFlight: [String: Int] = [:]
            var queuedAtKills: [Int] = []
            for progress in ["queued > 0", "sent >= \(Self.devices / 2)"] {
                try await eventually("\(progress)", within: .seconds(120), every: .milliseconds(5)) {
                    try relay.count("SELECT count(*) FROM notification_counts WHERE \(progress)") == 1
                }
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                queuedAtKills.append(try relay.remains("SELECT queued FROM notification_counts")[0][0])
                for push in try await relay.inFlight(at: sandbox) { inFlight[push, default: 0] += 1 }
                relay = try await RelayProcess.start(folder, configuration: configuration)
            }
            try await eventually("all are queued and settled", within: .seconds(180), every: .milliseconds(200)) {
                try relay.count(
                    "SELECT count(*) FROM notifications JOIN notification_counts USING (notification_id) WHERE work IS NULL AND queued = sent"
                ) == 1
            }

            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            var counts: [String: Int] = [:]
            for arrival in arrivals { counts[arrival.content, default: 0] += 1 }
            let repeated = counts.filter { $0.value > 1 }.keys
            print(
                "send to all: queued at the kills \(queuedAtKills), \(arrivals.count) arrivals at "
                    + "\(counts.count) devices, repeated \(repeated.count) of \(inFlight.count) in flight at the kills"
            )
            #expect(counts.count == Self.devices)
            let unfounded = counts.filter { $0.value - 1 > inFlight[$0.key, default: 0] }
            #expect(unfounded.isEmpty, "sent again although it was not in flight at a kill")
            for figure in ["count(*)", "count(DISTINCT device)", "count(*) FILTER (WHERE state = 'sent')"] {
                #expect(try relay.count("SELECT \(figure) FROM push_queue") == Self.devices, "\(figure)")
            }

            let page = try await relay.admin("GET", "/v1/notifications/\(receipt.id)?limit=1")
            #expect(page.1.contains(#""state":"done""#) && page.1.contains("\"sent\":\(Self.devices)"), "\(page.1)")
        }

        private struct Receipt: Decodable {
            let id: Int
            let devices: Int
        }
    }
}
