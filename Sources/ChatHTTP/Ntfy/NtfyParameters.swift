import ChatDomain
import ChatHooks
import Foundation
import HTTPTypes
import Hummingbird

/// The parameters of a call under all their names: in headers first, then in the query. Others are ignored.
struct NtfyParameters: Sendable {
    enum Name: String, CaseIterable {
        case title, message, priority, click, icon, markdown, tags, delay, filename, template
        case sequence = "sequence_id"
        case attach, actions, email, call
        case poll, since, scheduled, id, unifiedPush

        /// The names in headers and in the query. All may also have the prefix `X-`.
        fileprivate var spellings: [String] {
            switch self {
            case .title: ["title", "ti", "t"]
            case .message: ["message", "m"]
            case .priority: ["priority", "prio", "p"]
            case .click: ["click"]
            case .icon: ["icon"]
            case .markdown: ["markdown", "md"]
            case .tags: ["tags", "tag", "ta"]
            case .delay: ["delay", "at", "in"]
            case .sequence: ["sequence-id", "sid"]
            case .filename: ["filename", "file", "f"]
            case .template: ["template", "tpl"]
            case .attach: ["attach", "a"]
            case .actions: ["actions", "action"]
            case .email: ["email", "e-mail", "mail", "e"]
            case .call: ["call"]
            case .poll: ["poll", "po"]
            case .since: ["since", "si"]
            case .scheduled: ["scheduled", "sched"]
            case .id: ["id"]
            case .unifiedPush: ["unifiedpush", "up"]
            }
        }
    }

    private var values: [Name: String] = [:]
    private(set) var tags: [String] = []

    /// The value. `nil` if there is none, or an empty one.
    subscript(name: Name) -> String? {
        get { values[name].flatMap { $0.isEmpty ? nil : $0 } }
        set { values[name] = newValue }
    }

    init(_ request: Request) {
        let query = Self.query(request)
        for name in Name.allCases {
            let spellings = name.spellings.flatMap { ["x-" + $0, $0] }
            values[name] =
                spellings.lazy.compactMap { Self.header($0, request) }.first
                ?? spellings.lazy.compactMap { query[$0] }.first
        }
        tags = list(.tags)
    }

    private static func header(_ name: String, _ request: Request) -> String? {
        guard let value = HTTPField.Name(name).flatMap({ request.headers.first($0) }), !value.isEmpty else {
            return nil
        }
        // Browsers and proxies send a `Priority` header with another meaning (RFC 9218).
        if name == "priority", value.hasPrefix("u=") || value == "i" { return nil }
        return decoded(value)
    }

    /// Decodes the encoded words (RFC 2047) that clients use for non-ASCII text. A word that cannot be read stays.
    private static func decoded(_ value: String) -> String {
        value.replacing(#/=\?([\w-]+)(?:\*[\w-]+)?\?([BbQq])\?([^?\s]*)\?=(?:\s+(?==\?))?/#) { match in
            let whole = String(match.0)
            guard let charset = Charset(name: String(match.1)) else { return whole }
            guard match.2.lowercased() == "q" else {
                return base64Bytes(String(match.3)).flatMap(charset.text) ?? whole
            }
            let escaped = match.3.utf8.map { byte in
                switch byte {
                case UInt8(ascii: "_"): UInt8(ascii: " ")
                case UInt8(ascii: "="): UInt8(ascii: "%")
                default: byte
                }
            }
            return charset.text(URLEncodedForm.unescaped(escaped[...], plusIsBlank: false)) ?? whole
        }
    }

