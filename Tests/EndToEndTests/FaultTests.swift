import Foundation
import TestSupport
import Testing

extension Stress {
    @Suite("Faults of the gateway")
    struct FaultTests {
        private static let good = Stress.scaled(50_000)

        @Test(
            "A gateway with every fault loses none of thousands of pushes; bad ones are identified, duplicates explained"
        )
        func faults() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: "binary")
            let seed = Stress.seed
            print("fault test: seed \(seed)")
            var random = Seeded(state: seed)

            // These tokens are bad: each is always rejected with its status.
            let statuses = [2, 3, 4, 5, 6, 7, 8, 128]
            var bad: [String: Int] = [:]
            for (index, status) in statuses.enumerated() {
                for copy in 0..<5 {
                    let token = Name.token(900_000 + index * 10 + copy)
                    bad[token] = status
                    try await sandbox.fault(["token": token, "action": "status", "status": status, "times": 1000])
                }
            }
            // Temporary faults at random positions.
            func place() -> Int { Int.random(in: 10...(Self.good - 10), using: &random) }
            for _ in 0..<8 {
                try await sandbox.fault(["action": "status", "status": 10, "after": place()])
                try await sandbox.fault(["action": "close", "after": place()])
                try await sandbox.fault(["action": "reset", "after": place()])
                try await sandbox.fault(["action": "status", "status": 8, "identifier": 0, "after": place()])
            }
            for status in [1, 255] {
                try await sandbox.fault(["action": "status", "status": status, "after": place()])
                try await sandbox.fault(["action": "status", "status": status, "delay_ms": 300, "after": place()])
            }
            for _ in 0..<2 {
                try await sandbox.fault(["action": "stop_reading", "delay_ms": 1500, "after": place()])
                try await sandbox.fault(["action": "delay", "delay_ms": 200, "after": place()])
            }

            // The default settle time, not the sandbox's short one. If a gateway swallows pushes after a pause longer
            // than the settle time, the relay cannot notice. Here the gateway pauses for 1.5 s, on a busy machine.
            let relay = try await RelayProcess.start(
                folder, configuration: configuration, ["--set", "apps.default.settle=5s"])
            var tokens = (0..<Self.good).map(Name.token) + bad.keys
            tokens.shuffle(using: &random)
            try relay.queue(tokens)
            try await relay.drained(within: .seconds(200))

