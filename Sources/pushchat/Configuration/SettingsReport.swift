import ChatDomain

/// One line of `pushchat config`.
struct SettingReport: Sendable, Equatable {
    /// The setting's name, for example `http.port` or `apps.default.topic`.
    let setting: String
    /// The value in the form that the configuration file accepts, or `(secret)` for a secret. `nil` if there is no
    /// value.
    let value: String?
    /// The source, for example `default`, `pushchat.yaml:12`, `PUSHCHAT_HTTP_PORT` or `--port`.
    let source: String

    static let header = ["SETTING", "VALUE", "FROM"]
    var row: [String] { [setting, value ?? "-", source] }

    /// The report as a JSON object. All reports have the same members.
    var json: JSONValue {
        .object(["setting": .string(setting), "value": .optional(value), "source": .string(source)])
    }
}

extension Configuration {
    /// Returns every setting in force, in the order of ``SettingsTable``. The apps are in the order of the file.
    func describe() -> [SettingReport] {
        report(SettingsTable.relay, of: self, app: nil)
            + apps.flatMap { report(SettingsTable.app, of: $0, app: $0.name) }
    }

    private func report<Root>(_ settings: [Setting<Root>], of root: Root, app: AppName?) -> [SettingReport] {
        settings.map { setting in
            let key = SettingKey(app: app, name: setting.name)
            return SettingReport(
                setting: key.description, value: setting.text(root).map { setting.isSecret ? Secret.shown : $0 },
                source: (origins[key] ?? .default).description)
        }
    }
}

extension SettingsTable {
    /// Returns the table of all settings in docs/configuration.md, without a line break at the end.
    static func markdown() -> String {
        let header = ["setting", "default", "description", "values"]
        let relay = rows(relay, prefix: "") { Configuration(environment: $0) }
        let apps = rows(app, prefix: "apps.NAME.") { AppConfiguration(name: .default, environment: $0) }
        return ([header, header.map { _ in "---" }] + relay + apps)
            .map { "| \($0.joined(separator: " | ")) |" }.joined(separator: "\n")
    }

    private static func rows<Root>(
        _ settings: [Setting<Root>], prefix: String, defaults: (Configuration.Environment) -> Root
    ) -> [[String]] {
        settings.map { setting in
            func text(_ environment: Configuration.Environment) -> String {
                setting.text(defaults(environment)).map { "`\($0)`" } ?? "none"
            }
            let (development, production) = (text(.development), text(.production))
            // The environment's own value differs in each environment.
            let isSame = development == production || setting.name == "environment"
            // A default value is an example.
            let isExample = !["none", "`none`", "`off`"].contains(production)
            return [
                setting.names.map { "`\(prefix)\($0.text)`" }.joined(separator: " or ")
                    + (setting.needsRestart ? " (restart)" : ""),
                isSame ? development : "\(development) in development, \(production) in production", setting.help,
                isExample ? setting.rule.replacing(/, for example `[^`]*`/, with: "") : setting.rule,
            ]
        }
    }
}
