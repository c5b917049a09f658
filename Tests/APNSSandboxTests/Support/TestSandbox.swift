import Foundation
import HTTPTypes
import HummingbirdTesting
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Testing

@testable import APNSSandbox

/// A sandbox on free ports in a directory of its own, and the ways to talk to it.
struct TestSandbox: Sendable {
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials
    let world: SandboxWorld

    /// Runs `body` with a started sandbox; stops it and removes its directory afterwards.
    static func with<Result: Sendable>(
        _ change: (inout SandboxConfiguration) -> Void = { _ in },
        _ body: (TestSandbox) async throws -> Result
    ) async throws -> Result {
        try await withTemporaryDirectory { directory in
            var configuration = SandboxConfiguration.forTests(directory: directory)
            change(&configuration)
            let sandbox = Sandbox(configuration: configuration, logger: .silent)
            let addresses = try await sandbox.start()
            do {
                let credentials = try await configuration.credentials(logger: .silent)
                let result = try await body(
                    TestSandbox(addresses: addresses, credentials: credentials, world: sandbox.world))
                await sandbox.stop()
                return result
            } catch {
                await sandbox.stop()
                throw error
            }
        }
    }

    func gateway(identity: TestTLSClient.Identity = .client) async throws -> TestTLSClient {
        try await TestTLSClient.connect(to: addresses.binary, credentials, identity)
    }

    func feedback() async throws -> TestTLSClient {
        try await TestTLSClient.connect(to: addresses.feedback, credentials, .client)
    }

    // MARK: Control API

    struct Answer: Sendable {
        var status: Int
        var headers: HTTPFields
        var body: String

        /// The body as a JSON object.
        func object() throws -> [String: Any] {
            try #require(try JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any])
        }
    }

    /// One request to the control API, by default as a well-behaved program on this machine sends it.
    func control(
        _ method: HTTPRequest.Method, _ path: String, json: String? = nil, host: String? = nil,
        headers: HTTPFields = [:]
    ) async throws -> Answer {
        let address = addresses.control
        var headers = headers
        if json != nil, headers[.contentType] == nil { headers[.contentType] = "application/json" }
        let request = TestClient.Request(
            path, method: method, authority: host ?? "localhost:\(address.port)", headers: headers,
            body: json.map { ByteBuffer(string: $0) })
        let response = try await TestClient.withClient(host: address.host, port: address.port) { client in
            try await client.execute(request)
        }
        return Answer(
            status: response.status.code, headers: response.headers, body: String(buffer: response.body ?? ByteBuffer())
        )
    }

    /// The inbox, as the control API shows it.
    func notifications(_ query: String = "") async throws -> [[String: Any]] {
        let answer = try await control(.get, "/notifications" + query)
        return try #require(try answer.object()["notifications"] as? [[String: Any]])
    }
}

extension SandboxConfiguration {
    /// Free ports, and a linger that does not make tests wait.
    static func forTests(directory: String) -> SandboxConfiguration {
        var configuration = SandboxConfiguration(directory: directory)
        configuration.binaryPort = 0
        configuration.feedbackPort = 0
        configuration.controlPort = 0
        return configuration
    }
}

extension Logger {
    static var silent: Logger {
        Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    }
}

/// Runs `body` with a new directory, and removes it afterwards.
func withTemporaryDirectory<Result>(_ body: (String) async throws -> Result) async throws -> Result {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("sandbox-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: directory) }
    return try await body(directory.path)
}
