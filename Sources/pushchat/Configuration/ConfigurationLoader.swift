import ChatDomain
import Foundation

/// Where a configuration is read from. Each source overrides those before it: the file, its block of the
/// environment, the variables, the flags.
struct ConfigurationSources: Sendable {
    /// What is looked for when no file is named; the first that is there is read.
    static let searched = ["pushchat.yaml", "/etc/pushchat/pushchat.yaml"]

    /// `--config`: must be there. Nil to search.
    var file: String?
    var searched: [String]
    var variables: [String: String]
    var flags: [ConfigurationFlag]
    /// An absolute path: relative paths start here, except those in the file, which start at the file's folder.
    var workingDirectory: String

    /// The process's own, unless others are handed in.
    init(
        file: String? = nil, flags: [ConfigurationFlag] = [],
        variables: [String: String] = ProcessInfo.processInfo.environment,
        workingDirectory: String = FileManager.default.currentDirectoryPath, searched: [String] = Self.searched
    ) {
        self.file = file
        self.flags = flags
        self.variables = variables
        self.workingDirectory = workingDirectory
        self.searched = searched
    }

    /// The file to read, by its name for messages and its absolute path.
    fileprivate var chosenFile: (name: String, path: String)? {
        if let file { return (file, FilePath.absolute(file, in: workingDirectory)) }
        for name in searched {
            let path = FilePath.absolute(name, in: workingDirectory)
            do throws(ReadableFile.Problem) {
                try ReadableFile.check(path)
            } catch  where error.isMissing {
                continue
            } catch {
                // It is there: reading it says what is wrong with it.
            }
            return (name, path)
        }
        return nil
    }
}

extension Configuration {
    /// Reads and checks all sources.
    /// - Throws: everything that is wrong, not only the first.
    static func load(_ sources: ConfigurationSources = ConfigurationSources()) throws(ConfigurationError)
        -> Configuration
    {
        var loader = ConfigurationLoader(sources)
        let configuration = loader.configuration()
        guard loader.problems.isEmpty else { throw ConfigurationError(problems: loader.problems) }
        return configuration
    }
}

/// Lays the sources over each other, and the result over the defaults.
struct ConfigurationLoader {
    private let sources: ConfigurationSources
    private let file: String?
    /// The later override the earlier.
    private var layers: [SettingLayer]
    private(set) var problems: [ConfigurationError.Problem] = []
    private var origins: [SettingKey: Origin] = [:]
    /// Settings whose value broke a rule; what depends on them is not reported as well.
    private var refused: Set<SettingKey> = []
    private var environment = Configuration.Environment.development

    init(_ sources: ConfigurationSources) {
        self.sources = sources
        let chosen = sources.chosenFile
        file = chosen?.path
        let file = chosen.map { ConfigurationFile(name: $0.name, path: $0.path) }
        let blocks = file?.blocks.sorted { $0.key.rawValue < $1.key.rawValue } ?? []
        let top = file.map { [$0.top] } ?? []
        let variables = ConfigurationVariables(
            sources.variables, apps: Self.apps(of: top + blocks.map(\.value)), folder: sources.workingDirectory)
        let flags = ConfigurationFlags(sources.flags, folder: sources.workingDirectory)

        problems = (file?.problems ?? []) + variables.problems + flags.problems
        layers = top + [variables.layer, flags.layer]
        environment = chosenEnvironment()
        let chosenBlocks = blocks.map { name, block in
            var block = block
            block.applies = name == environment
            return block
        }
        layers.insert(contentsOf: chosenBlocks, at: top.count)
        problems += layers.flatMap(\.contradictions)
    }

    mutating func configuration() -> Configuration {
        var configuration = Configuration(environment: environment)
        configuration.file = file
        apply(SettingsTable.relay, app: nil, defaults: configuration, to: &configuration)
        configuration.database.path = FilePath.absolute(configuration.database.path, in: sources.workingDirectory)

        let names = Self.apps(of: layers.filter(\.applies))
        configuration.apps = (names.isEmpty ? [.default] : names).map { appConfiguration($0) }
        for name in Self.apps(of: layers) where !names.contains(name) {
            _ = appConfiguration(name)
        }
        configuration.origins = origins
        checkTogether(configuration)
        return configuration
    }

    private mutating func appConfiguration(_ name: AppName) -> AppConfiguration {
        let defaults = AppConfiguration(name: name, environment: environment, gateway: gateway(of: name))
        var app = defaults
        apply(SettingsTable.app, app: name, defaults: defaults, to: &app)
        // A sandbox's certificate is none of Apple's business.
        let hosts = (SettingKey(app: name, name: "host"), SettingKey(app: name, name: "feedback_host"))
        if origins[hosts.0] != nil, origins[hosts.1] == nil {
            app.feedbackHost = app.host
        }
        if app.keyID == nil, let key = app.key { app.keyID = AppConfiguration.keyID(ofFile: key) }
        return app
    }

