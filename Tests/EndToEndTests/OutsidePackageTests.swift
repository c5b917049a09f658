import Foundation
import TestSupport
import Testing

extension Programs {
    @Suite("A package outside this one")
    struct OutsidePackageTests {
        @Test("An app that was built with PushChatKit misses nothing and doubles nothing, although all is killed")
        func app() async throws {
            let folder = try Folder()
            let program = try await OutsidePackage(in: folder).build()
            let port = try ReservedPort()
            let configuration = folder.file("relay.yaml")
            try "environment: development\n".write(to: configuration, atomically: true, encoding: .utf8)
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            func restart() async throws {
                relay = try await RelayProcess.start(folder, configuration: configuration, port: port)
            }
            func kill() async throws {
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
            }
            func start(_ more: String...) throws -> ChatProcess {
                try ChatProcess(
                    [program.path, "http://127.0.0.1:\(port.number)", folder.file("room.json").path] + more, in: folder)
            }
            func bob(_ text: String) async throws {
                let (status, body) = try await relay.call([
                    "cmd": "message", "udid": Name.udid(1), "text": text,
                ])
                #expect(status == 200, "\(body)")
            }

            let first = try start("join")
            try await first.prints { $0.hasPrefix("joined ") }
            try await relay.call(["cmd": "join", "udid": Name.udid(1), "token": "0", "name": "Bob", "code": "kitchen"])
            try await bob("one")
            try await first.prints { $0.hasSuffix(" one") }

            // Without a relay, messages wait in the outbox, which survives the end of the app.
            try await kill()
            try await first.prints { $0 == "disconnected" }
            for number in 1...3 { first.type("offline \(number)\n") }
            try await first.prints { $0 == "waiting offline 3" }
            first.child.kill(SIGKILL)
            #expect(try await first.ended() == -SIGKILL)
            let second = try start()
            try await second.prints { $0 == "disconnected" }
            try await restart()
            try await bob("two")
            for number in 1...3 { try await second.prints { $0 == "sent offline \(number)" } }
            try await second.prints { $0.hasSuffix(" two") }

            // The stream continues across restarts of the relay.
            for text in ["three", "four"] {
                try await kill()
                try await restart()
                try await bob(text)
                try await second.prints { $0.hasSuffix(" \(text)") }
            }
            // When the second one arrives, the app has handled the first one, so no message of Bob is unread.
            for text in ["last", "end"] {
                second.type("\(text)\n")
                try await second.prints { $0.hasPrefix("message ") && $0.hasSuffix(" \(text)") }
            }

            let stored = try relay.query("SELECT message_id, text FROM messages ORDER BY message_id").map { row in
                "message \(row[0] as Int) \(row[1] as String)"
            }
            #expect(stored.count == 9)
            #expect((first.lines + second.lines).filter { $0.hasPrefix("message ") } == stored)
            // The extension fetches the whole text while the app does not run, and reports that it was shown.
            second.child.kill(SIGKILL)
            #expect(try await second.ended() == -SIGKILL)
            try await bob("five")
            let last = try relay.count("SELECT max(message_id) FROM messages")
            let notification = try start("notify", "\(last)")
            #expect(try await notification.ended() == 0, "\(notification.errors)")
            #expect(notification.lines == ["Bob: five, badge 1, from Bob"])
            try await eventually("the relay has recorded the shown message") {
                try relay.count("SELECT shown_to FROM active_users WHERE nickname = 'Ann'") == last
            }
            #expect(try relay.count("SELECT count(*) FROM active_users WHERE fetched_to = \(last)") == 0)
            #expect(!(first.lines + second.lines).contains { $0.hasPrefix("rejected") || $0.hasPrefix("database") })
        }

        @Test(
            "The sample app's screens and extension are valid Swift, and its property lists name their settings",
            .onlySQLite("no relay takes part"))
        func sample() async throws {
            let names = try FileManager.default.subpathsOfDirectory(atPath: OutsidePackage.sample.path)
            let files = names.filter { $0.hasSuffix(".swift") }.map { OutsidePackage.sample.appending(path: $0).path }
            #expect(files.count >= 8)
            try await tool("swiftc", ["-frontend", "-parse", "-swift-version", "6"] + files)
            let lists = names.filter { $0.hasSuffix(".plist") || $0.hasSuffix(".entitlements") }
            #expect(lists.count == 4)
            for name in lists {
                let data = try Data(contentsOf: OutsidePackage.sample.appending(path: name))
                let list = try PropertyListSerialization.propertyList(from: data, format: nil) as? [String: Any]
                if name.hasSuffix("Info.plist") {
                    #expect(list?["RelayURL"] as? String == "$(RELAY_URL)", "\(name)")
                    #expect(list?["AppGroup"] as? String == "group.$(BUNDLE_ID)", "\(name)")
                } else {
                    let groups = list?["com.apple.security.application-groups"] as? [String]
                    #expect(groups == ["group.$(BUNDLE_ID)"], "\(name)")
                }
            }
        }
    }
}

