import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("credential, /v1/credentials")
struct CredentialsTests {
    private static let room = SecretCode(stored: "tea & cake")
    private static let other = "7" + Sample.udid.dropFirst()

    /// A relay with one member in the room.
    private static func relay(
        publicURL: String? = "https://chat.example.org", feed: FakeFeed = FakeFeed()
    ) throws -> Relay {
        feed.join(try Sample.member, room)
        let real = try RealStore(credentialLifetime: .seconds(86_400))
        try real.member(Sample.member, id: 41, in: room)
        return Relay(
            ScriptedStore(feed: feed, real: real),
            settings: ChatHTTPSettings(
                publicURL: publicURL, ntfy: NtfySettings(baseURL: publicURL.map { _ in "https://ntfy.example.org" })))
    }

    /// The alias of the room.
    private static func alias(_ relay: Relay) async throws -> String {
        try await relay.store.clients.alias(of: room).text
    }

    private static func secret(_ answer: TestResponse) throws -> String {
        try #require(try JSONValue(parsing: answer.text).object?["credential"]?.text)
    }

    private static func form(_ more: String) -> String { "cmd=credential&udid=\(Sample.udid)" + more }

    @Test(
        "The response to a new credential has the secret and all that an app needs",
        arguments: [("", "Another app"), ("&action=create&name=+My+phone+", "My phone")])
    func create(fields: String, name: String) async throws {
        let relay = try Self.relay()
        let answer = try await relay.form(Self.form(fields), headers: [.accept: "text/html"])
        #expect(answer.status == .ok && answer.headers[.contentType] == "application/json")
        #expect(answer.headers[.cacheControl] == "no-store")
        let (secret, alias) = (try Self.secret(answer), try await Self.alias(relay))
        #expect(
            answer.text
                == #"{"credential":"\#(secret)","id":1,"name":"\#(name)","topic":"\#(alias)","#
                + #""ntfy":"https://ntfy.example.org","gotify":"https://chat.example.org/gotify"}"#)
        #expect(try await relay.store.clients.credential(of: secret)?.name.text == name)
        #expect(!relay.log.lines.contains { $0.contains("pcc_") || $0.contains(name) })
    }

    @Test("Without a public URL the addresses are null")
    func withoutURL() async throws {
        let answer = try await Self.relay(publicURL: nil).form(Self.form(""))
        #expect(answer.text.hasSuffix(#""ntfy":null,"gotify":null}"#))
    }

    @Test("A member lists and revokes its own credentials, without their secrets, and no others")
    func listAndRevoke() async throws {
        let relay = try Self.relay()
        let clients = relay.store.clients
        let bob = try MemberID(parsing: String(Self.other))
        try relay.store.real.member(bob, id: 42, name: "Bob", in: Self.room)
        let foreign = try await clients.createCredential(Nickname(stored: "Bob’s"), for: .member(bob)).credential
        for name in ["phone", "desktop"] { _ = try await relay.form(Self.form("&name=" + name)) }
        let list = try await relay.form(Self.form("&action=list"))
        let json = try #require(try JSONValue(parsing: list.text).object)
        let items = try #require(json["credentials"]?.array).compactMap(\.object)
        #expect(items.map { $0["name"]?.text } == ["phone", "desktop"])
        #expect(items[0].members.map(\.name) == ["id", "name", "created_at", "last_used_at", "last_used_from"])
        #expect(try await json["topic"]?.text == Self.alias(relay) && !list.text.contains("pcc_"))

        #expect(try await relay.form(Self.form("&action=revoke&id=\(foreign.id)")).status == .notFound)
        #expect(try await clients.credentials(of: .member(bob)) == [foreign])
        #expect(try await relay.form(Self.form("&action=revoke&id=2")).text == #"{"ok":true}"#)
        #expect(try await relay.form(Self.form("&action=revoke&id=2")).status == .notFound)
        #expect(try await clients.credentials(of: .member(Sample.member)).map(\.name.text) == ["desktop"])
    }

    @Test(
        "Errors name the field and the rule",
        arguments: [
            ("cmd=credential", "Missing udid"),
            (form("&action=make"), "Invalid action: must be one of create, list, revoke"),
            (form("&action=revoke"), "Missing id"), (form("&action=revoke&id=x"), "Invalid id: must be a whole number"),
            (form("&name=" + String(repeating: "n", count: 65)), "Invalid name: must have at most 64 bytes"),
            (form("&name=a:+b"), "Invalid name: must not contain"), (form("&name=a%09b"), "Invalid name"),
        ])
    func errors(form: String, error: String) async throws {
        let answer = try await Self.relay().form(form)
        #expect(answer.status == .badRequest)
        let text = try #require(answer.header("X-Error-Description"))
        #expect(text.hasPrefix(error), "\(text)")
    }

    @Test("A udid that is in no room gets 404", arguments: ["create", "list"])
    func notJoined(action: String) async throws {
        let feed = FakeFeed()
        let relay = try Self.relay(feed: feed)
        feed.leave(try Sample.member)
        _ = try await relay.store.real.ports.rooms.leave(Sample.member)
        let answer = try await relay.form(Self.form("&action=" + action))
        #expect(answer.status == .notFound && answer.text.contains("has not joined"))
    }

