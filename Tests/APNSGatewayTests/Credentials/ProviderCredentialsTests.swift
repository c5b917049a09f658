import Foundation
import NIOHTTP2
import PushWire
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Keys for provider tokens, topics of certificates, and probes", .serialized, .timeLimit(.minutes(5)))
struct ProviderCredentialsTests {
    private let certificates: TestCertificates
    private let folder: TemporaryFolder

    init() throws {
        certificates = try ClientCredentialsTests.made.get()
        folder = try TemporaryFolder()
    }

    private func problem(_ file: String) -> String {
        do throws(CredentialsError) {
            _ = try ProviderKey(file: file, keyID: "ABCDE12345", teamID: "TEAM123456")
            return "none"
        } catch {
            return error.description
        }
    }

    @Test("Apple's key file is read, also with other text and Windows line ends around the key")
    func reads() throws {
        let pem = try certificates.text("ec.key")
        for text in [
            pem, "Key: mine\n\n" + pem + "\n\n", pem.replacingOccurrences(of: "\n", with: "\r\n"),
            // As environments and JSON hold it, and with the base64 on one line.
            pem.replacingOccurrences(of: "\n", with: "\\n"), pem.replacingOccurrences(of: "\n", with: " "),
        ] {
            #expect(problem(try folder.write(text, "AuthKey.p8")) == "none")
        }
    }

    @Test("Each kind of unusable key file gets its own error, which names the file")
    func problems() throws {
        func check(_ text: String, _ expected: String, _ line: SourceLocation = #_sourceLocation) throws {
            let file = try folder.write(text, "key.p8")
            let problem = problem(file)
            #expect(problem.contains(expected), sourceLocation: line)
            #expect(problem.contains(file), sourceLocation: line)
        }
        try check(try certificates.key("ec", .traditional), "SEC 1")
        try check(try certificates.key("ec", .pkcs8Encrypted), "is encrypted")
        try check(try certificates.key("ec", .traditionalEncrypted), "is encrypted")
        try check(try certificates.text("rsa.key"), "not on the curve P-256")
        try check(try certificates.key("rsa", .traditional), "an RSA key")
        try check(
            try openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp384r1"]),
            "on the curve P-384")
        try check(try openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]), "secp256k1")
        try check(try certificates.text("ec.pem"), "a certificate")
        try check(try openssl(["pkey", "-in", certificates.file("ec.key"), "-pubout"]), "a public key")
        try check("", "is empty")
        try check("hello", "not a PEM file")
        try check(String(repeating: "x", count: 70_000), "over 65536 bytes")
        let pem = try certificates.text("ec.key")
        try check(pem.replacingOccurrences(of: pem.split(separator: "\n")[1], with: "MIGH"), "damaged")
        #expect(problem(folder.url.path).contains("is a directory"))
        #expect(problem(folder.file("none")).contains("cannot be opened"))
    }

    @Test("A certificate's topics are those that it lists, or else its own")
    func topics() throws {
        func topics(_ list: String?) throws -> [String] {
            let path = folder.file("c.pem")
            try certificates.issue(
                key: "ec.key", into: path, subject: "/CN=Apple Push/UID=com.example.app", days: 20,
                extensions: list.map { ["1.2.840.113635.100.6.3.6=\($0)"] } ?? [])
            return try ClientCredentials(certificate: path, key: certificates.file("ec.key")).summary.topics
        }
        #expect(try topics(nil) == ["com.example.app"])
        // SEQUENCE { UTF8String "a.b", SEQUENCE { UTF8String "app" }, UTF8String "a.b.voip", SEQUENCE { UTF8String "voip" } }
        let list = "DER:301E0C03612E6230050C036170700C08612E622E766F697030060C04766F6970"
        #expect(try topics(list) == ["a.b", "a.b.voip"])
        #expect(try topics("DER:0500") == ["com.example.app"])
        #expect(try topics("DER:30200C03612E62") == ["com.example.app"])
    }

    @Test("A probe of a peer that speaks HTTP/2 succeeds, and sends no request")
    func probe() async throws {
        let fixture = try await HTTP2GatewayFixture(script: { _, _ in })
        try await fixture.endpoint.probe()
        #expect(fixture.requests.isEmpty)
        await fixture.end()
    }

    @Test("A probe of a peer that does not speak HTTP/2 says so")
    func otherProtocol() async throws {
        let credentials = try await HTTP2GatewayFixture.credentials.value
        let server = try await ScriptedServer(
            certificate: credentials.serverFile, protocols: [], settings: [], script: { _, _ in })
        let endpoint = try GatewayEndpoint(
            host: "localhost", port: server.port, credentials: nil, trust: credentials.authorityFile,
            applicationProtocols: [GatewayEndpoint.http2])
        do {
            try await endpoint.probe()
            Issue.record("no error")
        } catch {
            #expect(error.description.contains("does not speak HTTP/2"))
        }
        await server.stop()
    }

    @Test("A probe of a closed port says that it cannot be reached")
    func nobody() async throws {
        let fixture = try await HTTP2GatewayFixture(script: { _, _ in })
        await fixture.end()
        do {
            try await fixture.endpoint.probe()
            Issue.record("no error")
        } catch {
            #expect(error.description.contains("cannot be reached"))
        }
    }
}
