import Foundation
import NIOCore
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Client credentials that the openssl command creates")
struct ClientCredentialsTests {
    static let passphrase = "pass phrase"

    /// An authority, and certificates with RSA and EC keys, created once for all tests.
    static let made: Result<TestCertificates, any Error> = Result {
        // A static is never released, and its folder holds keys.
        atexit { try? ClientCredentialsTests.made.get().remove() }
        return try TestCertificates()
    }

    let certificates: TestCertificates

    init() throws {
        certificates = try Self.made.get()
    }

    // MARK: PEM

    enum KeyForm: String, CaseIterable {
        case pkcs8, traditional, pkcs8Encrypted, traditionalEncrypted

        var isEncrypted: Bool { self == .pkcs8Encrypted || self == .traditionalEncrypted }
    }

    enum Layout: CaseIterable {
        case certificateFirst, keyFirst, withBagAttributes, windowsLines, twoFiles
    }

    @Test("The summary names the hosts of a server's certificate, and who signed it")
    func hosts() throws {
        let made = try Self.made.get()
        try made.issue(
            key: "ec.key", into: made.file("server.pem"), subject: "/CN=server", days: 20,
            extensions: ["subjectAltName=DNS:Chat.example.org,DNS:*.example.net"])
        let summary = try ClientCredentials(certificate: made.file("server.pem"), key: made.file("ec.key")).summary
        #expect(summary.issuer == "Test Authority" && summary.hosts == ["Chat.example.org", "*.example.net"])
        for (host, isNamed) in [
            ("chat.example.org", true), ("CHAT.example.org", true), ("example.org", false), ("a.example.net", true),
            ("example.net", false), ("a.b.example.net", false), (".example.net", false), ("server", false),
        ] {
            #expect(summary.isFor(host) == isNamed, "\(host)")
        }
    }