    /// Checks all entries of these settings, and sets those that nothing overrides.
    private mutating func apply<Root>(
        _ settings: [Setting<Root>], app: AppName?, defaults: Root, to root: inout Root
    ) {
        for setting in settings {
            let key = SettingKey(app: app, name: setting.name)
            let winner = winner(key)
            for (index, layer) in layers.enumerated() {
                for (place, entry) in layer.entries.enumerated() where entry.key == key {
                    let wins = winner.map { $0 == (index, place) } ?? false
                    let context = SettingContext(folder: layer.folder, checksFiles: wins)
                    var scratch = root
                    do throws(BrokenRule) {
                        let value = try value(of: entry, context)
                        try setting.assign(value, context, defaults, &scratch)
                        guard wins else { continue }
                        root = scratch
                        if entry.value != nil { origins[key] = entry.origin }
                    } catch {
                        refused.insert(key)
                        problems.append(.init(at: entry.origin, "\(key) \(error.message)"))
                    }
                }
            }
        }
    }

    /// The value itself, also where a file has it. Of one that is overridden only the path is looked at.
    private func value(of entry: SettingLayer.Entry, _ context: SettingContext) throws(BrokenRule) -> SettingValue? {
        guard entry.isFile, let value = entry.value else { return entry.value }
        let path = try SettingKind<String>.path.parse(value, context)
        guard context.checksFiles else { return nil }
        do throws(ReadableFile.Problem) {
            let bytes = try ReadableFile.read(path, limit: SettingLimits.secretFile)
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw ReadableFile.Problem("which is not UTF-8")
            }
            // What editors and `echo` put behind it.
            return .text(text.hasSuffix("\r\n") || text.hasSuffix("\n") ? String(text.dropLast()) : text)
        } catch {
            throw BrokenRule(
                message: "is to be read from \(LogText.cut(path, limit: SettingLimits.value)), \(error.message); "
                    + "it must be a file with nothing but the secret")
        }
    }

    /// The last entry that applies: its layer and its place there.
    private func winner(_ key: SettingKey) -> (Int, Int)? {
        for (index, layer) in layers.enumerated().reversed() where layer.applies {
            if let place = layer.entries.lastIndex(where: { $0.key == key }) { return (index, place) }
        }
        return nil
    }

    /// The environment is needed before the rest: it chooses a block, and defaults.
    private mutating func chosenEnvironment() -> Configuration.Environment {
        let key = SettingKey(name: "environment")
        if let (index, place) = winner(key), let value = layers[index].entries[place].value {
            // A wrong one is reported with the other settings.
            guard case .text(let text) = value else { return .development }
            return Configuration.Environment(rawValue: text) ?? .development
        }
        let variable = ConfigurationVariables.fallbackEnvironment
        guard let text = sources.variables[variable], !text.isEmpty else { return .development }
        guard let environment = Configuration.Environment(rawValue: text) else {
            let rule = SettingKind<Configuration.Environment>.choice.rule
            problems.append(
                .init(
                    at: variable,
                    "environment is \(SettingValue.text(text).quoted), but must be \(rule); if the variable belongs to "
                        + "another program, set \(SettingsTable.variablePrefix)ENVIRONMENT"))
            return .development
        }
        origins[key] = .variable(variable)
        return environment
    }

    /// The gateway is needed before the app's other settings: it chooses their defaults.
    private func gateway(of app: AppName) -> AppConfiguration.Gateway {
        let usual = AppConfiguration(name: app, environment: environment).gateway
        guard let (index, place) = winner(SettingKey(app: app, name: "gateway")),
            case .text(let text) = layers[index].entries[place].value
        else { return usual }
        return AppConfiguration.Gateway(rawValue: text) ?? usual
    }

    private static func apps(of layers: [SettingLayer]) -> [AppName] {
        var names: [AppName] = []
        for name in layers.flatMap(\.apps) where !names.contains(name) { names.append(name) }
        return names
    }
}

extension ConfigurationLoader {
    /// What no setting can be blamed for alone.
    private mutating func checkTogether(_ configuration: Configuration) {
        if configuration.http.key != nil, configuration.http.certificate == nil {
            report(
                "http.key", "needs http.certificate beside it; set that, or remove the key", unless: "http.certificate")
        }
        checkSession(configuration)
        if configuration.apps.count > SettingLimits.apps {
            let count = configuration.apps.count
            problems.append(.init(at: file, "apps has \(count) entries, but must have at most \(SettingLimits.apps)"))
        }
        for app in configuration.apps {
            if app.certificateKey != nil, app.certificate == nil {
                report(
                    "certificate_key", of: app.name, "needs certificate beside it; set that, or remove the key",
                    unless: "certificate")
            }
            if let (setting, message) = app.contradiction {
                let causes = ["gateway", "key", "key_id", "team_id", "topic", "certificate"]
                guard !causes.contains(where: { refused.contains(SettingKey(app: app.name, name: $0)) }) else {
                    continue
                }
                report(setting, of: app.name, message, unless: setting)
            }
        }
    }

    private mutating func checkSession(_ configuration: Configuration) {
        let keys = ["session.secret", "session.key", "session.jwks"]
        guard configuration.registration == .session, !configuration.session.hasKeys,
            !keys.contains(where: { refused.contains(SettingKey(name: $0)) })
        else { return }
        report(
            "registration", "is session, which needs session.secret, session.key or session.jwks; set one of them",
            unless: "registration")
    }

    /// - Parameter cause: a setting that, if it was refused, has been reported as the reason.
    private mutating func report(_ name: String, of app: AppName? = nil, _ message: String, unless cause: String) {
        guard !refused.contains(SettingKey(app: app, name: cause)) else { return }
        let key = SettingKey(app: app, name: name)
        problems.append(.init(at: origins[key] ?? .default, "\(key) \(message)"))
    }
}
