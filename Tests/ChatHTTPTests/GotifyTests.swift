import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

/// Two rooms with messages, and callers of each kind: a member with two apps, and tokens.
enum GotifySample {
    static let kitchen = SecretCode(stored: "kitchen")
    static let hall = SecretCode(stored: "hall")
    static let ann = MemberID(stored: Sample.udid)

    /// Ann's app. Ann may read messages after 1.
    static let phone = "pcc_phone"
    static let tablet = "pcc_tablet"
    /// An app with the rights of `pct_read_kitchen`.
    static let desktop = "pcc_desktop"

    static func store(feed: FakeFeed? = FakeFeed()) throws -> ScriptedStore {
        let real = try RealStore(tokens: TokenAccessTests.tokens())
        try real.member(ann, id: 70, in: kitchen, historyFrom: 1)
        try real.credential(phone, id: 1, name: "app 1", 70)
        try real.credential(tablet, id: 2, name: "app 2", 70)
        try real.credential(desktop, id: 3, name: "app 3", of: .token, 12)
        for (id, room, content) in [
            (1, kitchen, MessageContent(stored: "before Ann")), (2, kitchen, MessageContent(stored: "two")),
            (3, hall, MessageContent(stored: "three", title: "Backup", link: "https://example.org/")),
            (4, kitchen, MessageContent(stored: "four")),
        ] as [(MessageID, SecretCode, MessageContent)] {
            let message = Message(
                id: id, sender: MemberID(stored: "2"), nickname: "Bob", content: content, sentAt: Sample.time)
            try real.add(message, to: room)
        }
        return ScriptedStore(
            post: Sample.receipt, ping: {}, admin: AdminResponses(messages: { Page(items: [], next: nil) }), feed: feed,
            real: real)
    }

    static func relay(_ store: ScriptedStore? = nil) throws -> Relay {
        Relay(try store ?? self.store(), settings: ChatHTTPSettings(adminTokens: ["geheim"]))
    }

    static func basic(_ pair: String) -> String { "Basic " + Data(pair.utf8).base64EncodedString() }
}

@Suite("Gotify's clients")
struct GotifyTests {
    private let relay: Relay
    private var real: RealStore { relay.store.real }

    init() throws { relay = try GotifySample.relay() }

    private func call(
        _ method: HTTPRequest.Method, _ path: String, _ secret: String? = GotifySample.phone, json: String? = nil
    ) async throws -> TestResponse {
        var headers: HTTPFields = [:]
        if let secret { headers[.gotifyKey] = secret }
        if json != nil { headers[.contentType] = "application/json" }
        return try await relay.send(method, path, headers: headers, body: json.map { Array($0.utf8) })
    }

    private func object(_ answer: TestResponse) throws -> JSONObject {
        try #require(try JSONValue(parsing: answer.text).object)
    }

    private func ids(_ answer: TestResponse) throws -> [Int64] {
        try #require(try object(answer)["messages"]?.array).compactMap { $0.object?["id"]?.integer }
    }

    // MARK: - Logging in