    @Test("PEM files with every form of key in every layout can be read", arguments: KeyForm.allCases, Layout.allCases)
    func pem(form: KeyForm, layout: Layout) throws {
        for kind in ["rsa", "ec"] {
            let folder = try TemporaryFolder()
            let key = try certificates.key(kind, form)
            let certificate = try certificates.text("\(kind).pem")
            let file = folder.file("client file.pem")
            var keyFile: String?
            switch layout {
            case .certificateFirst: try folder.write(certificate + key, "client file.pem")
            case .keyFirst: try folder.write(key + certificate, "client file.pem")
            case .withBagAttributes:
                let bag = "Bag Attributes\n    friendlyName: Apple Push Services\n    localKeyID: 01 02\n"
                try folder.write(
                    bag + "subject=CN = x\n\nissuer=CN = y\n\n" + certificate + bag
                        + "Key Attributes: <No Attributes>\n"
                        + key, "client file.pem")
            case .windowsLines:
                try folder.write(
                    (certificate + key).replacingOccurrences(of: "\n", with: "\r\n"), "client file.pem")
            case .twoFiles:
                try folder.write(certificate, "client file.pem")
                keyFile = try folder.write(key, "key.pem")
            }
            let credentials = try ClientCredentials(
                certificate: file, key: keyFile, passphrase: form.isEncrypted ? Self.passphrase : nil)
            try expectUsable(credentials, topic: "com.example.\(kind)")

            guard form.isEncrypted else { continue }
            for wrong in [nil, "", "wrong", "pässwörd", String(repeating: "x", count: 5000)] {
                let error = #expect(throws: CredentialsError.self, "\(wrong ?? "none")") {
                    try ClientCredentials(certificate: file, key: keyFile, passphrase: wrong)
                }
                let text = error?.description ?? ""
                #expect(text.contains(keyFile ?? file) && text.contains("passphrase"), "\(text)")
            }
        }
    }

    @Test("A passphrase for a key that has none is ignored, whatever its letters")
    func needlessPassphrase() throws {
        try expectUsable(
            ClientCredentials(
                certificate: certificates.file("ec.pem"), key: certificates.file("ec.key"), passphrase: "überflüssig"),
            topic: "com.example.ec")
    }

    @Test("An encrypted PEM key with a passphrase beyond ASCII is an error that names the remedy, and no crash")
    func passphraseBeyondASCII() throws {
        let folder = try TemporaryFolder()
        let encrypted = try openssl(
            ["pkey", "-in", certificates.file("ec.key"), "-aes256", "-passout", "pass:pässword"])
        let file = try folder.write(certificates.text("ec.pem") + encrypted, "client.pem")
        let error = #expect(throws: CredentialsError.self) {
            try ClientCredentials(certificate: file, passphrase: "pässword")
        }
        let text = error?.description ?? ""
        #expect(text.contains("ASCII") && text.contains("openssl pkey -in \(file) -aes256 -out \(file).new"))
        // The command that the error names works.
        try openssl([
            "pkey", "-in", file, "-aes256", "-out", folder.file("new"), "-passin", "pass:pässword", "-passout",
            "pass:\(Self.passphrase)",
        ])
        try expectUsable(
            ClientCredentials(
                certificate: certificates.file("ec.pem"), key: folder.file("new"), passphrase: Self.passphrase),
            topic: "com.example.ec")
    }

    @Test(
        "The client presents the key's own certificate, wherever it is in the file; issuers follow",
        arguments: [false, true])
    func leafNotFirst(isPKCS12: Bool) throws {
        let folder = try TemporaryFolder()
        let others = try certificates.text("ca.pem") + certificates.text("rsa.pem")
        let pem = try folder.write(others + certificates.text("ec.pem") + certificates.text("ec.key"), "client.pem")
        var file = pem
        if isPKCS12 {
            file = folder.file("client.p12")
            try openssl(["pkcs12", "-export", "-in", pem, "-out", file, "-passout", "pass:\(Self.passphrase)"])
        }
        let credentials = try ClientCredentials(certificate: file, passphrase: isPKCS12 ? Self.passphrase : nil)
        try expectUsable(credentials, topic: "com.example.ec")
        #expect(credentials.chain.count == 3)
    }

    @Test("Of two certificates of the same key, the client presents the one that lasts longer")
    func renewed() throws {
        let folder = try TemporaryFolder()
        let old = folder.file("old.pem")
        try certificates.issue(key: "ec.key", into: old, subject: "/CN=Old/UID=com.example.old", days: 3)
        for texts in [[old, certificates.file("ec.pem")], [certificates.file("ec.pem"), old]] {
            let both = try texts.map { try String(contentsOfFile: $0, encoding: .utf8) }.joined()
            let file = try folder.write(both + certificates.text("ec.key"), "both.pem")
            try expectUsable(ClientCredentials(certificate: file), topic: "com.example.ec")
        }
    }

    // MARK: PKCS#12

    enum Archive: CaseIterable {
        case plain, legacy, emptyPassphrase, legacyEmptyPassphrase, certificates, bothUnencrypted, beyondASCII

        var passphrase: String {
            switch self {
            case .emptyPassphrase, .legacyEmptyPassphrase: ""
            case .beyondASCII: "pässwörd"
            default: ClientCredentialsTests.passphrase
            }
        }

        var options: [String] {
            switch self {
            case .plain, .emptyPassphrase, .beyondASCII: []
            case .legacy, .legacyEmptyPassphrase: ["-legacy"]
            case .certificates: ["-name", "Apple Push"]
            case .bothUnencrypted: ["-keypbe", "NONE", "-certpbe", "NONE"]
            }
        }
    }

    @Test("PKCS#12 files can be read with all options of openssl", arguments: Archive.allCases, ["rsa", "ec"])
    func pkcs12(archive: Archive, kind: String) throws {
        let folder = try TemporaryFolder()
        let authorities = archive == .certificates ? ["-certfile", certificates.file("ca.pem")] : []
        let file = try certificates.archive(
            kind, folder.file("client.p12"), passphrase: archive.passphrase, archive.options + authorities)
        let credentials = try ClientCredentials(certificate: file, passphrase: archive.passphrase)
        try expectUsable(credentials, topic: "com.example.\(kind)")
        #expect(credentials.chain.count == (archive == .certificates ? 2 : 1))
        if archive.passphrase.isEmpty {
            try expectUsable(ClientCredentials(certificate: file), topic: "com.example.\(kind)")
        }
        for wrong in archive.passphrase.isEmpty ? ["wrong"] : [nil, "", "wrong"] {
            let error = #expect(throws: CredentialsError.self, "\(wrong ?? "none")") {
                try ClientCredentials(certificate: file, passphrase: wrong)
            }
            let text = error?.description ?? ""
            let command = "openssl pkcs12 -legacy -in \(file) -nodes -out \(folder.file("client.pem"))"
            #expect(text.contains(command) && text.contains("passphrase"), "\(text)")
        }
    }

    @Test("The conversion command that an error names works, and its output can be used")
    func conversion() throws {
        let folder = try TemporaryFolder()
        // Our reader accepts no archive without a MAC. The path needs quoting.
        let file = try certificates.archive(
            "rsa", folder.file("it's mine.p12"), passphrase: Self.passphrase, ["-nomac"])
        let error = #expect(throws: CredentialsError.self) {
            try ClientCredentials(certificate: file, passphrase: Self.passphrase)
        }
        let text = error?.description ?? ""
        let start = try #require(text.range(of: "openssl pkcs12"), "\(text)").lowerBound
        let command = String(text[start...])
        for (name, options) in [("it's mine.p12", ["-nomac"]), ("it's mine.p12", ["-legacy"]), ("it's mine.p12", [])] {
            _ = try certificates.archive("rsa", folder.file(name), passphrase: Self.passphrase, options)
            try run("/bin/sh", ["-c", command + " -passin 'pass:\(Self.passphrase)'"])
            let made = folder.file("it's mine.pem")
            try expectUsable(ClientCredentials(certificate: made), topic: "com.example.rsa")
            let mode = try FileManager.default.attributesOfItem(atPath: made)[.posixPermissions] as? Int
            #expect(mode == 0o600, "an unencrypted key for everyone to read")
        }
    }

    @Test("A PKCS#12 file with only a key or certificate is an error, although the library would end the process")
    func halves() throws {
        let folder = try TemporaryFolder()
        for (option, word) in [("-nokeys", "private key"), ("-nocerts", "certificate")] {
            for more in [[], ["-legacy"], ["-keypbe", "NONE", "-certpbe", "NONE"]] {
                let file = folder.file("half.p12")
                try openssl(
                    [
                        "pkcs12", "-export", option, "-in", certificates.file("ec.pem"), "-inkey",
                        certificates.file("ec.key"),
                        "-out", file, "-passout", "pass:\(Self.passphrase)",
                    ] + more)
                let error = #expect(throws: CredentialsError.self) {
                    try ClientCredentials(certificate: file, passphrase: Self.passphrase)
                }
                let text = error?.description ?? ""
                #expect(text.contains("\(file) holds no \(word)") && text.contains("export"), "\(text)")
            }
        }
    }

    // MARK: Unusable files

    struct Broken: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// The file's contents. `nil` for no file.
        let contents: @Sendable (TestCertificates) throws -> Data?
        var key: String?
        /// The words that the error must contain besides the file's name.
        let words: [String]
    }

    static let broken = [
        Broken(testDescription: "no file", contents: { _ in nil }, words: ["cannot be opened", "No such file"]),
        Broken(testDescription: "an empty file", contents: { _ in Data() }, words: ["is empty", "PKCS#12"]),
        Broken(
            testDescription: "a huge file", contents: { _ in Data(repeating: 65, count: 1 << 21) },
            words: ["over 1048576 bytes", "PKCS#12"]),
        Broken(
            testDescription: "garbage", contents: { _ in Data((0..<5000).map { UInt8(truncatingIfNeeded: $0 &* 7) }) },
            words: ["neither a PEM nor a PKCS#12 file", ".p12"]),
        Broken(
            testDescription: "garbage that begins like DER",
            contents: { _ in Data([0x30, 0x82, 1, 0, 2, 1, 3, 0, 0, 0]) },
            words: ["no private key"]),
        Broken(
            testDescription: "a PKCS#12 file cut off",
            contents: { certificates in
                let file = try certificates.archive("ec", certificates.file("cut.p12"), passphrase: "", [])
                return try Data(contentsOf: URL(filePath: file)).dropLast(60)
            }, words: ["cannot be read as PKCS#12", "openssl pkcs12 -legacy"]),
        Broken(
            testDescription: "a private key in DER",
            contents: { Data(try openssl(["pkey", "-in", $0.file("ec.key"), "-outform", "DER"], \.bytes)) },
            words: ["neither a PEM nor a PKCS#12 file"]),
        Broken(
            testDescription: "a certificate in DER, as Apple's portal hands it out",
            contents: { Data(try openssl(["x509", "-in", $0.file("ec.pem"), "-outform", "DER"], \.bytes)) },
            words: ["without its private key", "Keychain", "openssl x509 -inform der"]),
        Broken(
            testDescription: "a certificate without a key", contents: { Data(try $0.text("ec.pem").utf8) },
            words: ["holds no private key", "certificate_key"]),
        Broken(
            testDescription: "a key without a certificate", contents: { Data(try $0.text("ec.key").utf8) },
            words: ["holds no certificate", "beside the key"]),
        Broken(
            testDescription: "the key of another certificate",
            contents: { Data(try ($0.text("ec.pem") + $0.text("rsa.key")).utf8) },
            words: ["belongs to no certificate", "was requested"]),
        Broken(
            testDescription: "the key of another certificate, in a file of its own",
            contents: { Data(try $0.text("ec.pem").utf8) }, key: "rsa.key",
            words: ["rsa.key", "belongs to no certificate", "was requested"]),
        Broken(
            testDescription: "PEM that was cut off", contents: { Data(try $0.text("ec.pem").utf8).dropLast(100) },
            words: ["damaged", "copy it again"]),
        Broken(
            testDescription: "a key that was cut off",
            contents: { Data(try ($0.text("ec.pem") + $0.text("ec.key")).utf8).dropLast(60) },
            words: ["damaged", "copy it again"]),
        Broken(
            testDescription: "a key file that is missing", contents: { Data(try $0.text("ec.pem").utf8) },
            key: "absent.key", words: ["absent.key cannot be opened"]),
    ]

    @Test("An unusable file is an error with the file's name and the remedy", arguments: broken)
    func errors(broken: Broken) throws {
        let folder = try TemporaryFolder()
        let file = folder.file("client.any")
        if let contents = try broken.contents(certificates) { try contents.write(to: URL(filePath: file)) }
        let error = #expect(throws: CredentialsError.self) {
            try ClientCredentials(certificate: file, key: broken.key.map(certificates.file))
        }
        let text = error?.description ?? ""
        #expect(text.contains(file) || broken.key.map { text.contains($0) } == true, "\(text)")
        for word in broken.words { #expect(text.contains(word), "\(text)") }
        #expect(!text.contains("\n"), "\(text)")
    }

    @Test("The error names an invalid trust file")
    func trust() throws {
        let credentials = try ClientCredentials(
            certificate: certificates.file("ec.pem"), key: certificates.file("ec.key"))
        let error = #expect(throws: CredentialsError.self) {
            try GatewayEndpoint(host: "localhost", port: 1, credentials: credentials, trust: "/nowhere/ca.pem")
        }
        #expect(error?.description.contains("/nowhere/ca.pem") == true)
    }

    // MARK: Contents of a certificate

    @Test(
        "The summary has topic, environment and days left",
        arguments: [
            (["1.2.840.113635.100.6.3.1"], CertificateSummary.Environment.development),
            (["1.2.840.113635.100.6.3.2"], .production),
            (["1.2.840.113635.100.6.3.1", "1.2.840.113635.100.6.3.2"], .both), ([], .unstated),
        ])
    func summary(extensions: [String], environment: CertificateSummary.Environment) throws {
        let folder = try TemporaryFolder()
        let file = folder.file("one.pem")
        try certificates.issue(
            key: "ec.key", into: file, subject: "/UID=com.example.chat/CN=Apple Push Services: com.example.chat/O=A",
            days: 10, extensions: extensions)
        let summary = try ClientCredentials(certificate: file, key: certificates.file("ec.key")).summary
        #expect(summary.topic == "com.example.chat")
        #expect(summary.commonName == "Apple Push Services: com.example.chat")
        #expect(summary.environment == environment)
        // openssl reads the clock separately for each date.
        #expect((864_000...864_010).contains(summary.notAfter.timeIntervalSince(summary.notBefore)))
        #expect(summary.daysLeft(at: summary.notAfter.addingTimeInterval(-864_000)) == 10)
        #expect(summary.daysLeft(at: summary.notAfter.addingTimeInterval(-863_999)) == 9)
        #expect(summary.daysLeft(at: summary.notAfter) == 0)
        #expect(summary.daysLeft(at: summary.notAfter.addingTimeInterval(1)) == -1)
    }

    @Test("A certificate that names no app has no topic")
    func noTopic() throws {
        let summary = try ClientCredentials(
            certificate: certificates.file("ca.pem"), key: certificates.file("ca.key")
        ).summary
        #expect(summary.topic == nil)
        #expect(summary.commonName == "Test Authority")
    }

    /// Expects that the credentials present the certificate of this topic, and that TLS accepts it together with the
    /// key.
    private func expectUsable(_ credentials: ClientCredentials, topic: String) throws {
        #expect(credentials.summary.topic == topic)
        _ = try GatewayEndpoint(
            host: "localhost", port: 1, credentials: credentials, trust: certificates.file("ca.pem"))
    }
}