    private static func query(_ request: Request) -> [String: String] {
        var values: [String: String] = [:]
        for pair in (request.uri.query ?? "").utf8.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                .map { String(decoding: URLEncodedForm.unescaped(Array($0)[...]), as: UTF8.self) }
            values[parts[0].lowercased()] = parts.count == 2 ? parts[1] : ""
        }
        return values
    }

    /// Decodes base64 in either alphabet, with or without padding.
    static func base64(_ text: String) -> String? {
        base64Bytes(text).flatMap { String(validating: $0, as: UTF8.self) }
    }

    private static func base64Bytes(_ text: String) -> Data? {
        let standard = text.replacing("-", with: "+").replacing("_", with: "/").replacing("=", with: "")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return Data(base64Encoded: standard + padding)
    }

    /// The message of a header or of the query. As on an ntfy server, `\n` in it is a line break, because a header has
    /// none.
    var message: String? { self[.message]?.replacing("\\n", with: "\n") }

    /// The parameters that a message in JSON may have, and those of them that the relay only reports (``leftOut``).
    private static let inJSON: [Name] = [.title, .message, .priority, .click, .icon, .delay, .sequence]
    private static let notKept: [Name] = [.attach, .actions, .email, .call]
    /// The members of a message in JSON.
    static let members = Set(["topic"] + (inJSON + notKept + [.tags, .markdown]).map(\.rawValue))

    /// Adds the values of a message in JSON, which take precedence over headers and the query. As on an ntfy server, an
    /// empty text, `null`, and the priority 0 count as absent.
    mutating func add(_ document: JSONObject) throws(ChatError) {
        if document[Name.markdown.rawValue] == .bool(true) { values[.markdown] = "yes" }
        switch document[Name.tags.rawValue] {
        case .array(let items)? where !items.isEmpty: tags = items.map { $0.text ?? $0.description }
        case .string(let text)? where !text.isEmpty:
            values[.tags] = text
            tags = list(.tags)
        default: break
        }
        for name in Self.inJSON {
            guard let value = document[name.rawValue], value != .null else { continue }
            let hasNumber = [.priority, .delay, .sequence].contains(name)
            let number = hasNumber ? value.integer.map { $0 == 0 ? "" : String($0) } : nil
            guard let text = value.text ?? number else {
                throw .invalid(name.rawValue, "must be a string, is \(value.kind)")
            }
            if !text.isEmpty { values[name] = text }
        }
        for name in Self.notKept {
            if let value = document[name.rawValue], ![.null, .string(""), .array([])].contains(value) {
                values[name] = value.description
            }
        }
    }

    /// Adds the values of a message that a template made. As on an ntfy server, its title wins. The request's other values
    /// win over the template's.
    mutating func add(_ draft: HookDraft) {
        values[.title] = draft.title ?? values[.title]
        let priority: String? =
            switch draft.urgency {
            case .quiet: "low"
            case .usual: nil
            case .urgent: "max"
            }
        for (name, value) in [(Name.click, draft.link), (.priority, priority)] where self[name] == nil {
            values[name] = value
        }
        if draft.isMarkdown { values[.markdown] = "yes" }
        if tags.isEmpty { tags = draft.tags }
    }

    /// The names of the message's parts that the relay does not keep.
    var leftOut: [String] { Self.notKept.filter { self[$0] != nil }.map(\.rawValue) }

    /// Whether a parameter is `1`, `yes` or `true`.
    func flag(_ name: Name) -> Bool { ["1", "yes", "true"].contains(self[name]?.lowercased()) }

    /// The items of a list. Empty if there is none.
    func list(_ name: Name) -> [String] {
        (self[name] ?? "").split(separator: ",").map { FieldText.trimmed(String($0)) }.filter { !$0.isEmpty }
    }

    /// The name of the message that this one replaces. `nil` for a new message.
    func sequence() throws(ChatError) -> MessageReference? {
        try self[.sequence].map { text throws(ChatError) in try Self.sequence(text) }
    }

    /// Reads the name of a message. ntfy's senders may choose a number, which is an id in the relay's own calls. It
    /// becomes a key with ``numberPrefix`` here, and ntfy's clients get the number.
    static func sequence(_ text: String) throws(ChatError) -> MessageReference {
        let isNumber = text.utf8.allSatisfy(\.isASCIIDigit)
        return try MessageReference(parsing: isNumber ? numberPrefix + text : text, field: Name.sequence.rawValue)
    }

    private static let numberPrefix = "ntfy_"

    /// Returns the name of a message with a key, as its sender wrote it.
    static func sequence(of key: MessageKey) -> String {
        let number = key.text.utf8.dropFirst(numberPrefix.utf8.count)
        let isNumber = key.text.hasPrefix(numberPrefix) && !number.isEmpty && number.allSatisfy(\.isASCIIDigit)
        return isNumber ? String(Substring(number)) : key.text
    }

    func priority() throws(ChatError) -> NtfyPriority {
        guard let text = self[.priority] else { return .usual }
        return try Self.priority(text)
    }

    static func priority(_ text: String) throws(ChatError) -> NtfyPriority {
        guard let priority = NtfyPriority(text) else {
            throw .invalid("priority", "must be 1 to 5, or min, low, default, high, max")
        }
        return priority
    }
}
