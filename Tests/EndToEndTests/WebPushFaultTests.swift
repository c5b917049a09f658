import Foundation
import TestSupport
import Testing

extension Surroundings {
    @Suite("Failing push services of browsers")
    struct WebPushFaultTests {
        /// The number of browsers at each of five services.
        private static let browsers = Stress.scaled(2000)
        private static let kills = 5
        /// The number of connections that a service closes in the middle of its work.
        private static let cuts = 5

        /// A push service with its browsers.
        struct Service: Sendable {
            let sandbox: SandboxProcess
            let browsers: [SandboxProcess.Browser]

            var tokens: [String] { browsers.map(\.token) }

            static func start(_ folder: Folder) async throws -> Service {
                let sandbox = try await SandboxProcess.start(folder)
                var browsers: [SandboxProcess.Browser] = []
                for _ in 0..<WebPushFaultTests.browsers { browsers.append(try await sandbox.makeBrowser()) }
                return Service(sandbox: sandbox, browsers: browsers)
            }

            func fault(_ fields: [String: any Sendable]) async throws {
                try await sandbox.fault(fields, protocol: "webpush")
            }
        }

        @Test(
            "With five services, one dead and one slow, and a relay that is killed five times, no push to a browser is lost"
        )
        func services() async throws {
            let folder = try Folder()
            var services: [Service] = []
            for _ in 0..<5 { services.append(try await Service.start(folder)) }
            let (busy, ending, slow, suspicious, dead) =
                (services[0], services[1], services[2], services[3], services[4])
            dead.sandbox.process.kill(SIGKILL)
            try await dead.sandbox.process.ended()

            let seed = Stress.seed
            print("Web Push fault test: seed \(seed)")
            var random = Seeded(state: seed)
            func place() -> Int { Int.random(in: 0..<Self.browsers, using: &random) }
            for status in [500, 502, 503, 429] {
                try await busy.fault(["action": "status", "status": status, "after": place(), "times": 3])
            }
            try await busy.fault(
                ["action": "status", "status": 429, "retry_after": 1, "after": place(), "times": 3])
            for _ in 0..<Self.cuts { try await busy.fault(["action": "close", "after": place()]) }
            var gone: Set<String> = []
            var large: Set<String> = []
            // The sandbox holds at most a hundred faults. An ended subscription needs none.
            for (index, browser) in ending.browsers.enumerated() {
                switch (index % 10, index) {
                case (0, ..<400), (1, ..<400):
                    let status = index % 10 == 0 ? 404 : 413
                    if status == 413 { large.insert(browser.token) } else { gone.insert(browser.token) }
                    try await ending.fault(
                        ["action": "status", "status": status, "token": browser.token, "times": 1_000_000])
                case (2, _):
                    gone.insert(browser.token)
                    try await ending.sandbox.end(browser)
                default: break
                }
            }
            try await slow.fault(["action": "delay", "delay_ms": 300, "every": 3, "times": 1_000_000])
            for status in [401, 403] {
                try await suspicious.fault(["action": "status", "status": status, "after": place(), "times": 2])
            }

            let hosts = services.map { "localhost:\($0.sandbox.webPush)" }.joined(separator: ", ")
            let configuration = try await busy.sandbox.relayConfiguration()
            func start() async throws -> RelayProcess {
                try await RelayProcess.start(folder, configuration: configuration, ["--set", "webpush.hosts=\(hosts)"])
            }
            var relay = try await start()
            for browser in services.flatMap(\.browsers) {
                let (status, answer) = try await relay.admin(
                    "POST", "/v1/devices", "{\"subscription\":\(browser.subscription.json)}")
                #expect(status == 201, "\(answer)")
            }
            let (status, answer) = try await relay.admin(
                "POST", "/v1/notifications", #"{"to":{"all":true},"alert":"to every browser"}"#)
            #expect(status == 202, "\(answer)")

            // Pushes for the other services settle. Pushes for the dead one stay pending.
            let all = Self.browsers * services.count
            let left = "SELECT count(*) FROM push_queue WHERE state = 'pending'"
            var openAtKills: [String: Int] = [:]
            for kill in 1...Self.kills {
                let goal = (all - Self.browsers) * kill / (Self.kills + 2)
                try await eventually("\(goal) have come to an end", within: .seconds(120), every: .milliseconds(10)) {
                    try relay.count("SELECT count(*) FROM push_queue WHERE state <> 'pending'") >= goal
                }
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                for row in try relay.remains("SELECT device_token FROM push_queue WHERE state = 'pending'") {
                    openAtKills[row[0], default: 0] += 1
                }
                relay = try await start()
            }
            do {
                try await eventually("all others have", within: .seconds(240), every: .milliseconds(100)) {
                    try relay.count("SELECT count(*) FROM push_queue") == all
                        && relay.count(left) == Self.browsers
                }
            } catch {
                let open = "SELECT device_token, attempts, reason FROM push_queue WHERE state = 'pending' LIMIT 200"
                for row in try relay.query(open)
                where !dead.tokens.contains(row[0]) { print(row) }
                throw error
            }

            var counts: [String: Int] = [:]
            for service in [busy, ending, slow, suspicious] {
                for (token, count) in try await service.sandbox.accepted() { counts[token] = count }
            }
            let wanted = Set([busy, ending, slow, suspicious].flatMap(\.tokens)).subtracting(gone).subtracting(large)
            let repeated = counts.filter { $0.value > 1 }
            print(
                "Web Push fault test: \(counts.count) browsers reached, \(repeated.count) repeats in \(Self.kills) kills"
            )
            #expect(wanted.filter { counts[$0] == nil } == [], "lost")
            #expect(Set(counts.keys) == wanted)
            // A kill, or a service that closes its connection, loses the responses to pushes that it accepted. Up to a
            // hundred requests to one service are in progress at once.
            let cut = repeated.filter { $0.value - 1 > openAtKills[$0.key, default: 0] }
                .map { (token: $0.key, times: $0.value - 1 - openAtKills[$0.key, default: 0]) }
            #expect(Set(cut.map(\.token)).isSubset(of: busy.tokens))
            #expect(cut.allSatisfy { $0.times <= Self.cuts })
            #expect(cut.reduce(0) { $0 + $1.times } <= Self.cuts * 100)
            #expect(repeated.values.reduce(0) { $0 + $1 - 1 } <= (Self.kills * 4 + Self.cuts) * 100)

            func tokens(_ sql: String) throws -> Set<String> { Set(try relay.query(sql).map { $0[0] }) }
            #expect(try tokens("SELECT device_token FROM devices WHERE time_deactivated IS NOT NULL") == gone)
            #expect(
                try tokens("SELECT device_token FROM push_queue WHERE state = 'failed' AND reason LIKE '413%'") == large
            )
            #expect(try tokens("SELECT device_token FROM push_queue WHERE state = 'failed'") == gone.union(large))
            #expect(try tokens("SELECT device_token FROM push_queue WHERE state = 'pending'") == Set(dead.tokens))

            try await neighbours(of: dead, at: busy, relay)
        }

