import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Invisible names and codes")
struct InvisibleTextTests {
    private static func join(name: String, code: String = "kitchen", isMember: Bool = false) async throws -> (
        TestResponse, JoinRequest?
    ) {
        let feed = FakeFeed()
        feed.join(try Sample.member, SecretCode(stored: "kitchen"))
        if !isMember { feed.leave(try Sample.member) }
        let relay = Relay(ScriptedStore(join: { false }, feed: feed))
        func escaped(_ text: String) -> String { text.utf8.map { "%" + Hex.text([$0]) }.joined() }
        let answer = try await relay.form(
            "cmd=join&udid=\(Sample.udid)&token=0&name=\(escaped(name))&code=\(escaped(code))")
        guard case .join(let request) = relay.store.calls.first else { return (answer, nil) }
        return (answer, request)
    }

    @Test(
        "A newcomer needs a name that people see, and a member keeps the one it has",
        arguments: ["\u{200B}", "\u{2800}"])
    func names(name: String) async throws {
        let (refused, none) = try await Self.join(name: name)
        #expect(refused.status == .badRequest && none == nil)
        #expect(refused.header("X-Error-Description") == "Invalid name: must not be empty")
        let (accepted, request) = try await Self.join(name: name, isMember: true)
        #expect(accepted.status == .ok && request?.nickname.text == name)
    }

    @Test("A name is joined without invisible ends and without overrides, composed")
    func cleaned() async throws {
        let (answer, request) = try await Self.join(name: "\u{202E}Ren\u{65}\u{301}\u{200B}")
        #expect(answer.status == .ok && request.map { Array($0.nickname.text.utf8) } == Array("Ren\u{E9}".utf8))
    }

    @Test(
        "A code is joined without invisible ends, unless a room has them",
        arguments: [
            ("kitchen\u{200B}", "kitchen"), ("\u{A0}kitchen\u{FEFF}", "kitchen"), ("odd\u{200B}", "odd\u{200B}"),
            ("odd\u{FEFF}", "odd"), ("\u{2800}", "\u{2800}"), ("\u{3164}", nil),
        ] as [(String, String?)])
    func codes(code: String, expected: String?) async throws {
        let (answer, request) = try await Self.join(name: "Ann", code: code)
        #expect(answer.status == (expected == nil ? .badRequest : .ok), "\(answer.text)")
        #expect(request?.code.text == expected)
    }

    @Test(
        "The operator's calls read a room's code as a join does, in the body and in the query",
        arguments: [
            (.post, "/v1/bans", #"{"closed":true,"room":"tea\u200b"}"#),
            (.post, "/v1/notifications", #"{"to":{"room":"tea\u200b"},"alert":"x"}"#),
            (.get, "/v1/bans?room=tea%E2%80%8B", nil), (.get, "/v1/members?room=tea%E2%80%8B", nil),
            (.get, "/v1/messages?room=%C2%A0tea", nil), (.get, "/v1/messages?room=tea%E2%80%8B&search=x", nil),
            (.post, "/v1/messages?room=tea%E2%80%8B", #"{"text":"x"}"#),
        ] as [(HTTPRequest.Method, String, String?)])
    func operatorCodes(method: HTTPRequest.Method, path: String, body: String?) async throws {
        let refusal = ChatError.notFound("thing")
        let relay = Relay(
            ScriptedStore(
                post: { () throws(ChatError) in throw refusal },
                admin: AdminResponses(
                    send: { () throws(ChatError) in throw refusal }, members: { () throws(ChatError) in throw refusal },
                    messages: { () throws(ChatError) in throw refusal }, ban: { () throws(ChatError) in throw refusal },
                    bans: { () throws(ChatError) in throw refusal })))
        let answer = try await AdminTests.call(method, path, body, to: relay)
        #expect(answer.status == .notFound, "\(answer.text)")
        let call = try #require(relay.store.calls.first)
        #expect("\(call)".contains(#"SecretCode(text: "tea")"#), "\(call)")
    }
}
