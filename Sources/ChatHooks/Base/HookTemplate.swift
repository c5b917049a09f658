package import ChatDomain

/// A description of the message that a JSON body becomes: texts with placeholders, and choices by value. It has no loops
/// and no code, so that its cost is bounded.
///
/// ```json
/// {"title": "{monitor.name}", "text": "{message|no text} ({tags[0]})", "key": "{monitor.id}",
///  "urgency": {"path": "level", "cases": {"fatal": "urgent"}, "default": "usual"}}
/// ```
///
/// `{a.b[0]}` is the value of a path, `{a|text}` has a default for a value that is absent, and `{{` is a brace.
package struct HookTemplate: Sendable, Hashable {
    /// The maximum number of bytes of a template.
    package static let limit = 4096
    /// The maximum number of placeholders and choices, of the cases of a choice, and of steps of a path.
    package static let placeholderLimit = 32

    private static let members = ["title", "text", "key", "link", "urgency", "state", "tags", "markdown"]

    /// The template, unchanged.
    package let json: JSONValue

    private let title: Text?
    private let text: Text?
    private let key: Text?
    private let link: Text?
    private let tags: [Text]
    private let urgency: Choice?
    private let state: Choice?
    private let isMarkdown: Bool

    /// Checks a template.
    ///
    /// - Parameter json: An object.
    package init(_ json: JSONValue) throws(ChatError) {
        guard let object = json.object else { throw .invalid("template", "must be a JSON object, is \(json.kind)") }
        guard json.utf8.count <= Self.limit else {
            throw .invalid("template", "must have at most \(Self.limit) bytes of JSON")
        }
        for (name, _) in object.members where !Self.members.contains(name) {
            let shown = FieldText.fitting(name, limit: 60, keepsLines: false)
            throw .invalid(
                "template", "has the unknown member \(shown); known are \(Self.members.joined(separator: ", "))")
        }
        var budget = Budget()
        func text(_ name: String) throws(ChatError) -> Text? {
            try object[name].map { value throws(ChatError) in try Text(value, "template.\(name)", &budget) }
        }
        func choice(_ name: String, _ words: [String]) throws(ChatError) -> Choice? {
            try object[name].map { value throws(ChatError) in try Choice(value, "template.\(name)", words, &budget) }
        }
        title = try text("title")
        self.text = try text("text")
        guard title != nil || self.text != nil else { throw .invalid("template", "needs a title or a text") }
        key = try text("key")
        link = try text("link")
        urgency = try choice("urgency", HookDraft.Urgency.allCases.map(\.rawValue))
        state = try choice("state", HookDraft.State.allCases.map(\.rawValue))
        guard state == nil || key != nil else { throw .invalid("template.state", "needs a key") }
        guard let tags = (object["tags"] ?? .array([])).array, tags.count <= MessageExtras.tagCount else {
            throw .invalid("template.tags", "must be an array of at most \(MessageExtras.tagCount) texts")
        }
        self.tags = try tags.map { value throws(ChatError) in try Text(value, "template.tags", &budget) }
        switch object["markdown"] {
        case nil: isMarkdown = false
        case .bool(let value): isMarkdown = value
        default: throw .invalid("template.markdown", "must be true or false")
        }
        self.json = json
    }

    /// Reads a template that is a text, such as a file.
    package init(parsing text: String) throws(ChatError) {
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: text)
        } catch {
            throw .invalid("template", "must be JSON: \(error)")
        }
        try self.init(value)
    }

    /// Returns the message that the body becomes.
    func draft(_ body: JSONObject) throws(HookRefusal) -> HookDraft {
        let name = key?.filled(body, limit: 1000).nonEmpty
        let title = title?.filled(body, limit: MessageContent.longestTitle)
        let text = text?.filled(body, limit: MessageText.highestLimit, escaping: isMarkdown) ?? ""
        guard !FieldText.isBlank(text) || !FieldText.isBlank(title ?? "") else {
            throw .unreadable("the template found no title and no text in the body")
        }
        let urgency = urgency.flatMap { HookDraft.Urgency(rawValue: $0.word(body)) } ?? .usual
        let state = state.flatMap { HookDraft.State(rawValue: $0.word(body)) } ?? .event
        let rank =
            switch urgency {
            case .quiet: HookSeverity.quiet
            case .usual: HookSeverity.usual
            case .urgent: HookSeverity.urgent
            }
        return HookDraft(
            key: name.map { HookKey.make("js", $0) }, title: title, text: text,
            link: link?.filled(body, limit: 4096), tags: tags.map { $0.filled(body, limit: MessageExtras.tagLimit) },
            isMarkdown: isMarkdown, rank: rank, state: state)
    }

    package static func == (left: HookTemplate, right: HookTemplate) -> Bool { left.json == right.json }
    package func hash(into hasher: inout Hasher) { hasher.combine(json) }
}

/// The placeholders and choices that a template may still have.
private struct Budget {
    private var remaining = HookTemplate.placeholderLimit

    mutating func spend() throws(ChatError) {
        remaining -= 1
        guard remaining >= 0 else {
            throw .invalid("template", "must have at most \(HookTemplate.placeholderLimit) placeholders and choices")
        }
    }
}

/// A place in a JSON value: names of members and indices of items.
private struct Path: Sendable {
    private enum Step: Sendable {
        case member(String)
        case item(Int)
    }

    private var steps: [Step] = []

