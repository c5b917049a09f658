import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Scopes of tokens")
struct TokenAccessTests {
    private static let room = SecretCode(stored: "kitchen")

    private static func token(_ id: Int64, _ scopes: Set<Scope>, room: SecretCode? = nil, to: Audience? = nil) throws
        -> AccessToken
    {
        AccessToken(
            id: id, name: Nickname(stored: "cron\(id)"),
            grant: try AccessGrant(scopes: scopes, room: room, audience: to), createdAt: Sample.time)
    }

    /// A token for each scope, and one with a limit for each scope that can have one.
    static func tokens() throws -> [String: AccessToken] {
        var tokens: [String: AccessToken] = [:]
        for (index, scope) in Scope.allCases.enumerated() {
            tokens["pct_" + scope.rawValue] = try token(Int64(index + 1), [scope])
        }
        tokens["pct_post_kitchen"] = try token(11, [.post], room: room)
        tokens["pct_read_kitchen"] = try token(12, [.read], room: room)
        tokens["pct_send_ann"] = try token(13, [.send], to: .users([UserReference(stored: "ann")]))
        return tokens
    }

    /// A notification that was sent with `pct_send`.
    private static let sent = NotificationStatus(
        id: 1, request: NotificationRequest(audience: .all, payload: "{}", token: 3), createdAt: Sample.time,
        cancelledAt: nil, state: .done, counts: [:], skipped: 0, devices: 1)

    /// A relay in production, where every call needs a token.
    static func relay(_ store: ScriptedStore? = nil) throws -> Relay {
        Relay(
            try store
                ?? ScriptedStore(
                    post: Sample.receipt, ping: {},
                    admin: AdminResponses(
                        unregister: { true }, edit: Given.answers.edit, device: Given.answers.device,
                        devices: { Page(items: [], next: nil) }, deliveries: { Page(items: [], next: nil) },
                        send: { NotificationReceipt(id: 1, devices: 1, isRepeat: false) },
                        notifications: { Page(items: [sent], next: 1) }, notification: { sent }, cancel: { sent },
                        rooms: { RoomPage(rooms: [], next: nil) },
                        members: { Page(items: [], next: nil) }, messages: { Page(items: [], next: nil) },
                        progress: { () throws(ChatError) in throw .notFound("message") },
                        messageDeliveries: { Page(items: [], next: nil) },
                        change: { () throws(ChatError) in throw .notFound("message") },
                        find: { () throws(ChatError) in throw .notFound("message") },
                        scheduled: { Page(items: [], next: nil) },
                        moderate: {}, bans: { Page(items: [], next: nil) }, records: { Page(items: [], next: nil) },
                        depths: { [] }, totals: { StoreTotals() }, usage: { nil }, outcomes: []),
                    real: RealStore(tokens: tokens())),
            settings: ChatHTTPSettings(adminTokens: ["geheim"]))
    }

    private static func status(
        _ relay: Relay, _ method: HTTPRequest.Method, _ path: String, _ token: String?, body: String? = nil
    ) async throws -> Int {
        try await relay.send(method, path, headers: headers(token), body: body.map { Array($0.utf8) }).status.code
    }

    private static func headers(_ token: String?) -> HTTPFields {
        var headers: HTTPFields = [.contentType: "application/json"]
        if let token { headers[.authorization] = "Bearer \(token)" }
        return headers
    }

    /// Every route that needs a token, with an example of its path. EventsTests has the streams of programs.
    private static let routes = RoutesTests.routes.compactMap { route -> (HTTPRequest.Method, String, Scope)? in
        guard let scope = scope(of: route), route.path != EventsAPI.path else { return nil }
        return (route.method, example(route), scope)
    }

