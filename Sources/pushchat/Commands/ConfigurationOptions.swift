import ArgumentParser
import Foundation

/// The flags that every command shares which needs the configuration.
struct ConfigurationOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The configuration file.",
            discussion: "Without it: ./pushchat.yaml, /etc/pushchat/pushchat.yaml, or the defaults.",
            valueName: "file"))
    var config: String?

    @Option(help: ArgumentHelp("development or production.", valueName: "name"))
    var environment: String?

    @Option(help: ArgumentHelp("The address to listen on.", valueName: "address"))
    var host: String?

    @Option(help: ArgumentHelp("The port to listen on; 0 for any that is free.", valueName: "port"))
    var port: String?

    @Option(help: ArgumentHelp("The database file.", valueName: "file"))
    var database: String?

    @Option(help: ArgumentHelp("trace, debug, info, notice, warning or error.", valueName: "level"))
    var logLevel: String?

    @Option(help: ArgumentHelp("text or json.", valueName: "format"))
    var logFormat: String?

    @Option(
        name: .customLong("set"),
        help: ArgumentHelp("Any setting, as in `--set push.sound=beep.caf`. Repeatable.", valueName: "name=value"))
    var settings: [String] = []

    func validate() throws {
        for setting in settings where !setting.contains("=") {
            throw ValidationError("--set \(setting): write it as name=value")
        }
    }

    /// The flags as settings, in the order of precedence among each other.
    var flags: [ConfigurationFlag] {
        let named = [
            ("environment", environment, "--environment"), ("http.host", host, "--host"),
            ("http.port", port, "--port"), ("database.path", database, "--database"),
            ("log.level", logLevel, "--log-level"), ("log.format", logFormat, "--log-format"),
        ].compactMap { setting, value, name in value.map { ConfigurationFlag(setting, $0, name: name) } }
        let others = settings.map { text -> ConfigurationFlag in
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return ConfigurationFlag(String(parts[0]), String(parts.last ?? ""), name: "--set \(parts[0])")
        }
        return named + others
    }

    var sources: ConfigurationSources {
        ConfigurationSources(file: config, flags: flags)
    }

    func load() throws -> Configuration {
        try .loaded(sources)
    }
}

extension Configuration {
    /// Reads the configuration; what is wrong goes to standard error, and the process ends with status 1.
    static func loaded(_ sources: ConfigurationSources) throws -> Configuration {
        do {
            return try load(sources)
        } catch {
            throw Failure(error.description)
        }
    }
}

/// Ends a command with status 1 and a text on standard error.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}
