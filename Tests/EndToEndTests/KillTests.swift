import Foundation
import GRDB
import Synchronization
import TestStores
import TestSupport
import Testing

extension Surroundings {
    @Suite("Kills")
    struct KillTests {
        private static let clients = 8
        private static let kills = 10

        @Test(
            "Every message with a 200 response reaches every recipient, although the relay is killed ten times",
            arguments: ["binary", "http2"])
        func kill(gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: gateway)
            // The clients call the same address after each kill.
            let port = try ReservedPort()
            let first = try await RelayProcess.start(folder, configuration: configuration, port: port)
            var relay = first
            // Four rooms, each with two members who write and one who only reads.
            for number in 0..<12 {
                let (status, text) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), "token": Name.token(number), "name": "n\(number)",
                    "code": "room\(number % 4)",
                ])
                #expect(status == 200, "\(text)")
            }

            let accepted = Answers()
            /// The number of relay runs in which each push was in flight at the kill, or its connection ended without a
            /// response.
            var inFlight: [String: Int] = [:]
            try await withThrowingTaskGroup(of: Void.self) { group in
                for client in 0..<Self.clients {
                    group.addTask {
                        var number = 0
                        while !accepted.isOver {
                            let text = "m\(client)-\(number)"
                            // Resend the same message until the relay responds, as a client does. The key makes that
                            // safe.
                            let answer = try? await first.call(
                                ["cmd": "message", "udid": Name.udid(client), "text": text],
                                headers: [("Idempotency-Key", text)])
                            if answer?.0 == 200 {
                                accepted.add(text)
                                number += 1
                            } else {
                                try await Task.sleep(for: .milliseconds(10))
                            }
                        }
                    }
                }
                for _ in 0..<Self.kills {
                    let before = accepted.texts.count
                    try await Task.sleep(for: .milliseconds(.random(in: 100...700)))
                    // Every run of the relay responds to some posts, also on a busy machine.
                    try await eventually("it answers") { accepted.texts.count >= before + 10 }
                    relay.process.kill(SIGKILL)
                    try await relay.process.ended()
                    for push in try await relay.inFlight(at: sandbox).union(relay.repeated()) {
                        inFlight[push, default: 0] += 1
                    }
                    relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
                }
                try await Task.sleep(for: .milliseconds(300))
                accepted.end()
                try await group.waitForAll()
            }
            try await relay.drained()
            relay.process.kill(SIGTERM)
            try await relay.process.ended()
            for push in try relay.repeated() { inFlight[push, default: 0] += 1 }

            let texts = accepted.texts
            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            var counts: [String: Int] = [:]
            var ids: [String: Set<String?>] = [:]
            var copies: [String: Int] = [:]
            for arrival in arrivals {
                let key = "\(arrival.token) \(arrival.alert ?? "")"
                counts[key, default: 0] += 1
                ids[key, default: []].insert(arrival.apnsID)
                copies[arrival.content, default: 0] += 1
            }
            var lost: [String] = []
            for text in texts {
                let writer = Int(text.dropFirst().prefix { $0 != "-" }) ?? 0
                for recipient in stride(from: writer % 4, to: 12, by: 4) where recipient != writer {
                    let key = "\(Name.token(recipient)) n\(writer): \(text)"
                    if counts[key] == nil { lost.append(key) }
                }
            }
            let duplicates = counts.values.reduce(0) { $0 + $1 - 1 }
            let unfounded = copies.filter { $0.value - 1 > inFlight[$0.key, default: 0] }
            print(
                "kill test, \(gateway): \(texts.count) messages answered 200, \(arrivals.count) arrivals, lost \(lost.count), "
                    + "duplicates \(duplicates), in flight at the kills \(inFlight.values.reduce(0, +))")
            #expect(lost.isEmpty)
            #expect(texts.count > 50)
            #expect(duplicates <= inFlight.values.reduce(0, +))
            #expect(unfounded.isEmpty, "sent again although it was not in flight at a kill")
            #expect(ids.values.allSatisfy { $0.count == 1 }, "a retry had another apns-id")
            #expect(
                try relay.count("SELECT count(*) FROM messages") == Set(texts).count, "a repeat made a second message")
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == texts.count * 2)
        }

        @Test(
            "SIGTERM stops in order: written pushes get their outcomes, and nothing is sent twice",
            arguments: ["binary", "http2"])
        func orderlyStop(gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: gateway, "    connections: 3\n")
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join()
            for round in 0..<3 {
                for number in 0..<20 {
                    let (status, _) = try await relay.call([
                        "cmd": "message", "udid": Name.udid(1), "text": "\(round)-\(number)",
                    ])
                    #expect(status == 200)
                }
                relay.process.kill(round == 0 ? SIGINT : SIGTERM)
                #expect(try await relay.process.ended() == 0)
                let inFlight = try await relay.inFlight(at: sandbox)
                #expect(inFlight.isEmpty, "the gateway has what the queue does not show as sent")
                relay = try await RelayProcess.start(folder, configuration: configuration)
            }
            try await relay.drained()
            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            #expect(arrivals.count == 60)
            #expect(Set(arrivals.compactMap(\.payload)).count == 60)
        }
    }
}

