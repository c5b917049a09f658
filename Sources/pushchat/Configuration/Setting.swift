import ChatDomain

/// One setting: how it is spelt, read, checked, shown and compared. `Root` is the part of the configuration that
/// holds it: ``Configuration`` or ``AppConfiguration``.
struct Setting<Root: Sendable>: Sendable {
    /// `http.port`; inside an app only the last word.
    let name: String
    /// Completes "must be …".
    let rule: String
    let help: String
    /// Never shown, and can be given as a file under the name with `_file`.
    let isSecret: Bool
    /// A change takes effect only when the process starts again; otherwise SIGHUP is enough.
    let needsRestart: Bool

    /// Checks a value and sets it; nil sets what `defaults` has.
    let assign: @Sendable (SettingValue?, SettingContext, _ defaults: Root, inout Root) throws(BrokenRule) -> Void
    /// The value in the form in which it can be written into the file; nil if there is none.
    let text: @Sendable (Root) -> String?
    let isSame: @Sendable (Root, Root) -> Bool
    /// Takes the value over from another root.
    let copy: @Sendable (_ from: Root, _ to: inout Root) -> Void

    init<Value: Sendable & Equatable>(
        _ name: String, _ path: any WritableKeyPath<Root, Value> & Sendable, _ kind: SettingKind<Value>,
        isSecret: Bool = false, needsRestart: Bool = false, _ help: String
    ) {
        self.name = name
        self.rule = kind.rule
        self.help = help
        self.isSecret = isSecret
        self.needsRestart = needsRestart
        assign = { value, context, defaults, root throws(BrokenRule) in
            if let value {
                root[keyPath: path] = try kind.parse(value, context)
            } else {
                root[keyPath: path] = defaults[keyPath: path]
            }
        }
        text = { kind.text($0[keyPath: path]) }
        isSame = { $0[keyPath: path] == $1[keyPath: path] }
        copy = { $1[keyPath: path] = $0[keyPath: path] }
    }

    /// The value as it may be shown.
    func shownText(_ root: Root) -> String? {
        text(root).map { isSecret ? Secret.shown : $0 }
    }

    /// The names under which it stands in the file: its own and, for a secret, that of the file with the secret.
    var spellings: [(name: String, isFile: Bool)] {
        isSecret ? [(name, false), (name + SettingKey.fileSuffix, true)] : [(name, false)]
    }
}

/// Which setting, of which app.
struct SettingKey: Sendable, Hashable, CustomStringConvertible {
    /// What follows the name of a secret that is given as a file.
    static let fileSuffix = "_file"

    var app: AppName?
    var name: String

    /// `http.port`, `apps.default.topic`.
    var description: String {
        app.map { "apps.\($0).\(name)" } ?? name
    }
}

/// A value before it was checked.
enum SettingValue: Sendable, Hashable {
    case text(String)
    case list([String])

    static let longestShown = 60

    /// In quotation marks, on one line, not too long: for messages.
    var quoted: String {
        switch self {
        case .text(let text): LogText.quoted(text, limit: Self.longestShown)
        case .list(let items): "[\(LogText.cut(items.joined(separator: ", "), limit: Self.longestShown))]"
        }
    }
}

/// Where a value came from.
enum Origin: Sendable, Hashable, CustomStringConvertible {
    case `default`
    case file(String, line: Int, column: Int)
    case variable(String)
    case flag(String)

    /// `default`, `pushchat.yaml:12`, `PUSHCHAT_HTTP_PORT`, `--port`.
    var description: String {
        switch self {
        case .default: "default"
        case .file(let name, let line, _): "\(name):\(line)"
        case .variable(let name), .flag(let name): name
        }
    }

    /// As ``description``, with the column.
    var position: String {
        if case .file(let name, let line, let column) = self { return "\(name):\(line):\(column)" }
        return description
    }
}

/// What checking a value may need to know.
struct SettingContext: Sendable {
    /// Relative paths start here.
    let folder: String
    /// Files must be there. Not asked for a value that another one overrides, or that is of the other environment.
    let checksFiles: Bool

    func absolute(_ path: String) -> String {
        FilePath.absolute(path, in: folder)
    }
}

/// Why a value was refused.
struct BrokenRule: Error, Sendable {
    /// Follows the setting's name: `is "80x", but must be …`, or `names /a/b.pem, which does not exist; …`.
    let message: String
}
