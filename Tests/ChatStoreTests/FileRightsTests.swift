import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

/// Tests commands that root runs in a folder of the user who runs the relay. An attacker may control that user.
@Suite("Root in another user's folder", .enabled(if: geteuid() == 0, "only root has other users' rights"))
struct FileRightsTests {
    private static let (user, group): (uid_t, gid_t) = (65_531, 65_530)

    private let fixture: StoreFixture
    /// A file of root's that the user must not be able to change.
    private let victim: String
    /// A copy in a folder that only root can read.
    private let copy: String

    init() throws {
        fixture = try StoreFixture()
        let apart = fixture.directory.path + "/roots"
        (victim, copy) = (apart + "/victim", apart + "/copy.db")
        try FileManager.default.createDirectory(
            atPath: apart, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        #expect(FileManager.default.createFile(atPath: victim, contents: Data("root's".utf8)))
        #expect(chmod(victim, 0o644) == 0)
        try fixture.open().close()
        try DatabaseCopy.make(of: fixture.path, to: copy)
        for name in [fixture.path, fixture.directory.path] { #expect(chown(name, Self.user, Self.group) == 0) }
    }

    private func status(_ file: String) -> stat {
        var status = stat()
        #expect(lstat(file, &status) == 0, "\(file)")
        return status
    }

    private func isUsers(_ file: String) -> Bool {
        status(file).st_uid == Self.user && status(file).st_gid == Self.group
    }

    private func expectVictimUntouched() throws {
        #expect(status(victim).st_uid == 0 && status(victim).st_mode & 0o777 == 0o644)
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "root's")
    }

    @Test("A link in place of the lock is not followed, and no file changes its owner", arguments: [true, false])
    func lock(isSymbolic: Bool) throws {
        let lock = fixture.path + ".lock"
        #expect(isSymbolic ? symlink(victim, lock) == 0 : link(victim, lock) == 0)
        #expect(throws: DatabaseFile.Unusable.self) { try DatabaseCopy.restore(copy, to: fixture.path) }
        try expectVictimUntouched()
        unlink(fixture.path)
        #expect(throws: DatabaseFile.Unusable.self) {
            try DatabaseCopy.restore(copy, to: fixture.path, carrying: false)
        }
        #expect(throws: DatabaseFile.Unusable.self) { try SQLiteMigration.write(fixture.path) { _ in } }
        try expectVictimUntouched()
    }

    @Test("A database that a command of root creates belongs to the folder's owner, with its side files")
    func created() async throws {
        let path = fixture.directory.path + "/new.db"
        let database = try SQLiteDatabase(file: DatabaseFile(path: path), logger: .silent)
        for name in ["", "-wal", "-shm"] {
            #expect(isUsers(path + name), "\(name)")
            #expect(status(path + name).st_mode & 0o777 == 0o600, "\(name)")
        }
        try database.close()
    }

    @Test("A database and its lock that root creates by serving it belong to the folder's owner")
    func locked() throws {
        let path = fixture.directory.path + "/new.db"
        _ = try DatabaseLock(path: path)
        for name in ["", ".lock"] {
            #expect(isUsers(path + name), "\(name)")
            #expect(status(path + name).st_mode & 0o777 == 0o600, "\(name)")
        }
    }

    @Test("A link in place of a new database gives the user no file of root's")
    func createdThroughLink() throws {
        let empty = fixture.directory.path + "/roots/empty"
        #expect(FileManager.default.createFile(atPath: empty, contents: nil))
        let link = fixture.directory.path + "/new.db"
        #expect(symlink(empty, link) == 0)
        try SQLiteDatabase(file: DatabaseFile(path: link), logger: .silent).close()
        #expect(status(empty).st_uid == 0 && status(link).st_uid == 0)
    }

    @Test("A restore reads the copy as root, and does everything else with the rights of the folder's owner")
    func restore() throws {
        var rights: Set<uid_t> = []
        let restored = try DatabaseCopy.restore(copy, to: fixture.path) { _, _ in
            rights.insert(FileRights.current.user)
            // A link that the user puts in place of the draft leads only where the user could write anyway.
            let draft = fixture.directory.path + "/.pushchat.db.restoring.part-journal"
            symlink(victim, draft)
        }
        #expect(rights == [Self.user])
        #expect(FileRights.current == .own && FileRights.own.user == 0)
        for file in [fixture.path, fixture.path + ".lock", try #require(restored.replaced)] {
            #expect(isUsers(file), "\(file)")
        }
        try expectVictimUntouched()
    }

