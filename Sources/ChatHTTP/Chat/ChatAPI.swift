import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// The API for apps: `POST /api.php` with a command, and registration of a device without a room. Reads the form, calls
/// the store, and returns the response.
struct ChatAPI: Sendable {
    let environment: ChatEnvironment
    let limiter: RequestLimiter
    let metrics: HTTPMetrics
    /// The groups for clients of other servers.
    let servers: [RouteGroup]

    var logger: Logger { environment.logger }

    var routes: [Route] {
        [
            Route(.post, "/api.php", .anyone, execute),
            Route(.post, "/api", .anyone, execute),
            Route(.post, "/push_chat_service.php", .anyone, register),
            Route(.post, "/admin/apns_devices.json", .anyone, registerAsJSON),
        ]
    }

    // MARK: - Commands

    private enum Command: String, CaseIterable {
        case join, leave, update, message, messages, receipt, shown, delete, search, members, credential
        case activityToken = "activity_token"
    }

    /// `POST /api.php`
    func execute(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await execute(read(request, context))
    }

    private func execute(_ call: Call) async throws(ChatError) -> Response {
        guard let command = Command(rawValue: try call.optional(.cmd) ?? "") else {
            let known = Command.allCases.map(\.rawValue).joined(separator: ", ")
            throw ChatError(.unknownCommand, "Unknown command: cmd must be one of \(known)", field: "cmd")
        }
        do throws(ChatError) {
            let claim = try call.claim()
            let act = try action(of: command, call)
            return try await act(admit(claim, call, price: command == .search ? HTTPLimits.searchPrice : 1))
        } catch  where error.code == .notJoined {
            throw .notJoined(call.memberField.key)
        }
    }

    /// Reads a command's fields. Not `async`, so that no command can reach a store before its member is admitted.
    private func action(of command: Command, _ call: Call) throws(ChatError) -> Action {
        switch command {
        case .join: try join(call)
        case .leave: leave(call)
        case .update: try update(call)
        case .message: try post(call)
        case .messages: try messages(call)
        case .receipt: try receipt(call)
        case .shown: try shown(call)
        case .delete: try delete(call)
        case .search: try search(call)
        case .members: try members(call)
        case .credential: try credential(call)
        case .activityToken: try reportActivityToken(call)
        }
    }

