import ArgumentParser
import Logging

/// `pushchat serve`
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run the relay: the chat API, the store, the dispatcher, the feedback reader.",
        discussion: """
            SIGTERM and SIGINT end it gracefully; the queue stays on disk.
            SIGHUP reloads the configuration and the certificates.
            The log goes to standard error.
            """)

    @OptionGroup var options: ConfigurationOptions

    func run() async throws {
        let configuration = try Failure.catching { try Configuration.load(options.sources) }
        let log = LogSettings(level: configuration.log.level, format: configuration.log.format)
        log.bootstrap()
        for warning in configuration.warnings {
            Logger(label: LogRecord.relay).warning(
                "other users can change the configuration file", metadata: ["why": "\(warning)"])
        }
        try await RelayProcess(sources: options.sources, configuration: configuration, log: log).run()
    }
}
