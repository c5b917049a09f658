import AsyncHTTPClient
import Foundation
import NIOCore
import Testing

extension Clients {
    /// Messages to simulated browsers, through the relay and from senders that nobody here wrote.
    @Suite("Web Push")
    struct WebPushTests {
        let folder: Folder
        let sandbox: SandboxProcess

        init() async throws {
            folder = try Folder()
            sandbox = try await SandboxProcess.start(folder)
        }

        private func end(_ browser: SandboxProcess.Browser) async throws {
            var request = HTTPClientRequest(url: "\(sandbox.base)/browsers/\(browser.id)")
            request.method = .DELETE
            let response = try await HTTP.client.execute(request, timeout: .seconds(10))
            _ = try await response.body.collect(upTo: 1 << 20)
            #expect(response.status == .ok)
        }

        /// What the browser got of the room.
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

        @Test("A browser in a room gets what others post, again after 503, and is deactivated by 410")
        func room() async throws {
            let database = folder.file("pushchat.db").path
            let key = try await tool(Running.executable.path, ["webpush", "key", "--database", database])
                .trimmingCharacters(in: .whitespacesAndNewlines)
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

            try await end(browser)
            let inactive =
                "SELECT count(*) FROM devices WHERE device_token = '\(browser.token)' AND time_deactivated IS NOT NULL"
            #expect(try relay.count(inactive) == 0)
            try await relay.call(["cmd": "message", "udid": Name.udid(2), "text": "third"])
            try await eventually("the device is deactivated") { try relay.count(inactive) == 1 }
            #expect(try await bodies(browser).count == 2)
        }

        struct Answer: Decodable {
            let sender: String
            let status: Int
            let version: String
            let location: String?
            let body: String
        }

        /// A key pair of a sender: the private one, and the public one.
        private func keys() async throws -> (secret: String, open: String) {
            let database = folder.file("sender.db").path
            func key(_ more: [String]) async throws -> String {
                try await tool(Running.executable.path, ["webpush", "key", "--database", database] + more)
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            }
            return (try await key(["--export"]), try await key([]))
        }

        @Test("pywebpush over HTTP/1.1, and http-ece with py-vapid over HTTP/2, deliver unchanged")
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
            let texts = ["hello", "{}", "Grüße 👋", String(repeating: "x", count: 3990)]
            let answers = try await send(texts, to: browser)
            #expect(answers.map(\.status) == [Int](repeating: 201, count: 2 * texts.count), "\(answers)")
            #expect(Set(answers.map(\.version)) == ["HTTP/1.1", "HTTP/2"])
            #expect(answers.allSatisfy { $0.location != nil })
            let arrivals = try await sandbox.notifications()
            #expect(arrivals.map(\.payload) == texts.flatMap { [$0, $0] })
            #expect(arrivals.first?.headers == ["ttl": "60", "urgency": "high"])
            #expect(arrivals.last?.headers == ["ttl": "3600", "topic": "news"])

            // Another's key, and a subscription that has ended.
            let other = try await sandbox.makeBrowser(
                key: "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8")
            #expect(try await send(["no"], to: other).map(\.status) == [403, 403])
            try await end(browser)
            let gone = try await send(["gone"], to: browser)
            #expect(gone.map(\.status) == [410, 410])
            #expect(gone.allSatisfy { $0.body.contains(#""errno":103"#) })
        }
    }
}