    /// Checks the fields in the order of the tutorial's server, as every command does, so that the first error is the
    /// same (`docs/moving-in.md`).
    private func join(_ call: Call) throws(ChatError) -> Action {
        let form = call.form
        // The token `0` means that the app has none. Compare bytes, so that the time depends only on the shorter text.
        let hasNone =
            form.hasValue(.subscription)
            ? false : FieldText.trimmed(try form.required(.token)).utf8.elementsEqual("0".utf8)
        let device = hasNone ? nil : try target(call)
        let nickname = try Nickname(ofMember: form.required(.name))
        let given = try SecretCode(parsing: form.required(.code))
        let app = try app(of: device, call)
        let client = try call.client(isBrowser: device?.subscription != nil)
        return { member in
            if nickname.isBlank { try await requireMember(member) }
            let code = try await environment.stores.records.room(named: given)
            let counted = try await countJoin(call, member, code)
            var wasEmpty = false
            defer { if let counted, !wasEmpty { limiter.refund(counted) } }
            try await keep(device)
            wasEmpty = try await environment.stores.rooms.join(
                JoinRequest(
                    member: member.id, app: app, token: device?.token, nickname: nickname, code: code, client: client,
                    user: member.session?.user))
            logger.info(
                "member joined",
                metadata: call.metadata(
                    member, [LogKeys.token: "\(device?.token.shortened ?? "0")", LogKeys.app: "\(app)"]))
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }

    /// Rejects a newcomer whose name is invisible. A member with such a name keeps it.
    private func requireMember(_ member: AdmittedMember) async throws(ChatError) {
        do throws(ChatError) {
            _ = try await environment.stores.feed.position(of: member.id)
        } catch  where error.code == .notJoined {
            throw .invalid("name", "must not be empty")
        }
    }

    /// Counts a join as a possible guess of a code. `nil` if there is no limit, or if the member is already in the
    /// room.
    private func countJoin(
        _ call: Call, _ member: AdmittedMember, _ code: SecretCode
    ) async throws(ChatError) -> RequestLimiter.CountedJoin? {
        guard let limit = call.settings.joinRate, let address = call.address else { return nil }
        do throws(ChatError) {
            return try limiter.admitJoin(address, limit: limit)
        } catch {
            // A member of the room may join it again, and learns nothing from that.
            if let position = try? await environment.stores.feed.position(of: member.id), position.code == code {
                return nil
            }
            if limiter.mayReportJoins() {
                logger.warning(
                    "too many joins to unused room codes: joins are refused",
                    metadata: [LogKeys.address: "\(address)"])
            }
            throw error
        }
    }

    private func leave(_ call: Call) -> Action {
        { member in
            let wasJoined = try await environment.stores.rooms.leave(member.id)
            logger.info("member left", metadata: call.metadata(member, [LogKeys.wasJoined: "\(wasJoined)"]))
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }

    private func update(_ call: Call) throws(ChatError) -> Action {
        let device = try target(call)
        let client = try call.client(isBrowser: device.subscription != nil)
        return { member in
            try await keep(device)
            // Without a name, a phone stays in the app of the member, unless that is an app for other phones.
            let isNamed = device.subscription != nil || call.form.hasValue(.appID)
            let app: AppChoice =
                isNamed ? .app(try app(of: device, call)) : .current(otherwise: try? app(of: device, call))
            try await environment.stores.rooms.update(
                member.id, token: device.token, app: app, client: client, user: member.session?.user)
            logger.info("token updated", metadata: call.metadata(member, [LogKeys.token: "\(device.token.shortened)"]))
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }

    private func post(_ call: Call) throws(ChatError) -> Action {
        let text = try MessageText(parsing: call.form.required(.text), limit: call.settings.textLimit)
        let key = try call.headers.idempotencyKey()
        let client = try call.client()
        return { member in
            let receipt = try await environment.stores.rooms.post(
                PostRequest(member: member.id, content: MessageContent(text), idempotencyKey: key, client: client))
            logger.info(
                "message accepted",
                metadata: call.ids.metadata([
                    LogKeys.message: "\(receipt.message)",
                    LogKeys.queued: "\(receipt.queued)", LogKeys.isRepeat: "\(receipt.isRepeat)",
                ]))
            var response =
                call.wantsJSON
                ? Responses.text(#"{"ok":true,"id":\#(receipt.message)}"#, type: "application/json")
                : Responses.ok(asJSON: false)
            if receipt.isRepeat { response.headers.append(HTTPField(name: .idempotencyReplayed, value: "true")) }
            metrics.posts.record(metrics.clock.now() - call.received)
            return response
        }
    }

    /// Responds in JSON whatever the client accepts, because a list has no text form.
    private func messages(_ call: Call) throws(ChatError) -> Action {
        let since = try call.number(.since, 0...Int64.max, "must be a whole number, 0 or more")
        let limit = try call.limit()
        let isPeek = try call.number(.peek, 0...1, "must be 0 or 1") == 1
        let withChanges = try call.number(.changes, 0...1, "must be 0 or 1") == 1
        return { member in
            let rooms = environment.stores.rooms
            var json = #"{"messages":["#
            if withChanges {
                let page = try await rooms.entries(for: member.id, since: since, limit: limit, isPeek: isPeek)
                let messages = page.entries.compactMap { if case .message(let message) = $0 { message } else { nil } }
                Self.write(messages, for: member.id, to: &json)
                json += #"],"changes":["#
                Self.write(changes: page.entries, for: member.id, to: &json)
                return Self.end(json, page.next, page.room, page.title)
            }
            let page = try await rooms.messages(for: member.id, since: since, limit: limit, isPeek: isPeek)
            Self.write(page.messages, for: member.id, to: &json)
            return Self.end(json, page.next, page.room, page.title)
        }
    }

    /// Completes a page of messages.
    private static func end(
        _ json: String, _ next: MessageID, _ room: SecretCode, _ title: RoomTitle?
    ) -> Response {
        var json = json + #"],"next":\#(next),"code":"# + JSONValue.string(room.text).description
        if let title { json += #","title":"# + JSONValue.string(title.text).description }
        return Responses.text(json + "}", type: "application/json")
    }

    private static func write(changes entries: [RoomEntry], for member: MemberID, to json: inout String) {
        var separator = ""
        for case .change(let change, let message) in entries where change.isReadable(with: message) {
            json += separator + #"{"id":\#(change.id),"event":"\#(change.kind.rawValue)","message":"#
            change.writeJSON(message, isOwn: message?.sender == member, to: &json)
            json += "}"
            separator = ","
        }
    }

    private static func write(_ messages: [Message], for member: MemberID, to json: inout String) {
        for (index, message) in messages.enumerated() {
            if index > 0 { json += "," }
            message.writeJSON(isOwn: message.sender == member, to: &json)
        }
    }

    /// Returns the messages that contain a text, newest first. They stay unread.
    private func search(_ call: Call) throws(ChatError) -> Action {
        let text = try SearchText(parsing: call.form.required(.text))
        let (limit, cursor) = (try call.limit(), try call.cursor())
        return { member in
            let page = try await environment.stores.records.search(
                MessageSearch(text, in: .member(member.id), before: cursor), limit: limit)
            var json = #"{"messages":["#
            Self.write(page.items.map(\.message), for: member.id, to: &json)
            json += #"],"next":\#(page.next.map(String.init) ?? "null")}"#
            return Responses.text(json, type: "application/json")
        }
    }

    /// Returns the members of the room, the programs that write in it, and the receivers of webhooks that get its events.
    private func members(_ call: Call) throws(ChatError) -> Action {
        let (limit, cursor) = (try call.limit(), try call.cursor())
        return { member in
            let page = try await environment.stores.records.members(for: member.id, after: cursor, limit: limit)
            return Responses.json([
                "members": .array(page.members.items.map { .object($0.json) }),
                "programs": .array(page.programs.map { .object($0.json) }),
                "webhooks": .array(page.receivers.map { .object($0.json) }),
                "next": .optional(page.members.next),
            ])
        }
    }

    /// Returns the receipt of one of the member's own messages: the number of devices it reached, and its readers.
    private func receipt(_ call: Call) throws(ChatError) -> Action {
        let id = try call.message()
        return { member in Responses.json(try await environment.stores.rooms.receipt(of: id, for: member.id).json) }
    }

    /// Records that the member's phone has shown a message.
    private func shown(_ call: Call) throws(ChatError) -> Action {
        let id = try call.message()
        return { member in
            try await environment.stores.rooms.shown(id, to: member.id)
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }

    /// Deletes one of the member's own messages.
    private func delete(_ call: Call) throws(ChatError) -> Action {
        let id = try call.message()
        return { member in
            try await environment.stores.moderation.deleteOwn(id, of: member.id)
            logger.info("message deleted by its writer", metadata: call.metadata(member, [LogKeys.message: "\(id)"]))
            return Responses.ok(asJSON: call.wantsJSON)
        }
    }

    // MARK: - Registration without a room

    private enum RegistrationCommand: String {
        case register, unregister
    }

    /// `POST /push_chat_service.php` with `token` and `appid`, as another tutorial's client sends it. The path also
    /// accepts `client_info`, and unregisters a device with `cmd=unregister`.
    func register(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await register(read(request, context))
    }

    /// `POST /admin/apns_devices.json` with `token`, as a third tutorial's client sends it. Works like
    /// ``register(_:_:)``, but responds in JSON.
    func registerAsJSON(_ request: Request, _ context: ChatContext) async throws -> Response {
        var call = try await read(request, context)
        call.wantsJSON = true
        return try await register(call)
    }

    private func register(_ call: Call) async throws(ChatError) -> Response {
        guard let command = RegistrationCommand(rawValue: try call.optional(.cmd) ?? "register") else {
            throw ChatError(
                .unknownCommand, "Unknown command: cmd must be one of register, unregister", field: "cmd")
        }
        let device = try target(call)
        let token = device.token
        let app = try app(of: device, call)
        let note: DeviceEdit.Change<String> =
            switch try call.form.text(.clientInfo) {
            case nil: .keep
            case let text?: try DeviceNote.text(text, field: FormField.clientInfo.key).map { .set($0) } ?? .remove
            }
        let client = try call.client(isBrowser: device.subscription != nil)
        let user = try await session(call.headers)?.user
        let result: String
        switch command {
        case .register:
            let edit = DeviceEdit(
                user: user.map { .set($0) } ?? .keep, clientInfo: note, client: client.withoutAddress)
            try await keep(device)
            result = try await environment.stores.devices.register(
                RegistrationRequest(token: token, app: app, edit: edit)
            ).rawValue
        case .unregister:
            if let user { try await requireOwner(user, of: token, app) }
            let wasKnown =
                if let browser = device.subscription {
                    try await environment.stores.devices.unregister(browser)
                } else {
                    try await environment.stores.devices.unregister(token, app: app)
                }
            result = wasKnown ? "unregistered" : "unknown"
        }
        logger.info(
            command == .register ? "device registered" : "device unregistered",
            metadata: call.ids.metadata([
                LogKeys.address: "\(call.address?.description ?? "unknown")",
                LogKeys.token: "\(token.shortened)", LogKeys.app: "\(app)", LogKeys.result: "\(result)",
            ]))
        return Responses.ok(asJSON: call.wantsJSON)
    }

    /// Throws unless the device may be unregistered: a session may unregister its user's devices, devices without a
    /// user, and unknown ones.
    private func requireOwner(_ user: UserReference, of token: DeviceToken, _ app: AppName) async throws(ChatError) {
        let owner: UserReference?
        do throws(ChatError) {
            owner = try await environment.stores.devices.device(token, app: app).user
        } catch  where error.code == .notFound {
            return
        }
        guard owner == nil || owner == user else {
            throw ChatError(.forbidden, "This device belongs to another user", field: "token")
        }
    }

    // MARK: - Push targets

    /// A phone, or a browser with its subscription.
    private struct Target {
        let token: DeviceToken
        var subscription: Subscription?
    }

    /// Returns the app of a device, or of a member without one. A phone's form names the app.
    ///
    /// - Throws: ``ChatError/browserNeedsSubscription`` if the form names a browser by its token, whatever its session.
    ///   Only the operator's server may do so, under `/v1`.
    private func app(of device: Target?, _ call: Call) throws(ChatError) -> AppName {
        if device?.subscription != nil { return .web }
        let name = try call.optional(.appID)
        let app =
            if let token = device?.token, name != AppName.web.text {
                try environment.configuration.app(named: name, of: token)
            } else {
                try environment.configuration.app(named: name)
            }
        guard app != .web || device == nil else { throw .browserNeedsSubscription }
        return app
    }

    private func target(_ call: Call) throws(ChatError) -> Target {
        guard call.form.hasValue(.subscription), let text = try call.form.text(.subscription) else {
            return Target(token: try DeviceToken(parsing: call.form.required(.token)))
        }
        guard let browsers = environment.relay.browsers else { throw .noPushesToBrowsers }
        if let token = try call.form.text(.token),
            !["", "0"].contains(where: { FieldText.trimmed(token).utf8.elementsEqual($0.utf8) })
        {
            throw .invalid("token", "cannot go together with subscription; send one of them")
        }
        let subscription = try browsers.subscription(text)
        return Target(token: subscription.address, subscription: subscription)
    }

    /// Stores a browser's subscription before any record refers to it.
    private func keep(_ target: Target?) async throws(ChatError) {
        if let subscription = target?.subscription { try await environment.stores.subscriptions.keep(subscription) }
    }

    // MARK: - Reading

    /// Admits a request and reads its form.
    private func read(_ request: Request, _ context: ChatContext) async throws -> Call {
        let settings = environment.settings
        let address = try limiter.admit(request, context, settings)
        return Call(
            form: try await FormFields.read(request), settings: settings, address: address, headers: request.headers,
            ids: context.ids, received: context.received, wantsJSON: Responses.wantsJSON(request.headers))
    }

    /// Reads the member from a form and admits it, as with a command.
    func member(of request: Request, _ context: ChatContext) async throws -> AdmittedMember {
        let call = try await read(request, context)
        return try await admit(call.claim(), call)
    }

    /// Returns the session of a request. `nil` if none is required.
    func session(_ headers: HTTPFields) async throws(ChatError) -> UserSession? {
        guard let sessions = environment.configuration.sessions else { return nil }
        guard let token = headers.bearerToken else {
            throw .unauthorized("This relay needs a session token: send Authorization: Bearer")
        }
        return try await sessions.session(of: token)
    }
}

extension Receipt {
    /// The form in the chat API and in event streams.
    var json: JSONObject {
        [
            "id": .number(message), "reached": .number(reached), "read": .number(fetched),
            "read_by": .array(readers.map { .string($0) }),
        ]
    }
}

extension RoomMember {
    fileprivate var json: JSONObject {
        ["name": .string(nickname), "own": .bool(isOwn), "last_seen": .time(lastSeen)]
    }
}

extension RoomProgram {
    fileprivate var json: JSONObject {
        ["name": .string(name), "operator": .bool(isOperator), "last_seen": .time(lastSeen)]
    }
}

extension RoomReceiver {
    fileprivate var json: JSONObject { ["origin": .string(origin), "bot": .optional(bot)] }
}