    @Test("The rate limit of members applies to every action", arguments: ["create", "list", "revoke&id=1"])
    func rate(action: String) async throws {
        var relay = try Self.relay()
        relay.settings.memberRate = RateLimit(perSecond: 0.001, burst: 1)
        let statuses = try await relay.requests { send in
            var statuses: [Int] = []
            for _ in 0..<2 {
                let headers: HTTPFields = [.contentType: "application/x-www-form-urlencoded"]
                let body = Array(Self.form("&action=" + action).utf8)
                statuses.append(try await send(.post, "/api.php", headers, body).status.code)
            }
            return statuses
        }
        #expect(statuses[0] != 429 && statuses[1] == 429)
    }

    @Test("If the relay requires sessions, no credential is created without one", arguments: [nil, "bad"])
    func session(token: String?) async throws {
        var relay = try Self.relay()
        relay.sessions = OneSession()
        let headers: HTTPFields = token.map { [.authorization: "Bearer \($0)"] } ?? [:]
        #expect(try await relay.form(Self.form(""), headers: headers).status == .unauthorized)
        let real = relay.store.real
        func credentials() async throws -> [Credential] {
            try await real.sqlite.clients.flush()
            return try await real.ports.clients.credentials(of: .member(Sample.member))
        }
        #expect(try await credentials().isEmpty)
        let first = try await relay.form(Self.form(""), headers: [.authorization: "Bearer good"])
        let made = try await credentials()
        #expect(made.map(\.user?.text) == ["alice"] && made.map(\.sessionAt) == [Sample.time])
        real.advance(.seconds(7200))
        _ = try await relay.form(Self.form("&action=list"), headers: [.authorization: "Bearer good"])
        let again = try await credentials()
        #expect(again.map(\.sessionAt) == [Sample.time + .seconds(7200)], "The call prolongs the member's credentials.")
        // Another app makes a credential with the one that it has.
        let answer = try await relay.send(
            .post, "/gotify/client",
            headers: [.contentType: "application/json", .authorization: "Bearer \(Self.secret(first))"],
            body: Array(#"{"name":"tray"}"#.utf8))
        #expect(answer.status == .ok)
        #expect(try await credentials().map(\.user?.text) == ["alice", "alice"])
    }

    @Test("The operator revokes all credentials of a user")
    func user() async throws {
        var relay = try Self.relay()
        relay.sessions = OneSession()
        for _ in 1...2 { _ = try await relay.form(Self.form(""), headers: [.authorization: "Bearer good"]) }
        try relay.store.real.query("UPDATE credentials SET user_reference = 'bob' WHERE credential_id = 2")
        let list = try await AdminTests.call(.get, "/v1/credentials", to: relay)
        #expect(list.text.contains(#""user_reference":"alice","session_at":"#), "\(list.text)")
        let answer = try await AdminTests.call(.delete, "/v1/credentials?user=alice", to: relay)
        #expect(answer.text == #"{"revoked":1}"#)
        #expect(try relay.store.real.query("SELECT credential_id FROM credentials") == ["2"])
        #expect(try await AdminTests.call(.delete, "/v1/credentials", to: relay).status == .badRequest)
    }

    // MARK: - /v1/credentials

    @Test("The operator lists all credentials page by page, or those of a room, and revokes any")
    func operate() async throws {
        let relay = try Self.relay()
        let token = AccessToken(
            id: 5, name: Nickname(stored: "cron"), grant: try AccessGrant(scopes: [.read]), createdAt: Sample.time)
        try relay.store.real.add(token, "pct_cron")
        _ = try await relay.store.clients.createCredential(Nickname(stored: "desk"), for: .token(5))
        for name in ["phone", "tray"] { _ = try await relay.form(Self.form("&name=" + name)) }
        func list(_ query: String) async throws -> (names: [String?], next: Int64?) {
            let answer = try await AdminTests.call(.get, "/v1/credentials" + query, to: relay)
            #expect(!answer.text.contains("pcc_"))
            let json = try #require(try JSONValue(parsing: answer.text).object)
            return (json["credentials"]?.array?.map { $0.object?["name"]?.text } ?? [], json["next"]?.integer)
        }
        #expect(try await list("?limit=2") == (["desk", "phone"], 2))
        #expect(try await list("?limit=2&cursor=2") == (["tray"], nil))
        for room in ["tea+%26+cake", "tea+%26+cake%E2%80%8B"] {
            #expect(try await list("?room=" + room).names == ["phone", "tray"])
        }
        #expect(try await list("?room=none").names == [])
        let first = try await AdminTests.call(.get, "/v1/credentials?room=tea+%26+cake&limit=1", to: relay)
        #expect(
            first.text.contains(#""room":"tea & cake","member":41,"nickname":"Ann"}"#)
                && !first.text.contains(Sample.udid), "\(first.text)")
        #expect(try await AdminTests.call(.delete, "/v1/credentials/1", to: relay).status == .noContent)
        #expect(try await AdminTests.call(.delete, "/v1/credentials/1", to: relay).status == .notFound)
        for path in ["/v1/credentials?limit=501", "/v1/credentials?rooms=x", "/v1/credentials?room="] {
            #expect(try await AdminTests.call(.get, path, to: relay).status == .badRequest, "\(path)")
        }
    }
}
