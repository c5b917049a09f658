import ChatDomain
import Foundation
import Testing

@testable import pushchat

@Suite("The file of a member's udid") struct MemberFileTests {
    private static func withFolder(_ body: (String) throws -> Void) throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "state-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder + "/pushchat")
    }

    private static func file(
        _ folder: String, relay: String = "http://a", _ code: String = "tea", _ name: String = "Ann"
    )
        -> MemberFile
    {
        MemberFile(folder: folder, relay: relay, code: SecretCode(stored: code), name: Nickname(stored: name))
    }

    private static func mode(_ path: String) throws -> Int? {
        try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
    }

    @Test("The next start uses the same member; another relay, room or name uses another one")
    func kept() throws {
        try Self.withFolder { folder in
            let first = try Self.file(folder).udid()
            #expect(first.text.utf8.count == 40)
            #expect(try Self.file(folder).udid() == first)
            let others = [
                Self.file(folder, relay: "http://b"), Self.file(folder, "coffee"), Self.file(folder, "tea", "Bob"),
                Self.file(folder, "te", "aAnn"),
            ]
            let all = Set(try others.map { try $0.udid() } + [first])
            #expect(all.count == 5)
        }
    }

    @Test("Only the user may read the file, and no other file is left in the folder")
    func mode() throws {
        try Self.withFolder { folder in
            let file = Self.file(folder)
            _ = try file.udid()
            #expect(try Self.mode(file.path) == 0o600)
            #expect(try Self.mode(folder) == 0o700)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 1)
        }
    }

    @Test("Processes that start at the same time use the same member")
    func race() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "state-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let found = try await withThrowingTaskGroup(of: MemberID.self) { group in
            for _ in 0..<20 { group.addTask { try Self.file(folder).udid() } }
            return try await group.reduce(into: Set<MemberID>()) { $0.insert($1) }
        }
        #expect(found.count == 1)
    }

    @Test("A damaged file or another member's is not used, and stays", arguments: ["", "{}", #"{"udid":"x"}"#])
    func damaged(content: String) throws {
        try Self.withFolder { folder in
            let file = Self.file(folder)
            _ = try file.udid()
            try Data(content.utf8).write(to: URL(filePath: file.path))
            let error = #expect(throws: Failure.self) { try file.udid() }
            #expect(error?.description.contains("--udid") == true)
            #expect(try Data(contentsOf: URL(filePath: file.path)) == Data(content.utf8))
        }
    }

    @Test(
        "The folder follows the XDG Base Directory Specification",
        arguments: [
            (["HOME": "/home/a"], "/home/a/.local/state/pushchat"),
            (["HOME": "/home/a", "XDG_STATE_HOME": "/s"], "/s/pushchat"),
            // The specification says to ignore a relative path.
            (["HOME": "/home/a", "XDG_STATE_HOME": "s"], "/home/a/.local/state/pushchat"), ([:], nil),
        ] as [([String: String], String?)])
    func folder(environment: [String: String], expected: String?) {
        #expect(MemberFile.folder(environment) == expected)
    }
}
