import Foundation
import Testing

@testable import pushchat

/// Tests which files are trusted although no setting names them: by given facts, and by files on disk.
@Suite("Trust in files")
struct FileTrustTests {
    typealias Facts = FileTrust.Facts

    /// The caller is user 1000, who called sudo. User 1001 is another user. Group 1000 is the caller's own, group 50 is
    /// shared.
    private static let trust = FileTrust(users: [0, 1000]) { $0 == 1000 }

    @Test(
        "A file is trusted if it belongs to the caller or root, and no other user can write it",
        arguments: [
            (Facts(owner: 1000, group: 1000, mode: 0o644), true), (Facts(owner: 0, group: 0, mode: 0o644), true),
            (Facts(owner: 1000, group: 1000, mode: 0o664), true), (Facts(owner: 1000, group: 50, mode: 0o640), true),
            (Facts(owner: 1001, group: 1000, mode: 0o600), false), (Facts(owner: 1000, group: 50, mode: 0o664), false),
            (Facts(owner: 1000, group: 1000, mode: 0o646), false), (Facts(owner: 0, group: 0, mode: 0o664), false),
            (Facts(owner: 1000, group: 1000, mode: 0o664, hasAccessList: true), false),
        ])
    func files(facts: Facts, isBelieved: Bool) {
        #expect((Self.trust.objection(to: facts) == nil) == isBelieved)
    }

    @Test(
        "A folder that others can write is trusted only if it is sticky, for a file of the caller with a single name",
        arguments: [
            (Facts(owner: 1000, group: 1000, mode: 0o775), 2, true),
            (Facts(owner: 1001, group: 1000, mode: 0o755), 1, false),
            (Facts(owner: 1000, group: 50, mode: 0o775), 1, false),
            (Facts(owner: 1000, group: 1000, mode: 0o777), 1, false),
            (Facts(owner: 0, group: 0, mode: 0o1777), 1, true), (Facts(owner: 0, group: 0, mode: 0o1777), 2, false),
            (Facts(owner: 0, group: 0, mode: 0o1777), nil, false),
        ] as [(Facts, Int?, Bool)])
    func folders(facts: Facts, links: Int?, isBelieved: Bool) {
        let entry = links.map { Facts(owner: 1000, group: 1000, mode: 0o600, links: $0) }
        #expect((Self.trust.objection(toFolder: facts, entry: entry) == nil) == isBelieved)
    }

    private let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    private func load() throws -> Configuration {
        try Configuration.load(
            ConfigurationSources(variables: [:], workingDirectory: folder.path, searched: ["pushchat.yaml"]))
    }

    private func problem() -> String {
        #expect(throws: ConfigurationError.self) { try load() }?.description ?? ""
    }

    private func set(mode: mode_t, _ name: String = "") throws {
        try #require(chmod(folder.path + "/" + name, mode) == 0)
    }

    @Test("The caller's own file is read", arguments: [0o644, 0o600] as [mode_t])
    func own(mode: mode_t) throws {
        try folder.write("http: {port: 1}", to: "pushchat.yaml")
        try set(mode: mode, "pushchat.yaml")
        #expect(try load().http.port == 1)
        #expect(try load().warnings == [])
    }

    @Test("A file that others can write is refused with its mode and the remedies; if named, it is read with a warning")
    func writable() throws {
        let file = try folder.write("http: {port: 1}", to: "pushchat.yaml")
        try set(mode: 0o666, "pushchat.yaml")
        for part in ["pushchat.yaml: ", "mode 0666", "others can write it", "chmod go-w", "--config pushchat.yaml"] {
            #expect(problem().contains(part), "\(problem())")
        }
        let configuration = try folder.load(file: file)
        #expect(configuration.http.port == 1)
        #expect(configuration.warnings.count == 1)
        #expect(configuration.warnings.first?.contains("mode 0666") == true)
    }

    @Test(
        "A file of another user is refused, whatever its mode",
        .enabled(if: geteuid() == 0, "only root can give files away"))
    func foreign() throws {
        let file = try folder.write("http: {port: 1}", to: "pushchat.yaml")
        try set(mode: 0o600, "pushchat.yaml")
        try #require(chown(file, 54_321, 54_321) == 0)
        #expect(problem().contains("belongs to the user 54321, mode 0600: it must belong to you or to root"))
        #expect(try folder.load(file: file).warnings.count == 1)
    }

    @Test("A file in a folder of another user, or in one that others can write, is refused", arguments: [false, true])
    func folders(isForeign: Bool) throws {
        try folder.write("http: {port: 1}", to: "pushchat.yaml")
        if isForeign {
            guard geteuid() == 0 else { return }
            try #require(chown(folder.path, 54_321, 0) == 0)
        } else {
            try set(mode: 0o777)
        }
        #expect(problem().contains("in a folder that belongs to"), "\(problem())")
        // The mode of /tmp.
        if !isForeign {
            try set(mode: 0o1777)
            #expect(try load().http.port == 1)
        }
    }

    @Test("A link is followed if only the caller could create it, and its target is checked")
    func links() throws {
        try folder.write("http: {port: 1}", to: "other/real.yaml")
        try #require(symlink("other/real.yaml", folder.path + "/pushchat.yaml") == 0)
        #expect(try load().http.port == 1)
        try set(mode: 0o666, "other/real.yaml")
        #expect(problem().contains("others can write it"))
        try set(mode: 0o644, "other/real.yaml")
        try set(mode: 0o777, "other")
        #expect(problem().contains("in a folder that belongs to"))
        try set(mode: 0o755, "other")
        try set(mode: 0o1777)
        #expect(problem().contains("in a folder that belongs to"))
    }

    @Test("A hard link to a file of the caller is refused if others could create it")
    func hardLink() throws {
        let file = try folder.write("http: {port: 1}", to: "other/real.yaml")
        try #require(link(file, folder.path + "/pushchat.yaml") == 0)
        #expect(try load().http.port == 1)
        try set(mode: 0o1777)
        #expect(problem().contains("in a folder that belongs to"))
    }

    @Test("A file found in /etc needs no trust, nor does the absence of a file")
    func others() throws {
        let file = try folder.write("http: {port: 1}", to: "etc/pushchat.yaml")
        try set(mode: 0o666, "etc/pushchat.yaml")
        let sources = ConfigurationSources(
            variables: [:], workingDirectory: folder.path, searched: ["none.yaml", file])
        #expect(try Configuration.load(sources).http.port == 1)
        #expect(try Configuration.load(sources).warnings.count == 1)
        #expect(try load().file == nil)
    }

    @Test("The files of secrets are known by their settings")
    func secrets() throws {
        let file = try folder.write("0123456789abcdef0123456789abcdef", to: "token")
        let configuration = try folder.load("admin: {token_file: token}\nsession: {secret_file: token}")
        #expect(configuration.secretFiles.map(\.setting.description) == ["admin.token", "session.secret"])
        #expect(configuration.secretFiles.map(\.path) == [file, file])
    }
}