            let arrivals = try await sandbox.notifications()
            var counts: [String: Int] = [:]
            for arrival in arrivals where arrival.answer == "accepted" { counts[arrival.token, default: 0] += 1 }
            let lost = (0..<Self.good).filter { counts[Name.token($0)] == nil }
            let duplicates = counts.values.reduce(0) { $0 + $1 - 1 }
            let explained = await relay.inDoubt(explaining: duplicates)
            print(
                "fault test: \(arrivals.count) arrivals, lost \(lost.count), duplicates \(duplicates), in doubt \(explained)"
            )
            #expect(lost.isEmpty)
            #expect(duplicates <= explained)
            let failed = try relay.query("SELECT device_token, reason FROM push_queue WHERE state <> 'sent'")
            let names = [
                2: "MissingDeviceToken", 3: "MissingTopic", 4: "MissingPayload", 5: "InvalidTokenSize",
                6: "InvalidTopicSize", 7: "InvalidPayloadSize", 8: "InvalidToken", 128: "ProtocolError",
            ]
            #expect(failed.count == bad.count)
            for row in failed {
                let reason: String? = row[1]
                #expect(bad[row[0]].flatMap { names[$0] } == reason)
            }
        }

        @Test(
            "A gateway that is down at first or for a while delays all pushes and loses none; memory stays flat",
            arguments: ["binary", "http2"])
        func down(gateway: String) async throws {
            let folder = try Folder()
            // The credentials exist, and no gateway listens.
            let ports = try SandboxPorts()
            let first = try await SandboxProcess.start(folder, ports: ports)
            let configuration = try await first.relayConfiguration(gateway: gateway)
            first.process.kill(SIGTERM)
            try await first.process.ended()

            let relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join()
            let before = try relay.process.residentMegabytes()
            // HTTP/2 is slow in a debug build: a thousand pushes a second.
            let count = Stress.scaled(gateway == "binary" ? 200_000 : 20_000)
            try relay.queue((1...count).map(Name.token))
            for number in 0..<50 {
                let (status, _) = try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "t\(number)"])
                #expect(status == 200)
            }
            let queued = try relay.process.residentMegabytes()

            let sandbox = try await SandboxProcess.start(folder, ports: ports)
            try await relay.drained(within: .seconds(150))
            let after = try relay.process.residentMegabytes()
            print(
                "gateway down, \(gateway): \(before) MB at start, \(queued) MB with \(count) queued, \(after) MB after sending them"
            )
            #expect(queued - before < 60)
            #expect(after - before < 150)
            let arrivals = try await sandbox.notifications()
            #expect(Set(arrivals.map { "\($0.token) \($0.payload ?? "")" }).count == count + 50)
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == count + 50)
        }

        /// The number of pushes through a gateway that closes again and again. It is high enough that growing pauses
        /// would show.
        private static let closed = max(10_000, Stress.scaled(20_000))

        /// A fault that recurs at regular intervals.
        struct Closing: Sendable, CustomTestStringConvertible {
            let action: String
            /// The number of notifications between two faults, counted over all connections.
            let every: Int
            /// The interval of bad tokens among the devices. 0 means none.
            var badEvery = 0
            /// The value of the sandbox's `--probe`.
            var probe = "answer"

            var testDescription: String {
                "\(action) every \(every), bad every \(badEvery), probes: \(probe)"
            }
        }

        @Test(
            "A gateway that closes again and again without a response: all pushes settle, none is lost, no good one fails",
            arguments: [
                Closing(action: "close", every: 1000), Closing(action: "reset", every: 1000),
                Closing(action: "close", every: 1500, badEvery: 1000),
            ])
        func closing(_ fault: Closing) async throws {
            try await settles(fault)
        }

        /// All cases with `make stress`, otherwise half of them.
        private static let silent: [Closing] = ["unidentified", "close", "silence"].flatMap { probe in
            [("close", 1000), ("reset", 1500), ("reset", 1000), ("close", 1500)].prefix(Stress.scaled(40) == 40 ? 4 : 2)
                .map { Closing(action: $0, every: $1, probe: probe) }
        }

        @Test(
            "A closing gateway without probes: silence settles all, none is lost, no good one fails",
            arguments: silent + [
                Closing(action: "close", every: 1000, badEvery: 1000, probe: "unidentified"),
                Closing(action: "reset", every: 1500, badEvery: 1000, probe: "close"),
            ])
        func closingWithoutProbes(_ fault: Closing) async throws {
            let duplicates = try await settles(fault)
            // A close loses one of the eight groups in flight, and the groups adapt.
            #expect(duplicates <= Self.closed / 2)
        }

        @Test("A closing gateway without probes and a killed relay: no push is lost, no good one fails")
        func killedWithoutProbes() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--probe", "unidentified"])
            try await sandbox.fault(["action": "close", "every": 1000, "times": 1_000_000])
            let configuration = try await sandbox.relayConfiguration(gateway: "binary")
            let settings = ["--set", "apps.default.settle=1s"]
            let tokens = (1...Self.closed).map(Name.token)
            let first = try await RelayProcess.start(folder, configuration: configuration, settings)
            try first.queue(tokens)
            let sent = "SELECT count(*) FROM push_queue WHERE state = 'sent'"
            try await eventually("a third is sent", within: .seconds(180), every: .milliseconds(100)) {
                try first.count(sent) >= Self.closed / 3
            }
            first.process.kill(SIGKILL)
            try await first.process.ended()
            let second = try await RelayProcess.start(folder, configuration: configuration, settings)
            try await second.drained(within: .seconds(180))
            let counts = try await sandbox.accepted()
            #expect(tokens.allSatisfy { counts[$0] != nil })
            #expect(try second.count(sent) == Self.closed)
            let duplicates = counts.values.reduce(0) { $0 + $1 - 1 }
            print("killed without probes: duplicates \(duplicates)")
            #expect(duplicates <= Self.closed)
        }

        /// Checks that a queue passes the gateway: no push is lost, no good one fails, duplicates are
        /// explained.
        /// - Returns: The number of duplicates.
        @discardableResult
        private func settles(_ fault: Closing) async throws -> Int {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--probe", fault.probe])
            try await sandbox.fault(["action": fault.action, "every": fault.every, "times": 1_000_000])
            let tokens = (1...Self.closed).map(Name.token)
            var bad: Set<String> = []
            if fault.badEvery > 0 {
                bad = Set(stride(from: fault.badEvery, through: Self.closed, by: fault.badEvery).map(Name.token))
            }
            for token in bad {
                try await sandbox.fault(["token": token, "action": "status", "status": 8, "times": 1_000_000])
            }
            let relay = try await RelayProcess.start(
                folder, configuration: try await sandbox.relayConfiguration(gateway: "binary"),
                ["--set", "apps.default.settle=1s"])
            let start = ContinuousClock.now
            try relay.queue(tokens)
            try await relay.drained(within: .seconds(180))
            let taken = ContinuousClock.now - start

            let counts = try await sandbox.accepted()
            let lost = tokens.filter { counts[$0] == nil && !bad.contains($0) }
            let duplicates = counts.values.reduce(0) { $0 + $1 - 1 }
            let explained = await relay.inDoubt(explaining: duplicates)
            print("\(fault.testDescription): \(taken), duplicates \(duplicates), in doubt \(explained)")
            #expect(lost.isEmpty)
            #expect(duplicates <= explained)
            let failed = try relay.query("SELECT device_token, reason FROM push_queue WHERE state <> 'sent'")
            #expect(Set(failed.map { $0[0] as String }) == bad)
            #expect(failed.allSatisfy { $0[1] == "InvalidToken" })
            return duplicates
        }

        @Test(
            "Pushes get through a gateway that closes after every 50 notifications")
        func closingOften() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            try await sandbox.fault(["action": "close", "every": 50, "times": 1_000_000])
            let relay = try await RelayProcess.start(
                folder, configuration: try await sandbox.relayConfiguration(gateway: "binary"),
                ["--set", "apps.default.settle=1s"])
            try relay.queue((1...Self.closed).map(Name.token))
            let sent = "SELECT count(*) FROM push_queue WHERE state = 'sent'"
            try await eventually("1,200 are sent", within: .seconds(180), every: .milliseconds(100)) {
                try relay.count(sent) >= 1200
            }
            // Read the queue first: later sends do not matter.
            let known = try relay.query("SELECT device_token FROM push_queue WHERE state = 'sent'")
            let counts = try await sandbox.accepted()
            #expect(known.allSatisfy { counts[$0[0]] != nil }, "sent, and not with the gateway")
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state NOT IN ('pending', 'sent')") == 0)
        }
    }
}

/// A generator that repeats a run from its seed.
struct Seeded: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
