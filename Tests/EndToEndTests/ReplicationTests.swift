import Foundation
import TestSupport
import Testing

extension Programs {
    @Suite("Replication of the SQLite file")
    struct ReplicationTests {
        /// Returns a command of docs/production.md with a local folder in place of the bucket, and without `sudo`.
        private static func command(_ index: Int, in folder: Folder) throws -> [String] {
            let blocks = try Page("docs/production.md").blocks(of: "litestream")
            try #require(blocks.count == 2)
            let programs = (try Python.program("litestream") as NSString).deletingLastPathComponent
            let script = blocks[index].script.replacing("sudo -u pushchat ", with: "")
                .replacing("/var/lib/pushchat/", with: folder.url.path + "/")
                .replacing("s3://BUCKET/pushchat", with: "file://\(folder.file("replica").path)")
            return ["env", "PATH=\(programs):/usr/bin:/bin", "bash", "-c", "exec " + script]
        }

        @Test(
            "A relay on the file that Litestream restores has every message that the killed relay accepted",
            .onlySQLite("Litestream replicates SQLite files"))
        func restore() async throws {
            let (folder, other) = (try Folder(), try Folder())
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join()
            let replicator = try Child(try Self.command(0, in: folder), errors: folder.file("litestream.log"))
            func post(_ numbers: ClosedRange<Int>, to relay: RelayProcess) async throws {
                for number in numbers {
                    let (status, body) = try await relay.call([
                        "cmd": "message", "udid": Name.udid(1), "text": "message \(number)",
                    ])
                    #expect(status == 200, "\(body)")
                }
            }
            try await post(1...60, to: relay)
            // The new machine has the same bucket.
            let bucket = other.file("replica")
            try FileManager.default.createSymbolicLink(at: bucket, withDestinationURL: folder.file("replica"))
            let database = other.file("pushchat.db").path
            let expected = try relay.query("SELECT message_id, text FROM messages ORDER BY message_id")
                .map { "\($0[0] as Int)|\($0[1] as String)" }
            #expect(expected.count == 60)
            var restored: [String] = []
            try await eventually("the replica has all messages", every: .seconds(1)) {
                guard replicator.status == nil else {
                    throw Child.Failure(
                        description: try String(contentsOf: folder.file("litestream.log"), encoding: .utf8))
                }
                for suffix in ["", "-wal", "-shm"] { unlink(database + suffix) }
                guard try await ClientProgram.run(Self.command(1, in: other)).status == 0 else { return false }
                restored = try await tool(
                    "sqlite3", [database, "SELECT message_id, text FROM messages ORDER BY message_id"]
                ).split(separator: "\n").map(String.init)
                return restored.count == expected.count
            }
            relay.process.kill(SIGKILL)
            try await relay.process.ended()
            replicator.kill(SIGTERM)
            #expect(restored == expected)
            let mode = try FileManager.default.attributesOfItem(atPath: database)[.posixPermissions] as? Int
            #expect(mode == 0o600)

            let next = try await RelayProcess.start(other, configuration: configuration)
            #expect(next.database == database)
            try await post(61...61, to: next)
            #expect(try next.count("SELECT max(message_id) FROM messages") == 61)
            #expect(try await tool("sqlite3", [database, "PRAGMA integrity_check"]) == "ok\n")
        }
    }
}
