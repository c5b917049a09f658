import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("The admin API: moderation")
struct ModerationTests {
    private static let administrator = Moderator(name: "admin", address: nil)
    private static let ban = Ban(
        id: 4, room: SecretCode(stored: "tea"), isClosed: false, name: "Bob", device: "740f4707…",
        address: "192.0.2.7", reason: "spam",
        createdAt: Timestamp(seconds: 1), endsAt: Timestamp(seconds: 2), hasEnded: true)
    private static let json =
        #"{"id":4,"room":"tea","closed":false,"name":"Bob","device":"740f4707…","address":"192.0.2.7","reason":"spam","#
        + #""created_at":"1970-01-01T00:00:01.000Z","ends_at":"1970-01-01T00:00:02.000Z","ended":true}"#
    private static let answers = AdminResponses(
        change: { ChangeReceipt(message: 7, room: SecretCode(stored: "tea"), time: Sample.time) }, moderate: {},
        ban: { ban }, bans: { Page(items: [ban], next: 4) },
        records: {
            Page(
                items: [
                    ModerationRecord(
                        id: 3, action: "delete", room: nil, subject: "9", actor: "cron", address: "::1",
                        at: Timestamp(seconds: 3))
                ], next: nil)
        })

    private func call(
        _ method: HTTPRequest.Method, _ path: String, _ json: String? = nil, _ answers: AdminResponses = answers
    ) async throws -> (TestResponse, [ScriptedStore.Call]) {
        let relay = Relay(ScriptedStore(admin: answers))
        return (try await AdminTests.call(method, path, json, to: relay), relay.store.calls)
    }

    @Test("Removing, deleting and ending a ban get a 204, and the store records the actor")
    func deletions() async throws {
        let author = ChangeAuthor(writer: .administrator, isAdmin: true, moderator: Self.administrator)
        for (path, expected) in [
            ("/v1/members/7", ScriptedStore.Call.remove(7, Self.administrator)),
            ("/v1/messages/7", .change(MessageChangeRequest(.id(7), by: author, .delete))),
            ("/v1/bans/7", .endBan(7, Self.administrator)),
        ] {
            let (answer, calls) = try await call(.delete, path)
            #expect(answer.status == .noContent && answer.text.isEmpty)
            #expect(calls == [expected])
            let missing = AdminResponses(
                change: { () throws(ChatError) in throw .notFound("message") },
                moderate: { () throws(ChatError) in throw .notFound("thing") })
            #expect(try await call(.delete, path, nil, missing).0.status == .notFound)
            for wrong in [path + "x", path + "?a=1"] {
                let (refused, none) = try await call(.delete, wrong)
                #expect(refused.status == .badRequest && none.isEmpty)
            }
        }
    }

    @Test("The moderation record names the token")
    func actor() async throws {
        let token = AccessToken(
            id: 1, name: Nickname(stored: "bot"), grant: try AccessGrant(scopes: [.admin]), createdAt: Sample.time)
        let relay = Relay(
            ScriptedStore(admin: Self.answers, real: try RealStore(tokens: ["pct_bot": token])),
            settings: ChatHTTPSettings(adminTokens: ["t"]))
        let answer = try await relay.send(
            .delete, "/v1/members/7", headers: [.authorization: "Bearer pct_bot"])
        #expect(answer.status == .noContent)
        #expect(relay.store.calls == [.remove(7, Moderator(name: "bot", address: nil))])
    }