    @Test("Gotify's app logs in with a credential as password, makes a client, and logs it out")
    func login() async throws {
        try await relay.requests { send in
            #expect(try await send(.get, "/gotify/version", [:], nil).status == .ok)
            let password: HTTPFields = [
                .authorization: GotifySample.basic("ann:\(GotifySample.phone)"), .contentType: "application/json",
            ]
            let user = try await send(.get, "/gotify/current/user", password, nil)
            #expect(
                user.text
                    == #"{"id":70,"name":"Ann","admin":false,"createdAt":"2026-05-28T20:26:40.000Z","clientId":1}"#)
            let made = try await send(.post, "/gotify/client", password, Array(#"{"name":"Pixel: 7"}"#.utf8))
            #expect(made.status == .ok, "\(made.text)")
            let client = try object(made)
            #expect(
                client.members.map(\.name)
                    == ["id", "token", "name", "createdAt", "lastUsed", "expiresAfterInactivitySeconds"])
            #expect(client["name"]?.text == "Pixel 7" && client["lastUsed"] == .null)
            let (id, secret) = (try #require(client["id"]?.integer), try #require(client["token"]?.text))
            let key: HTTPFields = [.gotifyKey: secret]
            #expect(try object(try await send(.get, "/gotify/current/user", key, nil))["clientId"]?.integer == id)
            #expect(try await send(.get, "/gotify/message?limit=1&since=0", key, nil).status == .ok)
            let list = try await send(.get, "/gotify/client", key, nil)
            let all = try #require(try JSONValue(parsing: list.text).array).compactMap(\.object)
            #expect(all.map { $0["id"]?.integer } == [1, 2, id])
            #expect(all.map { $0["token"]?.text } == [nil, nil, secret])
            let gone = try await send(.delete, "/gotify/client/\(id)", key, nil)
            #expect(gone.status == .ok && gone.text.isEmpty)
            #expect(try await send(.get, "/gotify/current/user", key, nil).status == .unauthorized)
        }
    }

    @Test("A client's name is read from a form, too, and is cut")
    func clientName() async throws {
        let form = "name=" + String(repeating: "n", count: 100)
        let answer = try await relay.send(
            .post, "/gotify/client",
            headers: [.gotifyKey: GotifySample.desktop, .contentType: "application/x-www-form-urlencoded"],
            body: Array(form.utf8))
        #expect(try object(answer)["name"]?.text?.utf8.count == 64)
        for json in ["{}", #"{"name":" "}"#, #"{"name":7}"#] {
            #expect(try await call(.post, "/gotify/client", json: json).status == .badRequest, "\(json)")
        }
    }

    @Test(
        "A client revokes only credentials of its owner, and foreign ones are as unknown as others",
        arguments: [
            (GotifySample.phone, 2, 200), (GotifySample.phone, 3, 404), (GotifySample.phone, 99, 404),
            (GotifySample.desktop, 3, 200), (GotifySample.desktop, 1, 404), ("pct_read_kitchen", 3, 200),
            ("pct_read", 3, 404), ("geheim", 3, 404),
        ])
    func revoking(secret: String, id: Int64, expected: Int) async throws {
        let answer = try await call(.delete, "/gotify/client/\(id)", secret)
        #expect(answer.status.code == expected)
        if expected == 404 {
            let unknown = try await call(.delete, "/gotify/client/1000", secret)
            #expect(answer.text == unknown.text)
            #expect(try real.query("SELECT count(*) FROM credentials") == ["3"])
        }
    }

    @Test("The administrator's token makes no clients, and has none")
    func administrator() async throws {
        let refused = try await call(.post, "/gotify/client", "geheim", json: #"{"name":"x"}"#)
        #expect(refused.status == .forbidden && refused.text.contains("create a token"))
        #expect(try await call(.get, "/gotify/client", "geheim").text == "[]")
        let user = try object(try await call(.get, "/gotify/current/user", "geheim"))
        #expect(user["admin"] == .bool(true) && user["name"]?.text == "admin" && user["clientId"] == nil)
        let owner = try object(try await call(.get, "/gotify/current/user", "pct_read_kitchen"))
        #expect(owner["id"]?.integer == 12 && owner["name"]?.text == "cron12" && owner["clientId"] == nil)
    }

    @Test(
        "The first of ?token=, X-Gotify-Key, Bearer and Basic counts that is not empty",
        arguments: [
            ("?token=pcc_phone", "pcc_tablet", "Bearer pcc_desktop", 1), ("", "pcc_tablet", "Bearer pcc_desktop", 2),
            ("", nil, "Bearer pcc_desktop", 3), ("?token=", "", "Bearer pcc_desktop", 3),
            ("?token=", "", GotifySample.basic("ann:pcc_phone"), 1), ("", nil, GotifySample.basic("pcc_phone:"), 1),
            ("?token=pcc_none", "pcc_tablet", nil, nil), ("?token=", nil, nil, nil), ("", nil, "Digest x", nil),
            ("", nil, "Basic ?", nil), ("", nil, nil, nil),
        ] as [(String, String?, String?, Int64?)])
    func order(query: String, key: String?, authorization: String?, client: Int64?) async throws {
        var headers: HTTPFields = [:]
        if let key { headers[.gotifyKey] = key }
        if let authorization { headers[.authorization] = authorization }
        let answer = try await relay.send(.get, "/gotify/current/user" + query, headers: headers)
        #expect(answer.status == (client == nil ? .unauthorized : .ok), "\(answer.text)")
        #expect(try object(answer)["clientId"]?.integer == client)
    }

    @Test("A client asks for the version, and that no other login exists")
    func information() async throws {
        let answer = try await call(.get, "/gotify/gotifyinfo", nil)
        #expect(answer.text == #"{"version":"1.2.3","register":false,"oidc":false}"#)
    }

    // MARK: - Rooms

    @Test(
        "Applications are the rooms that the caller reads",
        arguments: [
            (GotifySample.phone, [1]), (GotifySample.desktop, [1]), ("pct_read_kitchen", [1]), ("pct_read", [1, 2]),
            ("geheim", [1, 2]), ("pct_post", nil), ("pct_post_kitchen", nil),
        ] as [(String, [Int64]?)])
    func applications(secret: String, expected: [Int64]?) async throws {
        let answer = try await call(.get, "/gotify/application", secret)
        guard let expected else {
            #expect(answer.status == .forbidden)
            return
        }
        let rooms = try #require(try JSONValue(parsing: answer.text).array).compactMap(\.object)
        #expect(rooms.map { $0["id"]?.integer } == expected)
        #expect(
            JSONValue.object(rooms[0]).description
                == #"{"id":1,"token":"","name":"kitchen","description":"","internal":false,"#
                + #""image":"static/defaultapp.png","defaultPriority":5,"createdAt":"2026-05-28T20:26:40.000Z","#
                + #""lastUsed":null,"sortKey":"0000000001"}"#)
        let image = try await call(.get, "/gotify/" + (try #require(rooms[0]["image"]?.text)), nil)
        #expect(image.status == .ok && image.headers[.contentType] == "image/png" && image.body.readableBytes > 100)
    }

    @Test("At most 200 rooms are listed")
    func manyRooms() async throws {
        for number in 0..<300 { try real.room(SecretCode(stored: "room \(number)")) }
        let answer = try await call(.get, "/gotify/application", "pct_read")
        #expect(try JSONValue(parsing: answer.text).array?.count == 200)
    }

    @Test(
        "Applications cannot be changed",
        arguments: [
            (.post, "/gotify/application"), (.put, "/gotify/application/1"), (.delete, "/gotify/application/1"),
        ] as [(HTTPRequest.Method, String)])
    func changes(method: HTTPRequest.Method, path: String) async throws {
        let answer = try await call(method, path, json: #"{"name":"x"}"#)
        #expect(answer.status == .forbidden)
        let error = try object(answer)
        #expect(error["error"]?.text == "Forbidden" && error["errorCode"]?.integer == 403)
        #expect(error["errorDescription"]?.text?.contains("pushchat token create") == true)
        #expect(try await call(method, path, nil).status == .unauthorized)
    }

    // MARK: - Messages

    @Test("Messages have a title with the sender's name, and a link among the extras")
    func messages() async throws {
        let answer = try await call(.get, "/gotify/application/2/message", "pct_read")
        #expect(
            answer.text
                == #"{"messages":[{"id":3,"appid":2,"message":"three","title":"Bob: Backup","priority":5,"#
                + #""date":"2026-05-28T20:26:40.000Z","#
                + #""extras":{"client::notification":{"click":{"url":"https://example.org/"}}}}],"#
                + #""paging":{"size":1,"limit":100,"since":0}}"#)
        let first = try #require(
            try object(try await call(.get, "/gotify/message"))["messages"]?.array?.first?.object)
        #expect(first["title"]?.text == "Bob" && first["appid"]?.integer == 1 && first["extras"] == nil)
    }

    @Test(
        "The priority is the one of the pushes, on Gotify's scale",
        arguments: [(nil, 5), (10, 8), (5, 3), (1, 1)] as [(UInt8?, Int64)])
    func priority(ofPushes: UInt8?, expected: Int64) {
        let message = Message(
            id: 1, sender: MemberID(stored: "2"), nickname: "Bob",
            content: MessageContent(stored: "x", priority: ofPushes), sentAt: Sample.time)
        #expect(message.gotify(application: 1)["priority"]?.integer == expected)
    }

    @Test(
        "A page has the newest messages, and the address of the next page if there is one",
        arguments: [
            ("/gotify/message", [4, 3, 2, 1], 100, 0), ("/gotify/message?limit=4", [4, 3, 2, 1], 4, 0),
            ("/gotify/message?limit=3", [4, 3, 2], 3, 2), ("/gotify/message?limit=2&since=4", [3, 2], 2, 2),
            ("/gotify/message?limit=2&since=0", [4, 3], 2, 3), ("/gotify/message?since=1", [], 100, 0),
            ("/gotify/message?limit=200&since=&other=x", [4, 3, 2, 1], 200, 0),
            ("/gotify/application/1/message?limit=2", [4, 2], 2, 2),
        ] as [(String, [Int64], Int64, Int64)])
    func paging(path: String, expected: [Int64], limit: Int64, since: Int64) async throws {
        let answer = try await call(.get, path, "pct_read")
        #expect(try ids(answer) == expected)
        let paging = try #require(try object(answer)["paging"]?.object)
        #expect(paging["size"]?.integer == Int64(expected.count) && paging["limit"]?.integer == limit)
        #expect(paging["since"]?.integer == since)
        let base = path.prefix { $0 != "?" }
        #expect(paging["next"]?.text == (since == 0 ? nil : "\(base)?limit=\(limit)&since=\(since)"))
    }

    @Test(
        "Other limits are refused",
        arguments: ["limit=0", "limit=201", "limit=-1", "limit=x", "since=-1", "since=x", "since=99999999999999999999"])
    func pagingRefused(query: String) async throws {
        for path in ["/gotify/message?", "/gotify/application/1/message?"] {
            let answer = try await call(.get, path + query)
            #expect(answer.status == .badRequest)
            #expect(try object(answer)["errorCode"]?.integer == 400)
        }
    }

    @Test("A member reads its room since it joined, and has then fetched the messages")
    func fetched() async throws {
        let feed = FakeFeed()
        let relay = try GotifySample.relay(try GotifySample.store(feed: feed))
        for path in ["/gotify/message", "/gotify/application/1/message"] {
            let answer = try await relay.send(.get, path, headers: [.gotifyKey: GotifySample.phone])
            #expect(try ids(answer) == [4, 2])
        }
        #expect(feed.handedOut == [GotifySample.ann: 4])
        let other = FakeFeed()
        let program = try GotifySample.relay(try GotifySample.store(feed: other))
        _ = try await program.send(.get, "/gotify/message", headers: [.gotifyKey: GotifySample.desktop])
        #expect(other.handedOut.isEmpty)
    }

    @Test(
        "Foreign rooms and messages are as unknown as those that do not exist",
        arguments: [
            (.get, "/gotify/application/{}/message", 2), (.delete, "/gotify/application/{}/message", 2),
            (.delete, "/gotify/message/{}", 3), (.delete, "/gotify/message/{}", 1),
        ] as [(HTTPRequest.Method, String, Int)])
    func foreign(method: HTTPRequest.Method, path: String, id: Int) async throws {
        let answer = try await call(method, path.replacing("{}", with: String(id)))
        let unknown = try await call(method, path.replacing("{}", with: "999"))
        #expect(answer.status == .notFound && answer.text == unknown.text)
        #expect(try real.query("SELECT client FROM hidden_messages UNION SELECT client FROM hidden_history").isEmpty)
        #expect(try await call(method, path.replacing("{}", with: "x")).status == .badRequest)
    }

    @Test(
        "Deleted messages are hidden from their client only",
        arguments: [
            ("/gotify/message/4", [3, 2, 1]), ("/gotify/message", []), ("/gotify/application/1/message", [3]),
        ] as [(String, [Int64])])
    func deleting(path: String, left: [Int64]) async throws {
        let deleted = try await call(.delete, path, "pct_read")
        #expect(deleted.status == .ok && deleted.text.isEmpty)
        #expect(try ids(try await call(.get, "/gotify/message", "pct_read")) == left)
        #expect(try ids(try await call(.get, "/gotify/message", "geheim")) == [4, 3, 2, 1])
        // Deleting all again succeeds. A hidden message is unknown.
        let again = try await call(.delete, path, "pct_read")
        #expect(again.status == (path == "/gotify/message/4" ? .notFound : .ok))
    }

    @Test("A member that deletes everything hides its room only")
    func deletingRoom() async throws {
        _ = try await call(.delete, "/gotify/message")
        #expect(try real.query("SELECT client, room_id, hidden_to FROM hidden_history") == ["credential:1 1 4"])
        #expect(try ids(try await call(.get, "/gotify/message")) == [])
        #expect(try ids(try await call(.get, "/gotify/message", GotifySample.tablet)) == [4, 2])
    }

    // MARK: - Posting

    @Test(
        "A client posts in the application that it names",
        arguments: [
            ("pct_post", #""appid":2"#, 200, "hall"), ("pct_post", #""appid":9"#, 404, nil),
            ("pct_post", #""appid":0"#, 403, nil), ("pct_post", #""appid":"2""#, 400, nil),
            ("pct_post_kitchen", #""appid":1"#, 200, "kitchen"), ("pct_post_kitchen", #""appid":0"#, 200, "kitchen"),
            ("pct_post_kitchen", #""appid":2"#, 404, nil), (GotifySample.phone, #""appid":2"#, 404, nil),
            (GotifySample.desktop, #""appid":1"#, 403, nil),
        ] as [(String, String, Int, String?)])
    func posting(secret: String, member: String, status: Int, room: String?) async throws {
        let answer = try await call(.post, "/gotify/message", secret, json: #"{"message":"x",\#(member)}"#)
        #expect(answer.status.code == status, "\(answer.text)")
        guard case .post(let request) = relay.store.calls.first else {
            #expect(room == nil)
            return
        }
        #expect(request.program?.room.text == room)
        #expect(try object(answer)["appid"]?.integer == (room == "hall" ? 2 : 1))
    }

    @Test(
        "A server's address may end with a slash, at Gotify's prefix and at the root",
        arguments: ["/gotify//message", "//gotify/message", "//message", "/message"])
    func slashes(path: String) async throws {
        var relay = relay
        relay.settings.gotifyAtRoot = true
        let posted = try await relay.send(
            .post, path + "?token=pct_post_kitchen", headers: [.contentType: "application/json"],
            body: Array(#"{"message":"x"}"#.utf8))
        #expect(posted.status == .ok, "\(posted.text)")
        #expect(relay.store.calls.count == 1)
        // The router ignores the second slash, too, but a proxy's rule for `/v1` does not.
        let admin = try await relay.send(.get, "//v1/rooms", headers: [.authorization: "Bearer geheim"])
        #expect(admin.status == .notFound)
    }

    @Test(
        "A message may be in the query, and the body takes precedence",
        arguments: [
            ("message=a+b&title=T&priority=1", nil, "a b", "T", 1),
            ("message=a&title=T&appid=1", "message=b", "b", "T", 5), ("message=a", "title=B&message=", nil, nil, 0),
            ("title=T", nil, nil, nil, 0),
        ] as [(String, String?, String?, String?, Int64)])
    func query(query: String, body: String?, text: String?, title: String?, priority: Int64) async throws {
        var headers: HTTPFields = [.gotifyKey: "pct_post_kitchen"]
        if body != nil { headers[.contentType] = "application/x-www-form-urlencoded" }
        let answer = try await relay.send(
            .post, "/gotify/message?" + query, headers: headers, body: body.map { Array($0.utf8) })
        #expect(answer.status == (text == nil ? .badRequest : .ok), "\(answer.text)")
        guard let text else { return }
        let json = try object(answer)
        #expect(json["message"]?.text == text && json["title"]?.text == title)
        #expect(json["priority"]?.integer == priority)
    }

    @Test("A member's app posts as the member, and the title is the first line")
    func postingAsMember() async throws {
        let answer = try await relay.send(
            .post, "/gotify/message?token=\(GotifySample.phone)",
            headers: [.contentType: "application/x-www-form-urlencoded"], body: Array("message=m&title=T&appid=1".utf8))
        #expect(answer.status == .ok, "\(answer.text)")
        let json = try object(answer)
        #expect(json["appid"]?.integer == 1 && json["title"]?.text == "T" && json["extras"] == nil)
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("nothing was posted")
            return
        }
        #expect(request.member == GotifySample.ann && request.program == nil && request.content.text.text == "T\nm")
        let untitled = try await call(.post, "/gotify/message", json: #"{"message":"m"}"#)
        #expect(try object(untitled)["title"]?.text == "Ann")
    }

    // MARK: - The server

    @Test(
        "Errors have Gotify's form",
        arguments: [
            (.get, "/gotify/none", 404, "page not found"), (.get, "/gotify/image/1.png", 404, "page not found"),
            (.get, "/gotify", 404, "page not found"), (.patch, "/gotify/message", 401, nil),
            (.put, "/gotify/version", 405, nil), (.get, "/gotify//message", 401, nil),
        ] as [(HTTPRequest.Method, String, Int, String?)])
    func errors(method: HTTPRequest.Method, path: String, status: Int, text: String?) async throws {
        let answer = try await call(method, path, nil)
        #expect(answer.status.code == status)
        let error = try object(answer)
        #expect(error.members.map(\.name) == ["error", "errorCode", "errorDescription"])
        #expect(error["errorCode"]?.integer == Int64(status))
        if let text { #expect(error["errorDescription"]?.text == text) }
    }

    @Test("Calls count against the limits of the address and of the member, and each app of a token for itself")
    func rates() async throws {
        func statuses(_ secrets: [String], _ settings: ChatHTTPSettings) async throws -> [Int] {
            var relay = try GotifySample.relay()
            relay.settings = settings
            return try await relay.requests { send in
                var statuses: [Int] = []
                for secret in secrets {
                    statuses.append(
                        try await send(.get, "/gotify/application", [.gotifyKey: secret], nil).status.code)
                }
                return statuses
            }
        }
        let rate = RateLimit(perSecond: 0.001, burst: 2)
        let perMember = ChatHTTPSettings(memberRate: rate, adminTokens: ["geheim"])
        let (phone, tablet, desktop) = (GotifySample.phone, GotifySample.tablet, GotifySample.desktop)
        #expect(try await statuses([phone, tablet, phone], perMember) == [200, 200, 429])
        #expect(
            try await statuses([desktop, desktop, desktop, "pct_read_kitchen"], perMember) == [200, 200, 429, 200])
        #expect(try await statuses(["geheim", "geheim", "geheim"], perMember) == [200, 200, 200])
    }

    @Test("At the root, the paths exist only with the setting", arguments: [true, false])
    func root(isOn: Bool) async throws {
        var relay = relay
        relay.settings.gotifyAtRoot = isOn
        try await relay.requests { send in
            let key: HTTPFields = [.gotifyKey: GotifySample.phone]
            for path in [
                "/version", "/gotifyinfo", "/health", "/current/user", "/client", "/application", "/message?limit=1",
                "/application/1/message", "/static/defaultapp.png",
            ] {
                let answer = try await send(.get, path, key, nil)
                #expect(answer.status == (isOn ? .ok : .notFound), "\(path)")
            }
            let posted = try await send(
                .post, "/message?token=pct_post_kitchen", [.contentType: "application/json"],
                Array(#"{"message":"x"}"#.utf8))
            #expect(posted.status == (isOn ? .ok : .notFound))
            let refused = try await send(.get, "/message", [:], nil)
            #expect(refused.status == (isOn ? .unauthorized : .notFound))
            #expect(refused.text.contains("errorCode") == isOn)
        }
    }

    @Test("The names at the root are those of Gotify's paths, and no other path of the relay is among them")
    func rootNames() {
        func first(_ path: String) -> String { String(path.dropFirst().prefix { $0 != "/" }) }
        let routes = relay.server().routes
        let below = routes.filter { $0.path.hasPrefix("/gotify/") }.map { first(String($0.path.dropFirst(7))) }
        #expect(Set(below) == GotifyAPI.rootNames)
        #expect(GotifyAPI.rootNames.isDisjoint(with: routes.map { first($0.path) }))
    }
}
