import ArgumentParser
import Foundation
import Logging
import PushSandbox
import ServiceLifecycle

/// `pushchat dev`
struct Dev: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run the relay and the sandbox together, on loopback, without configuration.",
        discussion: """
            Keeps its state in ./.pushchat/; delete that folder to start over.
            The file `address` there has the relay's URL while it listens, for the other commands.
            Pushes of the relay arrive in the sandbox's inbox.
            With --host 0.0.0.0, other machines reach the chat, but neither the sandbox nor the admin API.
            """)

    @Option(help: .value("address", "The address that the relay listens on.")) var host = "127.0.0.1"
    @Option(help: .value("port", "The relay's port; 0 for any free port.")) var port = 44447
    @OptionGroup var sandboxPorts: SandboxPorts
    @Flag(help: "Listen on free ports, in place of the ports above.") var freePorts = false
    @Option(help: .value("folder", "The folder for the state.")) var directory = DevFolder.standard

    @Option(help: ArgumentHelp("The protocol between the relay and the sandbox: http2 or binary."))
    var gateway = AppConfiguration.Gateway.http2

    @OptionGroup var logOptions: LogOptions

    func run() async throws {
        let log = LogSettings(level: logOptions.logLevel, format: logOptions.logFormat)
        log.bootstrap()
        let directory = FilePath.absolute(directory)
        try PrivateFile.createFolder(directory)

        var settings = SandboxConfiguration(directory: directory + "/sandbox")
        sandboxPorts.apply(to: &settings, areFree: freePorts)
        let port = freePorts ? 0 : port
        let logger = Logger(label: "sandbox")
        let credentials = try await settings.credentials(logger: logger)
        let sandbox = Sandbox(configuration: settings, logger: logger)
        let addresses = try await sandbox.start()

        // `dev` reads neither a configuration file nor variables, so that it behaves the same everywhere.
        let toSandbox = SandboxAppSettings(gateway: gateway, addresses: addresses, credentials: credentials)
        var flags =
            [
                ConfigurationFlag("environment", "development", name: "dev"),
                ConfigurationFlag("http.host", host, name: "--host"),
                ConfigurationFlag("http.port", String(port), name: "--port"),
                ConfigurationFlag("database.path", DevFolder.database(in: directory), name: "--directory"),
                ConfigurationFlag("log.level", logOptions.logLevel.rawValue, name: "--log-level"),
                ConfigurationFlag("log.format", logOptions.logFormat.rawValue, name: "--log-format"),
            ]
            + toSandbox.settings.map { ConfigurationFlag("apps.default.\($0.name)", $0.value, name: "dev") }
            + toSandbox.others.flatMap { name, settings in
                settings.map { ConfigurationFlag("apps.\(name).\($0.name)", $0.value, name: "dev") }
            }
            + toSandbox.webPush.map { ConfigurationFlag("webpush.\($0.name)", $0.value, name: "dev") }
        // Port 0 means any free port, which is not known yet, so the public URL stays unset.
        if port != 0 { flags.append(ConfigurationFlag("http.public_url", "http://localhost:\(port)", name: "dev")) }
        let sources = ConfigurationSources(flags: flags, variables: [:], searched: [])
        let configuration: Configuration
        do {
            configuration = try .loaded(sources)
        } catch {
            await sandbox.stop()
            throw error
        }
        try await RelayProcess(
            sources: sources, configuration: configuration, log: log, reloads: false, additionalServices: [sandbox],
            addressFile: DevFolder.addressFile(in: directory)
        ) { port in
            var listening = configuration
            listening.http.port = port
            let relay = listening.localAddress
            print(
                """
                PushChat Relay \(Build.version)
                  chat     \(relay)/         (for apps: POST /api.php)
                  operator \(relay)/admin    (queue, rooms, devices; for this machine only)
                  inbox    http://\(addresses[.control])/          (what devices get, and what can go wrong)
                  data     \(directory)/
                Stop with Ctrl-C.
                """)
            fflush(nil)
        }.run()
    }
}
