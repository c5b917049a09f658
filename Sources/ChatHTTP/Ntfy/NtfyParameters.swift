import ChatDomain
import Foundation
import HTTPTypes
import Hummingbird

/// The parameters of a call under all their names: in headers first, then in the query. Others are ignored.
struct NtfyParameters: Sendable {
    enum Name: String, CaseIterable {
        case title, message, priority, click, delay
        case poll, since, scheduled, id, tags, unifiedPush

        /// The names in headers and in the query. All may also have the prefix `X-`.
        fileprivate var spellings: [String] {
            switch self {
            case .title: ["title", "ti", "t"]
            case .message: ["message", "m"]
            case .priority: ["priority", "prio", "p"]
            case .click: ["click"]
            case .delay: ["delay", "at", "in"]
            case .poll: ["poll", "po"]
            case .since: ["since", "si"]
            case .scheduled: ["scheduled", "sched"]
            case .id: ["id"]
            case .tags: ["tags", "tag", "ta"]
            case .unifiedPush: ["unifiedpush", "up"]
            }
        }
    }

    private var values: [Name: String] = [:]

    /// The value. `nil` if there is none, or an empty one.
    subscript(name: Name) -> String? { values[name].flatMap { $0.isEmpty ? nil : $0 } }

    init(_ request: Request) {
        let query = Self.query(request)
        for name in Name.allCases {
            let spellings = name.spellings.flatMap { ["x-" + $0, $0] }
            values[name] =
                spellings.lazy.compactMap { Self.header($0, request) }.first
                ?? spellings.lazy.compactMap { query[$0] }.first
        }
    }

    private static func header(_ name: String, _ request: Request) -> String? {
        guard let value = HTTPField.Name(name).flatMap({ request.headers.first($0) }), !value.isEmpty else {
            return nil
        }
        // Browsers and proxies send a `Priority` header with another meaning (RFC 9218).
        if name == "priority", value.hasPrefix("u=") || value == "i" { return nil }
        return decoded(value)
    }

    /// Decodes the UTF-8 encoded words (RFC 2047) that clients use for non-ASCII text.
    private static func decoded(_ value: String) -> String {
        value.replacing(#/=\?[Uu][Tt][Ff]-8\?([BbQq])\?([^?\s]*)\?=(?:\s+(?==\?))?/#) { match in
            guard match.1.lowercased() == "q" else { return base64(String(match.2)) ?? String(match.0) }
            let escaped = match.2.utf8.map { byte in
                switch byte {
                case UInt8(ascii: "_"): UInt8(ascii: " ")
                case UInt8(ascii: "="): UInt8(ascii: "%")
                default: byte
                }
            }
            return String(decoding: URLEncodedForm.unescaped(escaped[...], plusIsBlank: false), as: UTF8.self)
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
        let standard = text.replacing("-", with: "+").replacing("_", with: "/").replacing("=", with: "")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return Data(base64Encoded: standard + padding).flatMap { String(data: $0, encoding: .utf8) }
    }

    /// Adds the values of a message in JSON, which take precedence over headers and the query.
    mutating func add(_ document: JSONObject) throws(ChatError) {
        for name in [Name.title, .message, .priority, .click, .delay] {
            guard let value = document[name.rawValue], value != .null else { continue }
            let number = name == .priority ? value.integer.map { String($0) } : nil
            guard let text = value.text ?? number else {
                throw .invalid(name.rawValue, "must be a string, is \(value.kind)")
            }
            values[name] = text
        }
    }

    /// Whether a parameter is `1`, `yes` or `true`.
    func flag(_ name: Name) -> Bool { ["1", "yes", "true"].contains(self[name]?.lowercased()) }

    /// The items of a list. Empty if there is none.
    func list(_ name: Name) -> [String] {
        (self[name] ?? "").split(separator: ",").map { FieldText.trimmed(String($0)) }.filter { !$0.isEmpty }
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
