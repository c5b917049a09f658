import APNSGateway
import ChatDomain
import ChatHTTP
import Foundation
import PushWire
import WebPushGateway

/// One setting: its names, and how to read, check, show and compare its value. `Root` is the part of the configuration
/// that holds it: ``Configuration`` or ``AppConfiguration``.
struct Setting<Root: Sendable>: Sendable {
    /// The name, for example `http.port`. A setting of an app has only the last word, for example `topic`.
    let name: String
    /// The text that completes "must be …".
    let rule: String
    let help: String
    /// Whether the value is never shown. The user can then also name a file with the value, under the setting's name
    /// with the suffix `_file`.
    let isSecret: Bool
    /// Whether a change takes effect only after a restart. For other settings SIGHUP is enough.
    let needsRestart: Bool
    /// Whether an app with another value needs a new gateway.
    let isOfGateway: Bool

    /// Checks a value and sets it. `nil` sets the value of `defaults`.
    let assign: @Sendable (SettingValue?, SettingContext, _ defaults: Root, inout Root) throws(InvalidValue) -> Void
    /// The value in the form that the configuration file accepts. `nil` if there is no value.
    let text: @Sendable (Root) -> String?
    /// Copies the value from one root to another.
    let copy: @Sendable (_ from: Root, _ to: inout Root) -> Void

    init<Value: Sendable & Equatable>(
        _ name: String, _ path: any WritableKeyPath<Root, Value> & Sendable, _ kind: SettingKind<Value>,
        isSecret: Bool = false, needsRestart: Bool = false, isOfGateway: Bool = false, _ help: String
    ) {
        self.name = name
        self.rule = kind.rule
        self.help = help
        self.isSecret = isSecret
        self.needsRestart = needsRestart
        self.isOfGateway = isOfGateway
        assign = { value, context, defaults, root throws(InvalidValue) in
            root[keyPath: path] =
                try value.map { value throws(InvalidValue) in
                    try kind.parse(value, context)
                } ?? defaults[keyPath: path]
        }
        text = { kind.text($0[keyPath: path]) }
        copy = { $1[keyPath: path] = $0[keyPath: path] }
    }

    /// The names under which a user can give the setting: its own and, for a secret, that of a file with the secret.
    var names: [SettingName] {
        let own = SettingName(text: name, setting: name, rule: rule, isFile: false)
        return isSecret ? [own, SettingName(text: name + "_file", setting: name, rule: rule, isFile: true)] : [own]
    }
}

/// A name under which a user can give a setting.
struct SettingName: Sendable {
    let text: String
    let setting: String
    let rule: String
    let isFile: Bool

    static let relay = SettingsTable.relay.flatMap(\.names)
    static let app = SettingsTable.app.flatMap(\.names)
    /// Keys that hold maps: `http`, `database`, …
    static let sections = Set(relay.compactMap { $0.text.contains(".") ? String($0.text.prefix { $0 != "." }) : nil })

    static func named(_ text: String, inApp: Bool) -> SettingName? {
        (inApp ? app : relay).first { $0.text == text }
    }

    /// The name in environment variables, for example `HTTP_RATE_PER_MEMBER` for `http.rate_per_member`.
    var variable: String { Self.variable(text) }

    static func variable(_ name: String) -> String {
        name.uppercased().replacing(".", with: "_").replacing("-", with: "_")
    }

    /// `; did you mean …?` for an unknown key. Looks for a similar name first among the keys of the same map, then
    /// everywhere. Empty if there is none.
    static func suggestion(for name: String, app appName: AppName?) -> String {
        func endingWithName() -> String? { relay.map(\.text).only { $0.hasSuffix("." + name) } }
        let suggestion: String?
        if let appName {
            suggestion =
                Suggestion.nearest(to: name, among: app.map(\.text)).map { "apps.\(appName).\($0)" } ?? endingWithName()
        } else if named(name, inApp: false) != nil {
            return "; write its parts as nested keys"
        } else {
            let top = relay.map(\.text) + sections + ["apps"] + Configuration.Environment.allCases.map(\.rawValue)
            suggestion =
                Suggestion.nearest(to: name, among: top) ?? endingWithName()
                ?? named(name, inApp: true).map { "apps.\(AppName.default).\($0.text)" }
        }
        return suggestion.map { "; did you mean \($0)?" } ?? ""
    }
}

