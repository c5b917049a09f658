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

        @Test("The pytest example works")
        func python() async throws {
            let tests = try await run([
                Python.program("python"), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                Self.examples.appending(path: "test_push.py").path,
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