extension ChatProcess {
    /// Waits until the program has printed such a line.
    fileprivate func prints(_ line: (String) -> Bool) async throws {
        do {
            try await eventually("the program prints a line") { lines.contains(where: line) }
        } catch let error as TimedOut {
            throw TimedOut(description: "\(error); it printed \(lines), and \(errors)")
        }
    }
}

/// A package that depends on this checkout by its path, and on its products for apps. It has the program of the test, and
/// the parts of the sample app that need no system of Apple.
private struct OutsidePackage {
    private let folder: URL
    static let sample = Page.root.appending(path: "docs/examples/PushChat")
    /// Both families of a CI run use this folder, so that the second one builds nothing but the program.
    private static let scratch = Page.root.appending(path: ".build/outside-package")
    /// All modules that the package may build.
    private static let modules: Set = [
        "App", "Model", "PushChatCore", "PushChatKit", "PushChatNotificationService",
    ]

    init(in folder: Folder) throws {
        self.folder = folder.file("outside")
        let sources = self.folder.appending(path: "Sources")
        try FileManager.default.createDirectory(at: sources, withIntermediateDirectories: true)
        try FileManager.default.copyItem(
            at: ClientProgram.sources.appending(path: "app"), to: sources.appending(path: "App"))
        try FileManager.default.copyItem(
            at: Self.sample.appending(path: "Model"), to: sources.appending(path: "Model"))
        try """
        // swift-tools-version: 6.2
        import PackageDescription

        let package = Package(
            name: "outside",
            platforms: [.macOS(.v15), .iOS(.v17)],
            dependencies: [.package(name: "pushchat", path: "\(Page.root.path)")],
            targets: [
                .executableTarget(
                    name: "App",
                    dependencies: [
                        "Model", .product(name: "PushChatKit", package: "pushchat"),
                        .product(name: "PushChatNotificationService", package: "pushchat"),
                    ]),
                .target(name: "Model", dependencies: [.product(name: "PushChatKit", package: "pushchat")]),
            ]
        )
        """.write(to: self.folder.appending(path: "Package.swift"), atomically: true, encoding: .utf8)
    }

    /// Builds the program without a network: SwiftPM finds the dependencies that this checkout has resolved, and must
    /// not look for others.
    /// - Returns: The program.
    func build() async throws -> URL {
        let files = FileManager.default
        try files.createDirectory(at: Self.scratch, withIntermediateDirectories: true)
        for name in ["checkouts", "repositories", "workspace-state.json"] {
            let copy = Self.scratch.appending(path: name)
            try? files.removeItem(at: copy)
            let original = Page.root.appending(path: ".build/\(name)")
            // SwiftPM replaces the state, and only reads the rest.
            if name.hasSuffix(".json") {
                try files.copyItem(at: original, to: copy)
            } else {
                try files.createSymbolicLink(at: copy, withDestinationURL: original)
            }
        }
        try files.copyItem(
            at: Page.root.appending(path: "Package.resolved"), to: folder.appending(path: "Package.resolved"))
        let build = try await ClientProgram.run(
            [
                "swift", "build", "--package-path", folder.path, "--scratch-path", Self.scratch.path,
                "--only-use-versions-from-resolved-file", "--disable-index-store", "-debug-info-format", "none",
            ], within: 400)
        #expect(build.status == 0, "\(build.text) \(build.errors)")
        let built = Self.scratch.appending(path: "debug")
        let modules = try files.contentsOfDirectory(atPath: built.appending(path: "Modules").path)
            .filter { $0.hasSuffix(".swiftmodule") }.map { $0.dropLast(".swiftmodule".utf8.count) }
        // Neither NIO, nor GRDB, nor PostgreSQL's client library.
        #expect(Set(modules.map(String.init)) == Self.modules)
        return built.appending(path: "App")
    }
}
