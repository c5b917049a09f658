import APNSSandbox
import ArgumentParser
import Foundation
import Logging
import ServiceLifecycle

/// `pushchat dev`
struct Dev: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run relay and sandbox together, on loopback, with nothing to configure.",
        discussion: """
            State is kept in ./.pushchat/; delete it to start anew.
            What is posted to the relay arrives in the sandbox's inbox.
            """)

    @Option(help: ArgumentHelp("The relay's port; 0 for any that is free.", valueName: "port"))
    var port = 44447

    @OptionGroup var sandboxPorts: SandboxPorts

    @Option(help: ArgumentHelp("Where the state is kept.", valueName: "folder"))
    var directory = ".pushchat"

    @Option(
        help: ArgumentHelp("Which of Apple's protocols the relay speaks to the sandbox: http2 or binary."))
    var gateway = AppConfiguration.Gateway.http2

    @Option(help: ArgumentHelp("trace, debug, info, notice, warning or error.", valueName: "level"))
    var logLevel = Logger.Level.info

    @Option(help: ArgumentHelp("text or json.", valueName: "format"))
    var logFormat = LogFormat.text

    func run() async throws {
        let log = LogSettings(level: logLevel, format: logFormat)
        log.bootstrap()
        let directory = FilePath.absolute(directory, in: FileManager.default.currentDirectoryPath)
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])

        var settings = SandboxConfiguration(directory: directory + "/sandbox")
        sandboxPorts.apply(to: &settings)
        let logger = Logger(label: "sandbox")
        let credentials = try await settings.credentials(logger: logger)
        let sandbox = Sandbox(configuration: settings, logger: logger)
        let addresses = try await sandbox.start()

        // Nothing of the surroundings: no file, no variables. What dev does is the same everywhere.
        let flags =
            [
                ConfigurationFlag("environment", "development", name: "dev"),
                ConfigurationFlag("http.port", String(port), name: "--port"),
                ConfigurationFlag("database.path", directory + "/pushchat.db", name: "--directory"),
                ConfigurationFlag("log.level", logLevel.rawValue, name: "--log-level"),
                ConfigurationFlag("log.format", logFormat.rawValue, name: "--log-format"),
            ]
            + SandboxRelay(gateway: gateway, addresses: addresses, credentials: credentials).settings.map {
                ConfigurationFlag("apps.default.\($0.name)", $0.value, name: "dev")
            }
        let sources = ConfigurationSources(flags: flags, variables: [:], searched: [])
        do {
            let relay = RelayProcess(
                sources: sources, configuration: try Configuration.load(sources), reloads: false, log: log,
                companions: [sandbox]
            ) { port in
                print(
                    """
                    PushChat Relay \(Pushchat.version)
                      chat     http://127.0.0.1:\(port)/         (for apps: POST /api.php)
                      inbox    http://\(addresses.control)/          (what devices get, and what can go wrong)
                      data     \(directory)/
                    Stop with Ctrl-C.
                    """)
                fflush(nil)
            }
            try await relay.run()
        } catch let error as ConfigurationError {
            await sandbox.stop()
            throw Failure(error.description)
        }
    }
}
