import Foundation
import TestSupport
import Testing

extension Stress {
    @Suite("Many faults at once over HTTP/2")
    struct ProviderFaultTests {
        private static let good = Stress.scaled(20_000)

        /// The reasons that fail a push permanently, in Apple's spelling.
        private static let final = [
            "BadCollapseId", "BadDeviceToken", "BadExpirationDate", "BadMessageId", "BadPriority", "BadTopic",
            "DeviceTokenNotForTopic", "DuplicateHeaders", "InvalidPushType", "MissingDeviceToken", "MissingTopic",
            "PayloadEmpty", "TopicDisallowed", "Forbidden", "BadPath", "MethodNotAllowed", "ExpiredToken",
            "Unregistered",
            "PayloadTooLarge", "AReasonOfTomorrow",
        ]

        @Test(
            "Of thousands of pushes none is lost; each bad one gets Apple's reason, each retry keeps its apns-id")
        func faults() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--stream-limit", "100"])
            let configuration = try await sandbox.relayConfiguration()
            let seed = Stress.seed
            print("HTTP/2 fault test: seed \(seed)")
            var random = Seeded(state: seed)
            func fault(_ fields: [String: any Sendable]) async throws {
                try await sandbox.fault(fields, protocol: "http2")
            }

            // These tokens are always rejected.
            var bad: [String: String] = [:]
            for (index, reason) in Self.final.enumerated() {
                for copy in 0..<2 {
                    let token = Name.token(900_000 + index * 10 + copy)
                    bad[token] = reason
                    var fields: [String: any Sendable] = [
                        "token": token, "action": "status", "reason": reason, "times": 1000,
                    ]
                    if reason == "AReasonOfTomorrow" { fields["status"] = 400 }
                    try await fault(fields)
                }
            }
            // Temporary faults at random positions.
            func place() -> Int { Int.random(in: 10...(Self.good - 10), using: &random) }
            for _ in 0..<3 {
                for action in ["close", "close_accepted", "reset", "reset_stream", "refuse_stream", "goaway", "drop"] {
                    try await fault(["action": action, "after": place()])
                }
                for reason in ["TooManyRequests", "InternalServerError", "ServiceUnavailable", "Shutdown"] {
                    try await fault(["action": "status", "reason": reason, "after": place()])
                }
            }
            // No more than this in a row: the circuit breaker tries one push after another, with pauses of up to 30 s.
            try await fault([
                "action": "status", "reason": "ServiceUnavailable", "after": place(), "times": Stress.scaled(40),
            ])
            try await fault(["action": "status", "reason": "TooManyProviderTokenUpdates", "after": place()])
            try await fault(["action": "status", "reason": "InvalidProviderToken", "after": place()])
            try await fault([
                "action": "status", "reason": "Unregistered", "delay_ms": 500, "token": Name.token(950_000),
                "times": 1000,
            ])
            bad[Name.token(950_000)] = "Unregistered"
            try await fault(["action": "goaway", "last_stream": 1001, "reason": "Shutdown", "after": place()])
            try await fault(["action": "refuse_stream", "after": place(), "times": 20])
            try await fault(["action": "expire_token", "after": place()])
            for _ in 0..<2 {
                try await fault(["action": "delay", "delay_ms": 300, "after": place()])
                try await fault(["action": "stream_limit", "limit": 1, "delay_ms": 500, "after": place()])
                try await fault(["action": "stream_limit", "limit": 0, "delay_ms": 500, "after": place()])
                try await fault(["action": "stop_reading", "delay_ms": 1500, "after": place()])
            }
            try await fault(["action": "stop_reading", "after": place()])

            let relay = try await RelayProcess.start(folder, configuration: configuration)
            var tokens = (0..<Self.good).map(Name.token) + bad.keys
            tokens.shuffle(using: &random)
            try relay.queue(tokens)
            try await relay.drained(within: .seconds(400))

            let arrivals = try await sandbox.notifications()
            var counts: [String: Int] = [:]
            var ids: [String: Set<String>] = [:]
            for arrival in arrivals {
                ids[arrival.token, default: []].insert(arrival.apnsID ?? "none")
                if arrival.answer == "accepted" { counts[arrival.token, default: 0] += 1 }
            }
            let lost = (0..<Self.good).filter { counts[Name.token($0)] == nil }
            let duplicates = counts.values.reduce(0) { $0 + $1 - 1 }
            let explained = await relay.inDoubt(explaining: duplicates)
            print(
                "HTTP/2 fault test: \(arrivals.count) arrivals, lost \(lost.count), duplicates \(duplicates), "
                    + "in doubt \(explained)")
            #expect(lost.isEmpty)
            #expect(duplicates <= explained)
            #expect(ids.values.allSatisfy { $0.count == 1 }, "a retry had another apns-id")
            #expect(arrivals.allSatisfy { $0.headers["apns-collapse-id"] == $0.apnsID })
            let failed = try relay.query("SELECT device_token, reason FROM push_queue WHERE state <> 'sent'")
            #expect(failed.count == bad.count)
            for row in failed { #expect(bad[row[0]] == row[1], "\(row)") }
            #expect(try await sandbox.stats().http2.streamsOverLimit == 0)
        }