extension Sequence {
    /// The only element that meets the condition. `nil` if none or several do.
    func only(where condition: (Element) -> Bool) -> Element? {
        let matches = filter(condition)
        return matches.count == 1 ? matches[0] : nil
    }
}

/// A setting of the relay or, with an app, of that app.
struct SettingKey: Sendable, Hashable, CustomStringConvertible {
    var app: AppName?
    var name: String

    /// The name as users write it, for example `http.port` or `apps.default.topic`.
    var description: String {
        app.map { "apps.\($0).\(name)" } ?? name
    }
}

/// The source of a value.
enum SettingOrigin: Sendable, Hashable, CustomStringConvertible {
    case `default`
    case file(String, line: Int, column: Int)
    case variable(String)
    case flag(String)

    /// The source as `pushchat config` shows it, for example `default`, `pushchat.yaml:12`, `PUSHCHAT_HTTP_PORT` or
    /// `--port`.
    var description: String {
        switch self {
        case .default: "default"
        case .file(let name, let line, _): "\(name):\(line)"
        case .variable(let name), .flag(let name): name
        }
    }

    /// The ``description``, but with the column in a file.
    var position: String {
        if case .file(let name, let line, let column) = self { return "\(name):\(line):\(column)" }
        return description
    }
}

/// A value that has not been checked yet.
enum SettingValue: Sendable, Hashable {
    case text(String)
    case list([String])

    static let maxShown = 60

    /// The value for messages: in quotation marks, on one line, and shortened.
    var quoted: String {
        switch self {
        case .text(let text): LogText.quoted(text, limit: Self.maxShown)
        case .list(let items): "[\(LogText.cut(items.joined(separator: ", "), limit: Self.maxShown))]"
        }
    }
}

/// The facts that the check of a value may need.
struct SettingContext: Sendable {
    /// The folder to which relative paths refer.
    let folder: String
    /// Whether files must exist. `false` for a value that another one overrides, or that belongs to the other
    /// environment.
    let checksFiles: Bool
}

/// The reason for which a value was refused.
struct InvalidValue: Error, Sendable {
    /// The text that follows the setting's name: `is "80x", but must be …`, or `names /a/b.pem, which does not exist;
    /// …`.
    let message: String
}

/// Limits of values, and of the files that contain them.
enum SettingLimits {
    /// The maximum size of one value in bytes. No path is longer.
    static let value = 4096
    /// The maximum size of a file with a secret, in bytes.
    static let secretFile = 4096
    /// The maximum number of tokens in one setting.
    static let tokens = 8
    /// The maximum size of a file with keys, in bytes.
    static let keyFile = 262_144
    /// The maximum number of items in a list, for example networks of proxies.
    static let list = 256
    /// The maximum size of the configuration file, in bytes.
    static let file = 262_144
    /// The maximum number of apps. Each has its own connections.
    static let apps = 100
}

/// A kind of value: how to parse a value from text, and how to write it as text.
struct SettingKind<Value: Sendable & Equatable>: Sendable {
    /// The text that completes "must be …", with an example.
    let rule: String
    let parse: @Sendable (SettingValue, SettingContext) throws(InvalidValue) -> Value
    /// The form that ``parse`` reads. `nil` if there is no value.
    let text: @Sendable (Value) -> String?
}

extension SettingKind {
    /// Creates a kind whose rule explains every wrong value.
    init(
        rule: String, read: @escaping @Sendable (String) -> Value?, text: @escaping @Sendable (Value) -> String?
    ) {
        self.init(
            rule: rule,
            parse: { value, _ throws(InvalidValue) in
                guard case .text(let text) = value, text.utf8.count <= SettingLimits.value, let read = read(text) else {
                    throw InvalidValue(message: "is \(value.quoted), but must be \(rule)")
                }
                return read
            }, text: text)
    }

    /// Returns this kind for a property that may be `nil`.
    ///
    /// - Parameter none: The word in the file that means `nil`. `nil` if there is no such word.
    func optional(none: String? = nil) -> SettingKind<Value?> {
        let (kind, alternative) = (self, none.map { ", or `\($0)`" } ?? "")
        return SettingKind<Value?>(
            rule: rule + alternative,
            parse: { value, context throws(InvalidValue) in
                if let none, value == .text(none) { return nil }
                do throws(InvalidValue) {
                    return try kind.parse(value, context)
                } catch {
                    throw InvalidValue(message: error.message + alternative)
                }
            },
            text: { $0.flatMap(kind.text) ?? none })
    }
}

