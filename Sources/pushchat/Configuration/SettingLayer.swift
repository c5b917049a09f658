import ChatDomain

/// What one source says: settings as they were written, not yet checked. Later layers override earlier ones.
struct SettingLayer: Sendable {
    struct Entry: Sendable {
        let key: SettingKey
        /// Nil was written as nothing (`topic:`): the default applies again.
        let value: SettingValue?
        /// The value is the path of a file with the secret.
        let isFile: Bool
        let origin: Origin
    }

    /// Relative paths start here.
    let folder: String
    /// False for the block of the environment that is not chosen: it is checked, but does not count.
    var applies = true
    var entries: [Entry] = []
    /// Apps in the order in which they are named, also those without any setting.
    var apps: [AppName] = []

    init(folder: String) {
        self.folder = folder
    }

    mutating func add(app: AppName) {
        if !apps.contains(app) { apps.append(app) }
    }

    mutating func add(_ entry: Entry) {
        if let app = entry.key.app { add(app: app) }
        entries.append(entry)
    }

    /// A setting must not be given twice in one layer, as itself and as a file.
    var contradictions: [ConfigurationError.Problem] {
        var seen: [SettingKey: Entry] = [:]
        var problems: [ConfigurationError.Problem] = []
        for entry in entries where entry.value != nil {
            if let other = seen[entry.key], other.isFile != entry.isFile {
                let (plain, file) = entry.isFile ? (other, entry) : (entry, other)
                problems.append(
                    .init(
                        at: file.origin,
                        "\(entry.key) is given as itself (\(plain.origin)) and as a file (\(file.origin)); "
                            + "remove one of them"))
            }
            seen[entry.key] = entry
        }
        return problems
    }
}

extension AppName {
    /// Characters of a name.
    static let longest = 64

    static let rule = "letters, digits, `.`, `-` and `_`, at most \(longest), a letter or digit first"

    /// Whether an app may be called so in the configuration.
    static func isValid(_ text: String) -> Bool {
        guard let first = text.unicodeScalars.first, first.isLetterOrDigit, text.utf8.count <= longest else {
            return false
        }
        return text.unicodeScalars.allSatisfy { $0.isLetterOrDigit || ".-_".unicodeScalars.contains($0) }
    }
}
