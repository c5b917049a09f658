import AsyncHTTPClient
import Crypto
import Foundation
import NIOCore
import PushWire
import TestSupport
import Testing

extension Clients {
    /// Tests messages to simulated browsers, from the relay and from third-party senders.
    @Suite("Web Push")
    struct WebPushTests {
        let folder: Folder
        let sandbox: SandboxProcess

        init() async throws {
            folder = try Folder()
            sandbox = try await SandboxProcess.start(folder)
        }

        /// Returns the texts of the room that the browser received.
        private func bodies(_ browser: SandboxProcess.Browser, answer: String = "accepted") async throws -> [String] {
            struct Message: Decodable {
                struct Notification: Decodable {
                    let body: String
                }
                let notification: Notification
            }
            return try await sandbox.notifications().filter { $0.token == browser.token && $0.answer == answer }.map {
                #expect($0.protocol == "webpush")
                return try JSONDecoder().decode(Message.self, from: Data(($0.payload ?? "").utf8)).notification.body
            }
        }

        /// Returns the public key of a relay, which is created if necessary.
        private static func key(_ store: any RelayStore) async throws -> String {
            let printed = try await store.pushchat("webpush", "key")
            guard printed.status == 0 else { throw Child.Failure(description: printed.errors) }
            return printed.text.trimmingCharacters(in: .whitespacesAndNewlines)
        }

        @Test("A browser in a room gets others' messages, again after a 503, and is deactivated by a 410")
        func room() async throws {
            let key = try await Self.key(try folder.store())
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let browser = try await sandbox.makeBrowser(key: key)
            let (status, answer) = try await relay.call([
                "cmd": "join", "udid": Name.udid(1), "subscription": browser.subscription.json, "name": "Alice",
                "code": "c",
            ])
            #expect(status == 200, "\(answer)")
            try await relay.call([
                "cmd": "join", "udid": Name.udid(2), "token": Name.token(2), "name": "Bob", "code": "c",
            ])

            try await relay.call(["cmd": "message", "udid": Name.udid(2), "text": "first"])
            try await eventually("the browser has it") { try await bodies(browser).count == 1 }
            #expect(try await bodies(browser).allSatisfy { $0.contains("first") })

            try await sandbox.fault(
                ["action": "status", "status": 503, "retry_after": 1, "token": browser.token], protocol: "webpush")
            try await relay.call(["cmd": "message", "udid": Name.udid(2), "text": "second"])
            try await eventually("it comes again") { try await bodies(browser).count == 2 }
            #expect(try await bodies(browser, answer: "503").count == 1)
            #expect(try await bodies(browser).filter { $0.contains("second") }.count == 1)

            try await sandbox.end(browser)
            let inactive =
                "SELECT count(*) FROM devices WHERE device_token = '\(browser.token)' AND time_deactivated IS NOT NULL"
            #expect(try relay.count(inactive) == 0)
            try await relay.call(["cmd": "message", "udid": Name.udid(2), "text": "third"])
            try await eventually("the device is deactivated") { try relay.count(inactive) == 1 }
            #expect(try await bodies(browser).count == 2)
        }

        @Test("A metric names a push service that rejects the relay, until the service accepts it")
        func refusedCredentials() async throws {
            let key = try await Self.key(try folder.store())
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let browser = try await sandbox.makeBrowser(key: key)
            try await relay.call([
                "cmd": "join", "udid": Name.udid(1), "subscription": browser.subscription.json, "name": "Alice",
                "code": "c",
            ])
            try await relay.call(["cmd": "join", "udid": Name.udid(2), "token": "0", "name": "Bob", "code": "c"])
            func isRefused() async throws -> Bool {
                let metrics = String(
                    decoding: try await HTTP.get("http://127.0.0.1:\(relay.port)/metrics"), as: UTF8.self)
                let name = #"pushchat_gateway_credentials_refused{app="webpush",gateway="webpush"} "#
                return metrics.contains(name + "1")
            }
            try await sandbox.fault(["action": "status", "status": 403, "times": 1000], protocol: "webpush")
            try await relay.call(["cmd": "message", "udid": Name.udid(2), "text": "hello"])
            try await eventually("it is refused") { try await isRefused() }
            try await sandbox.heal()
            try await relay.drained()
            #expect(try await bodies(browser).count == 1)
            try await eventually("it is accepted") { try await !isRefused() }
        }

        struct Answer: Decodable {
            let sender: String
            let status: Int
            let version: String
            let location: String?
            let body: String
        }