        @Test(
            "Tens of thousands of pushes, 10 % with 410, 5 % with 429 and 5 % with 503, settle correctly in bounded memory"
        )
        func mixture() async throws {
            let folder = try Folder()
            let limit = 100
            let sandbox = try await SandboxProcess.start(folder, ["--stream-limit", "\(limit)"])
            let configuration = try await sandbox.relayConfiguration("    connections: 2\n")
            let count = Stress.scaled(50_000)
            // One device in ten has removed the app.
            try await withThrowingTaskGroup(of: Void.self) { group in
                for worker in 0..<8 {
                    group.addTask {
                        for number in stride(from: worker * 10, to: count, by: 80) {
                            try await sandbox.removeApp(token: Name.token(number))
                        }
                    }
                }
                try await group.waitForAll()
            }
            // One push in twenty gets a 429 once, one in twenty a 503 once, in groups spread over the queue.
            for piece in 0..<50 {
                for (offset, reason) in [(0, "TooManyRequests"), (count / 100, "ServiceUnavailable")] {
                    try await sandbox.fault(
                        [
                            "action": "status", "reason": reason, "after": piece * (count / 50) + offset,
                            "times": count / 1000,
                        ],
                        protocol: "http2")
                }
            }
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            // The devices registered before the apps were removed, so 410 applies to them.
            try relay.store.register(
                stride(from: 0, to: count, by: 10).map(Name.token), since: "2020-01-01 00:00:00.000")
            let before = try relay.process.residentMegabytes()
            try relay.queue((0..<count).map(Name.token))
            try await relay.drained(within: .seconds(400))
            let after = try relay.process.residentMegabytes()

            let ends = try relay.query("SELECT state, reason, count(*) FROM push_queue GROUP BY state, reason")
            let table = Dictionary(
                uniqueKeysWithValues: ends.map { ("\($0[0] as String) \($0[1] as String? ?? "")", $0[2] as Int) })
            #expect(table == ["sent ": count * 9 / 10, "failed Unregistered": count / 10])
            #expect(
                try relay.count("SELECT count(*) FROM devices WHERE deactivated_reason = 'Unregistered'") == count / 10)
            #expect(
                try relay.count("SELECT count(*) FROM push_queue WHERE attempts > 1 AND state = 'sent'") > count / 20)
            let stats = try await sandbox.stats().http2
            #expect(stats.answers["TooManyRequests"] == count / 20)
            #expect(stats.answers["ServiceUnavailable"] == count / 20)
            // If the machine stalls for seconds, a connection may end before its responses arrive.
            let duplicates = (stats.answers["accepted"] ?? 0) - count * 9 / 10
            let inDoubt = await relay.inDoubt(explaining: duplicates)
            #expect((0...inDoubt).contains(duplicates), "only what was in doubt is sent twice")
            #expect(stats.streamsOverLimit == 0)
            #expect(stats.mostStreams <= limit)
            print(
                """
                HTTP/2 mixture: \(before) MB before, \(after) MB after, \(stats.mostStreams) streams at most, \
                \(duplicates) sent twice of \(inDoubt) in doubt
                """)
            #expect(after - before < 100)
        }

        @Test("A device whose pushes always fail delays no other device")
        func poisoned() async throws {
            let faults = [
                ["action": "drop"], ["action": "reset"], ["action": "refuse_stream"], ["action": "goaway"],
                ["action": "status", "reason": "InvalidProviderToken"], ["action": "status", "reason": "Shutdown"],
            ]
            try await sideBySide(faults, poison)
        }

        private func poison(_ fault: [String: String]) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--stream-limit", "100"])
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let bad = (0..<5).map { Name.token(900_000 + $0) }
            for token in bad {
                try await sandbox.fault(
                    (fault as [String: any Sendable]).merging(["token": token, "times": 1_000_000]) { $1 },
                    protocol: "http2")
            }
            // Queue the bad pushes first, and more of them in between.
            let good = 300
            for round in 0..<good / 30 {
                if round.isMultiple(of: 3) { try relay.queue(bad) }
                try relay.queue((0..<30).map { Name.token(round * 30 + $0) })
                let last = Name.token(round * 30 + 29)
                try await eventually(
                    "round \(round) with \(fault) has passed", within: .seconds(120), every: .milliseconds(50)
                ) {
                    try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent' AND device_token = '\(last)'")
                        == 1
                }
            }
            try await eventually("all good ones are sent") {
                try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == good
            }
            let accepted = try await sandbox.notifications().filter { $0.answer == "accepted" }
            #expect(Set(accepted.map(\.token)).count == good, "\(fault)")
        }
    }
}
