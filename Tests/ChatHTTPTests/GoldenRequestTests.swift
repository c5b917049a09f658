import ChatDomain
import Testing

@testable import ChatHTTP

/// Sends requests through a socket, byte for byte as ASIFormDataRequest, AFNetworking 1.0 to 1.3.4, browsers and curl
/// do.
@Suite("Requests of real clients", .timeLimit(.minutes(1)))
struct GoldenRequestTests {
    struct Client: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let headers: String
        let body: String

        var bytes: String {
            "POST /api.php HTTP/1.1\r\n" + headers.replacing("\n", with: "\r\n")
                + "\r\nContent-Length: \(body.utf8.count)\r\n\r\n" + body
        }
    }

    private static let name = "Zoë & Co: 100% + \"more\"/~"
    private static let code = "a=b;c"

    private static func multipart(_ boundary: String, _ fields: [(String, String)]) -> String {
        fields.map { "--\(boundary)\r\nContent-Disposition: form-data; name=\"\($0)\"\r\n\r\n\($1)" }
            .joined(separator: "\r\n") + "\r\n--\(boundary)--\r\n"
    }

    private static let fields = [
        ("cmd", "join"), ("udid", Sample.udid), ("token", Sample.token), ("name", name), ("code", code),
    ]

    private static let joins = [
        Client(
            testDescription: "ASIFormDataRequest, url-encoded",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: application/x-www-form-urlencoded; charset=utf-8
                User-Agent: PushChat 1.0 (iPhone; iPhone OS 4.3.3; en_US)
                Accept-Encoding: gzip
                Connection: keep-alive
                """,
            body: "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)"
                + "&name=Zo%C3%AB%20%26%20Co%3A%20100%25%20%2B%20%22more%22%2F%7E&code=a%3Db%3Bc"),
        Client(
            testDescription: "ASIFormDataRequest, another encoding",
            headers: """
                Host: pushchat.local
                Content-Type: application/x-www-form-urlencoded; charset=iso-8859-1
                """,
            body: "cmd=join&udid=\(Sample.udid)&token=\(Sample.token)"
                + "&name=Zo%EB%20%26%20Co%3A%20100%25%20%2B%20%22more%22%2F%7E&code=a%3Db%3Bc"),
        Client(
            testDescription: "ASIFormDataRequest, multipart",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: multipart/form-data; charset=utf-8; boundary=0xKhTmLbOuNdArY-6F5D0F8B-0E8A-4F1D-9D6B-8A3B0D7C1E2F
                Accept-Encoding: gzip
                """,
            body: multipart("0xKhTmLbOuNdArY-6F5D0F8B-0E8A-4F1D-9D6B-8A3B0D7C1E2F", fields)),
        Client(
            testDescription: "AFNetworking 1.0, keys unsorted",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: application/x-www-form-urlencoded; charset=utf-8
                Accept-Language: en, fr, de;q=0.9
                User-Agent: PushChat/1.0 (iPhone Simulator; iOS 6.0; Scale/2.00)
                """,
            body: "code=a%3Db%3Bc&name=Zo%C3%AB%20%26%20Co%3A%20100%25%20%2B%20\"more\"%2F%7E"
                + "&udid=\(Sample.udid)&cmd=join&token=\(Sample.token)"),
        Client(
            testDescription: "AFNetworking 1.2.1, keys sorted",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: application/x-www-form-urlencoded; charset=utf-8
                """,
            body: "cmd=join&code=a%3Db%3Bc&name=Zo%C3%AB%20%26%20Co%3A%20100%25%20%2B%20%22more%22%2F%7E"
                + "&token=\(Sample.token)&user_id=\(Sample.udid.uppercased())"),
        Client(
            testDescription: "AFNetworking 1.3.4, with a bare and a nested key",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: application/x-www-form-urlencoded; charset=utf-8
                """,
            body: "app_version&cmd=join&code=a%3Db%3Bc&extra[]=1&extra[a]=2"
                + "&name=Zo%C3%AB%20%26%20Co%3A%20100%25%20%2B%20%22more%22%2F~"
                + "&token=\(Sample.token)&user_id=\(Sample.udid.uppercased())"),
        Client(
            testDescription: "AFNetworking 1.2.1, multipart with its constant boundary",
            headers: """
                Host: 192.168.2.244:44447
                Content-Type: multipart/form-data; boundary=Boundary+0xAbCdEfGbOuNdArY
                """,
            body: multipart("Boundary+0xAbCdEfGbOuNdArY", fields)),
        Client(
            testDescription: "A browser",
            headers: """
                Host: localhost:44447
                Content-Type: application/x-www-form-urlencoded
                Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8
                Origin: http://localhost:44447
                """,
            body: "cmd=join&udid=\(Sample.udid)&token=%3C740f4707+bebcf74f+9b7c25d4+8e335894+5f6aa01d+a5ddb387+462c7eaf"
                + "+61bb78ad%3E&name=Zo%C3%AB+%26+Co%3A+100%25+%2B+%22more%22%2F%7E&code=a%3Db%3Bc"),
    ]

    @Test("A join of each client arrives with the intended fields", arguments: joins)
    func join(client: Client) async throws {
        // The name has a colon, which the relay rejects. The error shows that the name arrived.
        let relay = Relay(ScriptedStore(join: { false }))
        let refused = try await relay.exchange(Array(client.bytes.utf8))
        #expect(refused.status == 400)
        #expect(refused.headers["x-error-description"]?.hasPrefix("Invalid name: must not contain a colon") == true)
        #expect(relay.store.calls.isEmpty)

        let acceptable = Client(
            testDescription: "", headers: client.headers,
            body: client.body.replacing("%3A", with: "%2D").replacing("Co: ", with: "Co- "))
        let answer = try await relay.exchange(Array(acceptable.bytes.utf8))
        #expect(answer.status == 200)
        #expect(answer.body == "OK\n")
        #expect(answer.headers["content-type"] == "text/plain; charset=utf-8")
        #expect(
            try relay.store.calls == [
                .join(
                    JoinRequest(
                        member: Sample.member, token: Sample.device,
                        nickname: Nickname(parsing: Self.name.replacing(":", with: "-")),
                        code: SecretCode(parsing: Self.code), client: ClientInfo(address: "127.0.0.1")))
            ])
    }

    @Test("A message with a line end from curl arrives")
    func curl() async throws {
        let relay = Relay(ScriptedStore(post: Sample.receipt))
        let body = "cmd=message&udid=\(Sample.udid)&text=one%0D%0Atwo"
        let bytes =
            "POST /api.php HTTP/1.1\r\nHost: localhost:44447\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n"
            + "Content-Length: \(body.utf8.count)\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n\(body)"
        let answer = try await relay.exchange(Array(bytes.utf8))
        #expect(answer.status == 200)
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("Unexpected calls of the store: \(relay.store.calls)")
            return
        }
        #expect(request.content.text.text == "one\r\ntwo")
    }
}
