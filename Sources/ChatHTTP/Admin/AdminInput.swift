import ChatDomain
import HTTPTypes
import Hummingbird

/// The JSON object in the body of a request.
struct AdminBody: Sendable {
    let object: JSONObject

    /// Reads the JSON object in a request's body.
    ///
    /// - Parameters:
    ///   - members: The permitted member names.
    ///   - isOptional: Whether the request may have no body.
    ///   - hasQuery: Whether the call has a query, which the caller has read. Other calls reject one.
    static func read(
        _ request: Request, members: Set<String>, isOptional: Bool = false, hasQuery: Bool = false,
        limit: Int = HTTPLimits.adminBody
    ) async throws -> AdminBody {
        if !hasQuery { _ = try AdminQuery(request, names: []) }
        let object = try await object(of: request, isOptional: isOptional, limit: limit)
        try requireKnown(object, members)
        return AdminBody(object: object)
    }

    /// Reads the JSON object in the body of another server's client, as leniently as that server, which is written in
    /// Go. The case of the members' names does not matter either.
    ///
    /// - Parameters:
    ///   - members: The names of the members, in lower case. All others are ignored.
    ///   - hasAnyType: Whether the media type may be another than that of JSON.
    static func readLenient(
        _ request: Request, members: Set<String>, hasAnyType: Bool = false
    ) async throws -> AdminBody {
        let given = try await object(of: request, hasAnyType: hasAnyType, isLenient: true)
        var object = JSONObject()
        for (name, value) in given.members where name.utf8.count <= HTTPLimits.fieldName {
            let name = name.lowercased()
            if members.contains(name) { object[name] = value }
        }
        return AdminBody(object: object)
    }

