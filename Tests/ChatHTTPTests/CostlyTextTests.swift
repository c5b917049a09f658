import ChatDomain
import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import Testing

@testable import ChatHTTP

/// Tests text that any client can send before it authenticates. If the server compares text before it checks the
/// length, the cases with many requests or a large one exceed their time limit.
@Suite("Combining marks in a request cost little time", .timeLimit(.minutes(1)))
struct CostlyTextTests {
    private static func marks(_ bytes: Int) -> String { String(repeating: "\u{301}\u{323}", count: bytes / 4) }

    @Test("Combining marks in a form", arguments: [("cmd", 10), ("token", 30), ("code", 10)])
    func fields(name: String, count: Int) async throws {
        let valid = ["cmd": "join", "udid": Sample.udid, "token": "0", "name": "n", "code": "c"].filter {
            $0.key != name
        }
        let form = valid.map { "\($0.key)=\($0.value)" }.joined(separator: "&") + "&\(name)=\(Self.marks(64_000))"
        try await Relay().listening { port in
            try await RawConnection.open(port: port) { connection in
                for _ in 0..<count {
                    try await connection.write(post(form))
                    let answer = try await connection.answer()
                    #expect(answer.status == 400)
                    #expect(answer.headers["x-error-description"]?.hasPrefix("Invalid \(name): must") == true)
                }
            }
        }
    }

    @Test(
        "Combining marks in the header of a part",
        arguments: [
            ("name=\"", "\"", nil), ("", "=x", nil), ("name=cmd; filename=", "", nil), ("name=cmd\r\n", ": x", "x"),
        ] as [(String, String, String?)])
    func multipart(before: String, after: String, value: String?) throws {
        let body =
            "--b\r\nContent-Disposition: form-data; \(before)\(Self.marks(600_000))\(after)\r\n\r\nx\r\n--b--\r\n"
        let form = try? MultipartForm.parse(Array(body.utf8), boundary: Array("b".utf8), charset: .utf8)
        #expect(try form?.text(.cmd) == value)
    }

    @Test("Combining marks in the address are refused, because it must be ASCII")
    func address() async throws {
        let answer = try await Relay().exchange(Array("GET /\(Self.marks(100)) HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
        #expect(answer.status == 400)
    }

    @Test("Combining marks in a long header are replaced before the header is read")
    func headers() throws {
        let channel = EmbeddedChannel(handler: ConnectionGuard(connections: ConnectionCounter()))
        var head = HTTPRequest(method: .get, scheme: "http", authority: Self.marks(1000), path: "/")
        head.headerFields = [.userAgent: "é", .accept: "é" + String(repeating: "x", count: 511)]
        try channel.writeInbound(HTTPRequestPart.head(head))
        guard case .head(let read) = try channel.readInbound(as: HTTPRequestPart.self) else {
            Issue.record("no head")
            return
        }
        #expect(read.authority == String(repeating: "?", count: 500))
        #expect(read.headerFields[.userAgent] == "é")
        #expect(read.headerFields[.accept] == "?" + String(repeating: "x", count: 511))
        _ = try channel.finish(acceptAlreadyClosed: true)
    }
}