extension SettingKind where Value == Int {
    static func number(_ range: ClosedRange<Int>, unit: String = "") -> Self {
        Self(
            rule: "a whole number\(unit.isEmpty ? "" : " of \(unit)") from \(range.lowerBound) to \(range.upperBound)",
            read: { text in text.wholeNumber.flatMap { range.contains($0) ? $0 : nil } }, text: String.init)
    }
}

extension SettingKind where Value == Duration {
    static func duration(_ range: ClosedRange<Duration>, example: String) -> Self {
        let bounds = (DurationText.text(range.lowerBound), DurationText.text(range.upperBound))
        return Self(
            rule: "a duration with its unit from \(bounds.0) to \(bounds.1), for example `\(example)`",
            read: { text in DurationText.duration(text).flatMap { range.contains($0) ? $0 : nil } },
            text: DurationText.text)
    }

    static var retention: Self { duration(.seconds(60) ... .days(36_500), example: "30 days") }
}

extension SettingKind where Value == RequestRate {
    static var rateLimit: Self {
        Self(
            rule: "a rate per `s`, `min` or `h`, with an optional burst, for example `10/s burst 50`",
            read: RequestRate.init(parsing:), text: \.description)
    }
}

extension SettingKind where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
    static var choice: Self {
        let words = Value.allCases.map { "`\($0.rawValue)`" }
        let rule = words.dropLast().joined(separator: ", ") + " or " + (words.last ?? "")
        return Self(rule: rule, read: Value.init(rawValue:), text: \.rawValue)
    }
}

extension SettingKind where Value == Bool {
    static var onOrOff: Self {
        Self(rule: "`on` or `off`", read: { ["on": true, "off": false][$0] }, text: { $0 ? "on" : "off" })
    }
}

extension SettingKind where Value == Secret {
    private init(rule: String, shortest: Int, isAllowed: @escaping @Sendable (Unicode.Scalar) -> Bool) {
        self.init(
            rule: rule,
            parse: { value, _ throws(InvalidValue) in
                guard case .text(let text) = value, (shortest...SettingLimits.secretFile).contains(text.utf8.count),
                    text.unicodeScalars.allSatisfy(isAllowed)
                else { throw InvalidValue(message: "has a value that is not shown here, but must be \(rule)") }
                return Secret(text)
            }, text: { $0.text })
    }

    /// A token for an `Authorization: Bearer` header.
    ///
    /// - Parameter shortest: The minimum length in bytes.
    static func visibleASCII(shortest: Int, example: String = "the output of `openssl rand -hex 32`") -> Self {
        Self(
            rule: "at least \(shortest) characters of printable ASCII without spaces, for example \(example)",
            shortest: shortest, isAllowed: { (0x21...0x7E).contains($0.value) })
    }

    /// A URL in any form that libpq accepts, also with several hosts and with parameters.
    static var postgres: Self {
        let kind = Self(
            rule: "a PostgreSQL URL, for example `postgres://relay@db.example.org/pushchat`", shortest: 12,
            isAllowed: { (0x21...0x7E).contains($0.value) })
        return Self(
            rule: kind.rule,
            parse: { value, context throws(InvalidValue) in
                let url = try kind.parse(value, context)
                guard url.text.hasPrefix("postgres://") || url.text.hasPrefix("postgresql://") else {
                    throw InvalidValue(message: "has a value that is not shown here, but must be \(kind.rule)")
                }
                return url
            }, text: kind.text)
    }

    static var passphrase: Self {
        Self(rule: "a text without control characters", shortest: 0, isAllowed: \.isPrintable)
    }
}

