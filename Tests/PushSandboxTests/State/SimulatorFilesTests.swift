import Foundation
import Testing

@testable import PushSandbox

@Suite("Files for a simulator", .timeLimit(.minutes(10)))
struct SimulatorFilesTests {
    private static func entry(
        _ payload: String, topic: String? = "com.example.PushChat", type: String? = "alert", id: Int = 7,
        answer: InboxEntry.Response = .accepted
    ) -> InboxEntry {
        InboxEntry(
            id: id, connection: 1, topic: topic, token: [1], payload: Array(payload.utf8),
            receivedAt: Date(timeIntervalSince1970: 0), answer: answer,
            details: ProviderDetails(
                gateway: .http2, stream: 1, id: "a", headers: type.map { ["apns-push-type": $0] } ?? [:],
                authentication: nil))
    }

    @Test(
        "A file has the payload and the app's name",
        arguments: [
            (#"{"aps":{"alert":"Tea?"}}"#, #","aps":{"alert":"Tea?"}}"#), ("{}", "}"), (" { }", " }"),
            ("{\n \"aps\": {}}", ",\n \"aps\": {}}"),
        ])
    func content(payload: String, rest: String) throws {
        let start = #"{"Simulator Target Bundle":"com.example.PushChat""#
        let content = try #require(SimulatorFiles.content(of: Self.entry(payload)))
        #expect(content == start + rest)
        #expect(try JSONSerialization.jsonObject(with: Data(content.utf8)) is [String: Any])
        let odd = try #require(SimulatorFiles.content(of: Self.entry(payload, topic: #"a"b\c"#)))
        let json = try JSONSerialization.jsonObject(with: Data(odd.utf8)) as? [String: Any]
        #expect(json?["Simulator Target Bundle"] as? String == #"a"b\c"#)
    }

    @Test("Pushes that a simulator cannot show are left out")
    func others() {
        #expect(SimulatorFiles.content(of: Self.entry("[1]")) == nil)
        #expect(SimulatorFiles.content(of: Self.entry("{")) == nil)
        #expect(SimulatorFiles.content(of: Self.entry("{}", topic: nil)) == nil)
        #expect(SimulatorFiles.content(of: Self.entry("{}", type: "voip")) == nil)
        #expect(SimulatorFiles.content(of: Self.entry("{}", type: nil)) != nil)
        #expect(SimulatorFiles.content(of: Self.entry("{}", type: "background")) != nil)
    }

    @Test("The folder keeps the newest accepted pushes of this run, and files of others")
    func folder() async throws {
        try await withTemporaryDirectory { directory in
            let folder = directory + "/pushes"
            func names() throws -> Set<String> { Set(try FileManager.default.contentsOfDirectory(atPath: folder)) }
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            for name in ["push-000000009.apns", "mine.apns", "push-1.apns"] {
                try Data("{}".utf8).write(to: URL(filePath: folder).appending(path: name))
            }
            let state = SharedState(.forTests(directory: directory))
            let files = try SimulatorFiles(folder: folder, logger: .silent)
            #expect(try names() == ["mine.apns", "push-1.apns"])
            let follower = Task { try await files.follow(state) }
            let count = SimulatorFiles.limit + 20
            state.withLock { state in
                for _ in 0..<count { state.inbox.append { Self.entry("{}", id: $0) } }
                state.inbox.append { Self.entry("{}", id: $0, answer: .dropped) }
            }
            let newest = (21...count).map { "push-" + String(repeating: "0", count: 9 - "\($0)".count) + "\($0).apns" }
            let expected = Set(["mine.apns", "push-1.apns"] + newest)
            let deadline = ContinuousClock.now + .seconds(60)
            while try names() != expected, ContinuousClock.now < deadline {
                try await Task.sleep(for: .milliseconds(10))
            }
            #expect(try names() == expected)
            follower.cancel()
            _ = await follower.result
        }
    }

    @Test("A folder that cannot be used fails the start, and the error names it")
    func noFolder() {
        #expect {
            _ = try SimulatorFiles(folder: "/dev/null/pushes", logger: .silent)
        } throws: { "\($0)".contains("/dev/null/pushes") && "\($0)".contains("--simctl") }
    }
}
