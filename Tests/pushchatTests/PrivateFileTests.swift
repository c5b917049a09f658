import Foundation
import TestSupport
import Testing

@testable import pushchat

@Suite("Private files") struct PrivateFileTests {
    private let folder: TemporaryFolder

    init() throws { folder = try TemporaryFolder() }

    @Test("A file is created once, for its owner only, and no draft is left beside it")
    func created() throws {
        let path = folder.path + "/a/b/token"
        try PrivateFile.createFolder(folder.path + "/a/b")
        try PrivateFile.create(path, "first")
        let error = #expect(throws: PrivateFile.Obstacle.self) { try PrivateFile.create(path, "second") }
        #expect(error?.number == EEXIST)
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "first")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path + "/a/b") == ["token"])
        for (name, mode) in [("a", 0o700), ("a/b", 0o700), ("a/b/token", 0o600)] {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/\(name)")
            #expect(attributes[.posixPermissions] as? Int == mode)
        }
    }

    @Test("Without its folder, a file is not created")
    func missing() {
        let error = #expect(throws: PrivateFile.Obstacle.self) { try PrivateFile.create(folder.path + "/a/b", "") }
        #expect(error?.number == ENOENT)
    }
}