extension SettingKind where Value == [Secret] {
    /// One or several tokens, so that the operator can exchange one while another is valid.
    static var tokens: Self {
        let kind = SettingKind<Secret>.visibleASCII(shortest: 16)
        let rule = kind.rule + "; up to \(SettingLimits.tokens) as a list, or separated by spaces or line breaks"
        return Self(
            rule: rule,
            parse: { value, context throws(InvalidValue) in
                let items =
                    switch value {
                    case .list(let items): items
                    case .text(let text): text.split(whereSeparator: \.isWhitespace).map(String.init)
                    }
                let tokens = items.compactMap { try? kind.parse(.text($0), context) }
                guard tokens.count == items.count, (1...SettingLimits.tokens).contains(tokens.count) else {
                    throw InvalidValue(message: "has a value that is not shown here, but must be \(rule)")
                }
                return tokens
            }, text: { $0.isEmpty ? nil : $0.map(\.text).joined(separator: " ") })
    }
}

extension SettingKind where Value == String {
    /// Returns the kind of a text that is not empty.
    /// - Parameter limit: The maximum length in bytes.
    private static func text(
        _ rule: String, limit: Int, isAllowed: @escaping @Sendable (Unicode.Scalar) -> Bool
    ) -> Self {
        Self(
            rule: rule,
            read: { text in
                let isValid = !text.isEmpty && text.utf8.count <= limit && text.unicodeScalars.allSatisfy(isAllowed)
                return isValid ? text : nil
            }, text: { $0 })
    }

    static func printable(_ rule: String, limit: Int) -> Self {
        text(rule, limit: limit, isAllowed: \.isPrintable)
    }

    static func claim(example: String) -> Self {
        printable("the text of the claim, for example `\(example)`", limit: 255)
    }

    static func appleID(example: String) -> Self {
        text("letters and digits, for example `\(example)`", limit: 64, isAllowed: \.isLetterOrDigit)
    }

    /// `https://host`, or `http://` for this machine. Browsers trust pages of their own machine without TLS.
    static var publicURL: Self {
        Self(
            rule: "the address of the relay for browsers, for example `https://chat.example.org` or "
                + "`https://example.org/chat`",
            read: { text in
                guard let address = serverAddress(text), let url = URL(string: address), let host = url.host(),
                    url.scheme == "https" || ["localhost", "127.0.0.1", "[::1]"].contains(host)
                else { return nil }
                return address
            }, text: { $0 })
    }

    /// The address of a server, maybe with a path. A slash at the end is dropped.
    static func serverURL(example: String) -> Self {
        let rule = "an `https:` or `http:` URL without user, query and fragment, for example `\(example)`"
        return Self(rule: rule, read: serverAddress, text: { $0 })
    }

    /// Returns the address of a server without slashes at its end. `nil` if the text is not such an address.
    private static func serverAddress(_ text: String) -> String? {
        guard text.utf8.count <= 255, text.isVisibleASCII,
            let url = URL(string: text), let host = url.host(), !host.isEmpty, url.user() == nil,
            url.password() == nil, url.query() == nil, url.fragment() == nil,
            ["https", "http"].contains(url.scheme)
        else { return nil }
        return String(text.reversed().drop { $0 == "/" }.reversed())
    }

    /// A subject of a VAPID token.
    static var contact: Self {
        text(
            "a `mailto:` URL with a plain address (no name, no `<` and `>`), or an `https:` URL with a host, for example "
                + "`mailto:you@example.org`", limit: 255
        ) {
            (0x21...0x7E).contains($0.value)
        }.checked { VAPIDContact($0) != nil }
    }

    /// Returns this kind with one more rule.
    private func checked(_ isValid: @escaping @Sendable (String) -> Bool) -> Self {
        let (kind, rule) = (self, rule)
        return Self(
            rule: rule,
            parse: { value, context throws(InvalidValue) in
                let text = try kind.parse(value, context)
                guard isValid(text) else { throw InvalidValue(message: "is \(value.quoted), but must be \(rule)") }
                return text
            }, text: { $0 })
    }

    /// A name that needs no quotation marks in SQL.
    static var schema: Self {
        text("lower-case letters, digits and `_`, beginning with a letter, for example `pushchat`", limit: 50) {
            ("a"..."z").contains($0) || ("0"..."9").contains($0) || $0 == "_"
        }.checked { $0.first?.isLetter ?? false }
    }

    static var bundleID: Self {
        text("a bundle id, for example `com.example.PushChat`", limit: 255) {
            $0.isLetterOrDigit || ".-_".unicodeScalars.contains($0)
        }
    }

