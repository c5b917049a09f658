import AsyncHTTPClient
import Foundation
import Testing

extension EndToEnd {
    @Suite("Messages that change")
    struct ChangingMessageTests {
        private struct Receipt: Decodable {
            let id: Int?
            let revision: Int?
            let change: Int?
            let ids: [Int]?
        }

        /// A page of `messages` with `changes=1`.
        private struct Page: Decodable {
            struct Message: Decodable {
                let id: Int
                let text: String?
                let revision: Int?
            }
            struct Change: Decodable {
                let id: Int
                let event: String
                let message: Message
            }
            let messages: [Message]
            let changes: [Change]
            let next: Int
        }

        private static func call(
            _ relay: RelayProcess, _ method: String, _ path: String, _ json: String? = nil, _ token: String,
            key: String? = nil
        ) async throws -> (Int, Receipt?) {
            let headers = [("Authorization", "Bearer \(token)")] + (key.map { [("Idempotency-Key", $0)] } ?? [])
            let (status, text) = try await relay.admin(method, path, json, headers: headers)
            return (status, try? JSONDecoder().decode(Receipt.self, from: Data(text.utf8)))
        }

        private static func token(_ relay: RelayProcess, _ name: String, _ scopes: String) async throws -> String {
            let (_, text) = try await relay.admin(
                "POST", "/v1/tokens", #"{"name":"\#(name)","scopes":["\#(scopes)"]}"#,
                headers: [("Authorization", "Bearer token-of-the-operator")])
            return String(try #require(text.firstMatch(of: /"token":"([^"]+)"/)?.1))
        }

        @Test(
            "A message is changed by its author alone, over a kill of the relay; readers get the newest state, and replaced text is nowhere"
        )
        func life() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let port = try ReservedPort()
            let options = ["--set", "admin.token=token-of-the-operator"]
            var relay = try await RelayProcess.start(folder, configuration: configuration, port: port, options)
            try await relay.join()
            let (one, two) = (try await Self.token(relay, "one", "post"), try await Self.token(relay, "two", "post"))
            func page(since: Int = 0) async throws -> Page {
                let (status, text) = try await relay.call([
                    "cmd": "messages", "udid": Name.udid(1), "since": "\(since)", "changes": "1",
                ])
                #expect(status == 200)
                return try JSONDecoder().decode(Page.self, from: Data(text.utf8))
            }
            func post(_ text: String, _ token: String, key: String? = nil) async throws -> (Int, Receipt?) {
                try await Self.call(
                    relay, "POST", "/v1/messages", #"{"room":"c","key":"db1","text":"\#(text)"}"#, token, key: key)
            }

            let (status, made) = try await post("walrus", one, key: "first")
            let first = try #require(made?.id)
            #expect(status == 201 && made?.revision == 1 && made?.change == nil)
            let before = try await page()
            #expect(before.messages.map(\.text) == ["walrus"] && before.changes.isEmpty)

            // Another program's message with the same key is another message.
            let (otherStatus, other) = try await post("heron", two)
            #expect(otherStatus == 201 && other?.id != first)
            let path = "/v1/messages/\(first)"
            #expect(try await Self.call(relay, "PUT", path, #"{"text":"no"}"#, two).0 == 404)
            #expect(try await Self.call(relay, "DELETE", path, nil, two).0 == 404)
            let (ambiguous, choice) = try await Self.call(
                relay, "DELETE", "/v1/messages/db1?room=c", nil, "token-of-the-operator")
            let second = try #require(other?.id)
            #expect(ambiguous == 409 && choice?.ids?.sorted() == [first, second].sorted())

            let (edited, edit) = try await post("otter", one, key: "second")
            #expect(edited == 200 && edit?.id == first && edit?.revision == 2)
            relay.process.kill(SIGKILL)
            try await relay.process.ended()
            relay = try await RelayProcess.start(folder, configuration: configuration, port: port, options)
            // A late repetition changes nothing, and an older revision is refused.
            #expect(try await post("walrus", one, key: "first").0 == 200)
            #expect(try await Self.call(relay, "PUT", path, #"{"text":"no","revision":1}"#, one).0 == 409)
            let after = try await page(since: before.next)
            #expect(after.changes.map(\.event) == ["edited"] && after.changes.first?.message.text == "otter")
            #expect(after.changes.first?.id == edit?.change && after.messages.map(\.text) == ["heron"])

            let (resolved, third) = try await Self.call(
                relay, "POST", "/v1/messages/db1:resolve", #"{"room":"c","text":"lynx"}"#, one)
            #expect(resolved == 200 && third?.id == first && third?.revision == 3)
            let (again, fourth) = try await post("badger", one)
            #expect(again == 201 && fourth?.id != first)
            #expect(try await Self.call(relay, "DELETE", "/v1/messages/db1?room=c", nil, one).0 == 204)
            #expect(try await Self.call(relay, "DELETE", "/v1/messages/db1?room=c", nil, one).0 == 404)
            #expect(try relay.count("SELECT count(*) FROM moderation") == 0)
            #expect(
                try await Self.call(relay, "DELETE", "/v1/messages/\(other?.id ?? 0)", nil, "token-of-the-operator").0
                    == 204)
            #expect(try relay.count("SELECT count(*) FROM moderation WHERE action = 'delete'") == 1)

            let all = try await page()
            #expect(all.messages.map(\.text) == ["lynx"] && all.messages.first?.revision == 3)
            #expect(all.changes.map(\.event) == ["resolved", "deleted", "deleted"])
            #expect(all.changes.map(\.message.id) == [first, fourth?.id, other?.id])
            #expect(all.next == all.changes.last?.id)
            try await relay.drained()
            for word in ["walrus", "otter", "heron", "badger"] {
                let places = ["messages WHERE text", "push_queue WHERE payload"]
                for place in places {
                    #expect(try relay.count("SELECT count(*) FROM \(place) LIKE '%\(word)%'") == 0, "\(word): \(place)")
                }
            }
        }
    }
}
