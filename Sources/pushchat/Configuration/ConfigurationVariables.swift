import ChatDomain

/// The environment variables `PUSHCHAT_…`, as a layer.
struct ConfigurationVariables {
    /// The tutorial's variable, asked when nothing else says which environment this is.
    static let fallbackEnvironment = "APPLICATION_ENV"
    /// Those that choose the environment.
    static let ofEnvironment: Set<String> = [SettingsTable.variablePrefix + "ENVIRONMENT", fallbackEnvironment]

    private(set) var layer: SettingLayer
    private(set) var problems: [ConfigurationError.Problem] = []
    /// The apps that the file names.
    private let apps: [AppName]

    /// - Parameter apps: those that the file names: `PUSHCHAT_APPS_MY_APP_TOPIC` is the topic of `my-app` if there is one.
    init(_ variables: [String: String], apps: [AppName], folder: String) {
        self.apps = apps
        layer = SettingLayer(folder: folder)
        for (name, value) in variables.sorted(by: { $0.key < $1.key })
        where name.hasPrefix(SettingsTable.variablePrefix) && !Self.isServiceLink(name, value) {
            read(name, value)
        }
    }

    /// An empty variable counts as not set, because compose files pass on variables that are not set as empty ones.
    private mutating func read(_ name: String, _ value: String) {
        let part = name.dropFirst(SettingsTable.variablePrefix.count)
        if let known = SettingsTable.knownOfRelay.first(where: { SettingsTable.variablePart($0.spelling) == part }) {
            add(SettingKey(name: known.name), known, name, value)
        } else if name.hasPrefix(SettingsTable.appsVariablePrefix) {
            guard let (app, known) = appSetting(name) else { return }
            add(SettingKey(app: app, name: known.name), known, name, value)
        } else {
            refuse(name)
        }
    }

    private mutating func add(_ key: SettingKey, _ known: SettingsTable.Known, _ name: String, _ value: String) {
        guard !value.isEmpty else { return }
        layer.add(.init(key: key, value: .text(value), isFile: known.isFile, origin: .variable(name)))
    }

    /// Which app's which setting. Where the name can be split in two ways, at an app that is known; else where
    /// the setting's name is longest. Nil with a problem.
    private mutating func appSetting(_ name: String) -> (AppName, SettingsTable.Known)? {
        let rest = name.dropFirst(SettingsTable.appsVariablePrefix.count)
        let splits = SettingsTable.knownOfApp.compactMap { known -> (app: Substring, known: SettingsTable.Known)? in
            let suffix = "_" + SettingsTable.variablePart(known.spelling)
            return rest.hasSuffix(suffix) && rest.count > suffix.count ? (rest.dropLast(suffix.count), known) : nil
        }.sorted { $0.known.spelling.count > $1.known.spelling.count }

        for split in splits {
            let matches = candidates.filter { SettingsTable.variablePart($0.text) == split.app }
            if matches.count > 1 {
                let names = matches.map(\.text).joined(separator: " and ")
                problems.append(
                    .init(at: name, "can mean the apps \(names); set it in the configuration file instead"))
                return nil
            }
            if let app = matches.first { return (app, split.known) }
        }
        guard let split = splits.first else {
            refuse(name)
            return nil
        }
        if let app = newApp(split.app) { return (app, split.known) }
        if Suggestion.nearest(to: String(split.app), among: candidates.map(\.text)) != nil {
            refuse(name)
        } else {
            problems.append(
                .init(
                    at: name,
                    "sets \(split.known.spelling) of an app that is not known; name the app under apps in the "
                        + "configuration file"))
        }
        return nil
    }

    private mutating func refuse(_ name: String) {
        let prefix = SettingsTable.variablePrefix
        let part = String(name.dropFirst(prefix.count))
        let suggestion = Suggestion.nearest(to: part, among: names) ?? onlyName(endingWith: part)
        let mend = suggestion.map { "did you mean \(prefix)\($0)?" } ?? "unset it"
        problems.append(.init(at: name, "is not a variable that this version knows; \(mend)"))
    }

    /// `HTTP_PORT` for `PORT`; nil if there are none or several.
    private func onlyName(endingWith part: String) -> String? {
        let matches = names.filter { $0.hasSuffix("_" + part) && !$0.hasPrefix("APPS_") }
        return matches.count == 1 ? matches[0] : nil
    }

    /// A word without `_`, in lower case, names an app that the file does not; not if it looks like a slip for
    /// `default`.
    private func newApp(_ part: Substring) -> AppName? {
        let name = part.lowercased()
        guard AppName.isValid(name), name.unicodeScalars.allSatisfy(\.isLetterOrDigit),
            Suggestion.nearest(to: name, among: [AppName.default.text]) == nil
        else { return nil }
        return AppName(name)
    }

    private var candidates: [AppName] {
        apps.contains(.default) ? apps : apps + [.default]
    }

    /// Every name that would be understood, without the prefix: for suggestions.
    private var names: [String] {
        SettingsTable.knownOfRelay.map { SettingsTable.variablePart($0.spelling) }
            + candidates.flatMap { app in
                SettingsTable.knownOfApp.map { SettingsTable.variablePart("apps.\(app).\($0.spelling)") }
            }
    }

    /// What Kubernetes and Docker set in every container beside a service whose name begins with `pushchat`:
    /// `PUSHCHAT_SERVICE_HOST`, `PUSHCHAT_PORT=tcp://…`, `PUSHCHAT_RELAY_PORT_44447_TCP_ADDR`.
    private static func isServiceLink(_ name: String, _ value: String) -> Bool {
        let parts = name.dropFirst(SettingsTable.variablePrefix.count).split(separator: "_")
        if parts.last == "PORT", value.contains("://") { return true }
        return zip(parts, parts.dropFirst()).contains { part, next in
            (part == "SERVICE" && (next == "HOST" || next == "PORT")) || (part == "PORT" && Int(next) != nil)
        }
    }
}
