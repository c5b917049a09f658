import ChatDomain
import Foundation

/// The sources of a configuration. Each overrides those before it: the file, its block for the environment, the
/// variables, the flags.
struct ConfigurationSources: Sendable {
    /// The files to look for if the user names none. The relay reads the first that exists.
    static let searched = ["pushchat.yaml", "/etc/pushchat/pushchat.yaml"]

    /// The file of `--config`, which must exist. `nil` to search for one.
    var file: String?
    var flags: [ConfigurationFlag] = []
    var variables = ProcessInfo.processInfo.environment
    /// An absolute path, to which relative paths refer. Relative paths in the file refer to the file's folder instead.
    var workingDirectory = FileManager.default.currentDirectoryPath
    var searched = Self.searched
    /// The trust that `./pushchat.yaml` needs if the search found it. Only root can write in /etc, so a file there
    /// needs none.
    var trust = FileTrust.current

    /// The file to read: its name for messages, its absolute path, and the trust that it needs. `nil` if there is no
    /// file. The trust is `nil` if the file needs none.
    fileprivate var chosenFile: (name: String, path: String, trust: FileTrust?)? {
        let name =
            file
            ?? searched.first { name in
                do throws(ReadableFile.Problem) {
                    try ReadableFile.check(FilePath.absolute(name, in: workingDirectory))
                    return true
                } catch {
                    // Choose a file that exists but cannot be read. Reading it reports the reason.
                    return error.kind != .missing
                }
            }
        return name.map { name in
            let needsTrust = file == nil && !name.hasPrefix("/")
            return (name, FilePath.absolute(name, in: workingDirectory), needsTrust ? trust : nil)
        }
    }
}

/// A setting from the command line.
struct ConfigurationFlag: Sendable {
    /// The setting's name, for example `http.port` or `apps.default.certificate`.
    let setting: String
    let value: String
    /// The flag as the user typed it, `--port`. For messages and for `pushchat config`.
    let name: String

    init(_ setting: String, _ value: String, name: String) {
        self.setting = setting
        self.value = value
        self.name = name
    }

    /// The app and the name of the setting. `apps.com.example.topic` is the topic of the app `com.example`.
    fileprivate var parts: (app: AppName?, name: String) {
        let prefix = "apps."
        guard setting.hasPrefix(prefix), let dot = setting.lastIndex(of: "."),
            setting.index(setting.startIndex, offsetBy: prefix.count) < dot
        else { return (nil, setting) }
        return (AppName(String(setting[..<dot].dropFirst(prefix.count))), String(setting[dot...].dropFirst()))
    }
}

/// All problems of a configuration. The process does not start with such a configuration.
struct ConfigurationError: Error, Sendable, Equatable, CustomStringConvertible {
    struct Problem: Sendable, Equatable, CustomStringConvertible {
        /// The position, for example `pushchat.yaml:12:3`, `PUSHCHAT_HTTP_PORT` or `--port`. `nil` if none is known.
        let position: String?
        /// The setting, the value, the rule, and the remedy.
        let message: String

        init(at position: String?, _ message: String) {
            self.position = position
            self.message = message
        }

        init(at origin: SettingOrigin, _ message: String) {
            self.init(at: origin.position, message)
        }

        var description: String { position.map { "\($0): \(message)" } ?? message }
    }

    /// The problems, in the order in which the sources are read. There is at least one.
    let problems: [Problem]

    /// The problems, one on each line.
    var description: String { problems.map(\.description).joined(separator: "\n") }
}

/// The settings of one source as the user wrote them, not yet checked.
struct SettingLayer: Sendable {
    struct Entry: Sendable {
        let key: SettingKey
        /// `nil` if the user wrote no value (`topic:`). The default then applies again.
        let value: SettingValue?
        /// Whether the value is the path of a file with the secret.
        let isFile: Bool
        let origin: SettingOrigin
    }

    /// The folder to which relative paths refer.
    let folder: String
    /// Whether the settings take effect. `false` for the block of the other environment, which is only checked.
    var applies = true
    private(set) var entries: [Entry] = []
    /// Apps in the order in which the source names them, including those without settings.
    private(set) var apps: [AppName] = []

    init(folder: String) {
        self.folder = folder
    }

    mutating func add(app: AppName) {
        if !apps.contains(app) { apps.append(app) }
    }

