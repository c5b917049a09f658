import Foundation
import Testing

extension Browser {
    @Suite("Pushes in Firefox")
    struct FirefoxTests {
        private static let programs = ["firefox-esr", "Xvfb"].map { "/usr/bin/" + $0 }

        @Test(
            "A real Firefox with the page closed is notified after a kill, and by an empty database with the same key",
            .enabled("firefox-esr or xvfb is missing") {
                programs.allSatisfy(FileManager.default.isExecutableFile)
            })
        func notified() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let own = folder.file("firefox")
            try FileManager.default.createDirectory(at: own, withIntermediateDirectories: true)
            let stores = try ["first", "second", "third"].map { try folder.store("firefox/\($0).db") }
            let databases = try JSONEncoder().encode(stores.map { [$0.variables, [$0.path], $0.flags] })
            let played = try await Python.run(
                "firefox_push.py",
                [
                    "http://localhost:\(port.number)", "http://localhost:\(sandbox.control)", own.path,
                    String(decoding: databases, as: UTF8.self),
                    Running.executable.path, "serve", "--config", configuration.path, "--port", "\(port.number)",
                ], input: Data(), within: 560)
            #expect(played.status == 0, "\(played.text.split(separator: "\n").suffix(3)) \(played.errors.suffix(3000))")
            #expect(played.text.contains("a browser that stops notifications has no subscription"))
        }
    }
}