    private static func object(
        of request: Request, isOptional: Bool = false, hasAnyType: Bool = false, isLenient: Bool = false,
        limit: Int = HTTPLimits.adminBody
    ) async throws -> JSONObject {
        let bytes = try await RequestBody.read(request, limit: limit)
        if bytes.isEmpty, isOptional { return JSONObject() }
        guard hasAnyType || request.headers.mediaType == "application/json" else {
            throw ChatError.unsupported("The body must be application/json")
        }
        guard request.headers.first(.contentEncoding) == nil else {
            throw ChatError.unsupported("The body must not have a Content-Encoding")
        }
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: request.headers.charset.utf8(bytes), isLenient: isLenient)
        } catch {
            throw ChatError.malformed("The body is not valid JSON: \(error)")
        }
        guard let object = value.object else {
            throw ChatError.malformed("The body must be an object, is \(value.kind)")
        }
        return object
    }

    /// Rejects unknown members, so that a misspelled one is not ignored.
    ///
    /// - Parameter prefix: The prefix of the names in the error.
    static func requireKnown(_ object: JSONObject, _ members: Set<String>, prefix: String = "") throws(ChatError) {
        for (name, _) in object.members
        where name.utf8.count > HTTPLimits.fieldName || !members.contains(name) {
            throw .invalid(
                prefix + HeaderText.sanitized(name, limit: 60),
                "is unknown; the known names are " + members.sorted().joined(separator: ", "))
        }
    }

    /// Returns a string. `nil` if it is absent or null.
    func text(_ name: String) throws(ChatError) -> String? {
        guard let value = object[name], value != .null else { return nil }
        guard let text = value.text else { throw .invalid(name, "must be a string, is \(value.kind)") }
        return text
    }

    /// Returns a parsed string. `nil` if it is absent or null.
    func value<Value>(
        _ name: String, _ parse: (_ text: String, _ field: String) throws(ChatError) -> Value
    ) throws(ChatError) -> Value? {
        guard let text = try text(name) else { return nil }
        return try parse(text, name)
    }

    /// Returns the room that is meant (``RoomRecords/room(named:field:)``). `nil` if it is absent or null.
    func room(_ records: any RoomRecords) async throws(ChatError) -> SecretCode? {
        guard let code = try value("room", SecretCode.init(parsing:field:)) else { return nil }
        return try await records.room(named: code, field: "room")
    }

    /// Returns the end of a token or a ban. `nil` if it is absent or null.
    func end(_ name: String, now: Timestamp) throws(ChatError) -> Timestamp? {
        try value(name) { text, field throws(ChatError) in try Timestamp(end: text, field: field, now: now) }
    }

    /// Returns a device's description of itself. `nil` if it is absent, null or blank.
    func clientInfo(_ name: String) throws(ChatError) -> String? { try ClientInfo.text(text(name), field: name) }

    func flag(_ name: String) throws(ChatError) -> Bool {
        switch object[name] {
        case nil, .null?: return false
        case .bool(let value)?: return value
        case let value?: throw .invalid(name, "must be true or false, is \(value.kind)")
        }
    }

    func priority() throws(ChatError) -> UInt8? {
        guard let value = object["priority"], value != .null else { return nil }
        guard let number = value.integer.flatMap(UInt8.init(exactly:)) else {
            throw .invalid("priority", "must be 10, 5 or 1")
        }
        return number
    }

    /// Returns the change to a value: an absent member keeps it, null removes it.
    func change<Value>(
        _ name: String, _ parse: (_ text: String, _ field: String) throws(ChatError) -> Value?
    ) throws(ChatError) -> DeviceEdit.Change<Value> {
        guard let value = object[name] else { return .keep }
        guard value != .null else { return .remove }
        guard let text = value.text else { throw .invalid(name, "must be a string or null, is \(value.kind)") }
        return try parse(text, name).map { .set($0) } ?? .remove
    }

    /// Returns all tags of a device. `nil` if the member is absent, empty for null.
    func tags() throws(ChatError) -> Set<Tag>? {
        guard let value = object["tags"] else { return nil }
        if value == .null { return [] }
        return Set(try Self.list(value, "tags", max: Tag.most, Tag.init(parsing:field:)))
    }

    /// Returns the push-to-start tokens of a device, with their types of attributes.
    func startTokens() throws(ChatError) -> [(type: String, token: DeviceToken)] {
        guard let value = object["start_tokens"], value != .null else { return [] }
        guard let members = value.object?.members else {
            throw .invalid("start_tokens", "must be an object, is \(value.kind)")
        }
        guard members.count <= ActivityLimits.startTokens else {
            throw .invalid(
                "start_tokens", "must have at most \(ActivityLimits.startTokens) members, has \(members.count)")
        }
        var tokens: [(String, DeviceToken)] = []
        for (type, value) in members {
            guard ActivityContent.isType(type) else {
                throw .invalid("start_tokens", "has a wrong type: a type \(ActivityContent.typeRule)")
            }
            let field = "start_tokens.\(type)"
            guard let text = value.text else { throw .invalid(field, "must be a string, is \(value.kind)") }
            tokens.append((type, try DeviceToken(parsing: text, field: field)))
        }
        return tokens
    }

    /// Parses an array of strings.
    static func list<Item>(
        _ value: JSONValue, _ name: String, max: Int,
        _ parse: (_ text: String, _ field: String) throws(ChatError) -> Item
    ) throws(ChatError) -> [Item] {
        guard let values = value.array else { throw .invalid(name, "must be an array of strings, is \(value.kind)") }
        guard values.count <= max else { throw .invalid(name, "must have at most \(max) items, has \(values.count)") }
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

/// The query of a request. Rejects unknown and repeated names. Decodes escapes as in forms, where `+` is a space.
struct AdminQuery: Sendable {
    private var values: [String: String] = [:]

    init(_ request: Request, names: Set<String>) throws(ChatError) {
        for pair in (request.uri.query ?? "").utf8.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                .map { String(validating: URLEncodedForm.unescaped(Array($0)[...]), as: UTF8.self) }
            let name = parts[0] ?? "\u{FFFD}"
            let shown = HeaderText.sanitized(name, limit: 60)
            guard names.contains(name) else {
                throw .invalid(
                    shown,
                    names.isEmpty
                        ? "is unknown: this call has no query"
                        : "is unknown; the known names are " + names.sorted().joined(separator: ", "))
            }
            guard let value = parts.count == 1 ? "" : parts[1] else { throw .invalid(shown, "must be UTF-8") }
            guard values.updateValue(value, forKey: name) == nil else {
                throw .invalid(shown, "must not appear twice")
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
        guard let number = Int64(digits: text), range.contains(number) else {
            throw .invalid(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    func limit() throws(ChatError) -> Int {
        try number("limit", Int64(HTTPLimits.page.lowerBound)...Int64(HTTPLimits.page.upperBound)).map(Int.init)
            ?? HTTPLimits.defaultPage
    }

    func cursor() throws(ChatError) -> Int64? { try number("cursor", 0...Int64.max) }

    /// The message after which a list begins.
    func since() throws(ChatError) -> MessageID? { try number("since", 0...Int64.max) }

    /// Returns a parsed value. `nil` if the query does not contain it.
    func value<Value>(
        _ name: String, _ parse: (_ text: String, _ field: String) throws(ChatError) -> Value
    ) throws(ChatError) -> Value? {
        guard let text = values[name] else { return nil }
        return try parse(text, name)
    }

    /// Returns a room's code, or a prefix of one, exactly as stored, including spaces at its ends.
    func code(_ name: String) throws(ChatError) -> SecretCode? {
        guard let text = values[name] else { return nil }
        guard !text.isEmpty else { throw .invalid(name, "must not be empty") }
        guard text.utf8.count <= SecretCode.longest else {
            throw .invalid(name, "must not be longer than \(SecretCode.longest) bytes")
        }
        guard !text.contains("\0") else { throw .invalid(name, "must not contain a NUL") }
        return SecretCode(stored: text)
    }

    /// Returns the room that is meant (``RoomRecords/room(named:field:)``). `nil` if the query does not contain it.
    func room(_ records: any RoomRecords) async throws(ChatError) -> SecretCode? {
        // Compose the code's characters, as in the codes that members send.
        guard let code = try code("room").map({ SecretCode(stored: FieldText.composed($0.text)) }) else { return nil }
        return try await records.room(named: code, field: "room")
    }
}

extension ChatContext {
    /// Returns the id in the path.
    func pathID() throws -> Int64 {
        guard let id = Int64(digits: try parameters.require("id")) else {
            throw ChatError.invalid("id", "must be a whole number")
        }
        return id
    }
}

extension Audience {
    /// Reads the form that ``json`` writes.
    init(_ body: AdminBody, _ records: any RoomRecords) async throws(ChatError) {
        guard let json = body.object["to"], json != .null else { throw .missing("to") }
        let kinds: Set<String> = ["tokens", "users", "tags", "room", "all"]
        guard let object = json.object else { throw .invalid("to", "must be an object, is \(json.kind)") }
        try AdminBody.requireKnown(object, kinds, prefix: "to.")
        guard object.members.count == 1, let (name, value) = object.members.first else {
            throw .invalid("to", "must have exactly one of " + kinds.sorted().joined(separator: ", "))
        }
        func list<Item>(
            max: Int, _ parse: (_ text: String, _ field: String) throws(ChatError) -> Item
        ) throws(ChatError) -> [Item] {
            let items = try AdminBody.list(value, "to." + name, max: max, parse)
            guard !items.isEmpty else { throw .invalid("to." + name, "must not be empty") }
            return items
        }
        switch name {
        case "tokens": self = .tokens(try list(max: Self.mostNames, DeviceToken.init(parsing:field:)))
        case "users": self = .users(try list(max: Self.mostNames, UserReference.init(parsing:field:)))
        case "tags": self = .tags(try list(max: Self.mostTags, Tag.init(parsing:field:)))
        case "room":
            guard let code = value.text else { throw .invalid("to.room", "must be a string, is \(value.kind)") }
            let named = try SecretCode(parsing: code, field: "to.room")
            self = .room(try await records.room(named: named, field: "to.room"))
        default:
            guard value == .bool(true) else { throw .invalid("to.all", "must be true") }
            self = .all
        }
    }
}