    mutating func add(_ name: SettingName, of app: AppName?, _ value: SettingValue?, from origin: SettingOrigin) {
        if let app { add(app: app) }
        entries.append(
            Entry(key: SettingKey(app: app, name: name.setting), value: value, isFile: name.isFile, origin: origin))
    }

    /// Problems of settings that one layer gives both directly and as a file.
    fileprivate var contradictions: [ConfigurationError.Problem] {
        var seen: [SettingKey: Entry] = [:]
        var problems: [ConfigurationError.Problem] = []
        for entry in entries where entry.value != nil {
            if let other = seen[entry.key], other.isFile != entry.isFile {
                let (plain, file) = entry.isFile ? (other, entry) : (entry, other)
                problems.append(
                    .init(
                        at: file.origin,
                        "\(entry.key) is given directly (\(plain.origin)) and as a file (\(file.origin)); "
                            + "remove one of them"))
            }
            seen[entry.key] = entry
        }
        return problems
    }
}

extension Configuration {
    /// Reads and checks all sources.
    ///
    /// - Throws: An error with all problems, not only the first.
    static func load(_ sources: ConfigurationSources = ConfigurationSources()) throws(ConfigurationError)
        -> Configuration
    {
        var loader = ConfigurationLoader(sources)
        let configuration = loader.configuration()
        guard loader.problems.isEmpty else { throw ConfigurationError(problems: loader.problems) }
        return configuration
    }
}

/// Merges the sources, and applies the result to the defaults.
private struct ConfigurationLoader {
    private typealias Entry = (layer: SettingLayer, entry: SettingLayer.Entry)

    private let sources: ConfigurationSources
    private let file: String?
    /// The layers, in which later ones override earlier ones.
    private let layers: [SettingLayer]
    private let entries: [Entry]
    private(set) var problems: [ConfigurationError.Problem] = []
    private var origins: [SettingKey: SettingOrigin] = [:]
    private var secretsInFile: [SettingKey] = []
    private var secretFiles: [(setting: SettingKey, path: String)] = []
    private let warnings: [String]
    /// Settings whose value broke a rule. Problems that follow from them are not reported.
    private var refused: Set<SettingKey> = []
    private let environment: Configuration.Environment

    init(_ sources: ConfigurationSources) {
        self.sources = sources
        let chosen = sources.chosenFile
        file = chosen?.path
        let trusted = chosen.flatMap { $0.trust == nil ? $0.path : nil }
        warnings =
            trusted.map { path in
                ReadableFile.objection(to: path, sources.trust).map { ["\(path) \($0)"] } ?? []
            } ?? []
        let file = chosen.map { ConfigurationFile(name: $0.name, path: $0.path, trust: $0.trust) }
        let top = file.map { [$0.top] } ?? []
        var blocks = file?.blocks.sorted { $0.key.rawValue < $1.key.rawValue } ?? []
        let variables = ConfigurationVariables(
            sources.variables, apps: Self.apps(of: top + blocks.map(\.value)), folder: sources.workingDirectory)
        problems = (file?.problems ?? []) + variables.problems
        let flags = Self.layer(of: sources.flags, folder: sources.workingDirectory, problems: &problems)

        // Determine the environment first, because it selects a block and the defaults.
        environment = Self.environment(
            Self.entries(of: top + [variables.layer, flags]), sources.variables, &origins, &problems)
        for index in blocks.indices { blocks[index].value.applies = blocks[index].key == environment }
        layers = top + blocks.map(\.value) + [variables.layer, flags]
        entries = Self.entries(of: layers)
        problems += layers.flatMap(\.contradictions)
    }

    private static func layer(
        of flags: [ConfigurationFlag], folder: String, problems: inout [ConfigurationError.Problem]
    ) -> SettingLayer {
        var layer = SettingLayer(folder: folder)
        for flag in flags {
            let (app, name) = flag.parts
            if app.map({ AppName.isValid($0.text) }) ?? true, let known = SettingName.named(name, inApp: app != nil) {
                layer.add(known, of: app, .text(flag.value), from: .flag(flag.name))
            } else {
                let nearest = Suggestion.nearest(to: flag.setting, among: SettingName.relay.map(\.text))
                let suggestion = nearest.map { "; did you mean \($0)?" } ?? ""
                problems.append(
                    .init(at: flag.name, "\(SettingValue.text(flag.setting).quoted) is not a setting" + suggestion))
            }
        }
        return layer
    }