    @Test("A ban has exactly one subject, and optionally an end and a reason")
    func bans() async throws {
        let end = Sample.time + .seconds(3600)
        let room = SecretCode(stored: "tea")
        for (body, subject) in [
            (#"{"member":7,"everywhere":false}"#, .member(7, everywhere: false)),
            (#"{"member":7,"everywhere":true}"#, .member(7, everywhere: true)),
            (#"{"udid":"\#(Sample.udid)"}"#, .udid(try Sample.member, room: nil)),
            (#"{"udid":"\#(Sample.udid)","room":"tea"}"#, .udid(try Sample.member, room: room)),
            (#"{"token":"\#(Sample.token)","room":"tea"}"#, .device(try Sample.device, room: room)),
            (#"{"address":"192.0.2.7"}"#, .address(try BannedAddress(parsing: "192.0.2.7", proxies: []), room: nil)),
            (
                #"{"address":"2001:DB8::5:0:0:7","room":"tea"}"#,
                .address(try BannedAddress(parsing: "2001:db8:0:0::/64", proxies: []), room: room)
            ),
            (#"{"closed":true,"room":"tea","member":null}"#, .room(room)),
        ] as [(String, BanRequest.Subject)] {
            let (answer, calls) = try await call(.post, "/v1/bans", body)
            #expect(answer.status == .created && answer.text == Self.json)
            #expect(calls == [.ban(BanRequest(subject), Self.administrator)])
            let more = #"{"ends_at":"\#(end.rfc3339)","reason":" spam ","# + body.dropFirst()
            #expect(
                try await call(.post, "/v1/bans", more).1 == [
                    .ban(BanRequest(subject, endsAt: end, reason: "spam"), Self.administrator)
                ])
        }
    }

    @Test(
        "The error names an invalid value, and nothing is done",
        arguments: [
            ("{}", "member"), (#"{"member":"7"}"#, "member"), (#"{"member":1.5}"#, "member"),
            (#"{"member":7,"udid":"\#(Sample.udid)"}"#, "udid"), (#"{"token":"aabb","closed":true}"#, "closed"),
            (#"{"member":7,"room":"tea"}"#, "room"), (#"{"closed":true}"#, "room"),
            (#"{"closed":false,"room":"a"}"#, "member"),
            (#"{"address":true}"#, "member"), (#"{"address":true,"udid":"\#(Sample.udid)"}"#, "address"),
            (#"{"address":7}"#, "address"), (#"{"address":"tea"}"#, "address"),
            (#"{"address":"127.0.0.1"}"#, "address"),
            (#"{"address":"::1"}"#, "address"), (#"{"address":"::/64"}"#, "address"),
            (#"{"address":"0.0.0.0"}"#, "address"),
            (#"{"address":"192.0.2.0/24"}"#, "address"), (#"{"member":7,"address":"192.0.2.7"}"#, "address"),
            (#"{"udid":"x"}"#, "udid"), (#"{"token":"x"}"#, "token"), (#"{"token":"aabb","room":""}"#, "room"),
            (#"{"token":"aabb","everywhere":true}"#, "everywhere"), (#"{"member":7,"everywhere":1}"#, "everywhere"),
            (#"{"member":7,"ends_at":"tomorrow"}"#, "ends_at"),
            (#"{"member":7,"ends_at":"2020-01-01T00:00:00Z"}"#, "ends_at"),
            (#"{"member":7,"reason":" "}"#, "reason"),
            (#"{"member":7,"reason":"\#(String(repeating: "x", count: 256))"}"#, "reason"),
            (#"{"member":7,"name":"Bob"}"#, "name"),
        ])
    func refused(body: String, field: String) async throws {
        let (answer, calls) = try await call(.post, "/v1/bans", body)
        #expect(answer.status == .badRequest)
        #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field, "\(answer.text)")
        #expect(calls.isEmpty)
    }

    @Test("A ban of a member may include its address; a trusted proxy's cannot be banned")
    func addresses() async throws {
        let proxies = ["192.0.2.0/28", "2001:db8:1::7"].compactMap { AddressRange($0) }
        let relay = Relay(
            ScriptedStore(admin: Self.answers), settings: ChatHTTPSettings(trustedProxies: proxies))
        let answer = try await AdminTests.call(.post, "/v1/bans", #"{"member":7,"address":true}"#, to: relay)
        #expect(answer.status == .created)
        let request = BanRequest(.member(7, everywhere: false), includesAddress: true, proxies: proxies)
        #expect(relay.store.calls == [.ban(request, Self.administrator)])
        for address in ["192.0.2.15", "2001:db8:1:0:9::", "2001:db8:1::/64"] {
            let refused = try await AdminTests.call(.post, "/v1/bans", #"{"address":"\#(address)"}"#, to: relay)
            #expect(refused.status == .badRequest && refused.text.contains("is a trusted proxy"), "\(refused.text)")
        }
        #expect(relay.store.calls.count == 1)
        #expect(try request.address(lastUsed: "192.0.2.16")?.text == "192.0.2.16")
        #expect(try request.address(lastUsed: "2001:db8:2:3:4::5")?.text == "2001:db8:2:3::/64")
        for text in [nil, "", "192.0.2.1", "127.8.8.8"] {
            #expect(throws: ChatError.self) { try request.address(lastUsed: text) }
        }
    }

    @Test("A room gets the given new code, or one that cannot be guessed")
    func recode() async throws {
        let answers = AdminResponses(recode: { RecodedRoom(members: 3, removed: 1) })
        let (answer, calls) = try await call(.post, "/v1/rooms:recode", #"{"room":"tea","code":" new "}"#, answers)
        #expect(answer.status == .ok && answer.text == #"{"room":"tea","code":"new","members":3,"removed":1}"#)
        #expect(calls == [.recode(SecretCode(stored: "tea"), SecretCode(stored: "new"), Self.administrator)])
        var codes: Set<String> = []
        for _ in 1...2 {
            let (answer, calls) = try await call(.post, "/v1/rooms:recode", #"{"room":"tea"}"#, answers)
            let code = try #require(try JSONValue(parsing: answer.text).object?["code"]?.text)
            #expect(code.count == 19 && code.split(separator: "-").count == 4)
            #expect(calls == [.recode(SecretCode(stored: "tea"), SecretCode(stored: code), Self.administrator)])
            codes.insert(code)
        }
        #expect(codes.count == 2)
        // JSON's escapes of characters that people do not see.
        let (_, cleaned) = try await call(
            .post, "/v1/rooms:recode", #"{"room":"tea\u200b","code":"new\u2800"}"#, answers)
        #expect(cleaned == [.recode(SecretCode(stored: "tea"), SecretCode(stored: "new"), Self.administrator)])
        for (body, field) in [
            ("{}", "room"), (#"{"room":"tea","code":"tea"}"#, "code"), (#"{"room":"tea","code":""}"#, "code"),
            (#"{"room":"tea","code":"\u200b"}"#, "code"),
            (#"{"room":"tea","name":"x"}"#, "name"),
        ] {
            let (answer, calls) = try await call(.post, "/v1/rooms:recode", body, answers)
            #expect(answer.status == .badRequest && calls.isEmpty)
            #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field, "\(answer.text)")
        }
    }

    @Test("Bans and the record are listed page by page")
    func lists() async throws {
        let (bans, asked) = try await call(.get, "/v1/bans?room=tea&limit=1&cursor=9")
        #expect(bans.text == #"{"bans":[\#(Self.json)],"next":4}"#)
        #expect(asked == [.bans(SecretCode(stored: "tea"), before: 9, limit: 1)])
        #expect(try await call(.get, "/v1/bans").1 == [.bans(nil, before: nil, limit: 100)])
        let (records, calls) = try await call(.get, "/v1/moderation?limit=2")
        #expect(
            records.text
                == #"{"moderation":[{"id":3,"action":"delete","room":null,"subject":"9","actor":"cron","from":"::1","#
                + #""at":"1970-01-01T00:00:03.000Z"}],"next":null}"#)
        #expect(calls == [.records(before: nil, limit: 2)])
    }

    @Test("A banned member reads the end of the ban, and the response says nothing else about a used code")
    func banned() async throws {
        let relay = Relay(
            ScriptedStore(join: { () throws(ChatError) in
                throw ChatError(.forbidden, "You are banned from this room until 2026-05-07T21:57:29.000Z")
            }))
        let answer = try await relay.form("cmd=join&udid=\(Sample.udid)&token=0&name=Bob&code=tea")
        #expect(answer.status == .forbidden)
        #expect(answer.text == "You are banned from this room until 2026-05-07T21:57:29.000Z\n")
    }
}
