public import ArgumentParser
import ChatDomain
import ChatStore
import Foundation
public import Logging
import Synchronization

/// The flags that select a configuration and a database, for commands that work on the database, whether a relay is
/// running or not.
struct DatabaseOptions: ParsableArguments {
    @Option(
        help: .value("file", "The database file; by default the configuration's."),
        completion: .file(extensions: ["db"]))
    var database: String?

    @OptionGroup var source: ConfigurationChoice

    /// The path of the database file, for a command that only supports SQLite.
    ///
    /// - Parameter substitute: The program that does the same for PostgreSQL, for the error message.
    /// - Throws: ``Failure`` if the database is PostgreSQL, or the configuration cannot be loaded.
    func path(insteadOverPostgreSQL substitute: String) throws -> String {
        let (path, configuration) = try resolved()
        guard configuration.database.url == nil else {
            throw Failure(
                "the database is PostgreSQL (database.url), and this command works only on a SQLite file: \(substitute)"
            )
        }
        return path
    }

    /// The path of the database file. A relay keeps its lock and its reload report next to this path, also with
    /// PostgreSQL.
    ///
    /// - Throws: ``Failure``.
    func path() throws -> String { try resolved().path }

    /// The configuration with these flags applied.
    ///
    /// - Throws: ``Failure``.
    func configuration() throws -> Configuration {
        let flags = source.flags + (database.map { [ConfigurationFlag("database.path", $0, name: "--database")] } ?? [])
        var configuration = try Configuration.loaded(ConfigurationSources(file: source.config, flags: flags))
        // `--database` names a file, so it overrides a PostgreSQL URL in the configuration.
        if database != nil { configuration.database.url = nil }
        return configuration
    }

    private func resolved() throws -> (path: String, configuration: Configuration) {
        let configuration = try configuration()
        return (configuration.databasePath(), configuration)
    }

    /// Opens the database for `body`, whether relays are running or not, and closes it afterwards. Creates a database
    /// that does not exist.
    ///
    /// - Throws: ``Failure``, also if a SQLite file has an older schema version. Only `pushchat serve` upgrades it. An
    ///   ``ExitCode`` that `body` throws passes through.
    func withStorage<Result>(_ body: (Storage) async throws -> Result) async throws -> Result {
        let (database, configuration) = try resolvedDatabase()
        return try await Self.convertingErrors {
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

    /// Opens the database as ``withStorage(_:)`` does, for a command that needs only the ports.
    ///
    /// - Throws: ``Failure``.
    func withStores<Result>(_ body: (Stores) async throws -> Result) async throws -> Result {
        try await withStorage { try await body($0.ports) }
    }

    /// Opens the queue of an existing database for `body`, whether relays are running or not.
    ///
    /// - Throws: ``Failure``.
    func withQueue<Result>(_ body: (any QueueAdministration) async throws -> Result) async throws -> Result {
        let database = try resolvedDatabase().database
        return try await Self.convertingErrors { try await Storage.withQueue(database, body) }
    }

    private func resolvedDatabase() throws -> (database: Configuration.Database, configuration: Configuration) {
        let (path, configuration) = try resolved()
        var database = configuration.database
        database.path = path
        return (database, configuration)
    }

    /// Converts every error into a ``Failure`` with the same text, except an ``ExitCode``.
    private static func convertingErrors<Result>(_ work: () async throws -> Result) async throws -> Result {
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
    /// The path of the database file: that of `pushchat dev` if no other one is named, and the default one is missing.
    func databasePath() -> String {
        let isGiven = file != nil || origins[SettingKey(name: "database.path")] != nil
        guard !isGiven, access(database.path, F_OK) != 0, access(DevFolder.database, F_OK) == 0 else {
            return database.path
        }
        Output.note("using \(DevFolder.database), the database of pushchat dev")
        return FilePath.absolute(DevFolder.database)
    }

    /// The settings of stores that a command opens.
    fileprivate var commandSettings: StoreSettings {
        StoreSettings(format: { _ in browserFormat }, history: messages.history, keepsUsage: analytics == .on)
    }
}

extension Logger {
    /// Discards all log lines: a command reports its errors itself.
    fileprivate init(command: Void) {
        self.init(label: "command") { _ in SwiftLogNoOpLogHandler() }
    }
}

/// The level and the format of the log, for commands that load no configuration.
struct LogOptions: ParsableArguments {
    @Option(help: .value("level", "trace, debug, info, notice, warning or error.")) var logLevel = Logger.Level.info
    @Option(help: .value("format", "text or json.")) var logFormat = LogFormat.text
}

extension LogFormat: ExpressibleByArgument {}
extension Logger.Level: @retroactive ExpressibleByArgument {}

/// Flags for every setting, for commands that need the whole configuration.
struct ConfigurationOptions: ParsableArguments {
    @OptionGroup var choice: ConfigurationChoice
    @Option(help: .value("address", "The address to listen on.")) var host: String?
    @Option(help: .value("port", "The port to listen on; 0 for any free port.")) var port: String?
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

    /// The flags as settings. Later ones override earlier ones.
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

    /// Loads the configuration for a command, and prints each warning once per process.
    ///
    /// - Throws: ``Failure``.
    static func loaded(_ sources: ConfigurationSources) throws -> Configuration {
        let configuration = try Failure.catching { try load(sources) }
        for warning in configuration.warnings where printed.withLock({ $0.insert(warning).inserted }) {
            Output.note("warning: \(warning)")
        }
        return configuration
    }
}
