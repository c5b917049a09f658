import Foundation
import Synchronization
import TestSupport
import Testing

extension Surroundings {
    /// Messages with keys on every kind of device, while their programs change them and the relay is killed.
    @Suite("Alerts that change")
    struct ChangeStressTests {
        private static let keys = 30
        private static let clients = 3
        private static let kills = 6

        @Test(
            "Each device ends with the newest state of each key, gets nothing older later, and rings no time too many")
        func changes() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: "http2", Self.binaryApp(sandbox, folder))
            let port = try ReservedPort()
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            let first = relay
            let phone = try await Self.phone(sandbox)
            let browser = try await sandbox.makeBrowser()
            for (number, field, address, app) in [
                (1, "token", Name.token(1), "default"), (2, "token", phone.address, "android"),
                (3, "subscription", try browser.subscription.json, "webpush"), (4, "token", Name.token(4), "old"),
            ] {
                let (status, text) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), field: address, "appid": app, "name": "n\(number)",
                    "code": "c",
                ])
                #expect(status == 200, "\(text)")
            }
            let follower = NtfyFollower(
                room: "c", port: relay.port,
                token: try await relay.pushchat(["token", "create", "--name", "reader", "--may", "read"]))
            let seed = Stress.seed
            print("change test: seed \(seed)")
            let updates = Stress.scaled(1000)
            let states = States()
            var kills: [Kill] = []
            try await withThrowingTaskGroup(of: Void.self) { group in
                for client in 0..<Self.clients {
                    group.addTask {
                        var random = Seeded(state: seed &+ UInt64(client))
                        for number in 0..<updates / Self.clients {
                            let key =
                                Int.random(in: 0..<Self.keys / Self.clients, using: &random) * Self.clients + client
                            try await states.change(key, "\(client)-\(number)", relay: first, &random)
                        }
                        states.clientEnded()
                    }
                }
                group.addTask { await follower.follow() }
                for kill in 1...Self.kills {
                    try await eventually("it answers", within: .seconds(120)) {
                        states.count >= updates * kill / (Self.kills + 2) || states.ended == Self.clients
                    }
                    relay.process.kill(SIGKILL)
                    try await relay.process.ended()
                    kills.append(try await Kill(of: relay, sandbox))
                    relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
                }
                try await eventually("all changes are made", within: .seconds(240)) { states.ended == Self.clients }
                // Silent changes of one message are 15 seconds apart.
                let remaining = "SELECT count(*) FROM message_states WHERE push_due IS NOT NULL"
                try await eventually("no change remains", within: .seconds(120), every: .milliseconds(200)) {
                    try relay.count(remaining) == 0
                }
                try await relay.drained()
                try? await eventually("ntfy's stream has the newest states") { follower.shown == states.shown }
                follower.end()
                try await group.waitForAll()
                let (shown, wantedTexts) = (follower.shown, states.shown)
                let late = Set(shown.keys).union(wantedTexts.keys).filter { shown[$0] != wantedTexts[$0] }.sorted()
                #expect(
                    late.isEmpty && follower.disordered == [],
                    "\(late.map { "\($0) shows \(shown[$0] ?? "nothing"), wanted \(wantedTexts[$0] ?? "nothing")" }), last \(follower.last)"
                )
                print("change test: ntfy has \(follower.events) events of \(follower.streams) streams")
            }
            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            let (messages, wanted) = (states.messages, states.versions)
            for (name, device, removes) in [
                ("HTTP/2", Name.token(1), true), ("FCM", phone.token, true), ("browser", browser.token, false),
            ] {
                let screen = try await Self.screen(of: device, sandbox)
                let texts = screen.shown.compactMap(\.body).compactMap(Version.init)
                let shown = Dictionary(texts.map { (messages[$0.number] ?? 0, $0.number) }, uniquingKeysWith: max)
                let wrong = Set(wanted.keys).union(removes ? Array(shown.keys) : []).filter { shown[$0] != wanted[$0] }
                let rows =
                    wrong.isEmpty
                    ? ""
                    : try await relay.store.script(
                        "SELECT * FROM push_queue WHERE device_token = '\(device)'")
                #expect(
                    wrong.isEmpty,
                    "\(name): \(wrong.map { "message \($0) shows \(shown[$0] ?? 0), wanted \(wanted[$0] ?? 0)" })\n\(rows)"
                )
            }
            for (name, device) in [
                ("HTTP/2", Name.token(1)), ("FCM", phone.token), ("browser", browser.token), ("binary", Name.token(4)),
            ] {
                // Of pushes in doubt at a kill, a second copy may arrive. It has the same text.
                var newest: [Int: Int] = [:]
                for arrival in arrivals where arrival.token == device {
                    guard let number = arrival.payload.flatMap(Version.init)?.number, let message = messages[number]
                    else { continue }
                    #expect(number >= newest[message] ?? 0, "\(name): message \(message)")
                    newest[message] = number
                }
            }
            print("change test: \(states.count) changes, \(arrivals.count) arrivals")
            try await Self.requireNoSurplus(
                arrivals.filter { $0.token == Name.token(1) && $0.payload?.contains(#""sound""#) == true }, states,
                kills, relay)
            // The binary gateway only rings. Its arrivals have no id of their push, so their number is compared with that
            // of the pushes that were recorded as sent.
            let old = arrivals.filter { $0.token == Name.token(4) }
            let sent = try relay.count(
                "SELECT count(*) FROM push_queue WHERE state = 'sent' AND device_token = '\(Name.token(4))'")
            let doubts = kills.last.map { kill in old.count { $0.id <= kill.lastArrival } - kill.sentOverBinary } ?? 0
            print("change test: binary: \(old.count) arrivals, \(sent) sent, \(doubts) in doubt at a kill")
            #expect(old.count == sent + doubts, "sent twice without a kill")
            #expect(Set(old.map(\.payload)).count <= states.rings + doubts)
        }

        /// The gateways and the queue after a kill of the relay.
        private struct Kill {
            /// The id of the last notification that the sandbox had.
            let lastArrival: Int
            let sentOverBinary: Int

            init(of relay: RelayProcess, _ sandbox: SandboxProcess) async throws {
                try await eventually("the gateway has read what was written") {
                    let stats = try await sandbox.stats()
                    return stats.binary.connections.open == 0 && stats.http2.connections.open == 0
                }
                lastArrival = try await sandbox.notifications().last?.id ?? 0
                sentOverBinary = try relay.remains(
                    "SELECT message_id FROM push_queue WHERE state = 'sent' AND device_token = '\(Name.token(4))'"
                ).count
            }
        }

        /// The `apns-id`s of the app's pushes that are recorded as sent.
        private static func sentIDs(of app: String, _ relay: RelayProcess) async throws -> Set<String> {
            struct Page: Decodable {
                struct Push: Decodable {
                    let apnsID: String?

                    private enum CodingKeys: String, CodingKey {
                        case apnsID = "apns_id"
                    }
                }
                let pushes: [Push]
                let next: Int?
            }
            var (all, cursor): (Set<String>, Int?) = ([], nil)
            repeat {
                let path = "/v1/pushes?app=\(app)&state=sent&limit=500" + (cursor.map { "&cursor=\($0)" } ?? "")
                let (status, body) = try await relay.admin("GET", path)
                try #require(status == 200, "\(body)")
                let page = try JSONDecoder().decode(Page.self, from: Data(body.utf8))
                all.formUnion(page.pushes.compactMap(\.apnsID))
                cursor = page.next
            } while cursor != nil
            return all
        }

        /// Requires that a device rings no time too many. A push that a gateway had at a kill has rung, but its outcome was
        /// not recorded. It is sent again with the same id, or a change cancels it first, and the newer text rings.
        private static func requireNoSurplus(
            _ arrivals: [SandboxProcess.Notification], _ states: States, _ kills: [Kill], _ relay: RelayProcess
        ) async throws {
            let sent = try await sentIDs(of: "default", relay)
            let (messages, asked) = (states.messages, states.ringsOfMessages)
            var heard: [Int: Int] = [:]
            var (repeated, overtaken) = (0, 0)
            for (id, copies) in Dictionary(grouping: arrivals, by: { $0.apnsID ?? "none" }) {
                guard let message = copies[0].payload.flatMap(Version.init).flatMap({ messages[$0.number] }) else {
                    continue
                }
                let ids = copies.map(\.id).sorted()
                for (first, second) in zip(ids, ids.dropFirst()) {
                    repeated += 1
                    #expect(
                        kills.contains { first <= $0.lastArrival && $0.lastArrival < second },
                        "\(id) was sent twice, without a kill between \(first) and \(second)")
                }
                if sent.contains(id) {
                    heard[message, default: 0] += 1
                } else {
                    overtaken += 1
                    let kill = kills.firstIndex { ids[0] <= $0.lastArrival }
                    print(
                        "change test: \(id) of message \(message) rang before kill \(kill.map { $0 + 1 } ?? 0) and is not "
                            + "recorded as sent: \(copies[0].payload ?? "")")
                    #expect(kill != nil, "\(id) has rung, and is not recorded as sent")
                }
            }
            let (count, rings) = (heard.values.reduce(0, +), states.rings)
            print(
                "change test: \(rings) rings, \(count) heard, \(repeated) sent again after a kill, \(overtaken) overtaken "
                    + "by a change after a kill")
            #expect(count > 0)
            for (message, count) in heard { #expect(count <= asked[message] ?? 0, "message \(message) rang too often") }
        }

        private static func binaryApp(_ sandbox: SandboxProcess, _ folder: Folder) -> String {
            """
              old:
                gateway: binary
                topic: com.example.PushChat
                trust: "\(folder.file("sandbox/ca.pem").path)"
                host: 127.0.0.1
                port: \(sandbox.binary)
                feedback_host: 127.0.0.1
                feedback_port: \(sandbox.feedback)
                certificate: "\(folder.file("sandbox/client.pem").path)"
                settle: 1s

            """
        }

        private struct Phone: Decodable {
            let token: String
            let address: String

            private enum CodingKeys: String, CodingKey {
                case token
                case address = "registration_token"
            }
        }

        private static func phone(_ sandbox: SandboxProcess) async throws -> Phone {
            let (_, body) = try await HTTP.post(
                sandbox.base + "/installations", body: Data("{}".utf8), headers: [("Content-Type", "application/json")])
            return try JSONDecoder().decode(Phone.self, from: Data(body.utf8))
        }

        private struct Screen: Decodable {
            struct Shown: Decodable {
                let body: String?
            }
            let shown: [Shown]
        }

        private static func screen(of token: String, _ sandbox: SandboxProcess) async throws -> Screen {
            try JSONDecoder().decode(Screen.self, from: await HTTP.get("\(sandbox.base)/screen?token=\(token)"))
        }
    }
}

