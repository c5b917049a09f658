import ChatDomain
import CryptoExtras
import Foundation
import GatewayPool
import PushWire
import Synchronization
import TestSupport
import Testing

@testable import FCMGateway

@Suite("Access tokens")
struct OAuthTokensTests {
    private static let now = Timestamp(seconds: 1_800_000_000)
    private static let key = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }

    private static func file(_ change: (inout [String: String]) -> Void = { _ in }) throws -> String {
        var members = [
            "type": "service_account", "project_id": "example-1", "private_key_id": "k1",
            "private_key": try key.get().pkcs8PEMRepresentation, "client_email": "a@example.org",
            "token_uri": "https://oauth2.googleapis.com/token",
        ]
        change(&members)
        let folder = try TemporaryFolder()
        let file = folder.url.appending(path: "account.json")
        try JSONEncoder().encode(members).write(to: file)
        kept.withLock { $0.append(folder) }
        return file.path
    }

    /// Folders are deleted with their last reference.
    private static let kept = Mutex<[TemporaryFolder]>([])

    private static func account() throws -> ServiceAccountFile { try ServiceAccountFile(file: file()) }

    @Test(
        "A file that cannot be used is named, with the reason",
        arguments: [
            ("type", "authorized_user", "is not a service account"), ("project_id", "a/b", "project_id"),
            ("private_key", "x", "private_key"), ("client_email", "", "client_email is not a text"),
            ("token_uri", "http://example.org", "token_uri"),
            (
                "private_key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----",
                "encrypted"
            ),
        ])
    func files(_ member: String, _ value: String, _ text: String) throws {
        let path = try Self.file { $0[member] = value }
        let error = #expect(throws: CredentialsError.self) { try ServiceAccountFile(file: path) }
        #expect(error?.description.contains(path) == true && error?.description.contains(text) == true)
    }

    @Test(
        "A file without a member is named, with the member",
        arguments: ["type", "project_id", "private_key_id", "private_key", "client_email", "token_uri"])
    func missing(_ member: String) throws {
        let path = try Self.file { $0[member] = nil }
        let error = #expect(throws: CredentialsError.self) { try ServiceAccountFile(file: path) }
        #expect(error?.description.contains("\(path) is not a service account: \(member) is missing") == true)
    }

    @Test("The key of a file may be on one line, or have line ends that were escaped twice")
    func keyForms() throws {
        let pem = try Self.key.get().pkcs8PEMRepresentation
        for text in [
            pem.replacing("\n", with: "\\n"), pem.replacing("\n", with: " "), pem.replacing("\n", with: "\r\n"),
        ] {
            #expect(throws: Never.self) { try ServiceAccountFile(file: Self.file { $0["private_key"] = text }) }
        }
    }

    @Test("The assertion is signed by the account's key, and valid for an hour")
    func assertion() throws {
        let parts = try Self.account().assertion(issuedAt: 1000).split(separator: ".").map(String.init)
        func json(_ part: String) throws -> [String: Any] {
            let bytes = try #require(Base64URL.bytes(part))
            return try #require(JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
        }
        #expect(try json(parts[0]) as? [String: String] == ["alg": "RS256", "typ": "JWT", "kid": "k1"])
        let claims = try json(parts[1])
        #expect(claims["iat"] as? Int == 1000 && claims["exp"] as? Int == 4600)
        #expect(claims["aud"] as? String == "https://oauth2.googleapis.com/token")
        #expect(claims["iss"] as? String == "a@example.org")
        let signature = try #require(Base64URL.bytes(parts[2]))
        #expect(
            try Self.key.get().publicKey.isValidSignature(
                .init(rawRepresentation: signature), for: Data("\(parts[0]).\(parts[1])".utf8),
                padding: .insecurePKCS1v1_5))
    }

    @Test(
        "A response without a usable token is none",
        arguments: ["", "{}", #"{"access_token":""}"#, #"{"access_token":"a b"}"#, #"{"access_token":1}"#])
    func unusable(_ response: String) {
        #expect(OAuthToken(response: Array(response.utf8), now: Self.now) == nil)
    }

    @Test(
        "A token is renewed early, but a short-lived one is used for half of its life",
        arguments: [("3599", 3374), ("100", 50), ("0", 30), ("-5", 30), ("9999999999", 86_175)])
    func early(_ lifetime: String, _ seconds: Int64) throws {
        let response = #"{"access_token":"a","expires_in":\#(lifetime)}"#
        let token = try #require(OAuthToken(response: Array(response.utf8), now: Self.now))
        #expect(token.usableUntil.seconds == Self.now.seconds + seconds)
    }

    /// A token endpoint with scripted results.
    private final class Endpoint: Sendable {
        let results: Mutex<[Result<String, OAuthTokenError>]>
        let calls = Mutex(0)
        /// Holds the calls until it is finished.
        let gate = AsyncStream.makeStream(of: Void.self)

        init(_ results: [Result<String, OAuthTokenError>]) {
            self.results = Mutex(results)
        }

        func fetch(_ now: Timestamp) async throws(OAuthTokenError) -> OAuthToken {
            calls.withLock { $0 += 1 }
            for await _ in gate.stream {}
            let text = try results.withLock { $0.isEmpty ? .failure(OAuthTokenError("none")) : $0.removeFirst() }.get()
            guard let token = OAuthToken(response: Array(#"{"access_token":"\#(text)"}"#.utf8), now: now) else {
                throw OAuthTokenError("none")
            }
            return token
        }
    }

    private func tokens(_ endpoint: Endpoint, _ clock: WallClock) throws -> OAuthTokens {
        OAuthTokens(account: try Self.account(), now: clock.source) { _, now throws(OAuthTokenError) in
            try await endpoint.fetch(now)
        }
    }

    @Test("Many connections wait for one renewal, and use its token until its time")
    func once() async throws {
        let clock = WallClock(Self.now)
        let endpoint = Endpoint([.success("a"), .success("b")])
        let tokens = try tokens(endpoint, clock)
        async let texts = withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<20 { group.addTask { try await tokens.token().text } }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }
        try await eventually("the endpoint is asked") { endpoint.calls.withLock { $0 } == 1 }
        endpoint.gate.continuation.finish()
        #expect(try await texts == ["a"])
        clock.advance(by: .seconds(3300))
        #expect(try await tokens.token().text == "a")
        clock.advance(by: .seconds(100))
        #expect(try await tokens.token().text == "b")
        #expect(endpoint.calls.withLock { $0 } == 2)
    }

    @Test("A token that FCM rejected is replaced, once for all connections")
    func replaced() async throws {
        let endpoint = Endpoint([.success("a"), .success("b"), .success("c")])
        endpoint.gate.continuation.finish()
        let tokens = try tokens(endpoint, WallClock(Self.now))
        let first = try await tokens.token()
        #expect(first.text == "a" && !first.isReplacement)
        let second = try await tokens.token(refused: "a")
        #expect(second.text == "b" && second.isReplacement)
        #expect(try await tokens.token(refused: "a") == second)
        #expect(try await tokens.token(refused: "b").text == "c")
    }

    @Test("After a refusal of the account, the endpoint is left alone for a growing time; after a failure it is not")
    func refusals() async throws {
        let clock = WallClock(Self.now)
        let refusal = OAuthTokenError(
            status: 400, body: Array(#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#.utf8),
            email: "a@example.org")
        #expect(refusal.description.contains("invalid_grant: Invalid JWT Signature."))
        let endpoint = Endpoint([
            .failure(OAuthTokenError(status: 503, body: [], email: "")), .failure(refusal), .failure(refusal),
            .success("a"),
        ])
        endpoint.gate.continuation.finish()
        let tokens = try tokens(endpoint, clock)
        for (advance, calls) in [(0, 1), (0, 2), (10, 2), (21, 3), (31, 3)] {
            clock.advance(by: .seconds(advance))
            await #expect(throws: OAuthTokenError.self) { try await tokens.token() }
            #expect(endpoint.calls.withLock { $0 } == calls)
        }
        clock.advance(by: .seconds(900))
        #expect(try await tokens.token().text == "a")
    }
}