        /// Returns the private and the public key of a sender.
        private func keys() async throws -> (secret: String, open: String) {
            let database = folder.file("sender.db").path
            func key(_ more: [String]) async throws -> String {
                try await tool(Running.executable.path, ["webpush", "key", "--database", database] + more)
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            }
            return (try await key(["--export"]), try await key([]))
        }

        @Test(
            "pywebpush, a Rust library, and http-ece with py-vapid over HTTP/2 deliver messages unchanged",
            .onlySQLite("no relay takes part"))
        func libraries() async throws {
            struct Order: Encodable {
                let subscription: SandboxProcess.Browser.Subscription
                let texts: [String]
            }
            let (secret, open) = try await keys()
            func send(_ texts: [String], to browser: SandboxProcess.Browser) async throws -> [Answer] {
                let client = try await Python.run(
                    "webpush_client.py", [sandbox.authority, secret],
                    input: JSONEncoder().encode(Order(subscription: browser.subscription, texts: texts)))
                guard client.status == 0 else { throw Child.Failure(description: client.errors) }
                return try JSONDecoder().decode([Answer].self, from: client.output)
            }
            let browser = try await sandbox.makeBrowser(key: open)
            // The Rust library accepts at most 3,070 bytes.
            let texts = ["hello", "{}", "Grüße 👋", String(repeating: "x", count: 3990)]
            let answers = try await send(texts, to: browser)
            #expect(answers.map(\.status) == [Int](repeating: 201, count: 3 * texts.count - 1), "\(answers)")
            #expect(Set(answers.map(\.version)) == ["HTTP/1.1", "not told", "HTTP/2"])
            #expect(answers.allSatisfy { $0.location != nil || $0.version == "not told" })
            let arrivals = try await sandbox.notifications()
            #expect(
                arrivals.map(\.payload)
                    == texts.flatMap { [String](repeating: $0, count: $0.utf8.count > 3070 ? 2 : 3) })
            #expect(arrivals.first?.headers == ["ttl": "60", "urgency": "high"])
            #expect(arrivals.last?.headers == ["ttl": "3600", "topic": "news"])

            // Another sender's key, and a subscription that has ended.
            let other = try await sandbox.makeBrowser(
                key: "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8")
            #expect(try await send(["no"], to: other).map(\.status) == [403, 403, 403])
            try await sandbox.end(browser)
            let gone = try await send(["gone"], to: browser)
            #expect(gone.map(\.status) == [410, 410, 410])
            #expect(gone.allSatisfy { $0.body.contains(#""errno":103"#) || $0.version == "not told" })
        }

        // MARK: The pushes of the relay, read by third-party libraries

        /// The claims of a VAPID token.
        struct Claims: Decodable {
            let aud: String
            let exp: Double
            let sub: String
        }

        /// Returns a document for browsers as it must arrive.
        private static func document(_ size: Int) -> String {
            let (start, end) = (
                size < 80 ? #"{"notification":{"title":""# : #"{"notification":{"title":"Grüße 👋","body":""#, #""}}"#
            )
            return start + String(repeating: "x", count: size - start.utf8.count - end.utf8.count) + end
        }

