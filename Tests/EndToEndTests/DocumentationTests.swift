import Foundation
import TestSupport
import Testing

extension Clients {
    @Suite("The documentation")
    struct DocumentationTests {
        @Test(
            "The page's table of settings equals the one that the executable prints", .onlySQLite("no relay takes part")
        )
        func settings() async throws {
            let printed = try await tool(Running.executable.path, ["config", "--reference"])
            let page = try Page("docs/configuration.md")
            let start = try #require(page.text.range(of: "<!-- settings -->\n"))
            let end = try #require(page.text.range(of: "<!-- /settings -->"))
            #expect(page.text[start.upperBound..<end.lowerBound] == printed)
        }

        @Test(
            "The relay accepts the configurations that the pages show", .onlySQLite("no relay takes part"),
            arguments: [
                "docs/configuration.md", "docs/production.md", "docs/apple.md", "docs/https.md", "docs/postgresql.md",
            ])
        func configurations(path: String) async throws {
            let folder = try Folder()
            for name in ["ck_production.pem", "AuthKey_ABC123DEFG.p8", "passphrase", "admin.token", "tls.pem"] {
                try "0123456789abcdef".write(to: folder.file(name), atomically: true, encoding: .utf8)
            }
            try "postgres://relay:password@db.example.org/pushchat".write(
                to: folder.file("database-url"), atomically: true, encoding: .utf8)
            let file = folder.file("pushchat.yaml")
            let blocks = try Page(path).fenced("yaml")
            #expect(!blocks.isEmpty)
            for yaml in blocks {
                try yaml.write(to: file, atomically: true, encoding: .utf8)
                try await tool(Running.executable.path, ["config", "--config", file.path])
            }
        }

