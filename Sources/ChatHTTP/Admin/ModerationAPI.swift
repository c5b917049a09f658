import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Moderates rooms: removes members, imposes and ends bans, and changes codes. The store records each
/// action. ``AdminGuard`` authenticates the caller.
struct ModerationAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any Moderation { environment.stores.moderation }

    var routes: [Route] {
        [
            Route(.post, "/v1/rooms:recode", .scope(.admin), recode),
            Route(.delete, "/v1/members/{id}", .scope(.admin), remove),
            Route(.get, "/v1/bans", .scope(.admin), bans),
            Route(.post, "/v1/bans", .scope(.admin), ban),
            Route(.delete, "/v1/bans/{id}", .scope(.admin), endBan),
            Route(.get, "/v1/moderation", .scope(.admin), records),
        ]
    }

    /// `DELETE /v1/members/{id}`
    func remove(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        let moderator = try context.moderator(request, environment)
        try await store.remove(id, by: moderator)
        return done("member removed", id, moderator, context)
    }

    /// `POST /v1/bans`
    func ban(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(
            request,
            members: ["member", "udid", "token", "address", "closed", "room", "everywhere", "ends_at", "reason"])
        let proxies = environment.settings.trustedProxies
        // With a member, `true` means the address of the member's last request.
        let includesAddress = body.object["address"] == .bool(true)
        let ban = BanRequest(
            try await Self.subject(
                body, room: body.room(environment.stores.records), includesAddress: includesAddress, proxies),
            includesAddress: includesAddress,
            proxies: proxies,
            endsAt: try body.end("ends_at", now: environment.now()),
            reason: try body.text("reason").map { text throws(ChatError) in try BanRequest.reason(text) })
        let moderator = try context.moderator(request, environment)
        let made = try await store.ban(ban, by: moderator)
        environment.note(
            made.isClosed ? "room closed" : "ban made", ["id": "\(made.id)"], by: moderator, context)
        return Responses.json(made.json, status: .created)
    }

    /// Returns the subject of a ban.
    ///
    /// - Parameter proxies: The trusted proxies, whose addresses cannot be banned.
    private static func subject(
        _ body: AdminBody, room: SecretCode?, includesAddress: Bool, _ proxies: [AddressRange]
    ) throws(ChatError) -> BanRequest.Subject {
        let (udid, token) = (try body.text("udid"), try body.text("token"))
        var address: BannedAddress?
        switch body.object["address"] {
        case nil, .null, .bool: break
        default: address = try BannedAddress(parsing: try body.text("address") ?? "", proxies: proxies)
        }
        let (isClosed, isEverywhere) = (try body.flag("closed"), try body.flag("everywhere"))
        var member: Int64?
        if let value = body.object["member"], value != .null {
            guard let id = value.integer else { throw .invalid("member", "must be a whole number") }
            member = id
        }
        let named = [
            member.map { _ in "member" }, udid.map { _ in "udid" }, token.map { _ in "token" },
            address.map { _ in "address" }, isClosed ? "closed" : nil,
        ].compactMap(\.self)
        guard let first = named.first else {
            throw ChatError(.missingField, "Missing member, udid, token, address or closed", field: "member")
        }
        guard named.count == 1 else { throw .invalid(named[1], "cannot go together with \(first); send one of them") }
        guard !isEverywhere || member != nil else {
            throw .invalid(
                "everywhere", "needs member; a ban of a udid, token or address without room covers every room")
        }
        guard !includesAddress || member != nil else {
            throw .invalid("address", "can be true only with member; otherwise send the address to ban")
        }
        if let member {
            guard room == nil else {
                throw .invalid(
                    "room",
                    "cannot go together with member; the ban covers the member's room, or with everywhere every room")
            }
            return .member(member, everywhere: isEverywhere)
        }
        if let udid { return .udid(try MemberID(parsing: udid), room: room) }
        if let token { return .device(try DeviceToken(parsing: token), room: room) }
        if let address { return .address(address, room: room) }
        guard let room else { throw .missing("room") }
        return .room(room)
    }

    /// `GET /v1/bans`
    func bans(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await store.bans(
            in: query.room(environment.stores.records), before: query.cursor(), limit: query.limit())
        return Responses.page("bans", page.items.map(\.json), next: .optional(page.next))
    }

    /// `DELETE /v1/bans/{id}`: ends the ban now. The ban remains as a record.
    func endBan(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        let moderator = try context.moderator(request, environment)
        try await store.endBan(id, by: moderator)
        return done("ban ended", id, moderator, context)
    }

    /// `POST /v1/rooms:recode`
    func recode(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["room", "code"])
        guard let room = try await body.room(environment.stores.records) else { throw ChatError.missing("room") }
        let code = try body.value("code", SecretCode.init(parsing:field:)) ?? .random()
        // Members type what they see.
        guard let code = code.visible else { throw ChatError.invalid("code", "must not be empty") }
        guard code != room else { throw ChatError.invalid("code", "must not be the room's current code") }
        let moderator = try context.moderator(request, environment)
        let result = try await store.recode(room, to: code, by: moderator)
        // Never log either code.
        environment.note("room has a new code", ["members": "\(result.members)"], by: moderator, context)
        return Responses.json([
            "room": .string(room.text), "code": .string(code.text), "members": .number(result.members),
            "removed": .number(result.removed),
        ])
    }

    /// `GET /v1/moderation`
    func records(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let page = try await store.records(before: query.cursor(), limit: query.limit())
        return Responses.page("moderation", page.items.map(\.json), next: .optional(page.next))
    }

    private func done(
        _ what: Logger.Message, _ id: Int64, _ moderator: Moderator, _ context: ChatContext
    ) -> Response {
        environment.note(what, ["id": "\(id)"], by: moderator, context)
        return Responses.noContent
    }
}

extension Ban {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "room": .optional(room?.text), "closed": .bool(isClosed), "name": .optional(name),
            "device": .optional(device), "address": .optional(address), "reason": .optional(reason),
            "created_at": .time(createdAt),
            "ends_at": .optional(endsAt), "ended": .bool(hasEnded),
        ]
    }
}

extension ModerationRecord {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "action": .string(action), "room": .optional(room?.text),
            "subject": .optional(subject), "actor": .string(actor), "from": .optional(address), "at": .time(at),
        ]
    }
}
