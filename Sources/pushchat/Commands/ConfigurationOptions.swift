public import ArgumentParser
import ChatDomain
import ChatStore
import Foundation
public import Logging
import Synchronization

extension ArgumentHelp {
    /// The help of an option whose value has a name.
    static func value(_ name: String, _ abstract: String, discussion: String = "") -> ArgumentHelp {
        ArgumentHelp(abstract, discussion: discussion, valueName: name)
    }
}

/// Which configuration.
struct ConfigurationChoice: ParsableArguments {
    @Option(
        help: .value(
            "file", "The relay's configuration file.",
            discussion: "Without it: ./pushchat.yaml, /etc/pushchat/pushchat.yaml, or the defaults."),
        completion: .file(extensions: ["yaml", "yml"]))
    var config: String?

    @Option(help: .value("name", "development or production."), completion: .list(["development", "production"]))
    var environment: String?

    var flags: [ConfigurationFlag] {
        environment.map { [ConfigurationFlag("environment", $0, name: "--environment")] } ?? []
    }
}

/// Which configuration, and which database: of commands that work on the file, beside a running relay or without one.
struct DatabaseOptions: ParsableArguments {
    @Option(
        help: .value("file", "The database file; unless given, the configuration's."),
        completion: .file(extensions: ["db"]))
    var database: String?

    @OptionGroup var source: ConfigurationChoice

    /// The database of `pushchat dev`.
    private static let devDatabase = ".pushchat/pushchat.db"

    /// The file of a command that can do nothing with a database of PostgreSQL.
    /// - Parameter substitute: what does the same there.
    /// - Throws: ``Failure``.
    func path(insteadOverPostgreSQL substitute: String) throws -> String {
        let (path, configuration) = try resolved()
        guard configuration.database.url == nil else {
            throw Failure(
                "the database is PostgreSQL's (database.url), and this command is for SQLite's file: \(substitute)")
        }
        return path
    }

    /// Beside which a relay keeps what is its own.
    /// - Throws: ``Failure``.
    func path() throws -> String { try resolved().path }

    /// - Throws: ``Failure``.
    func configuration() throws -> Configuration {
        let flags = source.flags + (database.map { [ConfigurationFlag("database.path", $0, name: "--database")] } ?? [])
        var configuration = try Configuration.loaded(ConfigurationSources(file: source.config, flags: flags))
        // Who names a file means the file.
        if database != nil { configuration.database.url = nil }
        return configuration
    }

    private func resolved() throws -> (path: String, configuration: Configuration) {
        let configuration = try configuration()
        let path = configuration.database.path
        let isGiven = configuration.file != nil || configuration.origins[SettingKey(name: "database.path")] != nil
        guard !isGiven, access(path, F_OK) != 0, access(Self.devDatabase, F_OK) == 0 else {
            return (path, configuration)
        }
        Output.note("using \(Self.devDatabase), of pushchat dev")
        return (FilePath.absolute(Self.devDatabase), configuration)
    }

    /// Opens the database, beside running relays or without one, for what `body` does with it. Makes it if need be.
    /// - Throws: ``Failure``.
    func withStorage<Result>(_ body: (Storage) async throws -> Result) async throws -> Result {
        let (database, configuration) = try resolvedDatabase()
        return try await Self.failing {
            if database.url == nil { try DatabaseFile(path: database.path).requireCurrent() }
            let storage = try await Storage.open(
                database, settings: { configuration.commandSettings }, logger: Logger(command: ()))
            let result: Result
            do {
                result = try await body(storage)
            } catch {
                try? await storage.close()
                throw error
            }
            try? await storage.close()
            return result
        }
    }

    /// The same of a command that needs the ports only.
    /// - Throws: ``Failure``.
    func withStores<Result>(_ body: (Stores) async throws -> Result) async throws -> Result {
        try await withStorage { try await body($0.ports) }
    }

