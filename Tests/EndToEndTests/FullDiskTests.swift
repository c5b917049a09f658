import AsyncHTTPClient
import Foundation
import NIOCore
import TestSupport
import Testing

extension Surroundings {
    /// Tests the relay while the disk is full, and while another process locks the database.
    @Suite("Full disks and locked databases", .onlySQLite("it tests the database file"))
    struct FullDiskTests {
        @Test(
            "With a full disk posts get 503 with Retry-After, reads work, nothing accepted is lost, and service resumes",
            .enabled("this test may not mount a tmpfs (it needs root)") { await SmallDisk.isAllowed },
            arguments: [1, 5])
        func full(megabytesFree: Int) async throws {
            let disk = try await SmallDisk()
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await startRelay(sandbox, database: disk.file("pushchat.db").path)
            try await relay.join()
            // With one megabyte the write-ahead log fills the disk before its first checkpoint. With five the database
            // does.
            try disk.fill(leaving: megabytesFree << 20)
            var posts = Posts()
            try await posts.fill(relay)
            try disk.fill()
            for _ in 0..<20 { try await posts.send(to: relay) }
            #expect(posts.refused.count > 10)
            #expect(relay.process.isRunning)

            let page = try await messages(relay)
            #expect(page.status == 200)
            #expect(Set(page.texts).isDisjoint(with: posts.refused))
            #expect(Set(page.texts) == posts.accepted)
            #expect(try await HTTP.get("http://127.0.0.1:\(relay.port)/healthz").isEmpty == false)

            try disk.empty()
            try await eventually("service resumes") {
                try await posts.send(to: relay) == 200
            }
            // Continue past the next checkpoint, so that damage from the full disk would show.
            for _ in 0..<200 { #expect(try await posts.send(to: relay) == 200) }
            try await relay.drained()
            try await expectDelivered(posts, sandbox: sandbox, relay: relay)
            print("full disk \(megabytesFree): \(posts.accepted.count) accepted, \(posts.refused.count) refused")

            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)
        }

        @Test(
            "A relay that is stopped or killed while the disk is full loses nothing that it accepted",
            .enabled("this test may not mount a tmpfs (it needs root)") { await SmallDisk.isAllowed })
        func ended() async throws {
            try await sideBySide([SIGKILL, SIGTERM], ended)
        }

        private func ended(by signal: Int32) async throws {
            let disk = try await SmallDisk()
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            // Silence settles nothing before the end, so the pushes at the gateway are in doubt at the next start.
            var relay = try await startRelay(
                sandbox, database: disk.file("pushchat.db").path, ["--set", "apps.default.settle=60s"])
            try await relay.join()
            try disk.fill(leaving: 1 << 20)
            var posts = Posts()
            try await posts.fill(relay)
            try disk.fill()
            relay.process.kill(signal)
            // An orderly stop takes all the time that it may, because outcomes wait to be recorded.
            #expect(try await relay.process.ended() == (signal == SIGTERM ? 0 : -signal))
            let waiting = try await launch(sandbox, database: relay.database)
            // The relay waits for space and logs it. Or it starts, if the write-ahead log still has free space.
            try await eventually("the relay waits or listens") {
                waiting.process.log().contains {
                    $0.message == "listening" || $0.message == "the database cannot be opened now, trying again"
                }
            }
            try disk.empty()
            // The relay resumes by itself as soon as it can.
            relay = waiting
            try await relay.listens()
            try await eventually("service resumes") {
                try await posts.send(to: relay) == 200
            }
            try await relay.drained()
            try await expectDelivered(posts, sandbox: sandbox, relay: relay, mayRepeat: true)
        }

        @Test(
            "While the disk is full the relay is not ready, and tells the administrator why",
            .enabled("this test may not mount a tmpfs (it needs root)") { await SmallDisk.isAllowed })
        func readiness() async throws {
            let disk = try await SmallDisk()
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try RelayProcess.launch(
                folder, configuration: try await sandbox.relayConfiguration("admin: {token: the-token-of-this-test}\n"),
                database: disk.file("pushchat.db").path)
            try await relay.listens()
            try await relay.join()
            #expect(try await relay.admin("GET", "/readyz").0 == 200)
            try disk.fill(leaving: 1 << 20)
            var posts = Posts()
            try await posts.fill(relay)
            try disk.fill()
            try await eventually("it is not ready") { try await relay.admin("GET", "/readyz").0 == 503 }
            let (_, text) = try await relay.admin("GET", "/readyz")
            #expect(text.contains(#""disk":"takes no writes""#) && !text.contains("SQLite"))
            let (_, details) = try await relay.admin(
                "GET", "/readyz", headers: [("Authorization", "Bearer the-token-of-this-test")])
            #expect(details.contains("SQLite error 13"))
            try disk.empty()
            try await eventually("it is ready again") { try await relay.admin("GET", "/readyz").0 == 200 }
        }

