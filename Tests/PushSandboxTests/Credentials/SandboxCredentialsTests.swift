import Foundation
import NIOSSL
import Synchronization
import TestSupport
import Testing
import X509

@testable import PushSandbox

@Suite("Credentials", .timeLimit(.minutes(10)))
struct SandboxCredentialsTests {
    private static let names = [
        "ca.pem", "ca-key.pem", "client.pem", "client.p12", "client-production.pem", "server.pem",
        "AuthKey_SANDBOX.p8", "AuthKey_PRODUCTION.p8", "credentials.json",
    ]
    private static let signed: Set<String> = [
        "ca.pem", "ca-key.pem", "client.pem", "client.p12", "client-production.pem", "server.pem",
    ]
    private static let day: TimeInterval = 86_400

    private func prepare(_ directory: String, topic: String = "com.example.App", daysFromNow: Double = 0) async throws
        -> SandboxCredentials
    {
        try await SandboxCredentials.prepare(
            directory: directory, topic: topic, logger: .silent, now: Date() + daysFromNow * Self.day)
    }

    private func contents(_ directory: String) throws -> [String: Data] {
        var contents: [String: Data] = [:]
        for name in Self.names {
            contents[name] = try Data(contentsOf: URL(fileURLWithPath: directory + "/" + name))
        }
        return contents
    }

    private func changed(_ before: [String: Data], _ after: [String: Data]) -> Set<String> {
        Set(Self.names.filter { before[$0] != after[$0] })
    }