/// A text of the test, `k7 v12`: the key, and a number that grows with each text of all keys.
private struct Version {
    let number: Int

    init?(_ text: String) {
        guard let match = text.firstMatch(of: /k\d+ v(\d+)/), let number = Int(match.1) else { return nil }
        self.number = number
    }
}

/// The states that the clients of the test have given to the keys. Each key has one client.
private final class States: Sendable {
    private struct All {
        /// The texts on screens, by their keys.
        var shown: [String: String] = [:]
        /// The open message of each key.
        var open: [Int: Int] = [:]
        /// The messages of the texts.
        var messages: [Int: Int] = [:]
        /// The texts on screens, by their messages.
        var versions: [Int: Int] = [:]
        var count = 0
        /// The maximum number of rings of each message: the first, and one for each change that asked for it.
        var rings: [Int: Int] = [:]
        var ended = 0
    }

    private let all = Mutex(All())

    var count: Int { all.withLock(\.count) }
    var ringsOfMessages: [Int: Int] { all.withLock(\.rings) }
    var rings: Int { ringsOfMessages.values.reduce(0, +) }
    var ended: Int { all.withLock(\.ended) }
    var messages: [Int: Int] { all.withLock(\.messages) }
    var versions: [Int: Int] { all.withLock(\.versions) }
    func clientEnded() { all.withLock { $0.ended += 1 } }
    var shown: [String: String] { all.withLock(\.shown) }

