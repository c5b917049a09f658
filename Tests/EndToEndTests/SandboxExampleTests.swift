import Foundation
import TestSupport
import Testing

extension Clients {
    /// Tests docs/sandbox.md: the sandbox in the tests of other projects.
    @Suite("The sandbox in the tests of other projects", .onlySQLite("no relay takes part"))
    struct SandboxExampleTests {
        private static let examples = Page.root.appending(path: "docs/examples")

        private func run(_ command: [String]) async throws -> ClientProgram {
            let path = Running.executable.deletingLastPathComponent().path
            let variables = [
                "PATH=\(path):\(ProcessInfo.processInfo.environment["PATH"] ?? "")",
                "PUSHCHAT=\(Running.executable.path)",
            ]
            return try await ClientProgram.run(["env"] + variables + command, within: 120)
        }

        @Test("The shell script works")
        func shell() async throws {
            let script = try await run(["sh", Self.examples.appending(path: "sandbox-test.sh").path])
            #expect((script.status, script.text) == (0, "it has arrived\n"), "\(script.errors)")
        }

        @Test("The pytest examples work", arguments: ["test_push.py", "test_phones.py"])
        func python(name: String) async throws {
            let tests = try await run([
                Python.program("python"), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                Self.examples.appending(path: name).path,
            ])
            #expect(tests.status == 0 && tests.text.contains("3 passed"), "\(tests.text) \(tests.errors)")
        }

