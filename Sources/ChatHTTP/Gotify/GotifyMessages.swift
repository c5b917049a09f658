import ChatDomain
import HTTPTypes
import Hummingbird

/// Reading and deleting messages. A deleted message is hidden from its client. The room keeps it.
extension GotifyAPI {
    /// The values of `limit` and `since` in the query.
    private struct Paging {
        /// The permitted values of `limit`.
        private static let limits: ClosedRange<Int64> = 1...200
        private static let usualLimit: Int64 = 100

        let limit: Int
        /// Only messages before this one. `nil` for all.
        let before: MessageID?

        /// Reads the query. Ignores unknown names, as Gotify does.
        init(_ request: Request) throws(ChatError) {
            limit = Int(try Self.number("limit", Self.limits, request) ?? Self.usualLimit)
            let since = try Self.number("since", 0...Int64.max, request) ?? 0
            before = since == 0 ? nil : since
        }

        private static func number(
            _ name: String, _ range: ClosedRange<Int64>, _ request: Request
        ) throws(ChatError) -> Int64? {
            guard let text = request.uri.queryParameters[name[...]], !text.isEmpty else { return nil }
            guard let number = Int64(digits: String(text)), range.contains(number) else {
                throw .invalid(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
            }
            return number
        }
    }

    /// `GET /gotify/message`
    func messages(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (caller, paging) = (try admitted(request, context), try Paging(request))
        return try await page(paging, of: caller.onlyRoom, for: caller, request)
    }

    /// `GET /gotify/application/{id}/message`
    func messagesOfRoom(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (caller, paging) = (try admitted(request, context), try Paging(request))
        let room = try await room(try context.pathID(), of: caller)
        return try await page(paging, of: room.code, for: caller, request)
    }

    /// Returns one page, the newest messages first. It has the address of the next page only if there is one.
    private func page(
        _ paging: Paging, of room: SecretCode?, for caller: Caller, _ request: Request
    ) async throws(ChatError) -> Response {
        let found = try await clients.messages(
            reading(room, caller), before: paging.before, limit: paging.limit + 1)
        let records = found.prefix(paging.limit)
        if let member = caller.member, let newest = records.first {
            environment.stores.feed.handedOut(newest.message.id, to: member.member)
        }
        var applications: [SecretCode: Int64] = [:]
        var messages: [JSONValue] = []
        for record in records {
            let known = applications[record.room]
            let application = if let known { known } else { try await clients.room(record.room).id }
            applications[record.room] = application
            messages.append(.object(record.message.gotify(application: application)))
        }
        var shown: JSONObject = ["size": .number(records.count), "limit": .number(paging.limit), "since": .number(0)]
        if found.count > paging.limit, let last = records.last?.message.id {
            shown["since"] = .number(last)
            shown["next"] = .string("\(request.uri.path)?limit=\(paging.limit)&since=\(last)")
        }
        return Responses.json(["messages": .array(messages), "paging": .object(shown)])
    }

    private func reading(_ room: SecretCode?, _ caller: Caller) -> ClientReading {
        ClientReading(room: room, after: caller.member?.historyFrom ?? 0, client: caller.clientKey)
    }

    // MARK: - Deleting

    /// `DELETE /gotify/message/{id}`
    func hide(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (caller, id) = (try admitted(request, context), try context.pathID())
        guard try await clients.message(id, reading(caller.onlyRoom, caller)) != nil else {
            throw ChatError.notFound("message")
        }
        try await clients.hide(id, from: caller.clientKey)
        return Self.done
    }

    /// `DELETE /gotify/message`
    func hideAll(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        return try await hideAll(of: caller.onlyRoom, for: caller)
    }

    /// `DELETE /gotify/application/{id}/message`
    func hideAllOfRoom(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        return try await hideAll(of: try await room(try context.pathID(), of: caller).code, for: caller)
    }

    /// - Parameter room: The room. `nil` for all rooms.
    private func hideAll(of room: SecretCode?, for caller: Caller) async throws(ChatError) -> Response {
        if let newest = try await clients.messages(reading(room, caller), before: nil, limit: 1).first {
            try await clients.hideAll(upTo: newest.message.id, in: room, from: caller.clientKey)
        }
        return Self.done
    }
}

extension Message {
    /// The message as Gotify's clients read it. They have no member for the sender, so the title begins with its name.
    ///
    /// - Parameter application: The id of the room.
    func gotify(application: Int64) -> JSONObject {
        var json: JSONObject = [
            "id": .number(id), "appid": .number(application), "message": .string(text),
            "title": .string(content.title.map { "\(Nickname.isolated(nickname)): \($0)" } ?? nickname),
            "priority": .number(GotifyAPI.priority(ofPushes: content.priority)), "date": .time(sentAt),
        ]
        if let link = content.link { json["extras"] = Self.extras(link: link) }
        return json
    }

    /// The members with which Gotify's clients open a link on a click.
    private static func extras(link: String) -> JSONValue {
        let click: JSONObject = ["url": .string(link)]
        return .object(["client::notification": .object(["click": .object(click)])])
    }
}