        @Test(
            "If the disk is full, the errors of commands say so, and nothing is damaged",
            .enabled("this test may not mount a tmpfs (it needs root)") { await SmallDisk.isAllowed })
        func commands() async throws {
            let disk = try await SmallDisk()
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await startRelay(sandbox, database: disk.file("pushchat.db").path)
            let store = relay.store
            let copy = folder.file("copy.db").path
            #expect(try await store.pushchat("backup", copy).status == 0)
            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)
            // Without this file SQLite needs 32 KiB to open the database.
            try? FileManager.default.removeItem(atPath: relay.database + "-shm")
            try disk.fill()
            for (arguments, problem) in [
                (["backup", folder.file("other.db").path, "--database", relay.database], "cannot be opened now"),
                (["backup", disk.file("other.db").path, "--database", copy], "cannot be copied to"),
                (["check", "--database", relay.database], "cannot be opened now"),
            ] {
                let ran = try await ClientProgram.run([Running.executable.path] + arguments)
                let text = (ran.text + ran.errors).split(separator: "\n").first { $0.contains(problem) }
                #expect(ran.status == 1 && text?.hasSuffix(": the disk is full") == true, "\(ran.text) \(ran.errors)")
            }
            try disk.empty()
            #expect(try await store.pushchat("backup", folder.file("after.db").path).status == 0)
        }

        @Test("A database that is locked at the start delays the relay, which logs it")
        func lockedAtStart() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let first = try await startRelay(sandbox, database: folder.file("pushchat.db").path)
            first.process.kill(SIGTERM)
            try await first.process.ended()
            let other = try await OtherProcess(database: first.database)
            let waiting = try await launch(sandbox, database: first.database)
            let error = try await waiting.process.field("error", of: "the database cannot be opened now, trying again")
            #expect(error.contains("SQLite error 5"))
            try other.release()
            try await waiting.listens()
            try await waiting.join()
        }

        @Test(
            "While another process locks the database, posts get 503 and reads work; then service resumes")
        func locked() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await startRelay(sandbox, database: folder.file("pushchat.db").path)
            try await relay.join()
            var posts = Posts()
            #expect(try await posts.send(to: relay) == 200)
            let other = try await OtherProcess(database: relay.database)

            let before = posts
            let results = try await withThrowingTaskGroup(of: Posts.self) { group in
                for client in 1...4 {
                    group.addTask {
                        var posts = Posts(client: client)
                        try await posts.send(to: relay)
                        return posts
                    }
                }
                let page = try await messages(relay)
                #expect(page.status == 200)
                #expect(Set(page.texts) == before.accepted)
                return try await group.reduce(into: []) { $0.append($1) }
            }
            for more in results {
                #expect(more.refused.count == 1, "accepted while another process held the lock")
                posts.add(more)
            }
            try other.release()
            try await eventually("service resumes") {
                try await posts.send(to: relay) == 200
            }
            try await relay.drained()
            try await expectDelivered(posts, sandbox: sandbox, relay: relay)
        }

        // MARK: Parts

        private func startRelay(
            _ sandbox: SandboxProcess, database: String, _ more: [String] = []
        ) async throws -> RelayProcess {
            let relay = try await launch(sandbox, database: database, more)
            try await relay.listens()
            return relay
        }

        private func launch(
            _ sandbox: SandboxProcess, database: String, _ more: [String] = []
        ) async throws -> RelayProcess {
            try RelayProcess.launch(
                sandbox.folder, configuration: try await sandbox.relayConfiguration(), database: database, more)
        }

        /// Returns the messages that the second member reads.
        private func messages(_ relay: RelayProcess) async throws -> (status: Int, texts: [String]) {
            struct Page: Decodable {
                struct Message: Decodable {
                    let id: Int
                    let text: String
                }
                let messages: [Message]
            }
            var texts: [String] = []
            var since = "0"
            while true {
                let (status, body) = try await relay.call([
                    "cmd": "messages", "udid": Name.udid(2), "since": since, "limit": "100",
                ])
                guard status == 200 else { return (status, texts) }
                let page = try JSONDecoder().decode(Page.self, from: Data(body.utf8))
                guard let last = page.messages.last else { return (status, texts) }
                texts += page.messages.map(\.text)
                since = "\(last.id)"
            }
        }

        /// Checks that every message with a 200 response is in the room and in the inbox, and no other message is.
        private func expectDelivered(
            _ posts: Posts, sandbox: SandboxProcess, relay: RelayProcess, mayRepeat: Bool = false
        ) async throws {
            struct Payload: Decodable {
                struct APS: Decodable { let alert: Alert }
                struct Alert: Decodable {
                    let text: String
                    init(from decoder: any Decoder) throws {
                        if let text = try? decoder.singleValueContainer().decode(String.self) {
                            self.text = text
                        } else {
                            text = try [String: String](from: decoder)["body"] ?? ""
                        }
                    }
                }
                let aps: APS
            }
            let arrivals = try await sandbox.notifications().filter { $0.answer == "accepted" }
            let arrived = try arrivals.map { arrival in
                let text = try JSONDecoder().decode(Payload.self, from: Data((arrival.payload ?? "").utf8)).aps.alert
                    .text
                return String(text.drop { $0 != "#" })
            }
            #expect(Set(arrived) == posts.accepted)
            #expect(mayRepeat || arrived.count == Set(arrived).count, "a push was repeated")
            #expect(Set(try await messages(relay).texts) == posts.accepted)
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state <> 'sent'") == 0)
        }
    }
}

