import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Sessions", .timeLimit(.minutes(1)))
struct SessionRegistrationTests {
    private static func relay() -> Relay {
        var relay = Relay(
            ScriptedStore(
                join: { false }, update: {}, register: { .created },
                admin: AdminResponses(
                    unregister: { true }, device: { () throws(ChatError) in throw .notFound("device") })))
        relay.sessions = OneSession()
        return relay
    }

    private static let calls = [
        ("/api.php", "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)&name=A&code=c"),
        ("/api.php", "cmd=update&udid=\(Sample.udid)&token=\(Sample.token)"),
        ("/push_chat_service.php", "token=\(Sample.token)"), ("/admin/apns_devices.json", "token=\(Sample.token)"),
        ("/push_chat_service.php", "token=\(Sample.token)&cmd=unregister"),
    ]
    /// The calls of a member that has joined.
    private static let memberCalls = [
        ("/api.php", Sample.message), ("/api.php", "cmd=messages&udid=\(Sample.udid)"), ("/api.php", Sample.leave),
        ("/events/ticket", "udid=\(Sample.udid)"), ("/api.php", "cmd=credential&action=list&udid=\(Sample.udid)"),
    ]

    /// Commands of members that ``memberCalls`` lacks.
    private static let moreCommands = [
        "cmd=receipt&id=1", "cmd=shown&id=1", "cmd=delete&id=1", "cmd=search&text=a", "cmd=members",
        "cmd=credential&action=create", "cmd=credential&action=revoke&id=1", "cmd=activity_token&token=\(Sample.token)",
    ].map { ("/api.php", "udid=\(Sample.udid)&" + $0) }

    @Test(
        "A call without a valid token gets a 401 with the reason, and nothing is done",
        arguments: calls + memberCalls + moreCommands)
    func refused(path: String, form: String) async throws {
        for (header, reason) in [
            (nil, "needs a session token"), ("Bearer bad", "has expired"), ("Basic good", "needs a session token"),
        ] as [(String?, String)] {
            let relay = Self.relay()
            var headers: HTTPFields = [.contentType: "application/x-www-form-urlencoded"]
            headers[.authorization] = header
            let answer = try await relay.send(.post, path, headers: headers, body: Array(form.utf8))
            #expect(answer.status == .unauthorized)
            #expect(answer.header("X-Error-Description")?.contains(reason) == true)
            #expect(answer.headers[.wwwAuthenticate]?.hasPrefix("Bearer") == true)
            #expect(relay.store.calls.isEmpty)
        }
    }

    @Test(
        "Each command counts for the member's rate limit, before its session is verified",
        arguments: calls[...1] + memberCalls + moreCommands)
    func limited(path: String, form: String) async throws {
        var relay = Self.relay()
        relay.settings.memberRate = RateLimit(perSecond: 0.001, burst: HTTPLimits.searchPrice)
        let statuses = try await relay.requests { send in
            var statuses: Set<Int> = []
            for _ in 0...HTTPLimits.searchPrice {
                let headers: HTTPFields = [.contentType: "application/x-www-form-urlencoded"]
                statuses.insert(try await send(.post, path, headers, Array(form.utf8)).status.code)
            }
            return statuses
        }
        #expect(statuses == [401, 429])
        #expect(relay.store.calls.isEmpty)
    }

