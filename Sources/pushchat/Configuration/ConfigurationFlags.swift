import ChatDomain

/// A setting that was given on the command line.
struct ConfigurationFlag: Sendable {
    /// `http.port`, `apps.default.certificate`.
    let setting: String
    let value: String
    /// As the user typed it, `--port`: for messages and for `pushchat config`.
    let name: String

    init(_ setting: String, _ value: String, name: String) {
        self.setting = setting
        self.value = value
        self.name = name
    }
}

/// The flags, as a layer.
struct ConfigurationFlags {
    private(set) var layer: SettingLayer
    private(set) var problems: [ConfigurationError.Problem] = []

    init(_ flags: [ConfigurationFlag], folder: String) {
        layer = SettingLayer(folder: folder)
        for flag in flags {
            let (app, name) = Self.split(flag.setting)
            guard app.map({ AppName.isValid($0.text) }) ?? true,
                let known = SettingsTable.setting(spelt: name, inApp: app != nil)
            else {
                problems.append(
                    .init(
                        at: flag.name,
                        "\(SettingValue.text(flag.setting).quoted) is not a setting"
                            + Suggestion.clause(for: flag.setting, among: SettingsTable.knownOfRelay.map(\.spelling))))
                continue
            }
            layer.add(
                .init(
                    key: SettingKey(app: app, name: known.name), value: .text(flag.value), isFile: known.isFile,
                    origin: .flag(flag.name)))
        }
    }

    /// `apps.com.example.topic` is the topic of the app `com.example`.
    private static func split(_ path: String) -> (AppName?, String) {
        let prefix = "apps."
        guard path.hasPrefix(prefix), let dot = path.lastIndex(of: "."),
            path.index(path.startIndex, offsetBy: prefix.count) < dot
        else { return (nil, path) }
        let app = path[path.index(path.startIndex, offsetBy: prefix.count)..<dot]
        return (AppName(String(app)), String(path[path.index(after: dot)...]))
    }
}
