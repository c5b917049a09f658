import ChatDomain
import HTTPTypes
import Hummingbird

/// The JSON object in the body of a request.
struct AdminBody: Sendable {
    let object: JSONObject

    /// - Parameters:
    ///   - members: those that may stand in it.
    ///   - isOptional: whether there may be no body at all.
    static func read(
        _ request: Request, members: Set<String>, isOptional: Bool = false
    ) async throws -> AdminBody {
        let bytes = try await BodyBytes.read(request, limit: HTTPLimits.adminBody)
        if bytes.isEmpty, isOptional { return AdminBody(object: JSONObject()) }
        let type = request.headers.first(.contentType) ?? ""
        guard HeaderText.trimmed(HeaderText.split(type[...], at: ";")[0]).lowercased() == "application/json" else {
            throw ChatError(.unsupportedMediaType, "The body must be application/json")
        }
        guard request.headers.first(.contentEncoding) == nil else {
            throw ChatError(.unsupportedMediaType, "The body must not have a Content-Encoding")
        }
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: bytes)
        } catch {
            throw ChatError(.malformedRequest, "The body is no JSON: \(error)")
        }
        guard let object = value.object else {
            throw ChatError(.malformedRequest, "The body must be an object, is \(value.kind)")
        }
        try requireKnown(object, members)
        return AdminBody(object: object)
    }

    /// A misspelt member would else be ignored in silence.
    static func requireKnown(_ object: JSONObject, _ members: Set<String>, in place: String = "") throws(ChatError) {
        for (name, _) in object.members where !members.contains(name) {
            let shown = HeaderText.sanitized(name, limit: 60)
            throw .invalid(
                place + shown, "is not known here; known are " + members.sorted().joined(separator: ", "))
        }
    }

    /// Nil if it is absent or null.
    func text(_ name: String) throws(ChatError) -> String? {
        guard let value = object[name], value != .null else { return nil }
        guard let text = value.text else { throw .invalid(name, "must be a string, is \(value.kind)") }
        return text
    }

    func flag(_ name: String) throws(ChatError) -> Bool {
        switch object[name] {
        case nil, .null?: return false
        case .bool(let value)?: return value
        case let value?: throw .invalid(name, "must be true or false, is \(value.kind)")
        }
    }

    /// Absent keeps, null removes.
    func change<Value>(
        _ name: String, _ parse: (String) throws(ChatError) -> Value?
    ) throws(ChatError) -> DeviceEdit.Change<Value> {
        guard let value = object[name] else { return .keep }
        guard value != .null else { return .remove }
        guard let text = value.text else { throw .invalid(name, "must be a string or null, is \(value.kind)") }
        guard let parsed = try parse(text) else { return .remove }
        return .set(parsed)
    }

    /// All of a device's tags; nil if the body does not say, none for null.
    func tags() throws(ChatError) -> Set<Tag>? {
        guard let value = object["tags"] else { return nil }
        if value == .null { return [] }
        return Set(
            try Self.list(value, "tags", most: Tag.most) { text, field throws(ChatError) in
                try Tag(parsing: text, field: field)
            })
    }

    /// An array of strings.
    static func list<Item>(
        _ value: JSONValue, _ name: String, most: Int,
        _ parse: (_ text: String, _ field: String) throws(ChatError) -> Item
    ) throws(ChatError) -> [Item] {
        guard let values = value.array else { throw .invalid(name, "must be an array of strings, is \(value.kind)") }
        guard values.count <= most else { throw .invalid(name, "must have at most \(most) items, has \(values.count)") }
        var items: [Item] = []
        items.reserveCapacity(values.count)
        for (index, value) in values.enumerated() {
            guard let text = value.text else {
                throw .invalid("\(name)[\(index)]", "must be a string, is \(value.kind)")
            }
            items.append(try parse(text, "\(name)[\(index)]"))
        }
        return items
    }
}

/// The query of a request: known names only, none twice.
struct AdminQuery: Sendable {
    private var values: [String: String] = [:]

    init(_ request: Request, names: Set<String>) throws(ChatError) {
        for (name, value) in request.uri.queryParameters {
            let shown = HeaderText.sanitized(String(name), limit: 60)
            guard names.contains(String(name)) else {
                throw .invalid(
                    shown,
                    names.isEmpty
                        ? "is not known here: this call has no query"
                        : "is not known here; known are " + names.sorted().joined(separator: ", "))
            }
            guard values.updateValue(String(value), forKey: String(name)) == nil else {
                throw .invalid(shown, "must not stand twice")
            }
        }
    }

    func text(_ name: String) -> String? { values[name] }

    func flag(_ name: String) throws(ChatError) -> Bool? {
        switch values[name] {
        case nil: return nil
        case "true": return true
        case "false": return false
        default: throw .invalid(name, "must be true or false")
        }
    }

    func number(_ name: String, _ range: ClosedRange<Int64>) throws(ChatError) -> Int64? {
        guard let text = values[name] else { return nil }
        guard text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let number = Int64(text),
            range.contains(number)
        else { throw .invalid(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)") }
        return number
    }

    func limit() throws(ChatError) -> Int {
        try number("limit", Int64(HTTPLimits.page.lowerBound)...Int64(HTTPLimits.page.upperBound)).map(Int.init)
            ?? HTTPLimits.defaultPage
    }

    func cursor() throws(ChatError) -> Int64? { try number("cursor", 0...Int64.max) }
}
