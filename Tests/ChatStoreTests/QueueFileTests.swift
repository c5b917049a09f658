import ChatDomain
import Foundation
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

/// Tests the queue in a file. ``QueueAdministrationTests`` tests the commands on the queue of every store.
@Suite("The queue's file, for the command line", .timeLimit(.minutes(1)))
struct QueueFileTests {
    let bench: NotificationFixture
    let file: QueueFile

    init() throws {
        let bench = try NotificationFixture()
        self.bench = bench
        file = try QueueFile(path: bench.fixture.path, now: { bench.now })
    }

    @Test("It opens existing files of this version, and names the problem of any others")
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

    /// Only for SQLite: in PostgreSQL a payload is text.
    @Test("A payload that is not UTF-8 is still shown")
    func bytes() async throws {
        _ = try bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES ('aa', x'7bff7d')")
        #expect(try await file.push(1)?.payload == "{\u{FFFD}}")
    }

    @Test("A backup is complete, private and consistent while others write, and overwrites nothing")
    func backup() async throws {
        try bench.fill(20_000)
        let copy = bench.fixture.directory.appending(path: "copy.db").path
        let reports = Mutex<[(Int, Int)]>([])
        try DatabaseCopy.make(of: bench.fixture.path, to: copy) { done, total in
            // Another program writes after each step.
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
        #expect(Set(names) == ["pushchat.db", "pushchat.db-wal", "pushchat.db-shm", "copy.db", "copy.db.sha256"])
        #expect { try DatabaseCopy.make(of: bench.fixture.path, to: "/nowhere/copy.db") { _, _ in } } throws: {
            "\($0)" == "the folder /nowhere does not exist; create it first"
        }
        let folder = bench.fixture.directory.path
        for name in ["", folder + "/", folder + "/new/", "/"] {
            #expect(throws: DatabaseFile.Unusable.self) {
                try DatabaseCopy.make(of: bench.fixture.path, to: name) { _, _ in Issue.record("a copy was begun") }
            }
        }
    }

    /// Only for SQLite: the test sets the progress of the fan-out from inside the store.
    @Test("Cancelling a notification also stops its fan-out", arguments: [true, false])
    func cancelNotification(isRelayRunning: Bool) async throws {
        try bench.fill(2000)
        let id = try await bench.store.accept(bench.request(.all), steps: 1)
        let seen = Mutex(0)
        let count = try await file.cancel(.matching(QueueFilter(notification: id))) { count in
            seen.withLock { $0 = count }
        }
        #expect(count == NotificationFanout.step && seen.withLock { $0 } == count)
        if isRelayRunning { try await bench.store.jobs.resume() }
        let status = try await bench.finish(id)
        #expect(status.state == .cancelled)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == NotificationFanout.step)
        #expect(try await file.cancel(.matching(QueueFilter(notification: id)), progress: { _ in }) == 0)
    }
}
