import Foundation
import XCTest

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Tests of a provider with XCTest. Each test starts a sandbox on free ports.
///
/// Requires pushchat, at the path in the variable PUSHCHAT or in /usr/bin. Also requires curl, the provider in this
/// example.
final class PushTests: XCTestCase {
    /// The content of the file that the sandbox writes when it listens.
    private struct Ready: Decodable {
        let control: String
        let ports: [String: Int]
        let topic: String
        let authority: String
        let certificate: String
    }

    private static let pushchat = ProcessInfo.processInfo.environment["PUSHCHAT"] ?? "/usr/bin/pushchat"
    private let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    private let process = Process()

    override func setUpWithError() throws {
        guard FileManager.default.isExecutableFile(atPath: Self.pushchat) else {
            throw XCTSkip("\(Self.pushchat) is not there")
        }
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        process.executableURL = URL(fileURLWithPath: Self.pushchat)
        process.arguments = [
            "sandbox", "--free-ports", "--ready-file", folder.path + "/ready.json", "--directory",
            folder.path + "/credentials", "--end-with-parent",
        ]
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
    }

    override func tearDownWithError() throws {
        guard process.isRunning else { return }
        process.terminate()
        process.waitUntilExit()
        try FileManager.default.removeItem(at: folder)
    }

    private func ready() throws -> Ready {
        let file = folder.appendingPathComponent("ready.json")
        while !FileManager.default.fileExists(atPath: file.path) {
            guard process.isRunning else { throw CocoaError(.fileNoSuchFile) }
            Thread.sleep(forTimeInterval: 0.05)
        }
        return try JSONDecoder().decode(Ready.self, from: Data(contentsOf: file))
    }

    private func call(_ method: String, _ url: String, _ json: String? = nil) async throws -> [String: Any] {
        var request = URLRequest(url: URL(string: url)!)
        request.httpMethod = method
        request.httpBody = json.map { Data($0.utf8) }
        request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        let (data, _) = try await URLSession.shared.data(for: request)
        return try JSONSerialization.jsonObject(with: data) as? [String: Any] ?? [:]
    }

    /// Sends a push. Replace this with your provider; here curl sends the push.
    private func push(_ payload: String, to token: String, _ sandbox: Ready) throws {
        let curl = try Process.run(
            URL(fileURLWithPath: "/usr/bin/env"),
            arguments: [
                "curl", "-s", "--http2", "--cacert", sandbox.authority, "--cert", sandbox.certificate, "-H",
                "apns-topic: \(sandbox.topic)", "-H", "apns-push-type: alert", "-d", payload,
                "https://localhost:\(sandbox.ports["http2"] ?? 0)/3/device/\(token)",
            ])
        curl.waitUntilExit()
    }

    func testPushArrives() async throws {
        let sandbox = try ready()
        let device = try await call("POST", sandbox.control + "/devices", "{}")
        let token = try XCTUnwrap(device["token"] as? String)
        try push(#"{"aps":{"alert":"Hello"}}"#, to: token, sandbox)
        // A provider may return before its push has arrived, so this waits for it.
        let inbox = try await call("GET", sandbox.control + "/notifications?token=\(token)&wait=10s")
        let arrived = try XCTUnwrap(inbox["notifications"] as? [[String: Any]])
        XCTAssertEqual(arrived.map { $0["answer"] as? String }, ["accepted"])
        XCTAssertEqual(arrived.map { $0["payload"] as? String }, [#"{"aps":{"alert":"Hello"}}"#])
    }
}