    /// An address or a host name, not a URL.
    static func host(example: String) -> Self {
        text("an address or a host name, without scheme and port, for example `\(example)`", limit: 253) {
            $0.isLetterOrDigit || ".-_:%".unicodeScalars.contains($0)
        }
    }

    /// The path of a file that need not exist.
    static var path: Self {
        Self(
            rule: "a path",
            parse: { value, context throws(InvalidValue) in
                guard case .text(let text) = value, !text.isEmpty, text.utf8.count <= SettingLimits.value,
                    text.unicodeScalars.allSatisfy(\.isPrintable)
                else { throw InvalidValue(message: "is \(value.quoted), but must be a path") }
                return FilePath.absolute(text, in: context.folder)
            }, text: { $0 })
    }

    /// The path of a file that must exist, be readable and not be empty.
    static func file(_ what: String) -> Self {
        Self(
            rule: "the path of \(what)",
            parse: { value, context throws(InvalidValue) in
                let path = try Self.path.parse(value, context)
                guard context.checksFiles else { return path }
                do throws(ReadableFile.Problem) {
                    try ReadableFile.check(path)
                } catch {
                    throw InvalidValue(
                        message: "names \(LogText.cut(path, limit: SettingLimits.value)), \(error); "
                            + "it must be the path of \(what)")
                }
                return path
            }, text: { $0 })
    }
}

extension SettingKind where Value == [String] {
    static var addressRanges: Self {
        list("addresses and networks", example: "127.0.0.1, 10.0.0.0/8") { AddressRange($0) != nil }
    }

    static var pushHosts: Self {
        list("hosts, with a port if it is not 443", example: "up.example.org, 192.0.2.1:8443") {
            (try? EndpointRules(hosts: [$0])) != nil
        }
    }

    static var webhookHosts: Self {
        list("hosts, with a port if it is not 443", example: "homeassistant.local:8123, n8n:5678") {
            (try? EndpointRules(webhooks: [$0])) != nil
        }
    }

    /// Some of the optional fields of chat messages to Apple.
    static var chatFields: Self {
        list("of " + ChatField.allCases.map { "`\($0.rawValue)`" }.joined(separator: ", "), example: "category") {
            ChatField(rawValue: $0) != nil
        }
    }

    /// Returns the kind of a list, which the user may also write as a text with the items separated by commas.
    private static func list(
        _ what: String, example: String, isValid: @escaping @Sendable (String) -> Bool
    ) -> Self {
        let rule = "a list of at most \(SettingLimits.list) \(what), for example `\(example)`"
        return Self(
            rule: rule,
            parse: { value, _ throws(InvalidValue) in
                let items =
                    switch value {
                    case .list(let items): items
                    case .text(let text): text.split(separator: ",").map(String.init)
                    }
                let entries = items.map { $0.trimmingCharacters(in: .whitespaces) }
                guard entries.count <= SettingLimits.list else {
                    throw InvalidValue(message: "has \(entries.count) entries, but must be \(rule)")
                }
                if let wrong = entries.first(where: { !isValid($0) }) {
                    throw InvalidValue(message: "contains \(SettingValue.text(wrong).quoted), but must be \(rule)")
                }
                return entries
            }, text: { $0.isEmpty ? nil : $0.joined(separator: ", ") })
    }
}

extension Unicode.Scalar {
    var isLetterOrDigit: Bool {
        ("a"..."z").contains(self) || ("A"..."Z").contains(self) || ("0"..."9").contains(self)
    }

    /// Whether the character is not a control character of ASCII.
    var isPrintable: Bool { value >= 0x20 && value != 0x7F }
}

extension StringProtocol {
    /// The number, if the text has only ASCII digits and the number fits into an `Int`. `nil` otherwise.
    var wholeNumber: Int? {
        utf8.allSatisfy { (0x30...0x39).contains($0) } ? Int(self) : nil
    }
}

extension AppName {
    private static let maxLength = 64

    static let rule = "letters, digits, `.`, `-` and `_`, at most \(maxLength), a letter or digit first"

    /// Whether an app in the configuration may have this name.
    static func isValid(_ text: String) -> Bool {
        guard let first = text.unicodeScalars.first, first.isLetterOrDigit else { return false }
        return text.utf8.count <= maxLength
            && text.unicodeScalars.allSatisfy { $0.isLetterOrDigit || ".-_".unicodeScalars.contains($0) }
    }
}
