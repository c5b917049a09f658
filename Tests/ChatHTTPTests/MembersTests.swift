import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("join, leave, update")
struct MembersTests {
    private let joined = ScriptedStore(join: { false })

    @Test("A join with all fields reaches the store and is answered OK")
    func join() async throws {
        let relay = Relay(joined)
        let answer = try await relay.form(
            "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)&name=Ann+O%27Neil&code=s3cret"
                + "&appid=98Z3R5XU29.com.51work6.PushChat&app_version=1.0&os_version=4.3&device_model=iPhone3%2C1")
        #expect(answer.status == .ok)
        #expect(answer.text == "OK\n")
        #expect(answer.headers[.contentType] == "text/plain; charset=utf-8")
        #expect(answer.headers[.contentLength] == "3")
        #expect(answer.headers[.cacheControl] == "no-store")
        #expect(answer.headers[.xContentTypeOptions] == "nosniff")
        #expect(answer.header("X-Request-Id") != nil)
        #expect(answer.header("X-Error-Description") == nil)
        #expect(
            try relay.store.calls == [
                .join(
                    JoinRequest(
                        member: Sample.member, app: AppName("second"), token: Sample.device,
                        nickname: Nickname(parsing: "Ann O'Neil"), code: SecretCode(parsing: "s3cret"),
                        client: ClientInfo(appVersion: "1.0", osVersion: "4.3", deviceModel: "iPhone3,1")))
            ])
    }

    @Test("A join may have no token yet", arguments: ["0", " 0", "0%0A"])
    func noToken(token: String) async throws {
        let relay = Relay(joined)
        let answer = try await relay.form("cmd=join&udid=\(Sample.udid)&token=\(token)&name=Ann&code=x")
        #expect(answer.status == .ok)
        guard case .join(let request) = relay.store.calls.first else {
            Issue.record("The store was asked for \(relay.store.calls)")
            return
        }
        #expect(request.token == nil)
        #expect(request.app == .default)
    }

    @Test("/api answers as /api.php does, and a query does not matter", arguments: ["/api", "/api.php?x=1"])
    func aliases(path: String) async throws {
        let answer = try await Relay(ScriptedStore(leave: { true })).send(
            .post, path, headers: [.contentType: "application/x-www-form-urlencoded"], body: Array(Sample.leave.utf8))
        #expect(answer.text == "OK\n")
    }

    @Test("Leave succeeds whether the member had joined or not", arguments: [true, false])
    func leave(wasJoined: Bool) async throws {
        let relay = Relay(ScriptedStore(leave: { wasJoined }))
        let answer = try await relay.form("cmd=leave&udid=\(Sample.udid)")
        #expect(answer.status == .ok)
        #expect(try relay.store.calls == [.leave(Sample.member)])
    }

    @Test("Update hands the new token to the store, with what the client tells about itself")
    func update() async throws {
        let relay = Relay(ScriptedStore(update: {}))
        let answer = try await relay.form("cmd=update&udid=\(Sample.udid)&token=\(Sample.token)&os_version=5.0")
        #expect(answer.status == .ok)
        #expect(try relay.store.calls == [.update(Sample.member, Sample.device, ClientInfo(osVersion: "5.0"), nil)])
    }

    @Test("cmd is trimmed and compared exactly")
    func command() async throws {
        let store = ScriptedStore(leave: { true })
        #expect(try await Relay(store).form("cmd=%20leave%0A&udid=\(Sample.udid)").status == .ok)
        #expect(try await Relay().form("cmd=Leave&udid=\(Sample.udid)").status == .badRequest)
    }

    @Test("user_id stands for udid, in upper case as that app sends it; udid goes before it")
    func userID() async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        let uuid = "0F744707BEBCF74F9B7C25D48E335894"
        #expect(try await relay.form("cmd=leave&user_id=\(uuid)").status == .ok)
        #expect(try await relay.form("user_id=\(uuid)&cmd=leave&udid=\(Sample.udid)").status == .ok)
        #expect(
            try relay.store.calls == [.leave(MemberID(parsing: uuid.lowercased())), .leave(Sample.member)])
    }

    @Test(
        "The first field that breaks its rule is named, in the order of the original server",
        arguments: [
            ("", "Unknown command"), ("udid=x", "Unknown command"), ("cmd=dance", "Unknown command"),
            ("cmd=join", "Missing udid"), ("cmd=join&udid=12&token=x", "Invalid udid"),
            ("cmd=join&udid=", "Invalid udid"), ("cmd=join&user_id=", "Invalid user_id"),
            ("cmd=join&udid=U&name=", "Missing token"),
            ("cmd=join&udid=U&token=1", "Invalid token"), ("cmd=join&udid=U&token", "Invalid token"),
            ("cmd=join&udid=U&token=0", "Missing name"), ("cmd=join&udid=U&token=0&name=", "Invalid name"),
            ("cmd=join&udid=U&token=0&name=a&code=%09", "Invalid code"),
            ("cmd=join&udid=U&token=0&name=a", "Missing code"),
            ("cmd=join&udid=U&token=0&name=a&code=b&appid=other", "Invalid appid"),
            ("cmd=join&udid=U&token=0&name=a&code=b&os_version=%01", "Invalid os_version"),
            ("cmd=leave", "Missing udid"), ("cmd=update&udid=U", "Missing token"),
            ("cmd=update&udid=U&token=0", "Invalid token"),
        ])
    func firstError(form: String, error: String) async throws {
        let answer = try await Relay().form(form.replacing("U", with: Sample.udid))
        #expect(answer.status == .badRequest)
        let description = try #require(answer.header("X-Error-Description"))
        #expect(description.hasPrefix(error), "\(description)")
        #expect(answer.text == description + "\n")
        #expect(answer.headers[.contentType] == "text/plain; charset=utf-8")
    }

    @Test(
        "A member that has not joined is answered 404; the error names the field that the request used",
        arguments: ["udid", "user_id"])
    func notJoined(field: String) async throws {
        let relay = Relay(ScriptedStore(update: { () throws(ChatError) in throw .notJoined() }))
        let answer = try await relay.form("cmd=update&\(field)=\(Sample.udid)&token=\(Sample.token)")
        #expect(answer.status == .notFound)
        #expect(answer.header("X-Error-Description") == "This \(field) has not joined a room")
    }
}