/// The posts of the first member, and the responses.
private struct Posts: Sendable {
    let client: Int
    private(set) var count = 0
    private(set) var accepted: Set<String> = []
    private(set) var refused: Set<String> = []

    init(client: Int = 0) {
        self.client = client
    }

    /// Posts a unique text.
    /// - Returns: The status, 200 or 503. Any other status fails the test.
    @discardableResult
    mutating func send(to relay: RelayProcess) async throws -> Int {
        count += 1
        let text = "#\(client)-\(count) " + String(repeating: "x", count: 150)
        var request = HTTPClientRequest(url: relay.api)
        request.method = .POST
        request.headers.add(name: "Content-Type", value: "application/x-www-form-urlencoded")
        request.body = .bytes(
            ByteBuffer(string: "cmd=message&udid=\(Name.udid(1))&text=\(HTTP.escaped(text))"))
        let response = try await HTTP.client.execute(request, timeout: .seconds(20))
        let body = String(buffer: try await response.body.collect(upTo: 1 << 16))
        if response.status.code == 200 {
            accepted.insert(text)
        } else {
            refused.insert(text)
            #expect(response.status.code == 503, "\(body)")
            let wait = response.headers.first(name: "Retry-After").flatMap { Int($0) } ?? 0
            #expect((1...60).contains(wait))
            let description = response.headers.first(name: "X-Error-Description") ?? ""
            #expect(description.contains("nothing was accepted") && body == description + "\n")
        }
        return Int(response.status.code)
    }

    /// Posts until a post is refused.
    mutating func fill(_ relay: RelayProcess) async throws {
        while refused.isEmpty {
            try await send(to: relay)
            try #require(count < 20_000, "the disk is never full")
        }
    }

    mutating func add(_ other: Posts) {
        accepted.formUnion(other.accepted)
        refused.formUnion(other.refused)
    }
}

/// A file system of a few megabytes in memory. It is unmounted with this object.
final class SmallDisk: Sendable {
    /// Space for several checkpoints of the write-ahead log, which happen every four megabytes.
    private static let megabytes = 16

    let folder: Folder

    /// Whether the test may mount file systems. It tries, because root may not mount in every container.
    static var isAllowed: Bool {
        get async {
            do { _ = try await SmallDisk() } catch { return false }
            return true
        }
    }

    init() async throws {
        folder = try Folder()
        try await tool("mount", ["-t", "tmpfs", "-o", "size=\(Self.megabytes)m,mode=700", "tmpfs", folder.url.path])
    }

    deinit {
        // Unmount lazily: a process that a failed test left behind may still have files open.
        let unmount = try? Child(["umount", "-l", folder.url.path])
        while unmount?.status == .some(nil) { usleep(1000) }
    }

    func file(_ name: String) -> URL { folder.file(name) }

    private var filler: URL { file("filler") }

    /// Fills the disk except for some bytes.
    func fill(leaving rest: Int = 0) throws {
        if !FileManager.default.fileExists(atPath: filler.path) { try Data().write(to: filler) }
        let descriptor = open(filler.path, O_WRONLY | O_APPEND)
        guard descriptor >= 0 else { throw CocoaError(.fileWriteUnknown) }
        defer { close(descriptor) }
        var size = try free() - rest
        let block = [UInt8](repeating: 0, count: 4096)
        while rest == 0 || size > 0 {
            guard write(descriptor, block, block.count) > 0 else { return }
            size -= block.count
        }
    }

    /// Frees the space.
    func empty() throws {
        try FileManager.default.removeItem(at: filler)
    }

    private func free() throws -> Int {
        let attributes = try FileManager.default.attributesOfFileSystem(forPath: folder.url.path)
        return (attributes[.systemFreeSize] as? NSNumber)?.intValue ?? 0
    }
}

/// The `sqlite3` program in the middle of a transaction, until ``release()``.
final class OtherProcess: Sendable {
    private let input = Pipe()
    private let child: Child

    /// Returns once the program holds the lock.
    init(database: String) async throws {
        let folder = try Folder()
        let output = folder.file("out")
        // No child process may inherit the writing end, not even sqlite3: it would never see the end of its input.
        _ = fcntl(input.fileHandleForWriting.fileDescriptor, F_SETFD, FD_CLOEXEC)
        child = try Child(
            ["sqlite3", "-cmd", ".timeout 5000", database], input: input.fileHandleForReading.fileDescriptor,
            output: output)
        try input.fileHandleForWriting.write(contentsOf: Data("BEGIN IMMEDIATE; SELECT 'locked';\n".utf8))
        try await eventually("sqlite3 has the lock") {
            try String(contentsOf: output, encoding: .utf8).contains("locked")
        }
    }

    /// Ends the transaction and the program.
    func release() throws {
        try input.fileHandleForWriting.write(contentsOf: Data("ROLLBACK;\n".utf8))
        try input.fileHandleForWriting.close()
    }
}