    /// Changes a key at random, and repeats the call until the relay responds.
    func change(
        _ key: Int, _ idempotencyKey: String, relay: RelayProcess, _ random: inout Seeded
    ) async throws {
        let open = all.withLock { $0.open[key] }
        let action = open != nil ? Int.random(in: 0..<20, using: &random) : 0
        let number = all.withLock {
            $0.count += 1
            return $0.count
        }
        let text = "k\(key) v\(number)"
        let renotify = action == 19
        let (method, path, json): (String, String, String?) =
            switch action {
            case 1: ("POST", "/v1/messages/key\(key):clear?room=c", nil)
            case 2: ("DELETE", "/v1/messages/key\(key)?room=c", nil)
            case 3: ("POST", "/v1/messages/key\(key):resolve", #"{"room":"c"}"#)
            case 4: ("POST", "/v1/messages/key\(key):resolve", #"{"room":"c","text":"\#(text)"}"#)
            default:
                ("POST", "/v1/messages", #"{"room":"c","key":"key\#(key)","text":"\#(text)","renotify":\#(renotify)}"#)
            }
        struct Receipt: Decodable {
            let id: Int
        }
        var made: Int?
        while true {
            let answer = try? await relay.admin(method, path, json, headers: [("Idempotency-Key", idempotencyKey)])
            if let answer, (200..<300).contains(answer.0) {
                made = try? JSONDecoder().decode(Receipt.self, from: Data(answer.1.utf8)).id
                break
            }
            if let answer, answer.0 < 500 {
                Issue.record("\(method) \(path): \(answer)")
                return
            }
            try await Task.sleep(for: .milliseconds(20))
        }
        let message = try #require(open ?? made)
        #expect(made == nil || made == message)
        all.withLock { all in
            if open == nil || renotify { all.rings[message, default: 0] += 1 }
            all.open[key] = (2...4).contains(action) ? nil : message
            all.messages[number] = message
            all.versions[message] = (1...3).contains(action) ? nil : number
            all.shown["key\(key)"] = (1...3).contains(action) ? nil : text
        }
    }
}
