import Foundation

/// One line of `pushchat config`.
struct SettingReport: Sendable, Equatable, Encodable {
    /// `http.port`, `apps.default.topic`.
    let setting: String
    /// As it can be written into the file; `(secret)` for a secret, nil for none.
    let value: String?
    /// `default`, `pushchat.yaml:12`, `PUSHCHAT_HTTP_PORT`, `--port`.
    let source: String

    private enum CodingKeys: CodingKey { case setting, value, source }

    /// With `null` where there is no value, so that every entry has the same keys.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(setting, forKey: .setting)
        try container.encode(value, forKey: .value)
        try container.encode(source, forKey: .source)
    }
}

extension Configuration {
    /// Every setting in force, in the table's order, the apps in the file's.
    func describe() -> [SettingReport] {
        SettingsTable.relay.map { report($0, of: self, key: SettingKey(name: $0.name)) }
            + apps.flatMap { app in
                SettingsTable.app.map { report($0, of: app, key: SettingKey(app: app.name, name: $0.name)) }
            }
    }

    /// Columns of ``describe()``, for people; `-` where there is no value.
    func describeAsText() -> String {
        let rows = [["SETTING", "VALUE", "FROM"]] + describe().map { [$0.setting, $0.value ?? "-", $0.source] }
        let cells = rows.map { $0.map(LogText.escaped) }
        let widths = (0..<2).map { column in cells.map { $0[column].count }.max() ?? 0 }
        return cells.map { row in
            zip(row, widths).map { $0.padding(toLength: $1, withPad: " ", startingAt: 0) + "  " }.joined() + row[2]
        }.joined(separator: "\n")
    }

    /// ``describe()`` as a JSON array of objects with `setting`, `value` and `source`.
    func describeAsJSON() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(describe()), as: UTF8.self)
    }

    private func report<Root>(_ setting: Setting<Root>, of root: Root, key: SettingKey) -> SettingReport {
        SettingReport(
            setting: key.description, value: setting.shownText(root),
            source: (origins[key] ?? .default).description)
    }
}
