import Foundation
import Testing

extension Browser {
    @Suite("The chat page in a browser", PlayedPages.areThere(in: .chromium))
    struct ChatPageTests {
        /// Later scenarios continue with what earlier ones left: the inbox shows the pushes of the chat.
        private static let pages = PlayedPages(
            in: .chromium,
            [
                "basics", "chat", "outbox", "input", "view", "languages", "programs", "another_app", "inbox",
                "inbox_groups",
                "inbox_phone", "long_room", "calls", "together", "deleting", "changes", "titles",
                "sheets", "markdown",
            ])

        @Test("A scenario of Tests/Clients/pages passes", arguments: pages.scenarios)
        func play(_ scenario: String) async throws { try await Self.pages.expectPassed(scenario) }
    }
}

extension Browser {
    /// Scenarios of the chat page that depend on what browsers do differently: dialogs, focus, scrolling, layers.
    @Suite("The chat page in Firefox", PlayedPages.areThere(in: .firefox))
    struct FirefoxPageTests {
        private static let pages = PlayedPages(in: .firefox, ["input", "deleting", "titles", "sheets", "long_room"])

        @Test("A scenario of Tests/Clients/pages passes", arguments: pages.scenarios)
        func play(_ scenario: String) async throws { try await Self.pages.expectPassed(scenario) }
    }
}

extension Programs {
    @Suite("The operator's page and notifications in a browser", PlayedPages.areThere(in: .chromium))
    struct OperatorPageTests {
        private static let pages = PlayedPages(
            in: .chromium,
            [
                "overview", "moderation", "new_code", "operator_queue", "operator_lists", "operator_languages", "names",
                "operator_webhooks",
                "notifications", "sessions",
            ])

        @Test("A scenario of Tests/Clients/pages passes", arguments: pages.scenarios)
        func play(_ scenario: String) async throws { try await Self.pages.expectPassed(scenario) }
    }
}

/// Scenarios that drive the pages of relay and sandbox in a browser. They share a relay and run once, in their order.
private struct PlayedPages: Sendable {
    enum Engine {
        case chromium, firefox

        var programs: [String] {
            switch self {
            case .chromium: ["/usr/bin/chromium", "/usr/bin/chromedriver"]
            case .firefox: ["/usr/bin/firefox-esr"]
            }
        }
    }

    static func areThere(in engine: Engine) -> ConditionTrait {
        .enabled("\(engine) or its driver is missing") {
            engine.programs.allSatisfy(FileManager.default.isExecutableFile)
        }
    }

    let scenarios: [String]
    private let run: Task<ClientProgram, any Error>

    init(in engine: Engine, _ scenarios: [String]) {
        self.scenarios = scenarios
        run = Task { try await Self.play(scenarios, in: engine) }
    }

    /// Expects that a scenario passed. The script prints the first failed check of each scenario.
    func expectPassed(_ scenario: String) async throws {
        let played = try await run.value
        let lines = played.text.split(separator: "\n")
        let reason = lines.first { $0.hasPrefix("FAILED \(scenario): ") } ?? lines.last
        #expect(lines.contains("PASSED \(scenario)"), "\(reason ?? "no output") \(played.errors.suffix(3000))")
    }

    private static func play(_ scenarios: [String], in engine: Engine) async throws -> ClientProgram {
        let folder = try Folder()
        let sandbox = try await SandboxProcess.start(folder)
        let configuration = try await sandbox.relayConfiguration()
        let port = try ReservedPort()
        let store = try folder.store()
        let shell = String(decoding: try JSONEncoder().encode(store.shell), as: UTF8.self)
        return try await Python.run(
            "browser_pages.py",
            [
                scenarios.joined(separator: ","), "http://localhost:\(port.number)",
                "http://localhost:\(sandbox.control)",
                shell, Running.executable.path, "serve", "--config", configuration.path, "--port", "\(port.number)",
                "--database", store.path, "--set", "push.text_limit=190",
            ], variables: ["/usr/bin/env", "BROWSER=\(engine)"] + store.variables, input: Data(), within: 560)
    }
}