    @Test("A call with a valid token registers the device for the token's user")
    func accepted() async throws {
        let relay = Self.relay()
        for (path, form) in Self.calls {
            let answer = try await relay.send(
                .post, path,
                headers: [.contentType: "application/x-www-form-urlencoded", .authorization: "Bearer good"],
                body: Array(form.utf8))
            #expect(answer.status == .ok, "\(answer.text)")
        }
        let (member, device, alice) = (try Sample.member, try Sample.device, UserReference(stored: "alice"))
        let registration = RegistrationRequest(token: device, app: .default, edit: DeviceEdit(user: .set(alice)))
        #expect(
            relay.store.calls == [
                .join(
                    JoinRequest(
                        member: member, token: device, nickname: Nickname(stored: "A"), code: SecretCode(stored: "c"),
                        user: alice)),
                .update(member, device, ClientInfo(), alice), .register(registration), .register(registration),
                .device(device, .default), .unregister(device, .default),
            ])
    }

    @Test(
        "A session cannot unregister another user's device", arguments: [("alice", 200), ("bob", 403), (nil, 200)])
    func owner(user: String?, status: Int) async throws {
        let device = Device(
            id: 1, token: try Sample.device, app: .default, user: user.map(UserReference.init(stored:)),
            clientInfo: nil,
            serverInfo: nil, tags: [], createdAt: Sample.time, registeredAt: Sample.time, deactivatedAt: nil,
            deactivatedReason: nil)
        var relay = Relay(
            ScriptedStore(admin: AdminResponses(unregister: { true }, device: { () throws(ChatError) in device })))
        relay.sessions = OneSession()
        let answer = try await relay.send(
            .post, "/push_chat_service.php",
            headers: [.contentType: "application/x-www-form-urlencoded", .authorization: "Bearer good"],
            body: Array("cmd=unregister&token=\(Sample.token)".utf8))
        #expect(answer.status.code == status, "\(answer.text)")
        #expect(relay.store.calls.count == (status == 200 ? 2 : 1))
    }

    @Test("A joined member posts, reads, listens and leaves with a valid token")
    func members() async throws {
        let feed = FakeFeed()
        feed.join(try Sample.member, SecretCode(stored: "c"))
        var relay = Relay(
            ScriptedStore(
                leave: { true }, post: Sample.receipt,
                messages: { MessagePage(messages: [], next: 0, room: SecretCode(stored: "tea")) }, feed: feed))
        relay.sessions = OneSession()
        for (path, form) in Self.memberCalls {
            let answer = try await relay.send(
                .post, path,
                headers: [.contentType: "application/x-www-form-urlencoded", .authorization: "Bearer good"],
                body: Array(form.utf8))
            #expect(answer.status == .ok, "\(answer.text)")
        }
    }

    @Test("A stream is opened with a valid token, or with a ticket that was issued for one", arguments: [true, false])
    func stream(hasSession: Bool) async throws {
        let feed = FakeFeed()
        feed.join(try Sample.member, SecretCode(stored: "c"))
        var relay = Relay(ScriptedStore(feed: feed))
        relay.sessions = OneSession()
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                let session = hasSession ? "Authorization: Bearer good\r\n" : ""
                for place in ["?udid=\(Sample.udid) HTTP/1.1\r\n", " HTTP/1.1\r\nX-Udid: \(Sample.udid)\r\n"] {
                    guard !hasSession else { continue }
                    try await connection.write("GET /events\(place)Host: localhost\r\n\r\n")
                    #expect(try await connection.answer().status == 401)
                }
                var address = "?udid=\(Sample.udid)"
                if !hasSession {
                    let ticket = try await EventsTests.ticket(
                        Sample.udid, connection, headers: "Authorization: Bearer good\r\n")
                    address = "?ticket=\(ticket)"
                }
                try await connection.write("GET /events\(address) HTTP/1.1\r\nHost: localhost\r\n\(session)\r\n")
                #expect(try await connection.text(until: "retry: 2000\n").contains("HTTP/1.1 200"))
            }
        }
    }

    @Test("If sessions are not required, an Authorization header is ignored")
    func open() async throws {
        let relay = Relay(ScriptedStore(join: { false }))
        let answer = try await relay.form(Self.calls[0].1, headers: [.authorization: "Bearer bad"])
        #expect(answer.status == .ok)
    }
}

/// A verifier that accepts one token.
struct OneSession: SessionVerifier {
    static let end = Sample.time + .seconds(600)

    func session(of token: String) async throws(ChatError) -> UserSession {
        guard token == "good" else { throw .unauthorized("The session token has expired") }
        return UserSession(user: UserReference(stored: "alice"), end: Self.end)
    }
}
