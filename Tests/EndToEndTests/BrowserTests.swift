import Foundation
import Testing

extension Browser {
    @Suite("The chat page in a browser", ChromiumPages.areThere)
    struct ChatPageTests {
        @Test(
            "Two browsers and a phone chat through a restart and an outage; programs post; the inbox shows every push")
        func chat() async throws { try await ChromiumPages.play("chat", checks: 150) }
    }
}

extension Programs {
    @Suite("The operator's page and notifications in a browser", ChromiumPages.areThere)
    struct OperatorPageTests {
        @Test("The operator views, sends and moderates; browsers are notified; the relay requires sessions")
        func operate() async throws { try await ChromiumPages.play("operator", checks: 150) }
    }
}

/// Runs the two parts of one script that drives the pages of relay and sandbox in Chromium.
private enum ChromiumPages {
    static let areThere = ConditionTrait.enabled("chromium or its driver is missing") {
        ["/usr/bin/chromium", "/usr/bin/chromedriver"].allSatisfy {
            FileManager.default.isExecutableFile(atPath: $0)
        }
    }

    /// - Parameter checks: The minimum number of checks that the script must have made.
    static func play(_ part: String, checks: Int) async throws {
        let folder = try Folder()
        let sandbox = try await SandboxProcess.start(folder)
        let configuration = try await sandbox.relayConfiguration()
        let port = try ReservedPort()
        let store = try folder.store()
        let shell = String(decoding: try JSONEncoder().encode(store.shell), as: UTF8.self)
        let played = try await Python.run(
            "browser_pages.py",
            [
                part, "http://localhost:\(port.number)", "http://localhost:\(sandbox.control)", shell,
                Running.executable.path, "serve", "--config", configuration.path, "--port", "\(port.number)",
                "--database", store.path, "--set", "push.text_limit=190",
            ], variables: store.variables, input: Data(), within: 560)
        #expect(played.status == 0, "\(played.text.split(separator: "\n").suffix(3)) \(played.errors.suffix(3000))")
        #expect(played.text.split(separator: "\n").count >= checks)
    }
}