    @Test("A user's link into a folder of root's cannot be opened")
    func followed() throws {
        // The draft is opened by its name, which the user can turn into a link between two calls.
        let rights = FileRights(changing: fixture.path)
        #expect(rights.user == Self.user && rights.group == Self.group)
        let name = fixture.directory.path + "/draft"
        #expect(symlink(victim, name) == 0)
        #expect(try rights.perform { open(name, O_RDWR) } == -1)
        #expect(chmod((victim as NSString).deletingLastPathComponent, 0o755) == 0)
        #expect(try rights.perform { open(name, O_RDWR) } == -1)
        #expect(throws: DatabaseFile.Unusable.self) {
            try rights.perform { throw DatabaseFile.Unusable(description: "on the way") }
        }
        #expect(FileRights.current == .own)
        let own = open(name, O_RDWR)
        #expect(own >= 0)
        close(own)
    }

    @Test("A user's link to root's database or folder gives no rights there; root's own link does")
    func linked() throws {
        let apart = (copy as NSString).deletingLastPathComponent
        let folder = fixture.directory.path + "/backups"
        let other = apart + "/other.db"
        try DatabaseCopy.make(of: copy, to: other)
        unlink(fixture.path)
        for (target, name) in [(other, fixture.path), (apart, folder)] {
            #expect(symlink(target, name) == 0 && lchown(name, Self.user, Self.group) == 0)
        }
        let names = try FileManager.default.contentsOfDirectory(atPath: apart).sorted()
        #expect(throws: (any Error).self) { try DatabaseCopy.restore(copy, to: fixture.path) }
        #expect(throws: (any Error).self) { try DatabaseCopy.restore(copy, to: folder + "/new.db", carrying: false) }
        #expect(throws: (any Error).self) { try DatabaseCopy.make(of: fixture.path, to: apart + "/leak.db") }
        #expect(throws: (any Error).self) { try DatabaseCopy.make(of: copy, to: folder + "/new.db") }
        #expect(throws: (any Error).self) { try SQLiteMigration.write(folder + "/new.db") { _ in } }
        #expect(try FileManager.default.contentsOfDirectory(atPath: apart).sorted() == names)

        #expect(lchown(fixture.path, 0, 0) == 0)
        #expect(FileRights(reading: fixture.path) == .own && FileRights(changing: fixture.path) == .own)
    }

    @Test("Root's database in a user's folder is read with root's rights, and never replaced")
    func rootsOwn() throws {
        #expect(chown(fixture.path, 0, 0) == 0)
        #expect(FileRights(reading: fixture.path).user == 0)
        try DatabaseCopy.make(of: fixture.path, to: fixture.directory.path + "/again.db")
        #expect(isUsers(fixture.directory.path + "/again.db"))
        #expect(throws: DatabaseFile.Unusable.self) { try DatabaseCopy.restore(copy, to: fixture.path) }
        #expect(status(fixture.path).st_uid == 0)
    }

    @Test("In a folder of root's that others can write to, the file's owner determines the rights")
    func shared() throws {
        #expect(chown(fixture.directory.path, 0, 0) == 0)
        #expect(FileRights(changing: fixture.path) == .own && FileRights(reading: fixture.path) == .own)
        #expect(chmod(fixture.directory.path, 0o775) == 0)
        #expect(FileRights(changing: fixture.path).user == Self.user)
        #expect(FileRights(changing: fixture.directory.path + "/missing").user == 0)
    }

    @Test("The copy before an upgrade belongs to the user, and no mode is changed through a link")
    func upgrade() throws {
        for name in ["-wal", "-shm"] { unlink(fixture.path + name) }
        #expect(symlink(victim, fixture.path + "-shm") == 0)
        #expect(throws: DatabaseFile.Unusable.self) { try fixture.open().close() }
        try expectVictimUntouched()
        unlink(fixture.path + "-shm")
        let version = Schema.current.version
        _ = try DatabaseCopy.beforeUpgrade(of: fixture.path, version: version, freeSpace: { _ in nil })
        #expect(isUsers(fixture.path + ".version-\(version)"))
    }

    @Test("A migration fills a file that belongs to the folder's owner")
    func migrated() throws {
        let file = fixture.directory.path + "/migrated.db"
        var rights = FileRights.own
        try SQLiteMigration.write(file) { _ in rights = FileRights.current }
        #expect(rights.user == Self.user && isUsers(file) && isUsers(file + ".lock"))
        try SQLiteMigration.read(file) { _ in rights = FileRights.current }
        #expect(rights.user == Self.user)
    }
}
