import ChatDomain

/// What a setting takes: how its text becomes a value, and back.
struct SettingKind<Value: Sendable & Equatable>: Sendable {
    /// Completes "must be …", with an example.
    let rule: String
    let parse: @Sendable (SettingValue, SettingContext) throws(BrokenRule) -> Value
    /// The form that ``parse`` reads; nil if there is no value.
    let text: @Sendable (Value) -> String?

    init(
        rule: String, parse: @escaping @Sendable (SettingValue, SettingContext) throws(BrokenRule) -> Value,
        text: @escaping @Sendable (Value) -> String?
    ) {
        self.rule = rule
        self.parse = parse
        self.text = text
    }

    /// A kind whose rule is all that there is to say about a wrong value.
    init(
        rule: String, read: @escaping @Sendable (String) -> Value?, text: @escaping @Sendable (Value) -> String?
    ) {
        self.init(
            rule: rule,
            parse: { value, _ throws(BrokenRule) in
                guard case .text(let text) = value, text.utf8.count <= SettingLimits.value, let read = read(text) else {
                    throw BrokenRule(message: "is \(value.quoted), but must be \(rule)")
                }
                return read
            }, text: text)
    }

    /// The same, for a property that may be empty by default. `none` is the word that says so in the file, if it has
    /// one.
    func optional(none: String? = nil) -> SettingKind<Value?> {
        let kind = self
        return SettingKind<Value?>(
            rule: none.map { "\(rule), or `\($0)`" } ?? rule,
            parse: { value, context throws(BrokenRule) in
                if let none, value == .text(none) { return nil }
                do throws(BrokenRule) {
                    return try kind.parse(value, context)
                } catch {
                    throw none.map { BrokenRule(message: "\(error.message), or `\($0)`") } ?? error
                }
            },
            text: { $0.flatMap(kind.text) ?? none })
    }
}

/// What the values themselves may be at most.
enum SettingLimits {
    /// Bytes of one value: a path has no more.
    static let value = 4096
    /// Bytes of a file with a secret.
    static let secretFile = 4096
    /// Bytes of a file with keys.
    static let keyFile = 262_144
    /// Entries of a list, networks of proxies for example.
    static let list = 256
    /// Bytes of the configuration file.
    static let file = 262_144
    /// Apps: each has connections of its own.
    static let apps = 100
}

extension SettingKind where Value == Int {
    static func number(_ range: ClosedRange<Int>, unit: String = "") -> Self {
        Self(
            rule: "a whole number\(unit.isEmpty ? "" : " of \(unit)") from \(range.lowerBound) to \(range.upperBound)",
            read: { text in
                guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int(text) else { return nil }
                return range.contains(number) ? number : nil
            }, text: String.init)
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
}

extension SettingKind where Value == RequestRate {
    static var rateLimit: Self {
        Self(
            rule: "a rate per `s`, `min` or `h`, with a burst if wished, for example `10/s burst 50`",
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

extension SettingKind where Value == Secret {
    /// - Parameters:
    ///   - isAllowed: asked of each scalar.
    ///   - shortest: bytes.
    static func secret(
        rule: String, isAllowed: @escaping @Sendable (Unicode.Scalar) -> Bool, shortest: Int = 1
    ) -> Self {
        Self(
            rule: rule,
            parse: { value, _ throws(BrokenRule) in
                guard case .text(let text) = value, (shortest...SettingLimits.secretFile).contains(text.utf8.count),
                    text.unicodeScalars.allSatisfy(isAllowed)
                else { throw BrokenRule(message: "has a value that is not shown here, but must be \(rule)") }
                return Secret(text)
            }, text: { $0.text })
    }
}

extension SettingKind where Value == String {
    static func text(
        rule: String, limit: Int, isAllowed: @escaping @Sendable (Unicode.Scalar) -> Bool
    ) -> Self {
        Self(
            rule: rule,
            read: { text in
                let isGood = !text.isEmpty && text.utf8.count <= limit && text.unicodeScalars.allSatisfy(isAllowed)
                return isGood ? text : nil
            }, text: { $0 })
    }

    /// An address or a name, not a URL.
    static func host(example: String) -> Self {
        text(rule: "an address or a host name, without scheme and port, for example `\(example)`", limit: 253) {
            $0.isLetterOrDigit || ".-_:%".unicodeScalars.contains($0)
        }
    }

    /// A file that need not be there.
    static var path: Self {
        Self(
            rule: "a path",
            parse: { value, context throws(BrokenRule) in
                guard case .text(let text) = value, !text.isEmpty, text.utf8.count <= SettingLimits.value,
                    text.unicodeScalars.allSatisfy({ $0.value >= 0x20 && $0.value != 0x7F })
                else { throw BrokenRule(message: "is \(value.quoted), but must be a path") }
                return context.absolute(text)
            }, text: { $0 })
    }

    /// A file that must be there, readable and not empty.
    static func file(_ what: String) -> Self {
        Self(
            rule: "the path of \(what)",
            parse: { value, context throws(BrokenRule) in
                let path = try Self.path.parse(value, context)
                guard context.checksFiles else { return path }
                do throws(ReadableFile.Problem) {
                    try ReadableFile.check(path)
                } catch {
                    throw BrokenRule(
                        message: "names \(LogText.cut(path, limit: SettingLimits.value)), \(error.message); "
                            + "it must be the path of \(what)")
                }
                return path
            }, text: { $0 })
    }
}

extension Unicode.Scalar {
    var isLetterOrDigit: Bool {
        ("a"..."z").contains(self) || ("A"..."Z").contains(self) || ("0"..."9").contains(self)
    }
}