        @Test(
            "Every relative link leads to a file, and to a heading in it", .onlySQLite("no relay takes part"),
            arguments: Page.all)
        func links(_ path: String) throws {
            let page = try Page(path)
            // The changelog of a release links to the pages of that release.
            let moved = path == "CHANGELOG.md" ? Set(try Page.movedHeadings.map { "docs/\($0.old)" }) : []
            for (link, anchor) in page.links {
                let place = anchor.map { "\(link)#\($0)" } ?? link
                if !moved.contains(place) { #expect(page.leads(to: link, anchor), "\(path) links to \(place)") }
            }
        }

        @Test(
            "A page or heading that moved is no longer at its old place, and its new place exists",
            .onlySQLite("no relay takes part"))
        func movedHeadings() throws {
            let moved = try Page.movedHeadings
            #expect(Set(moved.map(\.old)).count == moved.count, "a heading appears twice")
            let index = try Page("docs/README.md")
            func exists(_ place: String) -> Bool {
                let parts = place.split(separator: "#").map { String($0) }
                return index.leads(to: parts[0], parts.dropFirst().first)
            }
            for (old, new) in moved {
                #expect(!exists(old), "\(old) is still there")
                #expect(exists(new), "\(new) does not exist")
            }
        }

        @Test(
            "The index of docs lists every page, and the README has a limited length",
            .onlySQLite("no relay takes part"))
        func index() throws {
            let listed = Set(try Page("docs/README.md").links.map(\.link))
            for path in Page.all where path.hasPrefix("docs/") && path != "docs/README.md" {
                #expect(listed.contains(String(path.dropFirst("docs/".count))), "docs/README.md does not list \(path)")
            }
            #expect(try Page("README.md").text.split(separator: "\n", omittingEmptySubsequences: false).count <= 251)
        }

        @Test(
            "A page's anchors equal those that repository hosts derive from its headings",
            .onlySQLite("no relay takes part"),
            arguments: [
                ("# A `GET /b`, c", ["a-get-b-c"]), ("## It's [a](b.md) -- c_d\n```sh\n# no\n```", ["its-a----c_d"]),
                ("# A\n## A\n", ["a", "a-1"]), ("#no\n\n text # no", []), ("# Über 3 Äste", ["über-3-äste"]),
            ] as [(String, Set<String>)])
        func anchors(text: String, expected: Set<String>) {
            #expect(Page(text: text).anchors == expected)
        }

        @Test("The tour works as printed", .onlySQLite(devReason))
        func tour() async throws {
            let page = try Page("README.md")
            let folder = try Folder()
            let dev = try await Dev(in: folder)

            let banner = try #require(page.blocks(of: "banner").first)
            try await eventually("the banner is printed") {
                try String(contentsOf: dev.relay.output, encoding: .utf8).contains("Stop with")
            }
            let printed = try String(contentsOf: dev.relay.output, encoding: .utf8).split(separator: "\n")
            let promised = dev.ports.inserted(into: banner.script).split(separator: "\n")
            #expect(printed.count == promised.count)
            for (line, promise) in zip(printed, promised) where !line.contains(" data ") { #expect(line == promise) }

            // The other pages continue where the tour ends.
            let pages = try [page, Page("docs/tour.md"), Page("docs/no-push.md")]
            try await run(
                pages.flatMap { $0.blocks(of: "tour") }, least: 17, in: folder, dev.ports, after: dev.variables)
            #expect(try await dev.ended() == 0)
        }

        @Test(
            "The examples on each page of the sandbox work as printed", .onlySQLite("no relay takes part"),
            arguments: [
                ("sandbox", "sandbox", 1), ("sandbox-apple", "sandbox", 3), ("sandbox-apple", "activities", 2),
                ("sandbox-firebase", "sandbox", 1), ("sandbox-browsers", "sandbox", 1),
                ("sandbox-control", "sandbox", 4),
            ])
        func sandbox(page: String, mark: String, least: Int) async throws {
            let folder = try Folder()
            let sandbox = try SandboxPorts()
            let process = try Running(["sandbox"] + sandbox.flags, in: folder, name: "sandbox")
            try await process.listens(on: sandbox.all)
            let blocks = try Page("docs/\(page).md").blocks(of: mark)
            try await run(blocks, least: least, in: folder, Ports(sandbox: sandbox))
        }

        @Test("The admin API's examples work as printed")
        func api() async throws {
            let folder = try Folder()
            let dev = try await Dev(in: folder)
            try await run(try Page("docs/api.md").blocks(of: "api"), in: folder, dev.ports)
            #expect(try await dev.ended() == 0)
        }

        @Test("The command line's examples work as printed", .onlySQLite(devReason))
        func commands() async throws {
            let folder = try Folder()
            let dev = try await Dev(in: folder)
            let surroundings = """
                \(dev.variables)export PUSHCHAT_HTTP_PORT=\(dev.ports.relay)
                export XDG_STATE_HOME='\(folder.file("state").path)'

                """
            try await run(try Page("docs/cli.md").blocks(of: "cli"), in: folder, dev.ports, after: surroundings)
            #expect(try await dev.ended() == 0)
        }

        @Test(
            "The chat API's examples and the posts from servers work as printed",
            arguments: [
                ("docs/chat-api.md", "chat"), ("docs/sending.md", "posting"), ("docs/updates.md", "updates"),
                ("docs/webhooks-out.md", "webhooks"), ("docs/webhooks-out.md", "webhook-receiver"),
                ("docs/webhooks.md", "hooks"),
            ])
        func examples(page: String, mark: String) async throws {
            let folder = try Folder()
            let dev = try await Dev(in: folder)
            let surroundings = dev.variables + "export PUSHCHAT_HTTP_PORT=\(dev.ports.relay)\n"
            try await run(try Page(page).blocks(of: mark), least: 1, in: folder, dev.ports, after: surroundings)
            #expect(try await dev.ended() == 0)
        }

        @Test("The examples for moving in work as printed")
        func movingIn() async throws {
            let folder = try Folder()
            let dev = try await Dev(in: folder)
            try await run(
                try Page("docs/moving-in.md").blocks(of: "moving"), least: 2, in: folder, dev.ports,
                after: dev.variables)
            #expect(try await dev.ended() == 0)
        }

        @Test("The queries of the store's page run")
        func queries() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let (page, least) =
                switch StoreKind.ofThisRun {
                case .sqlite: ("docs/database.md", 6)
                case .postgres: ("docs/postgresql.md", 1)
                }
            let blocks = try Page(page).fenced("sql")
            #expect(blocks.count >= least)
            for sql in blocks { try await relay.store.script(sql) }
        }

        private static let devReason: Comment = "the page is about the folder of pushchat dev"

        /// Runs the blocks one after another. Each must print the output that the page shows, except for times.
        private func run(
            _ blocks: [Page.Block], least: Int = 6, in folder: Folder, _ ports: Ports, after surroundings: String = ""
        ) async throws {
            #expect(blocks.count >= least)
            var definitions = surroundings
            for block in blocks {
                let script = ports.inserted(into: block.script)
                let arguments = ["-c", "set -eo pipefail; cd '\(folder.url.path)'\n\(definitions)\(script)"]
                var printed = ""
                if block.repeats, let expected = block.output {
                    // The data that the block reads may still be on its way.
                    try? await eventually("it prints what it should", every: .milliseconds(200)) {
                        printed = (try? await tool("bash", arguments)) ?? ""
                        return Self.timeless(printed) == Self.timeless(expected)
                    }
                } else {
                    printed = try await tool("bash", arguments)
                }
                #expect(Self.timeless(printed) == Self.timeless(block.output ?? ""), "\(block.script)")
                definitions += ports.inserted(into: block.definitions)
            }
        }

        /// Replaces values that differ from run to run.
        private static func timeless(_ text: String) -> String {
            text.replacing(/\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d\.\d{3}/) { "2026-01-01\($0.1)00:00:00.000" }
                .replacing(/"time":\d+/, with: "\"time\":0")
                .replacing(/"connection": \d+/, with: "\"connection\": 1")
                .replacing(/"apns-expiration": "\d+"/, with: "\"apns-expiration\": \"0\"")
                .replacing(/"authentication": "token \w+"/, with: "\"authentication\": \"token KEY\"")
                // Each database has its own thread ids.
                .replacing(/\\":\\"[0-9a-f]{16}\\"/, with: #"\":\"ROOM\""#)
                .replacing(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/, with: "00000000-0000-0000-0000-000000000000")
                .trimmingCharacters(in: .newlines)
        }
    }
}

/// `pushchat dev`, on ports that the system chooses. `pushchat dev` does not support PostgreSQL, so there the relay and
/// the sandbox run as two processes.
private struct Dev {
    let relay: Running
    private let sandbox: Running?
    private let store: any RelayStore
    let ports: Ports