    private static func environment(
        _ entries: [Entry], _ variables: [String: String], _ origins: inout [SettingKey: SettingOrigin],
        _ problems: inout [ConfigurationError.Problem]
    ) -> Configuration.Environment {
        let key = SettingKey(name: "environment")
        if let index = winner(key, entries), let value = entries[index].entry.value {
            // A wrong value is reported with the other settings.
            guard case .text(let text) = value else { return .development }
            return Configuration.Environment(rawValue: text) ?? .development
        }
        let variable = ConfigurationVariables.fallbackEnvironment
        guard let text = variables[variable], !text.isEmpty else { return .development }
        guard let environment = Configuration.Environment(rawValue: text) else {
            let rule = SettingKind<Configuration.Environment>.choice.rule
            problems.append(
                .init(
                    at: variable,
                    "environment is \(SettingValue.text(text).quoted), but must be \(rule); if the variable belongs to "
                        + "another program, set \(ConfigurationVariables.prefix)ENVIRONMENT"))
            return .development
        }
        origins[key] = .variable(variable)
        return environment
    }

    /// The apps in the order of the sources, but `default` first. Lists and checks of all apps then have the same order
    /// wherever the default app's settings stand.
    private static func apps(of layers: [SettingLayer]) -> [AppName] {
        let names = layers.flatMap(\.apps).reduce(into: [AppName]()) { if !$0.contains($1) { $0.append($1) } }
        return names.filter { $0 == .default } + names.filter { $0 != .default }
    }

    private static func entries(of layers: [SettingLayer]) -> [Entry] {
        layers.flatMap { layer in layer.entries.map { (layer, $0) } }
    }

    /// The index of the entry that overrides all others of the setting. `nil` if no source in effect has the setting.
    private static func winner(_ key: SettingKey, _ entries: [Entry]) -> Int? {
        entries.lastIndex { $0.layer.applies && $0.entry.key == key }
    }

    mutating func configuration() -> Configuration {
        var configuration = Configuration(environment: environment)
        configuration.file = file
        apply(SettingsTable.relay, app: nil, defaults: configuration, to: &configuration)
        configuration.database.path = FilePath.absolute(configuration.database.path, in: sources.workingDirectory)

        let names = Self.apps(of: layers.filter(\.applies))
        configuration.apps = (names.isEmpty ? [.default] : names).map { appConfiguration($0) }
        // Apps of the other environment are only checked.
        for name in Self.apps(of: layers) where !names.contains(name) { _ = appConfiguration(name) }
        if origins[SettingKey(name: "push.text_limit")] == nil {
            let limits = configuration.apps.map { $0.gateway.kind.textLimit }
            configuration.server.textLimit = limits.min() ?? configuration.server.textLimit
        }
        configuration.origins = origins
        configuration.secretsInFile = secretsInFile
        configuration.secretFiles = secretFiles
        configuration.warnings = warnings
        checkTogether(configuration)
        return configuration
    }

    private mutating func appConfiguration(_ name: AppName) -> AppConfiguration {
        var defaults = AppConfiguration(name: name, environment: environment)
        // Determine the gateway before the app's other settings, because it selects their defaults.
        if let index = Self.winner(SettingKey(app: name, name: "gateway"), entries),
            case .text(let text) = entries[index].entry.value, let gateway = AppConfiguration.Gateway(rawValue: text)
        {
            defaults = AppConfiguration(name: name, environment: environment, gateway: gateway)
        }
        var app = defaults
        apply(SettingsTable.app, app: name, defaults: defaults, to: &app)
        // Never send the certificate of a sandbox to Apple's feedback service.
        if origins[SettingKey(app: name, name: "host")] != nil,
            origins[SettingKey(app: name, name: "feedback_host")] == nil
        {
            app.feedbackHost = app.host
        }
        if origins[SettingKey(app: name, name: "broadcast_host")] == nil { app.broadcastHost = app.host }
        // Never send the provider token of a sandbox to Apple.
        if origins[SettingKey(app: name, name: "host")] != nil,
            origins[SettingKey(app: name, name: "channels_host")] == nil
        {
            app.channelsHost = app.host
        }
        if app.keyID == nil, let key = app.key { app.keyID = AppConfiguration.keyID(ofFile: key) }
        return app
    }

