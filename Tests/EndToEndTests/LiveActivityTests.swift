import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Live Activities, from the call to the device")
    struct LiveActivityTests {
        private struct Activity: Decodable {
            struct State: Decodable {
                let event: String
                let content: String

                private enum CodingKeys: String, CodingKey {
                    case event
                    case content = "content_state"
                }
            }

            let token: String?
            let attributes: String?
            let states: [State]
            let endedAt: String?

            var shown: [String] { states.map { "\($0.event) \($0.content)" } }

            private enum CodingKeys: String, CodingKey {
                case token, attributes, states
                case endedAt = "ended_at"
            }
        }

        private func activities(_ sandbox: SandboxProcess) async throws -> [Activity] {
            struct Page: Decodable {
                let activities: [Activity]
            }
            let body = try await HTTP.get(sandbox.base + "/activities")
            return try JSONDecoder().decode(Page.self, from: body).activities
        }

        private func post(_ relay: RelayProcess, _ json: String) async throws {
            let (status, body) = try await relay.admin("POST", "/v1/activities", json)
            guard status == 202 else { throw Child.Failure(description: "POST /v1/activities: \(status) \(body)") }
        }

        @Test("A start, updates and the end reach the device, across a kill of the relay")
        func life() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await relay.join()
            // The push-to-start token of the first member's device.
            let start = String(repeating: "5", count: 64)
            #expect(
                try await relay.call([
                    "cmd": "activity_token", "udid": Name.udid(1), "token": start, "os_version": "18.1",
                ]).0 == 200)
            try await post(
                relay,
                #"""
                {"event":"start","tag":"order-17","to":{"room":"c"},"state":{"n":1},"alert":{"title":"Order 17"}}
                """#)
            try await eventually("the activity has started") { try await activities(sandbox).count == 1 }
            let activity = try await activities(sandbox)[0]
            #expect(activity.attributes == #"{"tag":"order-17"}"#)
            let token = try #require(activity.token)
            #expect(
                try await relay.call([
                    "cmd": "activity_token", "udid": Name.udid(1), "token": token, "tag": "order-17",
                ]).0 == 200)
            // The accepted call survives a kill right after the response.
            try await post(relay, #"{"event":"update","tag":"order-17","state":{"n":2},"priority":10}"#)
            relay.process.kill(SIGKILL)
            try await relay.process.ended()
            let second = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await eventually("the update has arrived", within: .seconds(180)) {
                try await activities(sandbox)[0].states.count >= 2
            }
            try await post(second, #"{"event":"end","tag":"order-17"}"#)
            try await eventually("the activity has ended") { try await activities(sandbox)[0].endedAt != nil }
            // The kill may come after the push and before the record of it, so the update may be sent twice.
            let shown = try await Self.distinct(activities(sandbox)[0].shown)
            #expect(shown == [#"start {"n":1}"#, #"update {"n":2}"#, #"end {"n":2}"#])
            let pushes = try await sandbox.notifications().filter {
                $0.topic?.hasSuffix(".push-type.liveactivity") == true
            }
            #expect(Self.distinct(pushes.map { $0.headers["apns-priority"] }) == ["5", "10", "5"])
            #expect(Set(pushes.map { $0.headers["apns-collapse-id"] }) == ["activity-1"])
            #expect(pushes.allSatisfy { $0.answer == "accepted" })
        }

        /// Returns the items that differ from the one before.
        private static func distinct<Item: Equatable>(_ items: [Item]) -> [Item] {
            items.enumerated().filter { $0.offset == 0 || items[$0.offset - 1] != $0.element }.map(\.element)
        }

        private struct Channel: Decodable {
            let state: String
            let id: String?
        }

        /// Returns the channel of the activity 1.
        private func channel(_ relay: RelayProcess) async throws -> Channel {
            struct Record: Decodable {
                let channel: Channel
            }
            let (_, body) = try await relay.admin("GET", "/v1/activities/1")
            return try JSONDecoder().decode(Record.self, from: Data("\(body)".utf8)).channel
        }

        @Test("A channel is created, gets broadcasts across a kill of the relay, and is deleted")
        func broadcasts() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await relay.join()
            #expect(
                try await relay.call([
                    "cmd": "activity_token", "udid": Name.udid(1), "token": String(repeating: "5", count: 64),
                    "os_version": "18.1",
                ]).0 == 200)
            try await post(
                relay,
                #"""
                {"event":"start","tag":"match-1","to":{"room":"c"},"channel":true,"state":{"n":1},"alert":{"title":"1"}}
                """#)
            try await eventually("the activity has started") { try await activities(sandbox).count == 1 }
            let id = try #require(try await channel(relay).id)
            #expect(try await sandboxChannels(sandbox).contains(id))
            try await post(relay, #"{"event":"update","tag":"match-1","state":{"n":2}}"#)
            relay.process.kill(SIGKILL)
            try await relay.process.ended()
            let second = try await RelayProcess.start(folder, configuration: configuration, port: port)
            try await eventually("the update has arrived", within: .seconds(180)) {
                try await activities(sandbox)[0].states.count >= 2
            }
            try await post(second, #"{"event":"end","tag":"match-1"}"#)
            try await eventually("the channel is deleted") { try await channel(second).state == "deleted" }
            let shown = try await Self.distinct(activities(sandbox)[0].shown)
            #expect(shown == [#"start {"n":1}"#, #"update {"n":2}"#, #"end {"n":2}"#])
            #expect(try await !sandboxChannels(sandbox).contains(id))
        }

        private func sandboxChannels(_ sandbox: SandboxProcess) async throws -> String {
            String(decoding: try await HTTP.get(sandbox.base + "/channels"), as: UTF8.self).replacing("\\/", with: "/")
        }
    }
}