    init(in folder: Folder) async throws {
        let (port, sandboxPorts) = try (ReservedPort(), SandboxPorts())
        ports = Ports(relay: port, sandbox: sandboxPorts)
        store = try folder.store(".pushchat/pushchat.db")
        switch StoreKind.ofThisRun {
        case .sqlite:
            sandbox = nil
            relay = try Running(
                ["dev", "--port", "\(port.number)"] + sandboxPorts.flags, in: folder, name: "dev")
        case .postgres:
            let state = folder.file(".pushchat")
            try FileManager.default.createDirectory(at: state, withIntermediateDirectories: true)
            let flags = ["sandbox", "--directory", state.appending(path: "sandbox").path] + sandboxPorts.flags
            let sandbox = try Running(flags, in: folder, name: "sandbox")
            self.sandbox = sandbox
            try await sandbox.listens(on: sandboxPorts.all)
            let configuration = state.appending(path: "relay.yaml")
            try await tool(Running.executable.path, flags + ["--print-config"])
                .write(to: configuration, atomically: true, encoding: .utf8)
            relay = try Running(
                [
                    "serve", "--config", configuration.path, "--port", "\(port.number)", "--set",
                    "http.public_url=http://localhost:\(port.number)",
                ], variables: store.variables, in: folder, name: "relay")
        }
        try await relay.listens(on: [port] + sandboxPorts.all)
    }

    /// Shell commands that set the path to the executable and the store for scripts.
    var variables: String {
        let store = store.variables.dropFirst().map { "'\($0)'" }.joined(separator: " ")
        let path = "export PATH='\(Running.executable.deletingLastPathComponent().path)':\"$PATH\"\n"
        return path + (store.isEmpty ? "" : "export \(store)\n")
    }

    /// Stops relay and sandbox in order.
    /// - Returns: The relay's exit status.
    func ended() async throws -> Int32 {
        relay.kill(SIGTERM)
        return try await relay.ended()
    }
}

/// The ports of relay and sandbox, which replace the ports that the pages name.
private struct Ports {
    private let relayPort: ReservedPort?
    private let sandbox: SandboxPorts
    private let replacements: [(String, String)]

    init(relay: ReservedPort? = nil, sandbox: SandboxPorts) {
        relayPort = relay
        self.sandbox = sandbox
        let ports = [
            ("44447", relay), ("2198", sandbox.control), ("2195", sandbox.binary), ("2196", sandbox.feedback),
            ("2197", sandbox.http2), ("2193", sandbox.channels), ("2194", sandbox.fcm),
            ("2192", sandbox.proxy),
        ]
        replacements = ports.flatMap { named, bound in
            ["127.0.0.1:", "127.0.0.1 --port "].map { ($0 + named, $0 + (bound.map { "\($0.number)" } ?? named)) }
        }
    }

    var relay: String { relayPort.map { "\($0.number)" } ?? "" }

    func inserted(into text: String) -> String {
        replacements.reduce(text) { $0.replacing($1.0, with: $1.1) }
    }
}

/// A page of the documentation.
struct Page {
    /// A fenced block under `<!-- test: NAME -->`. `<!-- test: NAME, until -->` repeats the block until it prints the
    /// `text` block that follows it.
    struct Block {
        var script: String
        var repeats: Bool
        var output: String?

