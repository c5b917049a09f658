import ChatDomain
import Foundation
import GRDB
import Synchronization
import Testing

@testable import ChatStore

@Suite("The queue's file, for the command line", .timeLimit(.minutes(1)))
struct QueueFileTests {
    let bench: NotificationBench
    let file: QueueFile

    init() throws {
        let bench = try NotificationBench()
        self.bench = bench
        file = try QueueFile(path: bench.fixture.path, clock: { bench.now })
    }

    /// Entries 1…8, two of each settled state, then two pending ones.
    private func populate() async throws {
        for (number, state) in ["sent", "failed", "expired", "cancelled"].enumerated() {
            for place in 1...2 {
                _ = try bench.fixture.query(
                    """
                    INSERT INTO push_queue (device_token, payload, state, app, reason, attempts, unanswered, refused, hint,
                        time_sent, time_settled, expires_at)
                    VALUES (?, '{"aps":{}}', ?, ?, 'why', 7, 2, 3, 'hint', ?, ?, ?)
                    """,
                    [
                        StoreFixture.token(number * 2 + place).description, state, place == 1 ? "default" : "other",
                        state == "sent" ? "2027-01-01" : nil, (bench.now - .seconds(place * 1000)).sqlText,
                        state == "expired" ? bench.now.seconds - 5 : nil,
                    ])
            }
        }
        _ = try bench.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload) VALUES ('aa', '{}'), ('aa', '{}')
            """)
    }

    private func states() throws -> [String] {
        try bench.fixture.query("SELECT state FROM push_queue ORDER BY message_id").map {
            String(($0[0] as String).prefix(2))
        }
    }

    @Test("It opens what exists and is of this version, and says what is wrong with the rest")
    func opening() throws {
        let other = try StoreFixture()
        #expect { _ = try QueueFile(path: other.path) } throws: { "\($0)".contains("does not exist") }
        #expect(!FileManager.default.fileExists(atPath: other.path))
        _ = try other.query("CREATE TABLE theirs (x)")
        #expect { _ = try QueueFile(path: other.path) } throws: { "\($0)".contains("another program") }
        for (version, word) in [(2, "upgrades"), (99, "newer")] {
            _ = try bench.fixture.query("PRAGMA user_version = \(version)")
            #expect { _ = try QueueFile(path: bench.fixture.path) } throws: { "\($0)".contains(word) }
        }
        try Data(repeating: 65, count: 5000).write(to: URL(filePath: other.path))
        #expect { _ = try QueueFile(path: other.path) } throws: { "\($0)".contains("cannot be opened") }
    }

    @Test("Entries by what a filter says, in pages")
    func entries() async throws {
        try await populate()
        func all(_ filter: QueueFile.Filter) async throws -> [Int64] {
            try await NotificationBench.all { try file.entries(filter, after: $0, limit: 2) }.map(\.entry)
        }
        #expect(try await all(.init()) == Array(1...10))
        #expect(try await all(.init(app: AppName("other"))) == [2, 4, 6, 8])
        #expect(try await all(.init(states: [.failed, .cancelled])) == [3, 4, 7, 8])
        #expect(try await all(.init(app: .default, states: [.failed])) == [3])
        #expect(try await all(.init(token: StoreFixture.token(5))) == [5])
        try await bench.register([1, 2])
        let id = try await bench.send(.all).id
        #expect(try await all(.init(notification: id)) == [11, 12])
        #expect(try await all(.init(token: StoreFixture.token(2), notification: id)) == [12])
        #expect(try file.entries(.init(), after: 10, limit: 2).next == nil)
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (message_id, device_token, payload) VALUES (0, 'aa', '{}'), (-7, 'aa', '{}')")
        #expect(try await all(.init()) == [-7, 0] + Array(1...12))
    }

    @Test("An entry with its payload, wherever that stands")
    func entry() async throws {
        try await populate()
        #expect(try file.entry(3)?.payload == #"{"aps":{}}"#)
        #expect(try file.entry(3)?.delivery.reason == "why")
        #expect(try file.entry(5)?.expiration == bench.now.seconds - 5)
        #expect(try file.entry(77) == nil)
        try await bench.register([1])
        _ = try await bench.send(.all)
        #expect(try file.entry(11)?.payload == NotificationBench.payload)
        #expect(try file.entry(11)?.pushType == "alert")
        _ = try bench.fixture.query("UPDATE push_queue SET payload = x'7bff7d' WHERE message_id = 1")
        #expect(try file.entry(1)?.payload == "{\u{FFFD}}")
    }

    @Test("Retry makes what failed, expired or was taken back pending as if new, and touches nothing else")
    func retry() async throws {
        try await populate()
        #expect(try file.retry(.matching(.init(app: .default)), progress: { _ in }) == 3)
        #expect(try states() == ["se", "se", "pe", "fa", "pe", "ex", "pe", "ca", "pe", "pe"])
        #expect(try file.retry(.entries([1, 2, 4, 9, 10, 77]), progress: { _ in }) == 1)
        #expect(
            try bench.fixture.value(
                """
                SELECT count(*) FROM push_queue WHERE reason = 'why' AND attempts = 0 AND unanswered = 0 AND refused = 0
                    AND hint IS NULL AND time_settled IS NULL AND expires_at IS NULL
                """) == 4)
        let lease = try await bench.queue.lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.entry) == [3, 5, 7])
    }

    @Test("Retry lets go at once what waits for a repeat, and not what is scheduled")
    func retryDelayed() async throws {
        try await bench.register([1])
        var request = bench.request(.all)
        _ = try await bench.store.notifications.send(request)
        _ = try await bench.queue.lease(StoreFixture.slot())
        _ = try await bench.queue.settle([
            DeliveryReport(
                connection: ConnectionID(1), identifiers: 1...1, outcome: .retry(reason: "InternalServerError"))
        ])
        request.notBefore = bench.now + .seconds(500)
        _ = try await bench.store.notifications.send(request)
        #expect(try file.retry(.matching(.init()), progress: { _ in }) == 1)
        #expect(try await bench.queue.lease(StoreFixture.slot(2)).pushes.map(\.entry) == [1])
    }

    @Test("What belongs to a cancelled notification stays cancelled, also where it is named")
    func retryCancelled() async throws {
        try await bench.register(1...2)
        let id = try await bench.send(.all).id
        _ = try await bench.store.notifications.cancel(id)
        #expect(try file.retry(.matching(.init(notification: id)), progress: { _ in }) == 0)
        #expect(try file.retry(.entries([1]), progress: { _ in }) == 0)
        #expect(try states() == ["ca", "ca"])
    }

    @Test("Cancel takes back what is pending, and its notification counts it")
    func cancel() async throws {
        try await populate()
        try await bench.register(1...2)
        let id = try await bench.send(.all).id
        #expect(try file.cancel(.entries([1, 9, 11]), progress: { _ in }) == 2)
        #expect(try file.cancel(.matching(.init()), progress: { _ in }) == 2)
        #expect(try states() == ["se", "se", "fa", "fa", "ex", "ex", "ca", "ca", "ca", "ca", "ca", "ca"])
        let status = try await bench.store.notifications.notification(id)
        #expect(status.counts[.cancelled] == 2)
        #expect(status.state == .done)
        #expect(try file.retry(.entries([11]), progress: { _ in }) == 1)
        #expect(try await bench.store.notifications.notification(id).counts[.cancelled] == 1)
    }

    @Test("Purge deletes what is settled, if asked only what is old, and nothing that keeps a fan-out from repeating")
    func purge() async throws {
        try await populate()
        #expect(try file.purge(.matching(.init()), olderThan: .seconds(1500), progress: { _ in }) == 4)
        #expect(try file.purge(.entries([1, 9, 10]), olderThan: nil, progress: { _ in }) == 1)
        #expect(try states() == ["fa", "ex", "ca", "pe", "pe"])
        try bench.fill(1100)
        _ = try await bench.store.accept(bench.request(.all), steps: 1)
        _ = try bench.fixture.query("UPDATE push_queue SET state = 'failed' WHERE notification IS NOT NULL")
        #expect(try file.purge(.matching(.init()), olderThan: nil, progress: { _ in }) == 3)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE notification IS NOT NULL") == 500)
    }

    @Test("Long work goes in steps, and says how far it is")
    func steps() async throws {
        try bench.fill(5200)
        _ = try await bench.finish(bench.send(.all).id)
        let seen = Mutex<[Int]>([])
        #expect(try file.cancel(.matching(.init())) { count in seen.withLock { $0.append(count) } } == 5200)
        #expect(seen.withLock { $0 } == [1000, 2000, 3000, 4000, 5000, 5200])
        #expect(try file.retry(.entries(Array(1...2500)), progress: { _ in }) == 2500)
        #expect(try file.purge(.matching(.init()), olderThan: nil, progress: { _ in }) == 2700)
    }

    @Test("A backup is whole, private, and one moment's, while others write; it overwrites nothing")
    func backup() async throws {
        try bench.fill(20_000)
        let copy = bench.fixture.directory.appending(path: "copy.db").path
        let reports = Mutex<[(Int, Int)]>([])
        try DatabaseCopy.make(of: bench.fixture.path, to: copy) { done, total in
            // Another program's write after each step.
            _ = try? bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES ('aa', '{}')")
            reports.withLock { $0.append((done, total)) }
        }
        let last = try #require(reports.withLock { $0.last })
        #expect(last.0 == last.1)
        #expect(last.1 > 100)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") > 0)
        let attributes = try FileManager.default.attributesOfItem(atPath: copy)
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        let opened = try DatabaseQueue(path: copy)
        let found = try await opened.read { db in
            try [
                String.fetchOne(db, sql: "PRAGMA integrity_check"),
                String.fetchOne(db, sql: "SELECT count(*) FROM devices"),
                String.fetchOne(db, sql: "SELECT count(*) FROM push_queue"),
            ]
        }
        #expect(found == ["ok", "20000", "0"])
        try opened.close()
        #expect { try DatabaseCopy.make(of: bench.fixture.path, to: copy) { _, _ in } } throws: {
            "\($0)".contains("exists already")
        }
        let names = try FileManager.default.contentsOfDirectory(atPath: bench.fixture.directory.path)
        #expect(Set(names) == ["pushchat.db", "pushchat.db-wal", "pushchat.db-shm", "copy.db"])
        #expect { try DatabaseCopy.make(of: bench.fixture.path, to: "/nowhere/copy.db") { _, _ in } } throws: {
            "\($0)".contains("cannot be written")
        }
        let folder = bench.fixture.directory.path
        for name in ["", folder + "/", folder + "/new/", "/"] {
            #expect(throws: DatabaseFile.Unusable.self) {
                try DatabaseCopy.make(of: bench.fixture.path, to: name) { _, _ in Issue.record("a copy was begun") }
            }
        }
    }

    @Test("A retry takes the time limit from what has expired, and from nothing else")
    func retryAndExpiration() async throws {
        _ = try bench.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload, state, expires_at, time_settled) VALUES
                ('aa', '{}', 'failed', 5, '2027-01-01'), ('aa', '{}', 'expired', 5, '2027-01-01')
            """)
        #expect(try file.retry(.matching(QueueFile.Filter()), progress: { _ in }) == 2)
        #expect(
            try bench.fixture.query("SELECT expires_at FROM push_queue ORDER BY message_id").map { $0[0] as Int64? }
                == [5, nil])
    }

    @Test("To cancel a whole notification is to cancel what is not queued yet, too", arguments: [true, false])
    func cancelNotification(isRelayRunning: Bool) async throws {
        try bench.fill(2000)
        let id = try await bench.store.accept(bench.request(.all), steps: 1)
        let seen = Mutex(0)
        let count = try file.cancel(.matching(QueueFile.Filter(notification: id))) { count in
            seen.withLock { $0 = count }
        }
        #expect(count == NotificationFanout.step && seen.withLock { $0 } == count)
        if isRelayRunning { try await bench.store.jobs.resume() }
        let status = try await bench.finish(id)
        #expect(status.state == .cancelled)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == NotificationFanout.step)
        #expect(try file.cancel(.matching(QueueFile.Filter(notification: id)), progress: { _ in }) == 0)
    }
}