    /// Opens the queue of a database that is there, beside running relays or without one.
    /// - Throws: ``Failure``.
    func withQueue<Result>(_ body: (any QueueAdministration) async throws -> Result) async throws -> Result {
        let database = try resolvedDatabase().database
        return try await Self.failing { try await Storage.withQueue(database, body) }
    }

    private func resolvedDatabase() throws -> (database: Configuration.Database, configuration: Configuration) {
        let (path, configuration) = try resolved()
        var database = configuration.database
        database.path = path
        return (database, configuration)
    }

    /// Makes any error a failure with its text, but those that are one already or end the command.
    private static func failing<Result>(_ work: () async throws -> Result) async throws -> Result {
        do {
            return try await work()
        } catch let error as ExitCode {
            throw error
        } catch {
            throw Failure("\(error)")
        }
    }
}

extension Configuration {
    /// For stores that a command opens.
    fileprivate var commandSettings: StoreSettings {
        StoreSettings(format: { _ in browserFormat }, history: messages.history, keepsUsage: analytics == .on)
    }
}

extension Logger {
    /// Says nothing: a command's errors are its answer.
    fileprivate init(command: Void) {
        self.init(label: "command") { _ in SwiftLogNoOpLogHandler() }
    }
}

/// The level and the format of the log, for commands without a configuration.
struct LogOptions: ParsableArguments {
    @Option(help: .value("level", "trace, debug, info, notice, warning or error.")) var logLevel = Logger.Level.info
    @Option(help: .value("format", "text or json.")) var logFormat = LogFormat.text
}

extension LogFormat: ExpressibleByArgument {}
extension Logger.Level: @retroactive ExpressibleByArgument {}

/// Every setting, for commands that need the whole configuration.
struct ConfigurationOptions: ParsableArguments {
    @OptionGroup var choice: ConfigurationChoice
    @Option(help: .value("address", "The address to listen on.")) var host: String?
    @Option(help: .value("port", "The port to listen on; 0 for any that is free.")) var port: String?
    @Option(help: .value("file", "The database file.")) var database: String?
    @Option(help: .value("level", "trace, debug, info, notice, warning or error.")) var logLevel: String?
    @Option(help: .value("format", "text or json.")) var logFormat: String?

    @Option(
        name: .customLong("set"),
        help: .value("name=value", "Any setting, as in `--set push.sound=beep.caf`. Repeatable."))
    var settings: [String] = []

    func validate() throws {
        for setting in settings where !setting.contains("=") {
            throw ValidationError("--set \(setting): write it as name=value")
        }
    }

    /// The flags as settings, in the order of precedence among each other.
    var flags: [ConfigurationFlag] {
        let named = [
            ("http.host", host, "--host"), ("http.port", port, "--port"), ("database.path", database, "--database"),
            ("log.level", logLevel, "--log-level"), ("log.format", logFormat, "--log-format"),
        ].compactMap { setting, value, name in value.map { ConfigurationFlag(setting, $0, name: name) } }
        let others = settings.map { text -> ConfigurationFlag in
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return ConfigurationFlag(String(parts[0]), String(parts.last ?? ""), name: "--set \(parts[0])")
        }
        return choice.flags + named + others
    }

    var sources: ConfigurationSources {
        ConfigurationSources(file: choice.config, flags: flags)
    }

    func load() throws -> Configuration {
        try .loaded(sources)
    }
}

extension Configuration {
    private static let printed = Mutex<Set<String>>([])

    /// Loads for a command, and prints each warning once.
    /// - Throws: ``Failure``.
    static func loaded(_ sources: ConfigurationSources) throws -> Configuration {
        let configuration = try Failure.catching { try load(sources) }
        for warning in configuration.warnings where printed.withLock({ $0.insert(warning).inserted }) {
            Output.note("warning: \(warning)")
        }
        return configuration
    }
}

/// Ends a command with status 1 and a text on standard error.
struct Failure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }

    /// Makes any error a failure with its text.
    static func catching<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try work()
        } catch {
            throw Failure("\(error)")
        }
    }
}
