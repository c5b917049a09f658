import ChatDomain
import Foundation
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Copies of the database") struct DatabaseCopyTests {
    private let fixture: StoreFixture
    private var copy: String { fixture.path + ".version-8" }

    init() throws {
        fixture = try StoreFixture()
    }

    /// The names of the files, without those that SQLite keeps beside an open file.
    private func names() throws -> Set<String> {
        Set(try FileManager.default.contentsOfDirectory(atPath: fixture.directory.path)).filter {
            !$0.hasSuffix("-wal") && !$0.hasSuffix("-shm")
        }
    }

    private func say(_ text: String) throws {
        _ = try fixture.query(
            "INSERT INTO messages (secret_code, udid, nickname, text) VALUES ('c', 'u', 'n', '\(text)')")
    }

    private func said() throws -> [String] {
        try fixture.query("SELECT text FROM messages ORDER BY message_id").map { $0[0] }
    }

    @Test("Before an upgrade the file is copied; the copy is private and can be restored")
    func upgrade() throws {
        try fixture.createFile(ofVersion: 8)
        try say("of version 8")
        // An earlier upgrade from the same version was interrupted while it copied.
        for name in [copy, fixture.directory.path + "/.pushchat.db.version-8.part"] {
            #expect(FileManager.default.createFile(atPath: name, contents: Data([8])))
        }
        try fixture.open().close()
        try say("of version 16")
        #expect(try fixture.value("PRAGMA user_version") == 16)
        #expect(
            try names() == ["pushchat.db", "pushchat.db.version-8"])
        #expect(try FileManager.default.attributesOfItem(atPath: copy)[.posixPermissions] as? Int == 0o600)

        let replaced = try DatabaseCopy.restore(copy, to: fixture.path).replaced
        #expect(replaced == fixture.path + ".replaced-1")
        #expect(try fixture.value("PRAGMA user_version") == 8)
        #expect(try said() == ["of version 8"])
        // The id of the message that the copy lacks is not reused.
        try say("after it")
        #expect(try fixture.query("SELECT max(message_id) FROM messages")[0][0] == 3)
        _ = try fixture.query("DELETE FROM messages WHERE message_id = 3")
        #expect(try DatabaseCopy.restore(#require(replaced), to: fixture.path).replaced == fixture.path + ".replaced-2")
        #expect(try said() == ["of version 8", "of version 16"])
        #expect(try DatabaseFile(path: copy).inspect().text.contains("schema version 8"))
        #expect(throws: DatabaseFile.Unusable.self) { try DatabaseFile(path: copy).requireCurrent() }
        try DatabaseFile(path: fixture.path).requireCurrent()
        // A current file is not copied.
        let before = try names()
        try fixture.open().close()
        #expect(try names().isSubset(of: before))
    }

    @Test("An upgrade that fails leaves no copy; a new file needs none")
    func failed() throws {
        try fixture.open().close()
        #expect(try names() == ["pushchat.db"])
        let version = Schema.current.version
        #expect(throws: (any Error).self) {
            try fixture.open(Schema(version: version + 1, sql: "", upgrades: [version: "NO SQL"]))
        }
        #expect(try names().filter { $0.contains("version") || $0.contains("part") } == [])
    }

    @Test("Without room for the copy the upgrade does not start, and is retried")
    func noRoom() throws {
        try fixture.createFile(ofVersion: 3)
        try say("kept")
        let folders = Mutex<[String]>([])
        let file = DatabaseFile(path: fixture.path) { folder in
            folders.withLock { $0.append(folder) }
            return 100_000
        }
        let error = #expect(throws: ChatError.self) { try file.open() }
        #expect(error?.code == .unavailable && "\(error!)".contains("free space"))
        #expect(
            folders.withLock { $0.map { ($0 as NSString).lastPathComponent } } == [fixture.directory.lastPathComponent])
        #expect(try fixture.value("PRAGMA user_version") == 3)
        #expect(try names().filter { $0.contains("version") } == [])
        #expect(try #require(DatabaseCopy.freeSpace(fixture.directory.path)) > 0)
        #expect(DatabaseCopy.freeSpace("/nowhere") == nil)
        try fixture.open().close()
        #expect(try said() == ["kept"])
    }

    @Test("A file that is not an intact copy of ours is refused, and the database stays")
    func refused() throws {
        try fixture.open().close()
        try say("here")
        let other = fixture.directory.appending(path: "other.db").path
        func refuses(_ part: String, _ copy: String) {
            #expect {
                _ = try DatabaseCopy.restore(copy, to: fixture.path)
            } throws: {
                $0 is DatabaseFile.Unusable && "\($0)".contains(part)
            }
        }
        refuses("other.db does not exist; name a relay's file, or a copy of it", other)
        refuses("the database itself", fixture.path)
        try Data("no database".utf8).write(to: URL(filePath: other))
        refuses("another kind", other)
        /// A copy that was changed on purpose has no checksum.
        func removeCopy() throws {
            try FileManager.default.removeItem(atPath: other)
            #expect(unlink(other + ".sha256") == 0 || errno == ENOENT)
        }
        try removeCopy()
        try DatabaseCopy.make(of: fixture.path, to: other)
        unlink(other + ".sha256")
        do {
            let queue = try DatabaseQueue(path: other)
            try queue.writeWithoutTransaction { try $0.execute(sql: "PRAGMA user_version = 99") }
            try queue.close()
        }
        refuses("newer than this pushchat knows", other)
        try removeCopy()
        // Damage in the middle of the tables.
        try DatabaseCopy.make(of: fixture.path, to: other)
        let handle = try #require(FileHandle(forWritingAtPath: other))
        try handle.seek(toOffset: 4096)
        try handle.write(contentsOf: Data(repeating: 0xFF, count: 4096 * 4))
        try handle.close()
        refuses("has changed since it was made", other)
        unlink(other + ".sha256")
        refuses("other.db", other)
        try removeCopy()

        try DatabaseCopy.make(of: fixture.path, to: other)
        do {
            let reader = try fixture.connection()
            _ = try reader.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM messages") }
            refuses("in use by another program", other)
            try reader.close()
        }
        let missing = fixture.directory.appending(path: "missing.db").path
        #expect(FileManager.default.createFile(atPath: missing + "-wal", contents: Data([1])))
        #expect {
            _ = try DatabaseCopy.restore(other, to: missing)
        } throws: {
            "\($0)".contains("missing.db-wal belongs to")
        }
        #expect(!FileManager.default.fileExists(atPath: missing))
        do {
            let lock = try DatabaseLock(path: fixture.path)
            refuses("is being served by another pushchat", other)
            _ = consume lock
        }
        #expect(try said() == ["here"])
        #expect(try names().filter { $0.contains("replaced") || $0.contains("restoring") } == [])
    }

    @Test("A copy can be restored without a database, and brings the content of its own log")
    func fresh() throws {
        let store = try fixture.open()
        try say("in the log")
        let elsewhere = fixture.directory.appending(path: "elsewhere.db").path
        #expect(try DatabaseCopy.restore(fixture.path, to: elsewhere, carrying: false).replaced == nil)
        try store.close()
        #expect(
            try DatabaseQueue(path: elsewhere).read { try String.fetchOne($0, sql: "SELECT text FROM messages") }
                == "in the log")
    }

    @Test("A file that root restores keeps its owner, or gets that of the folder", .enabled(if: geteuid() == 0))
    func owner() throws {
        try fixture.open().close()
        let copy = fixture.directory.path + "/copy.db"
        try DatabaseCopy.make(of: fixture.path, to: copy)
        func owner(_ file: String) throws -> [Int?] {
            let attributes = try FileManager.default.attributesOfItem(atPath: file)
            return [attributes[.ownerAccountID] as? Int, attributes[.groupOwnerAccountID] as? Int]
        }
        #expect(chown(fixture.path, 65_534, 65_533) == 0)
        let replaced = try #require(try DatabaseCopy.restore(copy, to: fixture.path).replaced)
        for file in [fixture.path, fixture.path + ".lock", replaced] { #expect(try owner(file) == [65_534, 65_533]) }
        for file in [fixture.path, fixture.path + ".lock"] { unlink(file) }
        // The owner of the folder needs no rights other than those to the copy.
        for name in [fixture.directory.path, copy, copy + ".sha256"] { #expect(chown(name, 65_532, 65_531) == 0) }
        #expect(try DatabaseCopy.restore(copy, to: fixture.path, carrying: false).replaced == nil)
        for file in [fixture.path, fixture.path + ".lock"] { #expect(try owner(file) == [65_532, 65_531]) }
    }

    @Test("A folder keeps only the newest copies; files with other names are not touched")
    func dated() throws {
        try fixture.open().close()
        let folder = fixture.directory.appending(path: "copies")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
        let others = ["pushchat.db", "pushchat-2026.db", "pushchat-20260507T215729Z.db.old", "notes"]
        for name in others { #expect(FileManager.default.createFile(atPath: "\(folder.path)/\(name)", contents: nil)) }
        // The draft of a copy that was killed. It is old at the times of the loop, and in progress at the last, earlier
        // time.
        let draft = "\(folder.path)/.pushchat-20260507T215729Z.db.0A1B2C3D.part"
        #expect(FileManager.default.createFile(atPath: draft, contents: nil))
        for day in 0..<5 {
            let made = try DatabaseCopy.make(
                of: fixture.path, in: folder.path, keep: 3, now: Timestamp(seconds: 1_800_000_000 + Int64(day) * 86_400)
            )
            #expect(made.removed == (day < 3 ? 0 : 1))
        }
        #expect(!FileManager.default.fileExists(atPath: draft))
        #expect(FileManager.default.createFile(atPath: draft, contents: nil))
        // The clock was set back.
        let early = try DatabaseCopy.make(
            of: fixture.path, in: folder.path, keep: 3, now: Timestamp(seconds: 1_700_000_000))
        #expect(early.removed == 1 && FileManager.default.fileExists(atPath: early.file))
        #expect(unlink(early.file) == 0 && unlink(early.file + ".sha256") == 0)
        try FileManager.default.removeItem(atPath: draft)
        #expect(
            try Set(FileManager.default.contentsOfDirectory(atPath: folder.path))
                == Set(others).union(
                    ["18", "19"].flatMap { day in
                        ["", ".sha256"].map { "pushchat-202701\(day)T080000Z.db\($0)" }
                    }))
    }

    @Test("A checksum beside each copy proves that no byte of it has changed, and is read by sha256sum")
    func checksum() throws {
        try fixture.open().close()
        for number in 0..<200 { try say("message \(number)") }
        let copy = fixture.directory.path + "/copy.db"
        try DatabaseCopy.make(of: fixture.path, to: copy)
        let line = try String(contentsOfFile: copy + ".sha256", encoding: .utf8)
        #expect(line.wholeMatch(of: #/[0-9a-f]{64}  copy\.db\n/#) != nil, "\(line)")
        #expect(try DatabaseCopy.verify(copy, against: fixture.path).hasChecksum)

        let content = try Data(contentsOf: URL(filePath: copy))
        /// Returns the error about a copy with this content.
        func error(_ changed: Data) throws -> String? {
            try changed.write(to: URL(filePath: copy))
            let verifying = #expect(throws: DatabaseFile.Unusable.self) {
                try DatabaseCopy.verify(copy, against: fixture.path)
            }
            let restoring = #expect(throws: DatabaseFile.Unusable.self) {
                try DatabaseCopy.restore(copy, to: fixture.path)
            }
            #expect(verifying?.description == restoring?.description)
            return verifying?.description
        }
        // In each copy, eight bytes from the first to the last are flipped.
        for index in 0..<30 {
            var changed = content
            for part in 0..<8 { changed[(part * 30 + index) * (content.count - 1) / (8 * 30 - 1)] ^= 0xFF }
            #expect(try error(changed)?.contains("copy.db has changed since it was made") == true)
        }
        // A changed text, which SQLite's check does not find.
        let text = try #require(content.firstRange(of: Data("message 77".utf8)))
        let changed = content.replacingSubrange(text, with: Data("message 78".utf8))
        #expect(try error(changed)?.contains("has changed since it was made") == true)
        unlink(copy + ".sha256")
        #expect(try !DatabaseCopy.verify(copy, against: fixture.path).hasChecksum)
        // A checksum that a copy of that name has left does not count for the next one.
        unlink(copy)
        try Data("0  copy.db\n".utf8).write(to: URL(filePath: copy + ".sha256"))
        try DatabaseCopy.make(of: fixture.path, to: copy)
        #expect(try DatabaseCopy.verify(copy, against: fixture.path).hasChecksum)
    }

    @Test("Of two copies that are made at once under one name, one remains, with its checksum")
    func atOnce() throws {
        try fixture.open().close()
        let copy = fixture.directory.path + "/copy.db"
        var other: Result<Void, any Error>?
        let error = #expect(throws: DatabaseFile.Unusable.self) {
            try DatabaseCopy.make(of: fixture.path, to: copy) { _, _ in
                if other == nil { other = Result { try DatabaseCopy.make(of: fixture.path, to: copy) } }
            }
        }
        #expect(error?.description == "\(copy) exists already; name a file that does not")
        try #require(other).get()
        #expect(try DatabaseCopy.verify(copy, against: fixture.path).hasChecksum)
    }
}

extension Data {
    fileprivate func replacingSubrange(_ range: Range<Index>, with data: Data) -> Data {
        self[..<range.lowerBound] + data + self[range.upperBound...]
    }
}
