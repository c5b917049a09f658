import Foundation
import Testing

@Suite("The pages, in a browser")
struct BrowserTests {
    private static let browser = "/usr/bin/chromium"

    @Test(
        "Two browsers and a phone talk, through a restart and without a network; the inbox shows it and lets it go wrong",
        .enabled("chromium, its driver or python3 with venv is missing") {
            guard FileManager.default.isExecutableFile(atPath: browser),
                FileManager.default.isExecutableFile(atPath: "/usr/bin/chromedriver")
            else { return false }
            return try await PythonEnvironment.isPossible()
        }, .timeLimit(.minutes(5)))
    func pages() async throws {
        let folder = try Folder()
        let sandbox = try await SandboxProcess.start(folder)
        let configuration = try await sandbox.relayConfiguration()
        // Started once for a port that is free; the script starts it again, several times.
        let relay = try await RelayProcess.start(folder, configuration: configuration)
        relay.process.kill(SIGTERM)
        try await relay.process.ended()
        let python = try await PythonEnvironment("selenium==4.*", "axe-core-python==0.1.0", in: folder)
        let played = try await python.run(
            "browser_pages.py",
            [
                "http://localhost:\(relay.port)", "http://localhost:\(sandbox.control)", Running.executable.path,
                "serve",
                "--config", configuration.path, "--port", "\(relay.port)", "--database", relay.database,
            ], input: Data(), within: 240)
        #expect(played.status == 0, "\(played.text.split(separator: "\n").suffix(3)) \(played.errors.suffix(3000))")
        #expect(played.text.split(separator: "\n").count > 60)
    }
}