        /// The block's variables and functions, which later blocks use. Variables from the output of our own commands
        /// are left out, because these run only once.
        var definitions: String {
            var isFunction = false
            var kept = ""
            for line in script.split(separator: "\n") {
                if line.hasSuffix("() {") { isFunction = true }
                let isVariable = line.prefixMatch(of: /[A-Za-z_]+=/) != nil && !line.contains("$(pushchat")
                if isFunction || isVariable { kept += line + "\n" }
                if line == "}" { isFunction = false }
            }
            return kept
        }
    }

    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    static let all: [String] = {
        let names = (try? FileManager.default.subpathsOfDirectory(atPath: root.appending(path: "docs").path)) ?? []
        return ["README.md", "CHANGELOG.md"] + names.filter { $0.hasSuffix(".md") }.sorted().map { "docs/\($0)" }
    }()

    let file: URL
    let text: String
    private var lines: [Substring] { text.split(separator: "\n", omittingEmptySubsequences: false) }

    init(_ path: String) throws {
        try self.init(Self.root.appending(path: path))
    }

    init(_ file: URL) throws {
        self.init(text: try String(contentsOf: file, encoding: .utf8), file: file)
    }

    init(text: String, file: URL = root) {
        (self.file, self.text) = (file, text)
    }

    /// Relative links outside fenced blocks: the file, empty for the page itself, and the heading in it.
    var links: [(link: String, anchor: String?)] {
        unfenced.flatMap { line in
            line.matches(of: /\]\(([^)#\s]*)(?:#([^)\s]*))?\)/).map { (String($0.1), $0.2.map { String($0) }) }
        }.filter { !$0.link.contains("://") }
    }

    /// The anchors of the page's headings: the text in lower case, with hyphens for spaces and without other
    /// punctuation.
    var anchors: Set<String> {
        var anchors: Set<String> = []
        for line in unfenced {
            guard let heading = line.wholeMatch(of: /#{1,6} +(.+)/) else { continue }
            let text = heading.1.replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.1 }.lowercased()
            let name = String(
                text.compactMap { character in
                    if character == " " { return "-" }
                    return character.isLetter || character.isNumber || "-_".contains(character) ? character : nil
                })
            var (unique, number) = (name, 0)
            while !anchors.insert(unique).inserted {
                number += 1
                unique = "\(name)-\(number)"
            }
        }
        return anchors
    }

    /// The headings that are no longer at the place that earlier versions of the pages linked to. A line of the file has
    /// the old place, a blank and the new place, relative to the folder `docs`: `page.md#anchor other.md#anchor`. A page
    /// that is gone has no anchor.
    static var movedHeadings: [(old: String, new: String)] {
        get throws {
            let file = root.appending(path: "Tests/moved-headings.txt")
            return try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map { line in
                let places = line.split(separator: " ").map { String($0) }
                guard places.count == 2 else {
                    throw Child.Failure(description: "moved-headings.txt: \(line)")
                }
                return (places[0], places[1])
            }
        }
    }

    /// Whether the file that the page links to exists, with this heading in it.
    func leads(to link: String, _ anchor: String?) -> Bool {
        let target = link.isEmpty ? file : file.deletingLastPathComponent().appending(path: link).standardized
        guard FileManager.default.fileExists(atPath: target.path) else { return false }
        return anchor.map { anchor in (try? Page(target).anchors.contains(anchor)) ?? false } ?? true
    }

    var unfenced: [Substring] {
        var isFenced = false
        return lines.filter { line in
            if line.hasPrefix("```") { isFenced.toggle() }
            return !isFenced
        }
    }

    private struct Fence {
        let language: String
        /// The comment in the line before the block.
        let mark: String
        let body: String
    }

    private var fences: [Fence] {
        var fences: [Fence] = []
        var open: (language: String, mark: String, body: String)?
        var previous: Substring = ""
        for line in lines {
            if line.hasPrefix("```") {
                if let fence = open {
                    fences.append(Fence(language: fence.language, mark: fence.mark, body: fence.body))
                    open = nil
                } else {
                    open = (String(line.dropFirst(3)), String(previous), "")
                }
            } else if open != nil {
                open?.body += line + "\n"
            }
            previous = line
        }
        return fences
    }

    func fenced(_ language: String) -> [String] {
        fences.filter { $0.language == language }.map(\.body)
    }

    func blocks(of name: String) -> [Block] {
        let fences = fences
        return fences.indices.compactMap { index in
            let fence = fences[index]
            let repeats = fence.mark == "<!-- test: \(name), until -->"
            guard repeats || fence.mark == "<!-- test: \(name) -->" else { return nil }
            let next = index + 1 < fences.count ? fences[index + 1] : nil
            let output = next.flatMap { $0.language == "text" && $0.mark.isEmpty ? $0.body : nil }
            return Block(script: fence.body, repeats: repeats, output: output)
        }
    }
}