        /// Measures how long messages to a browser take beside the dead service and its pending pushes.
        private func neighbours(of dead: Service, at alive: Service, _ relay: RelayProcess) async throws {
            try await alive.sandbox.heal()
            for (number, browser) in [alive.browsers[0], dead.browsers[0]].enumerated() {
                let (status, answer) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number + 1), "subscription": browser.subscription.json,
                    "name": "n\(number)", "code": "c",
                ])
                #expect(status == 200, "\(answer)")
            }
            let (status, answer) = try await relay.call([
                "cmd": "join", "udid": Name.udid(9), "token": "0", "name": "writer", "code": "c",
            ])
            #expect(status == 200, "\(answer)")
            var times: [Duration] = []
            for number in 1...20 {
                let start = ContinuousClock.now
                let (status, _) = try await relay.call(["cmd": "message", "udid": Name.udid(9), "text": "t\(number)"])
                #expect(status == 200)
                try await eventually("message \(number) is there", every: .milliseconds(5)) {
                    try relay.count(
                        """
                        SELECT count(*) FROM push_queue WHERE state = 'sent' AND chat_message IS NOT NULL
                        AND device_token = '\(alive.tokens[0])'
                        """) == number
                }
                times.append(ContinuousClock.now - start)
            }
            times.sort()
            print("Web Push fault test: beside the dead service a message takes \(times[10]), at the most \(times[19])")
        }
    }
}