        @Test("http-ece decrypts and py-vapid verifies 1,000 pushes up to the largest size; one byte more is rejected")
        func independentService() async throws {
            struct Service: Decodable {
                let port: Int
                let subscriptions: [SandboxProcess.Browser.Subscription]
            }
            struct Arrival: Decodable {
                let browser: Int
                let text: String
                let key: String
                let claims: Claims
                /// The size of the body in bytes.
                let size: Int
            }
            // From the smallest document that has a title, in small steps at both ends.
            let most = 3993
            let sizes = Set(stride(from: 30, through: most, by: 4)).union(30...33).union(3987...most).sorted()
            #expect(sizes.count == 1000)
            let output = folder.file("service.out")
            let service = try Child(
                [
                    try Python.program("python"), ClientProgram.sources.appending(path: "webpush_service.py").path,
                    folder.file("sandbox/server.pem").path, "8",
                ], output: output, errors: folder.file("service.err"))
            func lines() throws -> [Data] {
                try Data(contentsOf: output).split(separator: UInt8(ascii: "\n")).map { Data($0) }
            }
            try await eventually("the service listens") {
                guard service.status == nil else {
                    throw Child.Failure(
                        description: try String(contentsOf: folder.file("service.err"), encoding: .utf8))
                }
                return try !lines().isEmpty
            }
            let about = try JSONDecoder().decode(Service.self, from: lines()[0])
            let configuration = folder.file("relay.yaml")
            try """
            push: {contact: "mailto:push@example.org"}
            webpush: {hosts: ["127.0.0.1:\(about.port)"], trust: "\(sandbox.authority)"}
            """.write(to: configuration, atomically: true, encoding: .utf8)
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            let key = try await Self.key(relay.store)
            for subscription in about.subscriptions {
                let (status, answer) = try await HTTP.post(
                    "http://127.0.0.1:\(relay.port)/push_chat_service.php",
                    body: Data("subscription=\(HTTP.escaped(try subscription.json))".utf8),
                    headers: [("Content-Type", "application/x-www-form-urlencoded")])
                #expect(status == 200, "\(answer)")
            }
            let tokens = try about.subscriptions.map {
                try relay.query("SELECT device_token FROM subscriptions WHERE endpoint = ?", [$0.endpoint])[0][0]
                    as String
            }

            // Send the largest document through the API, and a larger one. The others are queued as scripts do it.
            func notify(_ size: Int) async throws -> (Int, String) {
                try await relay.admin(
                    "POST", "/v1/notifications",
                    #"{"to":{"tokens":["\#(tokens[size % 8])"]},"app":"webpush","payload":\#(Self.document(size))}"#)
            }
            for size in [most + 1, 2 * most] {
                let (status, answer) = try await notify(size)
                #expect(status == 400)
                #expect(
                    answer.contains(
                        "payload: has \(size) bytes of UTF-8 for browsers, \(size - most) more than the \(most)"))
            }
            for size in sizes.suffix(2) {
                let (status, answer) = try await notify(size)
                #expect(status == 202, "\(answer)")
            }
            try relay.queue((sizes.dropLast(2) + [most + 1]).map { ("webpush", tokens[$0 % 8], Self.document($0)) })
            try await relay.drained(within: .seconds(300))
            let failed = try relay.query("SELECT length(payload), reason FROM push_queue WHERE state <> 'sent'")
            #expect(failed.map { "\($0[1] as String)" } == ["PayloadTooLarge"])

            let arrivals = try lines().dropFirst().map { try JSONDecoder().decode(Arrival.self, from: $0) }
                .sorted { $0.size < $1.size }
            #expect(arrivals.map(\.text) == sizes.map(Self.document))
            #expect(arrivals.map(\.size) == sizes.map { $0 + 103 })
            #expect(arrivals.map(\.browser) == sizes.map { $0 % 8 })
            #expect(Set(arrivals.map(\.key)) == [key])
            #expect(Set(arrivals.map(\.claims.aud)) == ["https://127.0.0.1:\(about.port)"])
            #expect(Set(arrivals.map(\.claims.sub)) == ["mailto:push@example.org"])
            let left = arrivals.map { $0.claims.exp - Date().timeIntervalSince1970 }
            #expect(left.allSatisfy { (3600...86_400).contains($0) })
        }

        @Test(
            "http-ece decrypts a message of every size from 0 to the largest", .onlySQLite("no relay takes part"))
        func everySize() async throws {
            struct Order: Encodable {
                let `private`: String
                let auth: String
                let authorization: String
                let bodies: [String]
            }
            struct Reading: Decodable {
                let claims: Claims
                let key: String
                let texts: [String]
            }
            func text(_ bytes: some DataProtocol) -> String {
                Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing(
                    "=", with: "")
            }
            let browser = P256.KeyAgreement.PrivateKey()
            let keys = try SubscriptionKeys(
                publicKey: Array(browser.publicKey.x963Representation), secret: MessageEncryption.randomSalt())
            let texts = (0...MessageEncryption.largestText).map { size in
                [UInt8](repeating: UInt8(truncatingIfNeeded: size), count: size)
            }
            let sender = VAPIDKey()
            let order = Order(
                private: text(browser.rawRepresentation), auth: text(keys.secret),
                authorization: try sender.authorization(
                    audience: "https://push.example.net", expiresAt: 2_000_000_000, subject: "mailto:push@example.org"),
                bodies: try texts.map { text(try MessageEncryption.encrypt($0, for: keys)) })
            let client = try await Python.run(
                "webpush_service.py", [], input: JSONEncoder().encode(order), within: 300)
            guard client.status == 0 else { throw Child.Failure(description: client.errors) }
            let reading = try JSONDecoder().decode(Reading.self, from: client.output)
            #expect(reading.texts.count == 3994)
            #expect(reading.texts == texts.map { text($0) })
            #expect(reading.key == sender.publicText)
            #expect(reading.claims.aud == "https://push.example.net")
        }
    }
}
