import ChatDomain

extension SettingsTable {
    /// Every variable of ours begins so.
    static let variablePrefix = "PUSHCHAT_"
    static let appsVariablePrefix = "PUSHCHAT_APPS_"
    /// How the table and the documentation spell a setting of an app: `apps.NAME.topic`.
    static let anyApp = "NAME"

    /// Keys that hold maps: `http`, `database`, …
    static let sections: Set<String> = Set(
        relay.compactMap { $0.name.contains(".") ? String($0.name.prefix { $0 != "." }) : nil })

    /// A setting under one of its spellings.
    struct Known: Sendable {
        let name: String
        /// As it was spelt: for a secret's file with `_file`.
        let spelling: String
        let rule: String
        let isFile: Bool
    }

    static let knownOfRelay = relay.flatMap(known)
    static let knownOfApp = app.flatMap(known)

    private static func known<Root>(_ setting: Setting<Root>) -> [Known] {
        setting.spellings.map {
            Known(name: setting.name, spelling: $0.name, rule: setting.rule, isFile: $0.isFile)
        }
    }

    static func setting(spelt spelling: String, inApp: Bool) -> Known? {
        (inApp ? knownOfApp : knownOfRelay).first { $0.spelling == spelling }
    }

    /// `; did you mean …?` for a key that is not known, from its neighbours first, then from everywhere.
    static func suggestion(for name: String, app: AppName?) -> String {
        if let app {
            if let known = Suggestion.nearest(to: name, among: knownOfApp.map(\.spelling)) {
                return "; did you mean apps.\(app).\(known)?"
            }
            return onlySetting(endingWith: name, in: knownOfRelay).map { "; did you mean \($0)?" } ?? ""
        }
        let top =
            knownOfRelay.map(\.spelling) + sections + ["apps"] + Configuration.Environment.allCases.map(\.rawValue)
        if setting(spelt: name, inApp: false) != nil {
            return "; write its parts as nested keys"
        }
        if let known = Suggestion.nearest(to: name, among: top) ?? onlySetting(endingWith: name, in: knownOfRelay) {
            return "; did you mean \(known)?"
        }
        return knownOfApp.contains { $0.spelling == name } ? "; did you mean apps.\(AppName.default).\(name)?" : ""
    }

    /// The only setting whose path ends with the word; nil if there are none or several.
    private static func onlySetting(endingWith word: String, in known: [Known]) -> String? {
        let matches = known.map(\.spelling).filter { $0.hasSuffix("." + word) }
        return matches.count == 1 ? matches[0] : nil
    }

    /// `http.rate_per_member` as `HTTP_RATE_PER_MEMBER`.
    static func variablePart(_ name: String) -> String {
        name.uppercased().replacing(".", with: "_").replacing("-", with: "_")
    }
}
