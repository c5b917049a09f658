import Foundation
import Testing

extension Browser {
    @Suite("The pages, in a browser")
    struct BrowserTests {
        private static let browser = "/usr/bin/chromium"

        @Test(
            "Two browsers and a phone talk, through a restart and without a network; browsers are notified; the inbox shows it",
            .enabled("chromium or its driver is missing") {
                FileManager.default.isExecutableFile(atPath: browser)
                    && FileManager.default.isExecutableFile(atPath: "/usr/bin/chromedriver")
            })
        func pages() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let played = try await Python.run(
                "browser_pages.py",
                [
                    "http://localhost:\(port.number)", "http://localhost:\(sandbox.control)", Running.executable.path,
                    "serve", "--config", configuration.path, "--port", "\(port.number)", "--database",
                    folder.file("pushchat.db").path,
                ], input: Data(), within: 400)
            #expect(played.status == 0, "\(played.text.split(separator: "\n").suffix(3)) \(played.errors.suffix(3000))")
            #expect(played.text.split(separator: "\n").count > 330)
        }
    }
}