        /// The rows of the page's table of libraries that the page says are tested here.
        private static let rows: [(library: String, lines: String)] = {
            let page = (try? Page("docs/sandbox.md").text) ?? ""
            return page.split(separator: "\n").compactMap { row in
                let cells = row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
                guard cells.count == 3, cells[2] == "yes" else { return nil }
                let lines = cells[1].matches(of: /`([^`]+)`/).map { String($0.1) + "\n" }.joined()
                return (String(cells[0].prefix { $0 != " " }), lines)
            }
        }()

        @Test("The printed lines point a library at the sandbox", arguments: ["aioapns", "pywebpush"])
        func libraries(name: String) async throws {
            #expect(Self.rows.map(\.library).sorted() == ["aioapns", "pywebpush"])
            let row = try #require(Self.rows.first { $0.library == name })
            let sandbox = try await SandboxProcess.start(try Folder())
            let lines = row.lines.replacing("2197", with: "\(sandbox.http2)")
                .replacing(".pushchat/sandbox", with: sandbox.folder.file("sandbox").path)
            // A bundle without the sandbox's authority.
            let variables = ["env", "REQUESTS_CA_BUNDLE=\(try await sandbox.strangersCertificate())"]
            let client = try await Python.run(
                "sandbox_lines.py", [name, sandbox.base], variables: variables, input: Data(lines.utf8))
            #expect(client.status == 0, "\(client.errors)")
            #expect(try await sandbox.notifications().map(\.answer) == ["accepted"])
        }

        /// A language of the page's programs: the lines before the program, its file and the command that runs it.
        struct Language: Sendable, CustomTestStringConvertible {
            let testDescription: String
            let head: String
            let file: String
            let command: [String]
        }

        /// The heads define `send`, which runs a script.
        private static let languages = [
            Language(
                testDescription: "python",
                head: """
                    import subprocess
                    send = lambda token: subprocess.run(["./send", token])
                    """,
                file: "program.py", command: [(try? Python.program("python")) ?? "python3", "program.py"]),
            Language(
                testDescription: "javascript",
                head: """
                    import { execFileSync } from "node:child_process";
                    const send = (token) => execFileSync("./send", [token]);
                    """,
                file: "program.mjs", command: ["node", "program.mjs"]),
            Language(
                testDescription: "swift",
                head: """
                    import Foundation
                    #if canImport(FoundationNetworking)
                        import FoundationNetworking
                    #endif
                    func send(_ token: String) async throws {
                        try Process.run(URL(filePath: "send"), arguments: [token]).waitUntilExit()
                    }
                    """,
                file: "main.swift", command: ["sh", "-c", "swiftc main.swift -o program && ./program"]),
            Language(
                testDescription: "go",
                head: """
                    package main
                    import ("encoding/json"; "net/http"; "os/exec"; "strings")
                    func send(token string) { exec.Command("./send", token).Run() }
                    """,
                file: "main.go", command: ["env", "GOCACHE=\(NSTemporaryDirectory())go", "go", "run", "main.go"]),
        ]

        @Test("The page's program for each language waits for a notification and causes a fault", arguments: languages)
        func program(_ language: Language) async throws {
            if language.testDescription == "go" {
                let path = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
                let hasGo = path.contains { FileManager.default.isExecutableFile(atPath: "\($0)/go") }
                if !hasGo { return }
            }
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let credentials = folder.file("sandbox").path
            try """
            #!/bin/sh
            exec curl -s --http2 --cacert '\(credentials)/ca.pem' --cert '\(credentials)/client.pem' -d '{"aps":{}}' \
                -H 'apns-topic: com.example.PushChat' "https://127.0.0.1:\(sandbox.http2)/3/device/$1"
            """.write(to: folder.file("send"), atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes(
                [.posixPermissions: 0o755], ofItemAtPath: folder.file("send").path)
            let blocks = try Page("docs/sandbox.md").blocks(of: language.testDescription)
            let block = try #require(blocks.first).script.replacing("http://127.0.0.1:2198", with: sandbox.base)
            try "\(language.head)\n\(block)".write(
                to: folder.file(language.file), atomically: true, encoding: .utf8)
            let inFolder = ["env", "-C", folder.url.path]
            let program = try await run(inFolder + language.command)
            #expect(program.status == 0, "\(program.text) \(program.errors)")
            #expect(try await sandbox.notifications().map(\.answer) == ["accepted", "ServiceUnavailable"])
        }

        @Test("The XCTest example works")
        func xctest() async throws {
            let tests = try await run([
                CommandLine.arguments[0], "--testing-library", "xctest", "ExampleTests.PushTests",
            ])
            let said = tests.text + tests.errors
            #expect(tests.status == 0, "\(said)")
            #expect(said.contains("testPushArrives' passed"), "\(said)")
        }
    }

    @Suite("The sandbox's ready file", .onlySQLite("no relay takes part"))
    struct ReadyFileTests {
        private struct Ready: Decodable {
            let process: Int32
            let control: String
            let ports: [String: Int]
            let authority: String
            let certificate: String
            let key: String
        }

        private func ready(_ file: URL, _ sandbox: Running) async throws -> Ready {
            try await eventually("it is ready") {
                try #require(sandbox.isRunning)
                return FileManager.default.fileExists(atPath: file.path)
            }
            return try JSONDecoder().decode(Ready.self, from: Data(contentsOf: file))
        }

        @Test("It exists once all ports listen, names them and the credentials, and is deleted at the end")
        func life() async throws {
            let folder = try Folder()
            let file = folder.file("ready.json")
            // A leftover of an earlier sandbox that was killed.
            try Data("{}".utf8).write(to: file)
            let sandbox = try Running(
                ["sandbox", "--free-ports", "--ready-file", file.path, "--directory", folder.file("sandbox").path],
                in: folder, name: "sandbox")
            try await eventually("the old file is gone") {
                (try? Data(contentsOf: file)) != Data("{}".utf8)
            }
            let ready = try await ready(file, sandbox)
            #expect(
                Set(ready.ports.keys) == [
                    "binary", "feedback", "http2", "channels", "control", "webpush", "fcm", "proxy",
                ])
            #expect(Set(ready.ports.values).count == 8 && !ready.ports.values.contains(0))
            #expect(ready.control == "http://127.0.0.1:\(ready.ports["control"] ?? 0)")
            _ = try await HTTP.get(ready.control + "/stats")
            for file in [ready.authority, ready.certificate, ready.key] {
                #expect(FileManager.default.isReadableFile(atPath: file))
            }
            sandbox.kill(SIGTERM)
            #expect(try await sandbox.ended() == 0)
            #expect(!FileManager.default.fileExists(atPath: file.path))
        }

        @Test("With --end-with-parent the sandbox ends when its parent process ends, for whatever reason")
        func parent() async throws {
            let folder = try Folder()
            let file = folder.file("ready.json")
            let command = [
                Running.executable.path, "sandbox", "--free-ports", "--ready-file", file.path, "--directory",
                folder.file("sandbox").path, "--end-with-parent",
            ]
            let parent = try Child(["sh", "-c", #""$@" & wait"#, "sh"] + command)
            try await eventually("it is ready") { FileManager.default.fileExists(atPath: file.path) }
            let ready = try JSONDecoder().decode(Ready.self, from: Data(contentsOf: file))
            #expect(kill(ready.process, 0) == 0)
            parent.kill(SIGKILL)
            try await eventually("it has removed its file") { !FileManager.default.fileExists(atPath: file.path) }
            try await eventually("it is gone") { kill(ready.process, 0) != 0 }
        }
    }
}
