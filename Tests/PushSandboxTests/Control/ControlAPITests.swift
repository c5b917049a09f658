import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

@Suite("The control API", .timeLimit(.minutes(10)))
struct ControlAPITests {
    private func error(_ answer: TestSandbox.Answer) throws -> String {
        try #require(try answer.object()["error"] as? String)
    }

    @Test("Notifications can be listed in pages, filtered by token, and cleared")
    func notifications() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            for number in 1...5 as ClosedRange<UInt32> {
                try await client.send(.good(number, token: UInt8(2 - number % 2)))
            }
            _ = try await client.finish()

            let first = try await sandbox.control(.get, "/notifications?limit=2").object()
            #expect((first["notifications"] as? [Any])?.count == 2)
            #expect(first["next"] as? Int == 2)
            #expect(try await sandbox.notifications("?since=4").map { $0["id"] as? Int } == [5])
            let token = String(repeating: "01%20", count: 32)
            #expect(try await sandbox.notifications("?token=\(token)").map { $0["id"] as? Int } == [1, 3, 5])

            #expect(try await sandbox.control(.delete, "/notifications").status == 204)
            let empty = try await sandbox.control(.get, "/notifications").object()
            #expect((empty["notifications"] as? [Any])?.isEmpty == true)
            #expect(empty["next"] as? Int == 5)
        }
    }

    /// Calls, and the beginning of their errors.
    private static let unknownNames: [(HTTPRequest.Method, String, String)] = [
        (
            .get, "/notifications?wiat=1s",
            "wiat: unknown name; must be one of answer, count, limit, protocol, since"
        ),
        (.get, "/notifications?since=0&since=1", "since: must not appear twice"),
        (.get, "/notifications?Since=1", "Since: unknown name"), (.get, "/devices?token=aa", "token: unknown name"),
        (.delete, "/notifications?token=aa", "token: unknown name; this call has no query"),
        (.get, "/stats?x", "x: unknown name; this call has no query"),
        (.get, "/faults?since=0", "since: unknown name"),
        (.delete, "/faults?protocol=binary", "protocol: unknown name"),
        (.get, "/credentials?a=b", "a: unknown name"),
        (.get, "/browsers?host=x", "host: unknown name"), (.get, "/channels?topic=x", "topic: unknown name"),
        (.get, "/installations?kind=fid", "kind: unknown name"), (.get, "/activities?x=1", "x: unknown name"),
        (.delete, "/devices/aa?topic=x", "topic: unknown name"), (.delete, "/browsers/1?x=1", "x: unknown name"),
    ]

    @Test("A call refuses names that it does not know, and names that appear twice")
    func unknownNames() async throws {
        try await TestSandbox.with { sandbox in
            for (method, path, text) in Self.unknownNames {
                let answer = try await sandbox.control(method, path)
                #expect(answer.status == 400)
                #expect(try error(answer).hasPrefix(text), "\(answer.body)")
            }
        }
    }

    @Test("The page, its files, the addresses for monitors and calls that do not exist ignore the query")
    func freeNames() async throws {
        try await TestSandbox.with { sandbox in
            for path in ["/", "/inbox.js", "/healthz", "/readyz", "/base.css"] {
                let answer = try await sandbox.control(.get, path + "?utm=x")
                #expect(answer.status == 200)
            }
            let answer = try await sandbox.control(.get, "/nothere?x=1")
            #expect(answer.status == 404)
        }
    }

    @Test("Notifications are found by a text of their payload, in any case, also if JSON has escaped it")
    func search() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            for (number, text) in [#"Caf\u00e9 \ud83c\udf75"#, "CAFÉ 🍵 & tea", #"say \"hi\"\nyou"#].enumerated() {
                try await client.send(
                    .good(UInt32(number + 1), payload: #"{"aps":{"alert":"\#(text)"}}"#))
            }
            _ = try await client.finish()
            for (text, found) in [
                ("caf%C3%A9%20%F0%9F%8D%B5", [1, 2]), ("Tea", [2]), ("say%20%22hi%22%20you", [3]),
                ("alert", [1, 2, 3]),
                ("%26", [2]), ("coffee", []), ("u00e9", []),
            ] {
                #expect(try await sandbox.notifications("?text=\(text)").map { $0["id"] as? Int } == found, "\(text)")
            }
            let long = try await sandbox.control(.get, "/notifications?text=" + String(repeating: "x", count: 201))
            #expect(try long.status == 400 && error(long) == "text: must be 1 to 200 bytes long")
            #expect(try await sandbox.control(.get, "/notifications?text=").status == 400)
        }
    }

    @Test("Clients that cannot read the files get the credentials, without the key of the authority")
    func credentials() async throws {
        try await TestSandbox.with { sandbox in
            let credentials = try await sandbox.control(.get, "/credentials").object()
            #expect(
                Set(credentials.keys)
                    == ["authority", "certificate", "key", "key_id", "service_account", "team_id", "topic"])
            let authority = try #require(credentials["authority"] as? String)
            #expect(authority.contains("BEGIN CERTIFICATE") && !authority.contains("PRIVATE KEY"))
            #expect(try #require(credentials["certificate"] as? String).contains("PRIVATE KEY"))
            #expect(try await sandbox.control(.get, "/readyz").status == 200)
        }
    }

    private func ids(_ answer: TestSandbox.Answer) throws -> [Int?] {
        let notifications = try #require(try answer.object()["notifications"] as? [[String: Any]])
        return notifications.map { $0["id"] as? Int }
    }

    @Test("A waiting client gets its response when the requested number of notifications has arrived")
    func waiting() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(.good(1, token: 1), .good(2, token: 2))
            let token = String(repeating: "01", count: 32)
            // The wait is longer than the test may take, so only the arrival ends it.
            async let waiting = sandbox.control(.get, "/notifications?wait=300s&count=3&token=\(token)")
            try await eventually { sandbox.state.waiters == 1 }
            for number in 3...6 as ClosedRange<UInt32> {
                try await client.send(.good(number, token: UInt8(2 - number % 2)))
            }
            // The two later notifications may have arrived already.
            let answer = try await waiting
            #expect(try ids(answer) == [1, 3, 5])
            #expect(answer.headers[.connection] == "close")
            // Notifications that have arrived already need no wait.
            let next = try await sandbox.control(.get, "/notifications?wait=300s&since=3&answer=accepted")
            #expect(try ids(next).starts(with: [4]))
            #expect(sandbox.state.waiters == 0)
            _ = try await client.finish()
        }
    }

    @Test(
        "At the end of its time a waiting client gets the notifications so far",
        arguments: ["wait=1ms", "wait=20ms&count=5"])
    func waitingEnds(query: String) async throws {
        try await TestSandbox.with { sandbox in
            let empty = try await sandbox.control(.get, "/notifications?\(query)&answer=none")
            #expect(try ids(empty) == [])
            let client = try await sandbox.gateway()
            try await client.send(.good(1))
            _ = try await client.finish()
            let answer = try await sandbox.control(.get, "/notifications?\(query)")
            #expect(try ids(answer) == [1])
        }
    }

    @Test("Cleared notifications do not count for a waiting client")
    func waitingAndClearing() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            async let waiting = sandbox.control(.get, "/notifications?wait=300s&count=2")
            try await eventually { sandbox.state.waiters == 1 }
            try await client.send(.good(1))
            try await eventually { sandbox.state.withLock { $0.inbox.count } == 1 }
            #expect(try await sandbox.control(.delete, "/notifications").status == 204)
            try await client.send(.good(2))
            try await eventually { sandbox.state.withLock { $0.inbox.count } == 1 }
            #expect(sandbox.state.waiters == 1)
            try await client.send(.good(3))
            let answer = try await waiting
            #expect(try ids(answer) == [2, 3])
            _ = try await client.finish()
        }
    }

    @Test("A wait ends when its client disconnects, and when the sandbox stops")
    func waitingIsGivenUp() async throws {
        try await TestSandbox.with {
            // A busy machine may take longer than the usual limit to write the response.
            $0.shutdownLimit = .seconds(TestLimit.seconds)
        } _: { sandbox in
            let address = sandbox.addresses[.control]
            // The client closes its connection when this closure returns.
            let asking = try await TestClient.withClient(host: address.host, port: address.port) { client in
                let asking = Task {
                    try await client.execute(
                        .init("/notifications?wait=300s", method: .get, authority: "localhost:\(address.port)"))
                }
                try await eventually { sandbox.state.waiters == 1 }
                return asking
            }
            try await eventually { sandbox.state.waiters == 0 }
            _ = await asking.result

            async let waiting = sandbox.control(.get, "/notifications?wait=300s")
            try await eventually { sandbox.state.waiters == 1 }
            await sandbox.sandbox.stop()
            let answer = try await waiting
            #expect(try ids(answer) == [])
            #expect(sandbox.state.waiters == 0)
        }
    }

    @Test("A client above the limit of waiting clients is refused")
    func tooManyWaiting() async throws {
        try await TestSandbox.with { sandbox in
            let state = sandbox.state
            let waiting = (1...SharedState.waitLimit).map { _ in
                Task { try await state.wait(for: 1, since: 0, filter: InboxFilter()) }
            }
            try await eventually { state.waiters == SharedState.waitLimit }
            let answer = try await sandbox.control(.get, "/notifications?wait=1ms")
            #expect(answer.status == 503)
            #expect(try error(answer).contains("wait"))
            for task in waiting {
                task.cancel()
                try await task.value
            }
            #expect(try await sandbox.control(.get, "/notifications?wait=1ms").status == 200)
        }
    }

    @Test("A payload that is not UTF-8 is shown in base64")
    func binaryPayload() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            try await client.send(
                BinaryNotification(token: [1], payload: ByteBuffer(bytes: [0xFF, 0x00]), identifier: 1))
            _ = try await client.finish()
            let found = try #require(try await sandbox.notifications().first)
            #expect(found["payload"] == nil)
            #expect(found["payload_base64"] as? String == "/wA=")
        }
    }

    @Test("The screen of a device shows the newest of the notifications that replace each other")
    func screen() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.gateway()
            for text in ["one", "two"] {
                try await client.send(
                    BinaryNotification(
                        token: [1], payload: ByteBuffer(string: #"{"aps":{"alert":"\#(text)","sound":"s"}}"#),
                        identifier: 1))
            }
            _ = try await client.finish()
            let found = try await sandbox.control(.get, "/screen?token=01")
            #expect(found.status == 200)
            let screen = try found.object()
            #expect((screen["shown"] as? [[String: Any]])?.map { $0["body"] as? String } == ["one", "two"])
            #expect(screen["rings"] as? Int == 2 && (screen["past"] as? [Any])?.isEmpty == true)
            #expect(try await sandbox.control(.get, "/screen?token=02").body == #"{"past":[],"rings":0,"shown":[]}"#)
        }
    }

    @Test("A device can be created, listed and removed; then its token is refused")
    func devices() async throws {
        try await TestSandbox.with { sandbox in
            let made = try await sandbox.control(.post, "/devices", json: "{}")
            #expect(made.status == 201)
            let token = try #require(try made.object()["token"] as? String)
            #expect(token.wholeMatch(of: /[0-9a-f]{64}/) != nil)
            #expect(try made.object()["topic"] as? String == "com.example.PushChat")
            let other = try await sandbox.control(
                .post, "/devices", json: #"{"token":"<AABB ccdd>","topic":"com.example.Other"}"#)
            #expect(try other.object()["token"] as? String == "aabbccdd")

            let removed = try await sandbox.control(.delete, "/devices/\(token.uppercased())")
            #expect(removed.status == 200)
            #expect(try removed.object()["removed_at"] is String)
            let listed = try await sandbox.control(.get, "/devices").object()["devices"] as? [[String: Any]]
            #expect(listed?.map { $0["token"] as? String } == [token, "aabbccdd"])
            #expect(listed?.map { $0["removed_at"] != nil } == [true, false])

            let client = try await sandbox.gateway()
            let bytes = try #require(TokenText.bytes(of: token))
            try await client.send(BinaryNotification(token: bytes, payload: ByteBuffer(string: "{}"), identifier: 1))
            #expect(try await client.end().bytes == [8, 8, 0, 0, 0, 1])
        }
    }

    @Test("A strict sandbox knows only devices that it created")
    func strictDevices() async throws {
        try await TestSandbox.with {
            $0.strict = true
        } _: { (sandbox) async throws in
            #expect(try await sandbox.control(.delete, "/devices/aabb").status == 404)
        }
    }

    @Test("Faults can be created, shown with their hits, and removed")
    func faults() async throws {
        try await TestSandbox.with { sandbox in
            let made = try await sandbox.control(
                .post, "/faults",
                json: #"{"protocol":"binary","token":"aabb","after":3,"times":2,"action":"status","status":8,"#
                    + #""delay_ms":100,"identifier":0}"#)
            #expect(made.status == 201)
            #expect(
                made.body == #"{"action":"status","after":3,"delay_ms":100,"hit":0,"id":1,"identifier":0,"passed":0,"#
                    + #""protocol":"binary","status":8,"times":2,"token":"aabb"}"#)
            let hung = try await sandbox.control(
                .post, "/faults", json: #"{"protocol":"binary","action":"stop_reading"}"#)
            #expect(try hung.object()["delay_ms"] == nil)
            #expect((try await sandbox.control(.get, "/faults").object()["faults"] as? [Any])?.count == 2)
            #expect(try await sandbox.control(.delete, "/faults").status == 204)
            #expect(try await sandbox.control(.get, "/faults").body == #"{"faults":[]}"#)
        }
    }

    @Test("The statistics count by response and by connection")
    func stats() async throws {
        try await TestSandbox.with { sandbox in
            let drop = #"{"protocol":"binary","action":"drop"}"#
            _ = try await sandbox.control(.post, "/faults", json: drop)
            let client = try await sandbox.gateway()
            try await client.send(.good(1), .good(2), .good(3))
            _ = try await client.finish()
            let stats = try await sandbox.control(.get, "/stats").object()
            let binary = try #require(stats["binary"] as? [String: Any])
            #expect(binary["answers"] as? [String: Int] == ["accepted": 2, "dropped": 1])
            #expect((binary["connections"] as? [String: Int])?["seen"] == 1)
            #expect((stats["inbox"] as? [String: Int]) == ["count": 3, "dropped": 0, "last": 3])
        }
    }

    @Test(
        "The error names a bad field",
        arguments: [
            ("GET", "/notifications?limit=0", nil, "limit"), ("GET", "/notifications?limit=1001", nil, "limit"),
            ("GET", "/notifications?wait=10", nil, "wait"), ("GET", "/notifications?wait=0s", nil, "wait"),
            ("GET", "/notifications?wait=301s", nil, "wait"), ("GET", "/notifications?wait=6m", nil, "wait"),
            ("GET", "/notifications?wait=-1s", nil, "wait"), ("GET", "/notifications?wait=s", nil, "wait"),
            ("GET", "/notifications?count=2", nil, "count"), ("GET", "/notifications?wait=1s&count=0", nil, "count"),
            ("GET", "/notifications?wait=1s&count=11&limit=10", nil, "count"),
            ("GET", "/notifications?since=-1", nil, "since"), ("GET", "/notifications?token=xyz", nil, "token"),
            ("GET", "/screen", nil, "token"), ("GET", "/screen?token=xyz", nil, "token"),
            ("GET", "/devices?limit=ten", nil, "limit"), ("DELETE", "/devices/xyz", nil, "token"),
            ("POST", "/devices", #"{"token":"xyz"}"#, "token"), ("POST", "/devices", #"{"token":1}"#, "token"),
            ("POST", "/devices", #"{"topic":""}"#, "topic"), ("POST", "/devices", #"{"tokn":"aa"}"#, "tokn"),
            ("POST", "/devices", "[]", "body"), ("POST", "/devices", "{", "body"),
            ("POST", "/faults", "{}", "protocol"),
            ("POST", "/faults", #"{"protocol":"smtp","action":"close"}"#, "protocol"),
            ("POST", "/faults", #"{"protocol":"binary"}"#, "action"),
            ("POST", "/faults", #"{"protocol":"binary","action":"explode"}"#, "action"),
            ("POST", "/faults", #"{"protocol":"binary","action":"status"}"#, "status"),
            ("POST", "/faults", #"{"protocol":"binary","action":"status","status":256}"#, "status"),
            ("POST", "/faults", #"{"protocol":"binary","action":"status","status":true}"#, "status"),
            ("POST", "/faults", #"{"protocol":"binary","action":"status","status":8,"delay_ms":60001}"#, "delay_ms"),
            ("POST", "/faults", #"{"protocol":"binary","action":"status","status":8,"identifier":-1}"#, "identifier"),
            ("POST", "/faults", #"{"protocol":"binary","action":"close","status":8}"#, "status"),
            ("POST", "/faults", #"{"protocol":"binary","action":"drop","delay_ms":1}"#, "delay_ms"),
            ("POST", "/faults", #"{"protocol":"binary","action":"delay"}"#, "delay_ms"),
            ("POST", "/faults", #"{"protocol":"binary","action":"close","times":0}"#, "times"),
            ("POST", "/faults", #"{"protocol":"binary","action":"close","after":-1}"#, "after"),
            ("POST", "/faults", #"{"protocol":"binary","action":"close","after":1.5}"#, "after"),
            ("POST", "/faults", #"{"protocol":"binary","action":"probe"}"#, "answer"),
            ("POST", "/faults", #"{"protocol":"binary","action":"probe","answer":"maybe"}"#, "answer"),
            ("POST", "/faults", #"{"protocol":"binary","action":"probe","answer":"close","status":1}"#, "status"),
            ("POST", "/faults", #"{"protocol":"binary","action":"probe","answer":"close","token":"01"}"#, "token"),
            ("POST", "/faults", #"{"protocol":"binary","action":"close","answer":"close"}"#, "answer"),
            ("POST", "/faults", #"{"protocol":"http2","action":"probe","answer":"close"}"#, "action"),
            ("POST", "/faults", #"{"protocol":"webpush","action":"reset"}"#, "action"),
            ("POST", "/faults", #"{"protocol":"webpush","action":"status"}"#, "status"),
            ("POST", "/faults", #"{"protocol":"webpush","action":"close","retry_after":1}"#, "retry_after"),
            (
                "POST", "/faults", #"{"protocol":"webpush","action":"status","status":503,"retry_after":-1}"#,
                "retry_after"
            ),
            ("POST", "/browsers", #"{"application_server_key":"BAAA"}"#, "application_server_key"),
            ("POST", "/browsers", #"{"key":"BAAA"}"#, "key"), ("GET", "/browsers?limit=0", nil, "limit"),
            ("GET", "/notifications?protocol=smtp", nil, "protocol"),
        ] as [(String, String, String?, String)])
    func badFields(method: String, path: String, json: String?, field: String) async throws {
        try await TestSandbox.with { sandbox in
            let method = try #require(HTTPRequest.Method(method))
            let answer = try await sandbox.control(method, path, json: json)
            #expect(answer.status == 400)
            #expect(try error(answer).contains(field), "\(answer.body)")
            #expect(try await sandbox.control(.get, "/faults").body == #"{"faults":[]}"#)
        }
    }
}
