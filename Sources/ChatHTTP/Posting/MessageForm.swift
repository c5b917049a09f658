import ChatDomain
import HTTPTypes
import Hummingbird

/// The fields of a request that posts or changes a message: the members of a JSON body, or those of the query with the
/// text as the body.
struct MessageForm {
    /// The fields of a message's content.
    static let content: Set = [
        "text", "title", "link", "priority", "sound", "urgent", "tags", "markdown", "icon",
    ]

    let fields: any MessageFields
    let room: SecretCode?
    /// `nil` if the request has none.
    let text: String?

    /// - Parameters:
    ///   - names: The permitted names, besides `room` and ``content``.
    ///   - isOptional: Whether the request may have no text, and no body.
    static func read(
        _ request: Request, names: Set<String>, isOptional: Bool = false, _ records: any RoomRecords
    ) async throws -> MessageForm {
        let names = names.union(content).union(["room"])
        guard request.headers.mediaType == "application/json" else {
            let query = try AdminQuery(request, names: names.subtracting(["text"]))
            // `curl -d` labels such a body as a form.
            guard ["", "text/plain", "application/x-www-form-urlencoded"].contains(request.headers.mediaType) else {
                throw ChatError.unsupported("The body must be application/json or text/plain")
            }
            let (room, text) = (try await query.room(records), try await PostingAPI.text(of: request))
            return MessageForm(fields: query, room: room, text: isOptional && text.isEmpty ? nil : text)
        }
        let query = try AdminQuery(request, names: ["room"])
        let body = try await AdminBody.read(request, members: names, isOptional: isOptional, hasQuery: true)
        let (inQuery, room) = (try await query.room(records), try await body.room(records))
        guard inQuery == nil || room == nil || inQuery == room else {
            throw ChatError.invalid("room", "differs from the one in the query")
        }
        let text = try body.text("text")
        guard isOptional || text != nil else { throw ChatError.missing("text") }
        return MessageForm(fields: body, room: room ?? inQuery, text: text)
    }

    /// Checks the content of a program's message.
    func content(_ text: String) throws(ChatError) -> MessageContent {
        let extras = try MessageExtras(
            tags: fields.tagList(), markdown: fields.isTrue("markdown"), icon: fields.text("icon"))
        return try MessageContent(
            parsing: text, title: fields.text("title"), link: fields.text("link"), priority: fields.priority(),
            sound: fields.text("sound"), isUrgent: fields.isTrue("urgent"), extras: extras)
    }

    /// Returns the content. `nil` without a text; the other fields of a content then have no meaning.
    func optionalContent() throws(ChatError) -> MessageContent? {
        if let text { return try content(text) }
        guard let other = Self.content.sorted().first(where: { fields.has($0) }) else { return nil }
        throw .invalid(other, "needs a text")
    }
}

/// The values of a request's fields.
protocol MessageFields: Sendable {
    /// Whether the request has a value for the field.
    func has(_ name: String) -> Bool
    func text(_ name: String) throws(ChatError) -> String?
    func priority() throws(ChatError) -> UInt8?
    func isTrue(_ name: String) throws(ChatError) -> Bool
    /// Returns the tags of a message. ``MessageExtras`` checks them.
    func tagList() throws(ChatError) -> [String]
    /// Returns a whole number from 1.
    func count(_ name: String) throws(ChatError) -> Int?
    /// Returns a time as JSON. The query has it as text.
    func timeValue(_ name: String) -> JSONValue?
}

extension MessageFields {
    /// Returns a time. The store checks whether a message may be posted then.
    func time(_ name: String) throws(ChatError) -> Timestamp? {
        guard has(name), let value = timeValue(name) else { return nil }
        let seconds = value.integer ?? value.text.flatMap { Int64(digits: $0) }
        if let seconds, (0...Timestamp.latestSeconds).contains(seconds) { return Timestamp(seconds: seconds) }
        if let time = value.text.flatMap({ Timestamp(rfc3339: $0) }) { return time }
        throw .invalid(name, "must be UNIX seconds, or a time like 2026-05-07T21:57:29Z")
    }

    fileprivate func checkedCount(_ number: Int64?, _ name: String) throws(ChatError) -> Int {
        guard let number, number >= 1, let count = Int(exactly: number) else {
            throw .invalid(name, "must be a whole number from 1")
        }
        return count
    }
}

extension AdminBody: MessageFields {
    func has(_ name: String) -> Bool { object[name].map { $0 != .null } ?? false }

    func isTrue(_ name: String) throws(ChatError) -> Bool { try flag(name) }

    func tagList() throws(ChatError) -> [String] {
        guard let value = object["tags"], value != .null else { return [] }
        return try Self.list(value, "tags", max: MessageExtras.tagCount) { text, _ throws(ChatError) in text }
    }

    func count(_ name: String) throws(ChatError) -> Int? {
        guard has(name) else { return nil }
        return try checkedCount(object[name]?.integer, name)
    }

    func timeValue(_ name: String) -> JSONValue? { object[name] }
}

extension AdminQuery: MessageFields {
    func has(_ name: String) -> Bool { text(name) != nil }

    func isTrue(_ name: String) throws(ChatError) -> Bool { try flag(name) ?? false }

    func priority() throws(ChatError) -> UInt8? {
        try value("priority") { text, field throws(ChatError) in
            guard let number = UInt8(text) else { throw .invalid(field, "must be 10, 5 or 1") }
            return number
        }
    }

    /// Commas separate the tags.
    func tagList() -> [String] { (text("tags") ?? "").split(separator: ",").map { String($0) } }

    func count(_ name: String) throws(ChatError) -> Int? {
        try value(name) { text, field throws(ChatError) in try checkedCount(Int64(digits: text), field) }
    }

    func timeValue(_ name: String) -> JSONValue? { text(name).map { .string($0) } }
}