    /// Checks all entries of these settings, and sets the values that no other entry overrides.
    private mutating func apply<Root>(
        _ settings: [Setting<Root>], app: AppName?, defaults: Root, to root: inout Root
    ) {
        for setting in settings {
            let key = SettingKey(app: app, name: setting.name)
            let winner = Self.winner(key, entries)
            for (index, (layer, entry)) in entries.enumerated() where entry.key == key {
                if setting.isSecret, !entry.isFile, entry.value != nil, case .file = entry.origin {
                    secretsInFile.append(key)
                }
                let wins = index == winner
                let context = SettingContext(folder: layer.folder, checksFiles: wins)
                var scratch = root
                do throws(InvalidValue) {
                    try setting.assign(try value(of: entry, context), context, defaults, &scratch)
                    guard wins else { continue }
                    root = scratch
                    if entry.value != nil { origins[key] = entry.origin }
                    if entry.isFile, let value = entry.value,
                        let path = try? SettingKind<String>.path.parse(value, context)
                    {
                        secretFiles.append((key, path))
                    }
                } catch {
                    refused.insert(key)
                    problems.append(.init(at: entry.origin, "\(key) \(error.message)"))
                }
            }
        }
    }

    /// Returns the value of an entry. If the entry names a file, the value is read from that file. If another entry
    /// overrides this one, only the path is checked.
    private func value(of entry: SettingLayer.Entry, _ context: SettingContext) throws(InvalidValue) -> SettingValue? {
        guard entry.isFile, let value = entry.value else { return entry.value }
        let path = try SettingKind<String>.path.parse(value, context)
        guard context.checksFiles else { return nil }
        do throws(ReadableFile.Problem) {
            let text = try ReadableFile.text(path, limit: SettingLimits.secretFile)
            // Editors and `echo` append a line break.
            return .text(text.hasSuffix("\r\n") || text.hasSuffix("\n") ? String(text.dropLast()) : text)
        } catch {
            throw InvalidValue(
                message: "cannot be read from \(LogText.cut(path, limit: SettingLimits.value)), \(error); "
                    + "the file must contain only the secret")
        }
    }

    /// Checks the rules that several settings form together.
    private mutating func checkTogether(_ configuration: Configuration) {
        if configuration.http.key != nil, configuration.http.certificate == nil {
            report(
                "http.key", "requires http.certificate; set it, or remove the key",
                unless: ["http.certificate"])
        }
        if configuration.registration == .session, !configuration.session.hasKeys {
            report(
                "registration",
                "is session, which requires session.secret, session.key or session.jwks; set one of them",
                unless: ["registration", "session.secret", "session.key", "session.jwks"])
        }
        if configuration.ntfy.upstream != nil, configuration.ntfyBaseURL == nil {
            report(
                "ntfy.upstream", "requires ntfy.base_url or http.public_url; set one of them",
                unless: ["ntfy.base_url", "http.public_url"])
        }
        if configuration.apps.count > SettingLimits.apps {
            let count = configuration.apps.count
            problems.append(.init(at: file, "apps has \(count) apps, but may have at most \(SettingLimits.apps)"))
        }
        if configuration.app(.web) != nil {
            problems.append(.init(at: file, "apps.\(AppName.web) is reserved for browsers; give the app another name"))
        }
        for app in configuration.apps {
            if app.certificateKey != nil, app.certificate == nil {
                report(
                    "certificate_key", of: app.name, "requires certificate; set it, or remove the key",
                    unless: ["certificate"])
            }
            if let (setting, message) = app.contradiction {
                report(
                    setting, of: app.name, message,
                    unless: ["gateway", "key", "key_id", "team_id", "topic", "certificate"])
            }
        }
    }

    /// Reports a problem with a setting.
    /// - Parameter causes: Settings that would explain the problem. If one of them was refused, the problem is not
    ///   reported, because the refusal already is.
    private mutating func report(_ name: String, of app: AppName? = nil, _ message: String, unless causes: [String]) {
        guard !causes.contains(where: { refused.contains(SettingKey(app: app, name: $0)) }) else { return }
        let key = SettingKey(app: app, name: name)
        problems.append(.init(at: origins[key] ?? .default, "\(key) \(message)"))
    }
}
