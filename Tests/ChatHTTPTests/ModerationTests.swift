import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("The admin API: order in rooms")
struct ModerationTests {
    private static let administrator = Moderator(name: "admin", address: nil)
    private static let ban = Ban(
        id: 4, room: SecretCode(stored: "tea"), isClosed: false, name: "Bob", device: "740f4707…", reason: "spam",
        createdAt: Timestamp(seconds: 1), endsAt: Timestamp(seconds: 2), hasEnded: true)
    private static let json =
        #"{"id":4,"room":"tea","closed":false,"name":"Bob","device":"740f4707…","reason":"spam","#
        + #""created_at":"1970-01-01T00:00:01.000Z","ends_at":"1970-01-01T00:00:02.000Z","ended":true}"#
    private static let answers = AdminAnswers(
        moderate: {}, ban: { ban }, bans: { Page(items: [ban], next: 4) },
        records: {
            Page(
                items: [
                    ModerationRecord(
                        id: 3, action: "delete", room: nil, subject: "9", actor: "cron", address: "::1",
                        at: Timestamp(seconds: 3))
                ], next: nil)
        })

    private func call(
        _ method: HTTPRequest.Method, _ path: String, _ json: String? = nil, _ answers: AdminAnswers = answers
    ) async throws -> (TestResponse, [ScriptedStore.Call]) {
        let relay = Relay(ScriptedStore(admin: answers))
        return (try await AdminTests.call(method, path, json, to: relay), relay.store.calls)
    }

    @Test("Removing, deleting and ending a ban are answered 204, and the store is told who asked")
    func deletions() async throws {
        for (path, expected) in [
            ("/v1/members/7", ScriptedStore.Call.remove(7, Self.administrator)),
            ("/v1/messages/7", .delete(7, Self.administrator)), ("/v1/bans/7", .endBan(7, Self.administrator)),
        ] {
            let (answer, calls) = try await call(.delete, path)
            #expect(answer.status == .noContent && answer.text.isEmpty)
            #expect(calls == [expected])
            let missing = AdminAnswers(moderate: { () throws(ChatError) in throw .notFound("thing") })
            #expect(try await call(.delete, path, nil, missing).0.status == .notFound)
            for wrong in [path + "x", path + "?a=1"] {
                let (refused, none) = try await call(.delete, wrong)
                #expect(refused.status == .badRequest && none.isEmpty)
            }
        }
    }

    @Test("The record names the token")
    func actor() async throws {
        let token = AccessToken(
            id: 1, name: Nickname(stored: "bot"), grant: try AccessGrant(scopes: [.admin]), createdAt: Sample.time)
        let relay = Relay(
            ScriptedStore(admin: Self.answers, tokens: ["pct_bot": token]),
            settings: ChatHTTPSettings(adminTokens: ["t"]))
        let answer = try await relay.send(
            .delete, "/v1/members/7", headers: [.authorization: "Bearer pct_bot"])
        #expect(answer.status == .noContent)
        #expect(relay.store.calls == [.remove(7, Moderator(name: "bot", address: nil))])
    }

    @Test("A ban has exactly one subject, and perhaps an end and a reason")
    func bans() async throws {
        let end = Sample.time + .seconds(3600)
        let room = SecretCode(stored: "tea")
        for (body, subject) in [
            (#"{"member":7,"everywhere":false}"#, .member(7, everywhere: false)),
            (#"{"member":7,"everywhere":true}"#, .member(7, everywhere: true)),
            (#"{"udid":"\#(Sample.udid)"}"#, .udid(try Sample.member, room: nil)),
            (#"{"udid":"\#(Sample.udid)","room":"tea"}"#, .udid(try Sample.member, room: room)),
            (#"{"token":"\#(Sample.token)","room":"tea"}"#, .device(try Sample.device, room: room)),
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
        "What breaks a rule is named, and nothing is done",
        arguments: [
            ("{}", "member"), (#"{"member":"7"}"#, "member"), (#"{"member":1.5}"#, "member"),
            (#"{"member":7,"udid":"\#(Sample.udid)"}"#, "udid"), (#"{"token":"aabb","closed":true}"#, "closed"),
            (#"{"member":7,"room":"tea"}"#, "room"), (#"{"closed":true}"#, "room"),
            (#"{"closed":false,"room":"a"}"#, "member"),
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

    @Test("Bans and the record, page by page")
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

    @Test("Who is banned reads until when, and nothing else is said of a code that is in use")
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
