import Foundation
import HTTPTypes
import HummingbirdTesting
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import PushWire
import TestSupport
import Testing
import X509

@testable import PushSandbox

/// A sandbox on free ports in its own directory, and helpers to call it.
struct TestSandbox: Sendable {
    let addresses: SandboxAddresses
    let credentials: SandboxCredentials
    let state: SharedState
    let sandbox: Sandbox

    /// The credentials of all sandboxes. To generate them takes longer than most tests.
    private static let sharedCredentials = Result {
        let configuration = SandboxConfiguration.forTests(directory: "")
        return try CredentialSet(
            topic: configuration.topic, host: configuration.host, now: Date(), read: { _ in nil }
        ).files
    }

    /// Runs `body` with a started sandbox. Then stops it and removes its directory.
    static func with<Result: Sendable>(
        _ change: (inout SandboxConfiguration) -> Void = { _ in },
        _ body: (TestSandbox) async throws -> Result
    ) async throws -> Result {
        try await withTemporaryDirectory { directory in
            var configuration = SandboxConfiguration.forTests(directory: directory)
            change(&configuration)
            let (files, target) = (try sharedCredentials.get(), CredentialDirectory(path: directory))
            try await target.locked { try target.replace(files) }
            let sandbox = Sandbox(configuration: configuration, logger: .silent)
            let addresses = try await sandbox.start()
            do {
                let credentials = try await configuration.credentials(logger: .silent)
                let result = try await body(
                    TestSandbox(addresses: addresses, credentials: credentials, state: sandbox.state, sandbox: sandbox))
                await sandbox.stop()
                return result
            } catch {
                await sandbox.stop()
                throw error
            }
        }
    }

    func gateway(identity: ClientIdentity = .client) async throws -> TestTLSClient {
        try await TestTLSClient.connect(to: addresses[.binary], credentials, identity)
    }

    func feedback(stopsReading: Bool = false) async throws -> TestTLSClient {
        try await TestTLSClient.connect(to: addresses[.feedback], credentials, .client, stopsReading: stopsReading)
    }

    // MARK: HTTP/2

    /// Returns the key of provider tokens.
    func key() throws -> ProviderKey {
        try ProviderKey(
            pem: String(contentsOfFile: credentials.providerKeyFile, encoding: .utf8), keyID: credentials.keyID,
            teamID: credentials.teamID)
    }

    /// Returns a value of `authorization` that was issued `age` seconds ago.
    func authorization(age: Int64 = 0) throws -> String {
        try "bearer " + key().token(issuedAt: Int64(state.now().timeIntervalSince1970) - age)
    }

    /// Returns a connection that sends a valid provider token, or the given one, with each request.
    func provider(
        authorization: String? = nil, acknowledges: Bool = true, protocols: [String] = ["h2"],
        name: String = "localhost"
    ) async throws -> HTTP2Client {
        try await HTTP2Client.connect(
            to: addresses[.http2], credentials, authorization: authorization ?? self.authorization(),
            acknowledges: acknowledges, protocols: protocols, name: name)
    }

    /// Returns a connection with a client certificate.
    func provider(certificate: ClientIdentity) async throws -> HTTP2Client {
        try await HTTP2Client.connect(to: addresses[.http2], credentials, certificate)
    }

    /// Returns a connection with a certificate of the sandbox's authority that names the topic, or none if it is `nil`.
    func provider(certificateFor topic: String?) async throws -> HTTP2Client {
        func read(_ file: String) throws -> String {
            try String(contentsOfFile: credentials.directory + "/" + file, encoding: .utf8)
        }
        let authority = try Identity(pem: read("ca.pem") + read("ca-key.pem"))
        let issuer = CertificateIssuer(authority: authority, now: Date())
        let identity = try issuer.leaf(
            subject: DistinguishedName(
                topic.map { [.init(type: .userIdentifier, value: .init(utf8String: $0))] } ?? []),
            extensions: Certificate.Extensions { try ExtendedKeyUsage([.clientAuth]) })
        let file = credentials.directory + "/other.pem"
        try identity.pem.write(toFile: file, atomically: true, encoding: .utf8)
        return try await provider(certificate: .files(file))
    }

    /// Returns a connection to the listener that manages channels.
    func manager(authorization: String? = nil) async throws -> HTTP2Client {
        try await HTTP2Client.connect(
            to: addresses[.channels], credentials, authorization: authorization ?? self.authorization())
    }