extension Surroundings.KillTests {
    @Test(
        "A relay that was killed while it upgraded a file of 0.3.0 sends the unsettled pushes, and no others",
        .onlySQLite("PostgreSQL's schema has no earlier version yet"))
    func upgrade() async throws {
        let rows = 100_000
        let folder = try Folder()
        let sandbox = try await SandboxProcess.start(folder)
        let configuration = try await sandbox.relayConfiguration(gateway: "binary")
        let database = folder.file("pushchat.db").path
        try Self.fill(database, rows: rows)
        for _ in 0..<4 {
            let relay = try Running(
                ["serve", "--config", configuration.path, "--port", "0", "--database", database], in: folder,
                name: "relay")
            try await Task.sleep(for: .milliseconds(.random(in: 100...900)))
            relay.kill(SIGKILL)
            try await relay.ended()
        }
        let relay = try await RelayProcess.start(folder, configuration: configuration)
        try await relay.drained(within: .seconds(90))
        let counts = try await sandbox.accepted()
        // Of fifty rows, 45 were sent and one failed. The others were pending or with the gateway.
        let wanted = (1...rows).filter { $0 % 50 > 45 }.map(Name.token)
        #expect(wanted.allSatisfy { counts[$0] != nil })
        #expect(counts.count == wanted.count)
        #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == rows * 49 / 50)
        #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'failed'") == rows / 50)
        #expect(try relay.query("PRAGMA integrity_check").map { $0[0] as String } == ["ok"])
    }

    /// Creates a file of schema version 3 with pushes in every state.
    private static func fill(_ path: String, rows: Int) throws {
        try EarlierSchema.createFile(at: path, version: 3)
        try DatabaseQueue(path: path).writeWithoutTransaction { db in
            try db.execute(
                sql: """
                    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
                    INSERT INTO push_queue (message_id, device_token, payload, state, time_sent, time_settled, time_written,
                        connection_epoch, identifier, attempts)
                    SELECT i, substr(:fill, 1, 64 - length(i)) || i, '{"aps":{"alert":"hi"}}',
                        CASE WHEN i % 50 < 45 THEN 'sent' WHEN i % 50 = 45 THEN 'failed' WHEN i % 50 < 48 THEN 'written'
                            ELSE 'pending' END,
                        iif(i % 50 < 45, :time, NULL), iif(i % 50 < 46, :time, NULL), iif(i % 50 < 48, :time, NULL),
                        iif(i % 50 IN (46, 47), 1000000001, NULL), iif(i % 50 IN (46, 47), i, NULL), i % 50 < 48
                    FROM n
                    """,
                arguments: ["rows": rows, "fill": String(repeating: "a", count: 64), "time": "2026-11-21 12:00:00.000"])
        }
    }
}

/// The responses that the clients of the kill test received.
private final class Answers: Sendable {
    private let state = Mutex((texts: Set<String>(), isOver: false))

    var texts: Set<String> { state.withLock { $0.texts } }
    var isOver: Bool { state.withLock { $0.isOver } }

    func add(_ text: String) {
        state.withLock { _ = $0.texts.insert(text) }
    }

    func end() {
        state.withLock { $0.isOver = true }
    }
}