    @Test("The first start writes all files, private to the user, and no others")
    func firstStart() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let files = try FileManager.default.contentsOfDirectory(atPath: directory)
            #expect(Set(files) == Set(Self.names + [".lock"]))
            for path in files.map({ directory + "/" + $0 }) + [directory] {
                let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
                #expect(mode == (path == directory ? 0o700 : 0o600), "\(path)")
            }
            #expect(credentials.keyID.count == 10)
            #expect(credentials.teamID.count == 10)
            let json = try JSONSerialization.jsonObject(with: contents(directory)["credentials.json"] ?? Data())
            #expect(
                json as? [String: String] == [
                    "key_id": credentials.keyID, "production_key_id": credentials.productionKeyID,
                    "team_id": credentials.teamID, "topic": "com.example.App",
                ])
        }
    }

    @Test("The next start changes no file")
    func reuse() async throws {
        try await withTemporaryDirectory { directory in
            let first = try await prepare(directory)
            let before = try contents(directory)
            let second = try await prepare(directory)
            #expect(first == second)
            #expect(try changed(before, contents(directory)) == [])
        }
    }

    @Test("Another topic gives another client certificate and keeps the authority")
    func otherTopic() async throws {
        try await withTemporaryDirectory { directory in
            _ = try await prepare(directory)
            let before = try contents(directory)
            let credentials = try await prepare(directory, topic: "com.example.Other")
            #expect(
                try changed(before, contents(directory))
                    == ["client.pem", "client.p12", "client-production.pem", "credentials.json"])
            let certificate = try #require(try NIOSSLCertificate.fromPEMFile(credentials.clientFile).first)
            #expect(ClientCertificate(certificate)?.topic == "com.example.Other")
        }
    }

    @Test(
        "Certificates that expire within thirty days are replaced",
        arguments: [
            (794.0, Set<String>()),
            (796.0, ["client.pem", "client.p12", "client-production.pem", "server.pem"]),
            (3621.0, Self.signed),
        ] as [(Double, Set<String>)])
    func renewal(days: Double, expected: Set<String>) async throws {
        try await withTemporaryDirectory { directory in
            _ = try await prepare(directory)
            let before = try contents(directory)
            _ = try await prepare(directory, daysFromNow: days)
            #expect(try changed(before, contents(directory)) == expected)
        }
    }

    @Test(
        "A file that is damaged, missing or from another set is replaced with all that depend on it",
        arguments: [
            ("ca.pem", Self.signed),
            ("ca-key.pem", Self.signed),
            ("client.pem", ["client.pem", "client.p12"]),
            ("client.p12", ["client.pem", "client.p12"]),
            ("server.pem", ["server.pem"]),
        ] as [(String, Set<String>)], ["other set", "damaged", "missing"])
    func mending(file: (name: String, expected: Set<String>), how: String) async throws {
        try await withTemporaryDirectory { directory in
            _ = try await prepare(directory + "/a")
            _ = try await prepare(directory + "/b")
            let path = directory + "/a/" + file.name
            try FileManager.default.removeItem(atPath: path)
            switch how {
            case "other set": try FileManager.default.copyItem(atPath: directory + "/b/" + file.name, toPath: path)
            case "damaged": try Data("-----BEGIN CERTIFICATE-----\n".utf8).write(to: URL(fileURLWithPath: path))
            default: try Data().write(to: URL(fileURLWithPath: path))
            }
            let before = try contents(directory + "/a")
            _ = try await prepare(directory + "/a")
            #expect(try changed(before, contents(directory + "/a")) == file.expected)
        }
    }

    @Test("A directory of an earlier version gets the missing files, and keeps its names and keys")
    func upgrade() async throws {
        try await withTemporaryDirectory { directory in
            let first = try await prepare(directory)
            func read(_ name: String) throws -> String {
                try String(contentsOfFile: directory + "/" + name, encoding: .utf8)
            }
            let issuer = CertificateIssuer(
                authority: try Identity(pem: read("ca.pem") + read("ca-key.pem")), now: Date())
            let old = try issuer.leaf(
                subject: DistinguishedName([.init(type: .userIdentifier, value: .init(utf8String: first.topic))]),
                extensions: Certificate.Extensions { try ExtendedKeyUsage([.clientAuth]) })
            try old.pem.write(toFile: first.clientFile, atomically: true, encoding: .utf8)
            let names = #"{"key_id":"\#(first.keyID)","team_id":"\#(first.teamID)","topic":"\#(first.topic)"}"#
            try names.write(toFile: first.namesFile, atomically: true, encoding: .utf8)
            let before = try contents(directory)

            let second = try await prepare(directory)
            #expect(try changed(before, contents(directory)) == ["client.pem", "client.p12", "credentials.json"])
            #expect(second.keyID == first.keyID)
            #expect(second.teamID == first.teamID)
            #expect(second.productionKeyID.count == 10)
            let certificate = try #require(try NIOSSLCertificate.fromPEMFile(second.clientFile).first)
            #expect(
                ClientCertificate(certificate)
                    == ClientCertificate(
                        topic: first.topic,
                        topics: [first.topic, first.topic + ".voip", first.topic + ".complication"],
                        isForDevelopment: true))
        }
    }

    @Test("OpenSSL can read Apple's list of topics", .enabled(if: OpenSSLTool.isPresent))
    func opensslTopics() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let output = try await OpenSSLTool.run(["x509", "-in", credentials.clientFile, "-noout", "-text"])
            #expect(output.text.contains("1.2.840.113635.100.6.3.6"))
            #expect(output.text.contains("com.example.App.voip"))
        }
    }

    @Test("Many concurrent starts end with one set of files")
    func concurrency() async throws {
        try await withTemporaryDirectory { directory in
            let found = try await withThrowingTaskGroup(of: SandboxCredentials.self) { group in
                for _ in 0..<8 { group.addTask { try await prepare(directory) } }
                return try await group.reduce(into: Set()) { $0.insert($1) }
            }
            #expect(found.count == 1)
            let before = try contents(directory)
            _ = try await prepare(directory)
            #expect(try changed(before, contents(directory)) == [])
        }
    }

    @Test("Only the server's certificate is replaced if an earlier version wrote it without the hosts' names")
    func hostNames() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let authority = try Identity(
                pem: String(contentsOfFile: credentials.authorityFile, encoding: .utf8)
                    + String(contentsOfFile: directory + "/ca-key.pem", encoding: .utf8))
            let old = try CertificateIssuer(authority: authority, now: Date()).leaf(
                subject: DistinguishedName { CommonName("localhost") },
                extensions: Certificate.Extensions {
                    try ExtendedKeyUsage([.serverAuth])
                    SubjectAlternativeNames([.dnsName("localhost")])
                })
            try old.pem.write(toFile: credentials.serverFile, atomically: true, encoding: .utf8)
            let before = try contents(directory)
            _ = try await prepare(directory)
            #expect(try changed(before, contents(directory)) == ["server.pem"])
            let new = try Identity(pem: String(contentsOfFile: credentials.serverFile, encoding: .utf8))
            let names = try #require(try new.certificate.extensions.subjectAlternativeNames)
            #expect(ServiceHost.all.allSatisfy { names.contains(.dnsName($0.name)) })
        }
    }

    @Test("A process that waits for the lock gives up after ten seconds, and names the directory")
    func busyDirectory() async throws {
        try await withTemporaryDirectory { path in
            let directory = CredentialDirectory(path: path)
            let clock = SteppingClock()
            try await directory.locked {}
            // The lock belongs to the open file: another descriptor of the same process has to wait as well.
            let lock = open(path + "/.lock", O_RDWR)
            defer { close(lock) }
            #expect(flock(lock, LOCK_EX) == 0)
            await #expect {
                try await directory.locked(clock: clock) {}
            } throws: { error in
                "\(error)".contains(path)
            }
            #expect(clock.now.offset == .seconds(10))
            #expect(flock(lock, LOCK_UN) == 0)
            try await directory.locked(clock: clock) {}
        }
    }

    @Test("The PKCS#12 archive opens with the passphrase and has the contents of client.pem")
    func archive() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let bundle = try NIOSSLPKCS12Bundle(file: credentials.clientArchiveFile, passphrase: "pushchat".utf8)
            #expect(try bundle.certificateChain == NIOSSLCertificate.fromPEMFile(credentials.clientFile))
            #expect(try bundle.privateKey == NIOSSLPrivateKey(file: credentials.clientFile, format: .pem))
            #expect(throws: (any Error).self) {
                try NIOSSLPKCS12Bundle(file: credentials.clientArchiveFile, passphrase: "wrong".utf8)
            }
        }
    }

    @Test("The error names a directory that cannot be created")
    func unusableDirectory() async throws {
        try await withTemporaryDirectory { directory in
            try Data().write(to: URL(fileURLWithPath: directory))
            await #expect {
                _ = try await prepare(directory + "/sandbox")
            } throws: { error in
                "\(error)".contains(directory + "/sandbox") && "\(error)".contains("--directory")
            }
        }
    }

    @Test(
        "OpenSSL verifies the certificates strictly", .enabled(if: OpenSSLTool.isPresent),
        arguments: ["com.example.App", "com.example." + String(repeating: "long", count: 30)])
    func opensslVerify(topic: String) async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory, topic: topic)
            for (file, purpose) in [(credentials.clientFile, "sslclient"), (credentials.serverFile, "sslserver")] {
                let output = try await OpenSSLTool.run([
                    "verify", "-x509_strict", "-purpose", purpose, "-CAfile", credentials.authorityFile, file,
                ])
                #expect(output.status == 0, "\(output.text)")
            }
        }
    }

    @Test("OpenSSL reads the archive and Apple's subject in it", .enabled(if: OpenSSLTool.isPresent))
    func opensslArchive() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let output = try await OpenSSLTool.run([
                "pkcs12", "-in", credentials.clientArchiveFile, "-passin", "pass:pushchat", "-nodes", "-info",
            ])
            #expect(output.status == 0, "\(output.text)")
            for part in [
                "MAC: sha256", "PBES2, PBKDF2, AES-256-CBC", "BEGIN CERTIFICATE", "BEGIN PRIVATE KEY",
                "UID = com.example.App", "CN = Apple Development IOS Push Services: com.example.App",
                "friendlyName: Apple Development IOS Push Services: com.example.App",
            ] {
                #expect(output.text.contains(part), "\(part) in \(output.text)")
            }
            let wrong = try await OpenSSLTool.run([
                "pkcs12", "-in", credentials.clientArchiveFile, "-passin", "pass:wrong", "-nodes",
            ])
            #expect(wrong.status != 0)
        }
    }

    @Test("OpenSSL reads the provider key as P-256", .enabled(if: OpenSSLTool.isPresent))
    func opensslProviderKey() async throws {
        try await withTemporaryDirectory { directory in
            let credentials = try await prepare(directory)
            let output = try await OpenSSLTool.run(["pkey", "-in", credentials.providerKeyFile, "-text", "-noout"])
            #expect(output.text.contains("NIST CURVE: P-256"))
        }
    }
}