    /// Creates a fault.
    /// - Parameter name: The protocol. If it is `nil`, the fields name it.
    func fault(_ fields: String, protocol name: String? = "http2") async throws {
        let first = name.map { #""protocol":"\#($0)","# } ?? ""
        let answer = try await control(.post, "/faults", json: "{\(first)\(fields)}")
        guard answer.status == 201 else { throw FaultRefused(answer: answer.body) }
    }

    struct FaultRefused: Error {
        var answer: String
    }

    // MARK: Control API

    struct Answer: Sendable {
        var status: Int
        var headers: HTTPFields
        var body: String

        /// Returns the body as a JSON object.
        func object() throws -> [String: Any] {
            try #require(try JSONSerialization.jsonObject(with: Data(body.utf8)) as? [String: Any])
        }
    }

    /// Sends one request to the control API, by default as a well-behaved program on this machine does.
    func control(
        _ method: HTTPRequest.Method, _ path: String, json: String? = nil, host: String? = nil,
        headers: HTTPFields = [:]
    ) async throws -> Answer {
        let address = addresses[.control]
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

    /// Sends one request over HTTP/1.1 to a listener with TLS.
    func https(
        _ method: HTTPRequest.Method, _ path: String, port: Int, headers: HTTPFields, body: ByteBuffer
    ) async throws -> Answer {
        let request = TestClient.Request(
            path, method: method, authority: "localhost:\(port)", headers: headers, body: body)
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.trustRoots = .file(credentials.authorityFile)
        let response = try await TestClient.withClient(
            host: "localhost", port: port,
            configuration: .init(tlsConfiguration: tls, timeout: .seconds(TestLimit.seconds))
        ) { client in
            try await client.execute(request)
        }
        return Answer(
            status: response.status.code, headers: response.headers, body: String(buffer: response.body ?? ByteBuffer())
        )
    }

    /// A Live Activity as the control API shows it.
    struct Activity: Decodable {
        struct State: Decodable {
            let event: String?
            let contentState: String?
            let isShown: Bool

            private enum CodingKeys: String, CodingKey {
                case event
                case contentState = "content_state"
                case isShown = "shown"
            }
        }

        let token, startToken, channel, attributesType, attributes, endedAt: String?
        let states: [State]

        private enum CodingKeys: String, CodingKey {
            case token, channel, attributes, states
            case startToken = "start_token"
            case attributesType = "attributes_type"
            case endedAt = "ended_at"
        }
    }

    func activities() async throws -> [Activity] {
        let answer = try await control(.get, "/activities")
        struct Page: Decodable {
            let activities: [Activity]
        }
        return try JSONDecoder().decode(Page.self, from: Data(answer.body.utf8)).activities
    }

    /// Returns the contents that each activity has shown.
    func shownStates() async throws -> [[String]] {
        try await activities().map { $0.states.filter(\.isShown).compactMap(\.contentState) }
    }

    /// Starts an activity that listens to the channel, as an app does.
    func startActivity(channel: String) async throws {
        let answer = try await control(.post, "/activities", json: #"{"channel":"\#(channel)"}"#)
        guard answer.status == 201 else { throw FaultRefused(answer: answer.body) }
    }

    /// Returns the inbox as the control API shows it.
    func notifications(_ query: String = "") async throws -> [[String: Any]] {
        let answer = try await control(.get, "/notifications" + query)
        return try #require(try answer.object()["notifications"] as? [[String: Any]])
    }
}

extension SandboxConfiguration {
    /// Uses free ports, and a short linger so that tests do not wait.
    static func forTests(directory: String) -> SandboxConfiguration {
        var configuration = SandboxConfiguration(directory: directory)
        configuration.ports = SandboxPort.free
        return configuration
    }
}

extension SandboxState {
    static func forTests(_ change: (inout SandboxConfiguration) -> Void = { _ in }) -> SandboxState {
        var configuration = SandboxConfiguration.forTests(directory: "/nonexistent")
        change(&configuration)
        return SandboxState(configuration: configuration)
    }
}

extension InboxEntry {
    /// The identifier of a binary notification.
    var identifier: UInt32? {
        (details as? BinaryDetails)?.identifier
    }

    /// The stream of a notification over HTTP/2.
    var stream: Int? {
        (details as? ProviderDetails)?.stream
    }
}

/// The longest wait of a test. It bounds a hanging test, and is long enough for a very busy machine.
enum TestLimit {
    static let seconds: Int64 = 240
}

/// Runs `body` with a new directory, and removes it afterwards.
func withTemporaryDirectory<Result>(_ body: (String) async throws -> Result) async throws -> Result {
    let folder = try TemporaryFolder()
    return try await body(folder.path + "/sandbox")
}