    /// Reads `a.b[0]["c.d"]`.
    init(_ text: Substring, _ field: String) throws(ChatError) {
        var rest = text
        while !rest.isEmpty {
            if rest.first == "[" {
                guard let end = rest.firstIndex(of: "]") else { throw Self.malformed(text, field) }
                let inner = rest[rest.index(after: rest.startIndex)..<end]
                if inner.count >= 2, inner.first == "\"", inner.last == "\"" {
                    steps.append(.member(String(inner.dropFirst().dropLast())))
                } else if let index = Int(inner), (0...9999).contains(index) {
                    steps.append(.item(index))
                } else {
                    throw Self.malformed(text, field)
                }
                rest = rest[rest.index(after: end)...]
            } else {
                if !steps.isEmpty {
                    guard rest.first == "." else { throw Self.malformed(text, field) }
                    rest = rest.dropFirst()
                }
                let name = rest.prefix { !".[]{}\"".contains($0) }
                guard !name.isEmpty else { throw Self.malformed(text, field) }
                steps.append(.member(String(name)))
                rest = rest[name.endIndex...]
            }
        }
        guard (1...HookTemplate.placeholderLimit).contains(steps.count) else { throw Self.malformed(text, field) }
    }

    private static func malformed(_ text: Substring, _ field: String) -> ChatError {
        let shown = String(text).printableASCII(limit: 40)
        return .invalid(field, "has the path \(shown), which must have the form a.b[0] or a[\"b.c\"]")
    }

    /// Returns the text of the value. An object or an array is its JSON. `nil` if there is none, or `null`.
    func text(in body: JSONObject, limit: Int) -> String? {
        var value: JSONValue? = .object(body)
        for step in steps {
            switch step {
            case .member(let name): value = value?.object?[name]
            case .item(let index): value = value?.array.flatMap { index < $0.count ? $0[index] : nil }
            }
        }
        guard let value, value != .null else { return nil }
        switch value {
        case .array, .object: return FieldText.fitting("\(value)", limit: limit)
        default: return value.scalarText.map { FieldText.fitting($0, limit: limit) }
        }
    }
}

/// A text with placeholders.
private struct Text: Sendable {
    private enum Piece: Sendable {
        case text(String)
        case value(Path, otherwise: String)
    }

    private var pieces: [Piece] = []

    init(_ value: JSONValue, _ field: String, _ budget: inout Budget) throws(ChatError) {
        guard let text = value.text else { throw .invalid(field, "must be a string, is \(value.kind)") }
        var (rest, literal) = (text[...], "")
        while let character = rest.popFirst() {
            guard character == "{" || character == "}" else {
                literal.append(character)
                continue
            }
            if rest.first == character {
                literal.append(rest.removeFirst())
                continue
            }
            guard character == "{", let end = rest.firstIndex(of: "}") else {
                throw .invalid(field, "has a single brace; write {{ or }} for a brace")
            }
            try budget.spend()
            let parts = rest[..<end].split(separator: "|", maxSplits: 1, omittingEmptySubsequences: false)
            if !literal.isEmpty { pieces.append(.text(literal)) }
            pieces.append(.value(try Path(parts[0], field), otherwise: parts.count > 1 ? String(parts[1]) : ""))
            literal = ""
            rest = rest[rest.index(after: end)...]
        }
        if !literal.isEmpty { pieces.append(.text(literal)) }
    }

    /// Returns the text with the body's values, cut at the limit.
    ///
    /// - Parameter escaping: Whether the values are escaped, because the text around them is Markdown.
    func filled(_ body: JSONObject, limit: Int, escaping: Bool = false) -> String {
        var result = ""
        for piece in pieces where result.utf8.count <= limit {
            switch piece {
            case .text(let text): result += text
            case .value(let path, let otherwise):
                let text = path.text(in: body, limit: limit) ?? otherwise
                result += escaping ? HookText.escaped(text) : text
            }
        }
        return FieldText.fitting(result, limit: limit)
    }
}

/// A word that depends on the value of a path, or a fixed word.
private struct Choice: Sendable {
    private let path: Path?
    private let cases: [String: String]
    private let otherwise: String

    /// - Parameter words: The words of which one is chosen.
    init(_ value: JSONValue, _ field: String, _ words: [String], _ budget: inout Budget) throws(ChatError) {
        let rule = "must be one of \(words.joined(separator: ", "))"
        func word(_ value: JSONValue?, _ field: String) throws(ChatError) -> String {
            guard let word = value?.text, words.contains(word) else { throw .invalid(field, rule) }
            return word
        }
        guard let object = value.object else {
            (path, cases, otherwise) = (nil, [:], try word(value, field))
            return
        }
        guard Set(object.members.map(\.name)).isSubset(of: ["path", "cases", "default"]),
            let text = object["path"]?.text,
            let given = object["cases"]?.object?.members, (1...HookTemplate.placeholderLimit).contains(given.count)
        else {
            throw .invalid(
                field, "must be a word, or have path, cases (1 to \(HookTemplate.placeholderLimit)) and default")
        }
        try budget.spend()
        path = try Path(text[...], "\(field).path")
        var cases: [String: String] = [:]
        for (name, value) in given { cases[name] = try word(value, "\(field).cases") }
        self.cases = cases
        otherwise = try word(object["default"], "\(field).default")
    }

    func word(_ body: JSONObject) -> String {
        // Names of cases are short. The value may be long, and costly to compare.
        path?.text(in: body, limit: 200).flatMap { cases[$0] } ?? otherwise
    }
}

extension String {
    fileprivate var nonEmpty: String? { FieldText.isBlank(self) ? nil : self }
}
