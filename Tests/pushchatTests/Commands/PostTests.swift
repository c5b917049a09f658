import ArgumentParser
import ChatDomain
import Foundation
import Synchronization
import Testing

@testable import pushchat

@Suite("pushchat post, rooms, members, messages") struct PostTests {
    private static func post(_ arguments: [String], to server: ScriptedRelay) async throws -> JSONValue {
        try await Post.parse(["--relay", server.base, "--environment", "development"] + arguments).post()
    }

    @Test(
        "The flags are the fields of the call",
        arguments: [
            (["tea", "Tea?"], #"{"room":"tea","text":"Tea?"}"#),
            (
                [
                    "tea", "x", "--title", "-T-", "--name", "cron", "--link", "https://a.example/", "--priority", "5",
                    "--sound", "beep.caf",
                ],
                #"{"room":"tea","text":"x","title":"-T-","name":"cron","link":"https://a.example/","priority":5,"sound":"beep.caf"}"#
            ),
            (["tea", "Fire", "--urgent"], #"{"room":"tea","text":"Fire","urgent":true}"#),
            (
                ["tea", "95 %", "--update", "disk", "--renotify"],
                #"{"room":"tea","text":"95 %","key":"disk","renotify":true}"#
            ),
            (["tea", "--", "-5 °C"], #"{"room":"tea","text":"-5 °C"}"#),
            (["tea", "4.0K\t/srv\n8.0K\t/home"], #"{"room":"tea","text":"4.0K\t/srv\n8.0K\t/home"}"#),
            (
                ["tea", "\u{1B}[1;31mFAILED\u{1B}[0m \u{1B}(B2 of 7", "--title", "\u{1B}]0;Build\u{7}Night"],
                #"{"room":"tea","text":"FAILED 2 of 7","title":"Night"}"#
            ),
        ])
    func fields(arguments: [String], expected: String) async throws {
        let relay = try ScriptedRelay([.init(201, #"{"id":7}"#)])
        #expect(try await Self.post(arguments, to: relay) == .object(["id": .number(7)]))
        let request = try #require(relay.requests.first)
        #expect(request.line == "POST /v1/messages HTTP/1.1" && request.body == expected)
        #expect(request.headers["content-type"] == "application/json")
        #expect(request.headers["idempotency-key"]?.isEmpty == false)
        #expect(request.headers["authorization"] == nil)
    }

    @Test("A message ends with a last text, or without one; then nothing reads the input")
    func resolve() async throws {
        let relay = try ScriptedRelay([.init(200, #"{"id":7}"#), .init(200, #"{"id":7}"#)])
        _ = try await Self.post(["tea", "--resolve", "disk"], to: relay)
        _ = try await Self.post(["tea", "50 %", "--resolve", "7", "--renotify"], to: relay)
        #expect(
            relay.requests.map(\.line) == [
                "POST /v1/messages/disk:resolve HTTP/1.1", "POST /v1/messages/7:resolve HTTP/1.1",
            ])
        #expect(relay.requests.map(\.body) == [#"{"room":"tea"}"#, #"{"room":"tea","text":"50 %","renotify":true}"#])
    }

    @Test("A message for later has a time, or a duration from now")
    func at() async throws {
        let relay = try ScriptedRelay(Array(repeating: .init(201, #"{"id":7}"#), count: 3))
        let start = Timestamp.now()
        let time = Timestamp(seconds: start.seconds + 3600)
        for at in [time.rfc3339, "+1h", "1h"] { _ = try await Self.post(["tea", "x", "--at", at], to: relay) }
        let sent = try relay.requests.map { request in
            try #require(Timestamp(rfc3339: JSONValue(parsing: request.body).object?["not_before"]?.text ?? ""))
        }
        #expect(sent[0] == time)
        for due in sent.dropFirst() {
            #expect(due >= start + .seconds(3600) && due <= Timestamp.now() + .seconds(3600))
        }
    }

    @Test(
        "The time of --at, in every form",
        arguments: [
            ("2026-05-28T22:27:00+02:00", 20), ("2026-05-28T20:26:40.5Z", 0.5), ("+30m", 1800), ("30m", 1800),
            ("+1h 30m", 5400), ("2 days", 172_800), ("30d", 2_592_000), ("+500ms", 0.5),
        ] as [(String, Double)])
    func moments(at: String, seconds: Double) throws {
        let now = Timestamp(seconds: 1_780_000_000)
        var post = Post()
        post.at = at
        #expect(try post.due(now: now) == now + .milliseconds(Int64(seconds * 1000)))
    }

    @Test(
        "Another time of --at is an error that names the rule",
        arguments: [
            ("tomorrow", "must be a time with its zone"), ("30", "must be a time with its zone"),
            ("", "must be a time with its zone"), ("++30m", "must be a time with its zone"),
            ("2026-05-28T22:27:00", "must be a time with its zone"), ("2026-05-29", "must be a time with its zone"),
            ("2026-05-28T20:26:40Z", "Invalid --at: must be in the future"),
            ("0s", "Invalid --at: must be in the future"),
            ("1970-01-01T00:00:00Z", "Invalid --at: must be in the future"),
            ("31d", "Invalid --at: must be within 30 days"), ("2592000001ms", "Invalid --at: must be within 30 days"),
            ("9223372036854775807ms", "Invalid --at: must be within 30 days"),
            ("9999-12-31T23:59:59Z", "Invalid --at: must be within 30 days"),
        ])
    func wrongMoments(at: String, rule: String) throws {
        var post = Post()
        post.at = at
        let error = #expect(throws: ValidationError.self) { try post.due(now: Timestamp(seconds: 1_780_000_000)) }
        #expect(error?.message.contains(rule) == true, "\(error?.message ?? "")")
    }

    @Test("Messages for later are listed without their texts, and deleted by id or name")
    func scheduled() async throws {
        let relay = try ScriptedRelay([
            .init(
                200, #"{"scheduled":[{"id":4,"key":"a","name":"n","text":"x","not_before":"t","held":false}],"next":4}"#
            ),
            .init(200, #"{"scheduled":[],"next":null}"#), .init(204, ""), .init(204, ""), .init(204, ""),
        ])
        let place = ["--relay", relay.base, "--environment", "development"]
        for arguments in [
            ["tea", "--scheduled", "--limit", "0"], ["delete", "4"], ["delete", "m00000000004", "--room", "tea"],
            ["delete", "a_b", "--room", "a b"],
        ] {
            var command = try #require(try Messages.parseAsRoot(arguments + place) as? any AsyncParsableCommand)
            try await command.run()
        }
        #expect(
            relay.requests.map(\.line) == [
                "GET /v1/messages?scheduled=true&room=tea&limit=500 HTTP/1.1",
                "GET /v1/messages?scheduled=true&room=tea&limit=500&cursor=4 HTTP/1.1",
                "DELETE /v1/messages/4 HTTP/1.1", "DELETE /v1/messages/m00000000004?room=tea HTTP/1.1",
                "DELETE /v1/messages/a_b?room=a%20b HTTP/1.1",
            ])
        for wrong in [
            ["tea", "--scheduled", "--search", "x"], ["delete", "a_b"], ["delete", "../x", "--room", "tea"],
            ["delete", "", "--room", "tea"],
        ] {
            #expect(throws: (any Error).self) { try Messages.parseAsRoot(wrong) }
        }
    }

    @Test(
        "Flags that do not belong together are refused",
        arguments: [
            ["--at", "+1h", "--key", "k"], ["--resolve", "a", "--at", "+1h"], ["--at", "tomorrow"], ["--renotify"],
            ["--resolve", "a", "--update", "a"], ["--resolve", "a", "--name", "b"],
            ["--resolve", "../x"], ["--resolve", ""],
        ])
    func wrongFlags(flags: [String]) {
        #expect(throws: (any Error).self) { try Post.parse(["tea", "x"] + flags) }
    }

    @Test("A retry uses the same key, whether it was given or generated")
    func key() async throws {
        let relay = try ScriptedRelay([nil, nil, .init(201, #"{"id":7}"#), .init(201, #"{"id":8}"#)])
        #expect(try await Self.post(["tea", "x"], to: relay) == .object(["id": .number(7)]))
        let keys = relay.requests.map { $0.headers["idempotency-key"] ?? "" }
        #expect(keys.count == 3 && Set(keys).count == 1 && !keys[0].isEmpty)
        #expect(Set(relay.requests.map(\.body)).count == 1)
        _ = try await Self.post(["tea", "x", "--key", "backup-7", "--token", "t"], to: relay)
        #expect(relay.requests.last?.headers["idempotency-key"] == "backup-7")
        #expect(relay.requests.last?.headers["authorization"] == "Bearer t")
    }

    @Test("A refusal is reported in the relay's words, and not retried")
    func refused() async throws {
        let relay = try ScriptedRelay([
            .init(401, #"{"detail":"The token is wrong","code":"unauthorized"}"#),
            .init(400, #"{"detail":"Invalid text: must have at most 190 bytes","code":"invalid_field"}"#),
            .init(404, "<html>"), .init(201, "OK"),
        ])
        for expected in [
            "The token is wrong: give one with --token or in PUSHCHAT_TOKEN", "at most 190 bytes",
            "\(relay.base)/v1/messages answered with status 404 and gave no reason: is it a PushChat relay?",
            "does not answer in JSON",
        ] {
            let error = await #expect(throws: CallFailure.self) { try await Self.post(["tea", "x"], to: relay) }
            #expect(error?.description.contains(expected) == true, "\(error?.description ?? "")")
        }
        #expect(relay.requests.count == 4)
        await #expect(throws: Failure.self) { try await Self.post(["tea", "  "], to: relay) }
        #expect(relay.requests.count == 4)
    }

    @Test("Lists are read page by page, with numeric and text cursors")
    func lists() async throws {
        let relay = try ScriptedRelay([
            .init(200, #"{"rooms":[{"code":"tea & cake","members":2}],"next":"tea & cake"}"#),
            .init(200, #"{"rooms":[],"next":null}"#), .init(200, #"{"messages":[{"id":9}],"next":9}"#),
            .init(200, #"{"messages":[{"id":8}],"next":null}"#), .init(200, #"{"members":[],"next":null}"#),
        ])
        let place = ["--relay", relay.base, "--environment", "development", "--limit", "0"]
        for (type, argument) in [(Rooms.self, "te"), (Messages.self, "a+b"), (Members.self, "é")]
            as [(any ParsableCommand.Type, String)]
        {
            var command = try #require(try type.parseAsRoot([argument] + place) as? any AsyncParsableCommand)
            try await command.run()
        }
        #expect(
            relay.requests.map(\.line) == [
                "GET /v1/rooms?prefix=te&limit=500 HTTP/1.1",
                "GET /v1/rooms?prefix=te&limit=500&cursor=tea%20%26%20cake HTTP/1.1",
                "GET /v1/messages?room=a%2Bb&limit=500 HTTP/1.1",
                "GET /v1/messages?room=a%2Bb&limit=500&cursor=9 HTTP/1.1",
                "GET /v1/members?room=%C3%A9&limit=500 HTTP/1.1",
            ])
    }

    @Test("A room gets a title and loses it, and a search selects messages")
    func titleAndSearch() async throws {
        let relay = try ScriptedRelay([
            .init(200, #"{"room":"tea"}"#), .init(200, #"{"room":"tea"}"#),
            .init(200, #"{"messages":[],"next":null}"#),
        ])
        let place = ["--relay", relay.base, "--environment", "development"]
        for (type, arguments) in [
            (Rooms.self, ["set", "tea", "--title", "Tea \"time\""]), (Rooms.self, ["set", "tea", "--no-title"]),
            (Messages.self, ["tea", "--search", "a & b", "--limit", "0"]),
        ] as [(any ParsableCommand.Type, [String])] {
            var command = try #require(try type.parseAsRoot(arguments + place) as? any AsyncParsableCommand)
            try await command.run()
        }
        #expect(
            relay.requests.map(\.line) == [
                "PATCH /v1/rooms HTTP/1.1", "PATCH /v1/rooms HTTP/1.1",
                "GET /v1/messages?room=tea&search=a%20%26%20b&limit=500 HTTP/1.1",
            ])
        #expect(
            relay.requests.prefix(2).map(\.body) == [
                #"{"room":"tea","title":"Tea \"time\""}"#, #"{"room":"tea","title":null}"#,
            ])
        for wrong in [["set", "tea"], ["set", "tea", "--title", "x", "--no-title"]] {
            #expect(throws: (any Error).self) { try Rooms.parseAsRoot(wrong) }
        }
    }

    @Test(
        "An invalid value is an error before anything is sent",
        arguments: [
            (Chat.self, ["tea"], "--name"), (Chat.self, ["", "--name", "a"], "Invalid code: must not be empty"),
            (Chat.self, ["tea", "--name", "a: b"], "Invalid --name: must not contain a colon"),
            (Chat.self, ["tea", "--name", "a", "--udid", "7"], "Invalid --udid: must be 32 or 40"),
            (Chat.self, ["tea", "--name", "a", "--history=-1"], "--history -1: must be 0 or more"),
            (Chat.self, ["tea", "--name", "a", "--relay", "x"], "--relay x: must be a URL"),
            (Post.self, [], "<code>"), (Members.self, [], "<code>"),
            (Rooms.self, ["--limit=-1"], "--limit -1: must be 0 or more"),
        ] as [(any ParsableCommand.Type, [String], String)])
    func refusals(type: any ParsableCommand.Type, arguments: [String], expected: String) throws {
        let error = #expect(throws: (any Error).self) {
            var command = try type.parseAsRoot(arguments)
            if let chat = command as? Chat { _ = try chat.address.client([]) { _ in nil } }
            try command.run()
        }
        let message = error.map { Pushchat.message(for: $0) } ?? ""
        #expect(message.contains(expected), "\(message)")
    }
}

/// A server on loopback that sends a list of responses, one per request. For a `nil` it closes the connection without a
/// response. It stops with this object.
private final class ScriptedRelay: Sendable {
    struct Answer: Sendable {
        let status: Int
        let body: String

        init(_ status: Int, _ body: String) {
            self.status = status
            self.body = body
        }
    }

    struct Request: Sendable {
        let line: String
        let headers: [String: String]
        let body: String
    }

    let base: String
    private let descriptor: Int32
    private let state: Mutex<(answers: [Answer?], received: [Request])>

    var requests: [Request] { state.withLock { $0.received } }

    init(_ answers: [Answer?]) throws {
        state = Mutex((answers, []))
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = descriptor
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && listen(descriptor, 8) == 0
                    && getsockname(descriptor, $0, &length) == 0
            }
        }
        base = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
        guard isBound else { throw Failure("no port") }
        Thread { [weak self] in
            while true {
                let connection = accept(descriptor, nil, nil)
                guard connection >= 0 else { return }
                self?.serve(connection)
                close(connection)
            }
        }.start()
    }

    deinit {
        shutdown(descriptor, Int32(SHUT_RDWR))
        close(descriptor)
    }

    /// Reads one request. The response ends the connection.
    private func serve(_ connection: Int32) {
        var (bytes, piece) = ([UInt8](), [UInt8](repeating: 0, count: 4096))
        while true {
            let text = String(decoding: bytes, as: UTF8.self)
            if let end = text.range(of: "\r\n\r\n") {
                let lines = text[..<end.lowerBound].components(separatedBy: "\r\n")
                let headers = Dictionary(
                    lines.dropFirst().map { line in
                        let parts = line.split(separator: ":", maxSplits: 1)
                        return (parts[0].lowercased(), parts[1].trimmingCharacters(in: .whitespaces))
                    }, uniquingKeysWith: { $1 })
                let body = String(text[end.upperBound...])
                if body.utf8.count >= Int(headers["content-length"] ?? "0") ?? 0 {
                    answer(Request(line: lines[0], headers: headers, body: body), connection)
                    return
                }
            }
            let count = read(connection, &piece, piece.count)
            guard count > 0 else { return }
            bytes += piece[..<count]
        }
    }

    private func answer(_ request: Request, _ connection: Int32) {
        let answer = state.withLock { state -> Answer? in
            state.received.append(request)
            return state.answers.isEmpty ? Answer(500, "the test said nothing of this") : state.answers.removeFirst()
        }
        guard let answer else { return }
        let bytes = Array(
            ("HTTP/1.1 \(answer.status) X\r\nContent-Length: \(answer.body.utf8.count)\r\nConnection: close\r\n\r\n"
                + answer.body).utf8)
        _ = send(connection, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }
}