    /// Returns an example of a route's path.
    private static func example(_ route: Route) -> String {
        let path = route.path.replacing("{token}", with: "aabb").replacing("{topic}", with: "kitchen")
            .replacing("{sequence}", with: "door")
            .replacing("{id}", with: route.path.hasPrefix("/v1/tokens") ? "99" : "1")
        if ["/v1/members", "/v1/messages"].contains(path) {
            let isOfSchedules = route.method == .get && scope(of: route) == .post
            return path + "?room=kitchen" + (isOfSchedules ? "&scheduled=true" : "")
        }
        return route.group.admitsOtherSites && scope(of: route) == .read ? path + "?poll=1" : path
    }

    private static func scope(of route: Route) -> Scope? {
        switch route.access {
        case .scope(let scope), .client(let scope): scope
        case .anyone, .development, .holder, .hook: nil
        }
    }

    /// Whether a call may refuse a caller that has its scope: posting without a room, changes of rooms, and members'
    /// changes of messages.
    private static func mayRefuse(_ method: HTTPRequest.Method, _ path: String) -> Bool {
        path == "/gotify/message" && method == .post || path.hasPrefix("/ntfy/kitchen/door")
            || ["/gotify/application", "/gotify/application/1"].contains(path) && method != .get
    }

    @Test("Every scope gives access to exactly its routes", arguments: 0..<routes.count)
    func table(index: Int) async throws {
        let (method, path, needed) = Self.routes[index]
        try await Self.relay().requests { request in
            func status(_ token: String?) async throws -> Int {
                try await request(method, path, Self.headers(token), Array("{}".utf8)).status.code
            }
            for scope in Scope.allCases {
                let status = try await status("pct_" + scope.rawValue)
                let isOpen = scope == .admin || scope == needed
                #expect((status != 403) == isOpen || (Self.mayRefuse(method, path) && isOpen), "\(scope) \(status)")
                #expect(status != 401 && status < 500, "\(scope) \(status)")
            }
            for wrong in [nil, "", "pct_", "pct_wrong", "pct_" + String(repeating: "a", count: 1000), "geheim2"] {
                // Monitoring checks without a token whether the relay is ready.
                if path == "/readyz", wrong == nil { continue }
                // An ntfy server answers 403 without a token.
                let isOfNtfy = path.hasPrefix("/ntfy") || path == "/"
                let expected = isOfNtfy && (wrong ?? "").isEmpty ? 403 : 401
                #expect(try await status(wrong) == expected, "\(wrong ?? "none")")
            }
            if !Self.mayRefuse(method, path) {
                let status = try await status("geheim")
                #expect(status != 401 && status != 403)
            }
        }
    }

    @Test("A member's credential gives access only to the routes of other apps")
    func credentials() async throws {
        for route in RoutesTests.routes where route.condition == nil {
            // Each call gets its own relay, because some revoke the credential.
            let feed = FakeFeed()
            feed.join(GotifySample.ann, SecretCode(stored: "kitchen"))
            let answer = try await GotifySample.relay(GotifySample.store(feed: feed)).send(
                route.method, Self.example(route), headers: Self.headers(GotifySample.phone), body: Array("{}".utf8))
            let (status, name) = (answer.status.code, "\(route.method) \(route.path)")
            switch route.access {
            case .scope: #expect(status == 403, "\(name)")
            case .client, .holder:
                #expect(status != 401 && status < 500, "\(name)")
                #expect(status != 403 || Self.mayRefuse(route.method, Self.example(route)), "\(name)")
            case .anyone, .development, .hook: break
            }
        }
    }

    @Test(
        "The list of notifications is paged, and a token lists only its own",
        arguments: [("geheim", nil), ("pct_admin", nil), ("pct_send", 3)] as [(String, Int64?)])
    func notifications(token: String, own: Int64?) async throws {
        let relay = try Self.relay()
        let answer = try await relay.send(.get, "/v1/notifications?limit=7&cursor=9", headers: Self.headers(token))
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(json["next"]?.integer == 1 && json["notifications"]?.array?.count == 1)
        #expect(json["notifications"]?.array?.first?.object?["counts"] != nil)
        #expect(relay.store.calls == [.notifications(own, before: 9, limit: 7)])
        for query in ["limit=101", "limit=0", "cursor=x", "state=sent"] {
            let refused = try await relay.send(.get, "/v1/notifications?" + query, headers: Self.headers(token))
            #expect(refused.status == .badRequest, "\(query)")
        }
    }

