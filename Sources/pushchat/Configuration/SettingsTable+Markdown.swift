import ChatDomain

extension SettingsTable {
    /// The README's table of all settings, without a line break at the end.
    static func markdown() -> String {
        let head = ["setting", "default", "what it is", "takes", "after SIGHUP"]
        let relay = rows(relay, prefix: "") { Configuration(environment: $0) }
        let apps = rows(app, prefix: "apps.\(anyApp).") { AppConfiguration(name: .default, environment: $0) }
        return ([head, head.map { _ in "---" }] + relay + apps)
            .map { "| \($0.joined(separator: " | ")) |" }.joined(separator: "\n")
    }

    private static func rows<Root>(
        _ settings: [Setting<Root>], prefix: String, defaults: (Configuration.Environment) -> Root
    ) -> [[String]] {
        settings.map { setting in
            let names = setting.spellings.map { "`\(prefix)\($0.name)`" }.joined(separator: " or ")
            let texts = (setting.text(defaults(.development)), setting.text(defaults(.production)))
            return [
                names, defaultText(setting.name, texts.0, texts.1), setting.help, setting.rule,
                setting.needsRestart ? "restart" : "at once",
            ]
        }
    }

    private static func defaultText(_ name: String, _ development: String?, _ production: String?) -> String {
        func code(_ text: String?) -> String { text.map { "`\($0)`" } ?? "none" }
        // Itself different in each, of course.
        if name == "environment" || development == production { return code(development) }
        return "\(code(development)) in development, \(code(production)) in production"
    }
}
