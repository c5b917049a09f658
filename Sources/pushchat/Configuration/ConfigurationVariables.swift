import ChatDomain

/// The environment variables `PUSHCHAT_…`, as a layer.
struct ConfigurationVariables {
    /// The prefix of all the relay's variables.
    static let prefix = "PUSHCHAT_"
    /// The tutorial's variable. It selects the environment if no other source does.
    static let fallbackEnvironment = "APPLICATION_ENV"
    /// Variables that select the environment.
    static let ofEnvironment: Set<String> = [prefix + "ENVIRONMENT", fallbackEnvironment]
    /// Variables for commands that call a relay, not settings: `--token` of a program, `--session` of a member.
    static let (token, session) = (prefix + "TOKEN", prefix + "SESSION")

    private(set) var layer: SettingLayer
    private(set) var problems: [ConfigurationError.Problem] = []
    /// The apps of the file, and `default`.
    private let apps: [AppName]

    /// - Parameter apps: The apps that the file names. `PUSHCHAT_APPS_MY_APP_TOPIC` is the topic of `my-app` if the
    ///   file has that app.
    init(_ variables: [String: String], apps: [AppName], folder: String) {
        self.apps = apps.contains(.default) ? apps : apps + [.default]
        layer = SettingLayer(folder: folder)
        for (name, value) in variables.sorted(by: { $0.key < $1.key })
        where name.hasPrefix(Self.prefix) && !Self.isServiceLink(name, value)
            && ![Self.token, Self.session].contains(name)
        {
            guard let (app, setting) = setting(name) else { continue }
            // Ignore empty variables, because compose files pass on unset variables as empty ones.
            if !value.isEmpty { layer.add(setting, of: app, .text(value), from: .variable(name)) }
        }
    }

    /// The app and the setting of a variable. `nil` after reporting a problem.
    private mutating func setting(_ name: String) -> (AppName?, SettingName)? {
        let part = name.dropFirst(Self.prefix.count)
        if let known = SettingName.relay.first(where: { $0.variable == part }) { return (nil, known) }
        if part.hasPrefix("APPS_") { return appSetting(name, part.dropFirst("APPS_".count)) }
        reportUnknown(name)
        return nil
    }

    /// The app and the setting of an app's variable. If the name can be split in several ways, prefers a known app, and
    /// else the longest name of a setting.
    ///
    /// - Parameter rest: The part of the name after `PUSHCHAT_APPS_`.
    private mutating func appSetting(_ name: String, _ rest: Substring) -> (AppName?, SettingName)? {
        let splits = SettingName.app.compactMap { known -> (app: Substring, setting: SettingName)? in
            let suffix = "_" + known.variable
            return rest.hasSuffix(suffix) && rest.count > suffix.count ? (rest.dropLast(suffix.count), known) : nil
        }.sorted { $0.setting.text.count > $1.setting.text.count }

        for split in splits {
            let matches = apps.filter { SettingName.variable($0.text) == split.app }
            if matches.count > 1 {
                let names = matches.map(\.text).joined(separator: " and ")
                problems.append(
                    .init(at: name, "can mean the apps \(names); set it in the configuration file instead"))
                return nil
            }
            if let app = matches.first { return (app, split.setting) }
        }
        guard let split = splits.first else {
            reportUnknown(name)
            return nil
        }
        if let app = newApp(split.app) { return (app, split.setting) }
        if Suggestion.nearest(to: String(split.app), among: apps.map(\.text)) != nil {
            reportUnknown(name)
        } else {
            problems.append(
                .init(
                    at: name,
                    "sets \(split.setting.text) of an unknown app; add the app under apps in the "
                        + "configuration file"))
        }
        return nil
    }

    private mutating func reportUnknown(_ name: String) {
        let part = String(name.dropFirst(Self.prefix.count))
        let relay = SettingName.relay.map(\.variable)
        let all = relay + apps.flatMap { app in SettingName.app.map { SettingName.variable("apps.\(app).\($0.text)") } }
        // Suggests `HTTP_PORT` for `PORT`.
        let suggestion = Suggestion.nearest(to: part, among: all) ?? relay.only { $0.hasSuffix("_" + part) }
        let advice = suggestion.map { "did you mean \(Self.prefix)\($0)?" } ?? "unset it"
        problems.append(.init(at: name, "is not a variable that this version knows; \(advice)"))
    }

    /// An app that the file does not name, from a word in lower case without `_`. `nil` if the word looks like a
    /// misspelled `default`.
    private func newApp(_ part: Substring) -> AppName? {
        let name = part.lowercased()
        guard AppName.isValid(name), name.unicodeScalars.allSatisfy(\.isLetterOrDigit),
            Suggestion.nearest(to: name, among: [AppName.default.text]) == nil
        else { return nil }
        return AppName(name)
    }

    /// Whether Kubernetes or Docker set the variable. They do so in containers next to a service whose name begins
    /// with `pushchat`: `PUSHCHAT_SERVICE_HOST`, `PUSHCHAT_PORT=tcp://…`, `PUSHCHAT_RELAY_PORT_44447_TCP_ADDR`.
    private static func isServiceLink(_ name: String, _ value: String) -> Bool {
        let parts = name.dropFirst(prefix.count).split(separator: "_")
        if parts.last == "PORT", value.contains("://") { return true }
        return zip(parts, parts.dropFirst()).contains { part, next in
            (part == "SERVICE" && (next == "HOST" || next == "PORT")) || (part == "PORT" && Int(next) != nil)
        }
    }
}