    @Test(
        "A token for a room gives no access to other rooms",
        arguments: [
            (.post, "/v1/messages", "pct_post_kitchen", 201),
            (.post, "/v1/messages?room=kitchen", "pct_post_kitchen", 201),
            (.post, "/v1/messages?room=hall", "pct_post_kitchen", 403), (.post, "/v1/messages", "pct_post", 400),
            (.get, "/v1/messages", "pct_read_kitchen", 200), (.get, "/v1/messages?room=hall", "pct_read_kitchen", 403),
            (.get, "/v1/messages", "pct_read", 400), (.get, "/v1/messages?room=kitchen", "pct_post_kitchen", 403),
            (.post, "/ntfy/kitchen", "pct_post_kitchen", 200), (.post, "/ntfy/hall", "pct_post_kitchen", 403),
            (.post, "/ntfy/hall", "pct_post", 200),
        ] as [(HTTPRequest.Method, String, String, Int)])
    func rooms(method: HTTPRequest.Method, path: String, token: String, expected: Int) async throws {
        let body = path.hasPrefix("/v1") ? #"{"text":"done"}"# : "done"
        let status = try await Self.status(
            Self.relay(), method, path, token, body: method == .get ? nil : body)
        #expect(status == expected)
    }

    @Test(
        "A token for some devices sends to no others, and sees only its own notifications",
        arguments: [
            (#"{"users":["ann"]}"#, 202), (#"{"users":["bob"]}"#, 403), (#"{"users":["ann","bob"]}"#, 403),
            (#"{"all":true}"#, 403), (#"{"room":"kitchen"}"#, 403), (#"{"tags":["ann"]}"#, 403),
        ])
    func audience(to: String, expected: Int) async throws {
        let relay = try Self.relay()
        let body = #"{"to":\#(to),"alert":"hi"}"#
        #expect(try await Self.status(relay, .post, "/v1/notifications", "pct_send_ann", body: body) == expected)
        // The notification was sent with another token.
        #expect(try await Self.status(relay, .get, "/v1/notifications/1", "pct_send_ann") == 404)
        #expect(try await Self.status(relay, .delete, "/v1/notifications/1", "pct_send_ann") == 404)
        #expect(try await Self.status(relay, .get, "/v1/notifications/1", "pct_send") == 200)
    }

    @Test("Wrong tokens count, and above the limit a valid one is accepted nevertheless")
    func guessing() async throws {
        let relay = try Self.relay()
        let statuses = try await relay.server().application().test(.router) { client in
            var statuses: [Int] = []
            for number in 0..<200 {
                let token = number < 199 ? "pct_wrong\(number)" : "pct_admin"
                let answer = try await client.execute(
                    uri: "/v1/queue", method: .get, headers: [.authorization: "Bearer \(token)"])
                statuses.append(answer.status.code)
            }
            return statuses
        }
        #expect(statuses.first == 401 && statuses.dropLast().last == 429 && statuses.last == 200)
    }

    @Test("Without admin.token, other tokens are valid, also in production", arguments: [true, false])
    func withoutAdministrator(isDevelopment: Bool) async throws {
        var relay = try Self.relay()
        relay.settings = ChatHTTPSettings(isDevelopment: isDevelopment)
        #expect(try await Self.status(relay, .get, "/v1/queue", "pct_figures") == 200)
        #expect(try await Self.status(relay, .get, "/v1/queue", "pct_wrong") == 401)
        #expect(try await Self.status(relay, .get, "/v1/queue", nil) == 403)
    }
}
