import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("join, leave, update")
struct MembersTests {
    private let joined = ScriptedStore(join: { false })

    @Test("A join with all fields reaches the store and gets OK")
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
            Issue.record("Unexpected calls of the store: \(relay.store.calls)")
            return
        }
        #expect(request.token == nil)
        #expect(request.app == .default)
    }

    @Test("/api responds as /api.php does, and ignores a query", arguments: ["/api", "/api.php?x=1"])
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

    @Test("Update stores the new token and the client's description of itself")
    func update() async throws {
        let relay = Relay(ScriptedStore(update: {}))
        let answer = try await relay.form("cmd=update&udid=\(Sample.udid)&token=\(Sample.token)&os_version=5.0")
        #expect(answer.status == .ok)
        #expect(try relay.store.calls == [.update(Sample.member, Sample.device, ClientInfo(osVersion: "5.0"), nil)])
    }

    @Test("A browser's missing description comes from its User-Agent, and is limited to name, version and system")
    func browser() {
        for (header, browser, system) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Firefox 128", "Linux"),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 "
                    + "Safari/537.36 Edg/126.0.2592.87", "Edge 126", "Windows"
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile "
                    + "Safari/537.36", "Chrome 126", "Android"
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
                    + "Version/17.5 Mobile/15E148 Safari/604.1", "Safari 17", "iOS"
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
                    + "Safari/605.1.15", "Safari 17", "macOS"
            ),
            ("curl/8.5.0", nil, nil), ("", nil, nil), ("Firefox/x Linux", nil, "Linux"),
            ("Firefox/" + String(repeating: "9", count: 400), "Firefox 9999", nil),
            (String(repeating: "x", count: 600) + "Firefox/128 Linux", nil, nil),
        ] as [(String, String?, String?)] {
            #expect(UserAgent(header).browser == browser && UserAgent(header).system == system, "\(header)")
        }
    }

    @Test("A writer can read a message's progress, which has names and no udids")
    func receipt() async throws {
        let receipt = Receipt(message: 7, reached: 3, fetched: 2, readers: ["Ann", "Bo"])
        let relay = Relay(ScriptedStore(admin: AdminResponses(receipt: { receipt })))
        let answer = try await relay.form("cmd=receipt&udid=\(Sample.udid)&id=7")
        #expect(answer.text == #"{"id":7,"reached":3,"read":2,"read_by":["Ann","Bo"]}"#)
        #expect(try relay.store.calls == [.receipt(7, Sample.member)])
        for (id, error) in [("", "Missing id"), ("&id=", "Missing id"), ("&id=x", "Invalid id")] {
            let refused = try await Relay().form("cmd=receipt&udid=\(Sample.udid)\(id)")
            #expect(refused.status == .badRequest)
            #expect(refused.header("X-Error-Description")?.hasPrefix(error) == true)
        }
    }

    @Test("A phone reports the message that it has shown")
    func shown() async throws {
        let relay = Relay(ScriptedStore(shown: {}))
        let answer = try await relay.form("cmd=shown&udid=\(Sample.udid)&id=7")
        #expect(answer.text == "OK\n")
        #expect(try relay.store.calls == [.shown(7, Sample.member)])
        for (id, error) in [("", "Missing id"), ("&id=-1", "Invalid id: must be a whole number, 0 or more")] {
            let refused = try await Relay().form("cmd=shown&udid=\(Sample.udid)\(id)")
            #expect(refused.status == .badRequest && refused.header("X-Error-Description") == error)
        }
        let stranger = Relay(ScriptedStore(shown: { () throws(ChatError) in throw .notJoined() }))
        #expect(try await stranger.form("cmd=shown&udid=\(Sample.udid)&id=7").status == .notFound)
    }

    @Test("A member deletes its own message; every other id gets the same error")
    func delete() async throws {
        let relay = Relay(ScriptedStore(admin: AdminResponses(moderate: {})))
        let answer = try await relay.form("cmd=delete&udid=\(Sample.udid)&id=7")
        #expect(answer.status == .ok && answer.text == "OK\n")
        #expect(try relay.store.calls == [.deleteOwn(7, Sample.member)])
        for (id, error) in [("", "Missing id"), ("&id=x", "Invalid id: must be a whole number, 0 or more")] {
            let refused = try await Relay().form("cmd=delete&udid=\(Sample.udid)\(id)")
            #expect(refused.status == .badRequest && refused.header("X-Error-Description") == error)
        }
        let other = Relay(
            ScriptedStore(admin: AdminResponses(moderate: { () throws(ChatError) in throw .notOwnMessage })))
        let missing = try await other.form("cmd=delete&udid=\(Sample.udid)&id=7")
        #expect(missing.status == .notFound)
        #expect(missing.header("X-Error-Description") == "You have written no such message in this room")
    }

    @Test("A member lists the members and programs of its room, and where its messages are sent to")
    func members() async throws {
        let page = RoomMemberPage(
            members: Page(
                items: [
                    RoomMember(nickname: "Ann", isOwn: true, lastSeen: Timestamp(seconds: 7300)),
                    RoomMember(nickname: "Bo", isOwn: false, lastSeen: Timestamp(seconds: 3599)),
                ], next: 5),
            programs: [RoomProgram(name: "CI", isOperator: false, lastSeen: Timestamp(seconds: 3600))],
            receivers: try [
                WebhookSettings(url: "https://example.org:8123/a-secret?key=1", bot: Nickname(parsing: "Bot")),
                WebhookSettings(url: "https://example.com/a-secret"),
            ].compactMap(RoomReceiver.init))
        let relay = Relay(ScriptedStore(admin: AdminResponses(roomMembers: { page })))
        let answer = try await relay.form("cmd=members&udid=\(Sample.udid)&cursor=3&limit=2")
        #expect(
            answer.text
                == #"{"members":[{"name":"Ann","own":true,"last_seen":"1970-01-01T02:00:00.000Z"},"#
                + #"{"name":"Bo","own":false,"last_seen":"1970-01-01T00:00:00.000Z"}],"#
                + #""programs":[{"name":"CI","operator":false,"last_seen":"1970-01-01T01:00:00.000Z"}],"#
                + #""webhooks":[{"origin":"https://example.org:8123","bot":"Bot"},"#
                + #"{"origin":"https://example.com","bot":null}],"next":5}"#)
        #expect(try relay.store.calls == [.roomMembers(Sample.member, after: 3, limit: 2)])
        for field in ["cursor=x", "limit=501", "limit=0"] {
            #expect(try await Relay().form("cmd=members&udid=\(Sample.udid)&\(field)").status == .badRequest)
        }
    }

    @Test("cmd is trimmed and matched exactly")
    func command() async throws {
        let store = ScriptedStore(leave: { true })
        #expect(try await Relay(store).form("cmd=%20leave%0A&udid=\(Sample.udid)").status == .ok)
        #expect(try await Relay().form("cmd=Leave&udid=\(Sample.udid)").status == .badRequest)
    }

    @Test("user_id is an alternative to udid, also in upper case; udid takes precedence")
    func userID() async throws {
        let relay = Relay(ScriptedStore(leave: { true }))
        let uuid = "0F744707BEBCF74F9B7C25D48E335894"
        #expect(try await relay.form("cmd=leave&user_id=\(uuid)").status == .ok)
        #expect(try await relay.form("user_id=\(uuid)&cmd=leave&udid=\(Sample.udid)").status == .ok)
        #expect(
            try relay.store.calls == [.leave(MemberID(parsing: uuid.lowercased())), .leave(Sample.member)])
    }

    @Test(
        "The error names the first invalid field, in the order of the original server",
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
        "A member that has not joined gets a 404; the error names the field that the request used",
        arguments: ["udid", "user_id"])
    func notJoined(field: String) async throws {
        let relay = Relay(ScriptedStore(update: { () throws(ChatError) in throw .notJoined() }))
        let answer = try await relay.form("cmd=update&\(field)=\(Sample.udid)&token=\(Sample.token)")
        #expect(answer.status == .notFound)
        #expect(answer.header("X-Error-Description") == "This \(field) has not joined a room")
    }
}
