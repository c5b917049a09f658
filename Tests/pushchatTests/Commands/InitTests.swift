import Foundation
import Testing

@testable import pushchat

@Suite("pushchat init")
struct InitTests {
    private let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    private func write(_ answers: InitialConfiguration) throws -> Configuration {
        try Init.write(answers, to: "pushchat.yaml", workingDirectory: folder.path)
        return try folder.load()
    }

    private func mode(_ name: String) throws -> Int? {
        try FileManager.default.attributesOfItem(atPath: folder.path + "/" + name)[.posixPermissions] as? Int
    }

    @Test("For browsers only, the relay listens on loopback and has a strong token that only its owner can read")
    func browsers() throws {
        let configuration = try write(InitialConfiguration(database: "a.db", contact: "mailto:you@example.org"))
        #expect(configuration.environment == .production && configuration.warnings.isEmpty)
        #expect(configuration.http.host == "127.0.0.1")
        #expect(configuration.http.publicURL == configuration.localAddress, "a click on a notification opens it")
        #expect(configuration.database.path == folder.path + "/a.db")
        #expect(configuration.push.contact == "mailto:you@example.org")
        #expect(configuration.apps.count == 1 && configuration.apps.allSatisfy { $0.gatewayKind.isForBrowsersOnly })
        let token = try #require(configuration.admin.tokens.first?.text)
        #expect(TokenStrength.bits(of: token) >= TokenStrength.enough)
        #expect(try mode("pushchat.yaml") == 0o600 && mode("admin.token") == 0o600)
        let other = try ConfigurationFolder()
        try Init.write(InitialConfiguration(database: "a.db"), to: "pushchat.yaml", workingDirectory: other.path)
        #expect(try other.load().admin.tokens.first?.text != token)
    }

    @Test("Behind a proxy, the relay trusts the proxy of this machine")
    func proxy() throws {
        let configuration = try write(
            InitialConfiguration(publicURL: "https://chat.example.org", database: "a.db"))
        #expect(configuration.http.publicURL == "https://chat.example.org" && configuration.http.host == "127.0.0.1")
        #expect(configuration.http.trustedProxies.count == 2)
    }

    @Test(
        "The port is the given one; otherwise that of the public address with a certificate, and 44447 without",
        arguments: [
            ("", "", nil, 44_447), ("", "", 8000, 8000), ("https://chat.example.org", "", 8000, 8000),
            ("https://chat.example.org:8443", "a.pem", nil, 8443), ("https://chat.example.org", "a.pem", 8443, 8443),
        ] as [(String, String, Int?, Int)])
    func port(publicURL: String, certificate: String, port: Int?, expected: Int) throws {
        try folder.write("not read", to: "a.pem")
        let configuration = try write(
            InitialConfiguration(publicURL: publicURL, certificate: certificate, database: "a.db", port: port))
        #expect(configuration.http.port == expected)
        if publicURL.isEmpty { #expect(configuration.http.publicURL == "http://127.0.0.1:\(expected)") }
    }

    @Test("A port that does not exist is refused", arguments: [0, -1, 65_536])
    func wrongPort(port: Int) {
        #expect(InitialConfiguration(port: port).problem == "--port \(port): must be 1 to 65535")
    }

    @Test("With an Apple key, the paths in the answers refer to the folder in which the user works")
    func apple() throws {
        try folder.write("not read", to: "keys/AuthKey_ABC123DEFG.p8")
        let configuration = try write(
            InitialConfiguration(
                database: "a.db", key: "keys/AuthKey_ABC123DEFG.p8", topic: "com.example.PushChat",
                teamID: "DEF123GHIJ"))
        let app = try #require(configuration.apps.first)
        #expect(app.key == folder.path + "/keys/AuthKey_ABC123DEFG.p8")
        #expect(
            app.topic == "com.example.PushChat" && app.gatewayKind.hasCredentials && !app.gatewayKind.isForBrowsersOnly)
        #expect(app.keyID == "ABC123DEFG")
    }

    @Test("The key's id is needed only if the name of the key's file does not contain it")
    func keyID() throws {
        try folder.write("not read", to: "push.p8")
        var answers = InitialConfiguration(
            database: "a.db", key: "push.p8", topic: "com.example.PushChat", teamID: "DEF123GHIJ")
        #expect(answers.problem?.contains("--key-id") == true)
        answers.keyID = "ABC123DEFG"
        #expect(answers.problem == nil)
        #expect(try write(answers).apps.first?.keyID == "ABC123DEFG")
    }

    @Test("The URL of PostgreSQL is in a file that only its owner can read")
    func postgres() throws {
        let url = "postgres://relay:secret@db.example.org/pushchat"
        let configuration = try write(InitialConfiguration(database: url, localFiles: "local.db"))
        #expect(configuration.database.url != nil && configuration.database.path == folder.path + "/local.db")
        #expect(try mode("database-url") == 0o600)
        let yaml = try String(contentsOfFile: folder.path + "/pushchat.yaml", encoding: .utf8)
        #expect(!yaml.contains("secret"))
    }

    @Test("No file is overwritten, and none is left if the relay would refuse the answers")
    func refused() throws {
        #expect {
            try write(InitialConfiguration(publicURL: "chat.example.org", database: "a.db"))
        } throws: {
            "\($0)".contains("http.public_url")
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
        try folder.write("mine", to: "admin.token")
        #expect {
            try write(InitialConfiguration(database: "a.db"))
        } throws: {
            "\($0)".contains("admin.token exists already")
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["admin.token"])
        #expect(try String(contentsOfFile: folder.path + "/admin.token", encoding: .utf8) == "mine")
    }

    @Test("A value with special characters arrives as it was given")
    func quoted() throws {
        let name = "a: \"b\" # \\ä.db"
        #expect(try write(InitialConfiguration(database: name)).database.path == folder.path + "/" + name)
    }

    @Test("Questions that depend on an answer are asked only then, and given answers are not asked for again")
    func questions() {
        func asked(_ answers: InitialConfiguration, _ typed: [String?]) -> (Int, InitialConfiguration, Bool) {
            var (answers, count) = (answers, 0)
            let isComplete = answers.ask(database: "standard.db") { _, _ in
                defer { count += 1 }
                return count < typed.count ? typed[count] : ""
            }
            return (count, answers, isComplete)
        }
        let (few, plain, isComplete) = asked(InitialConfiguration(), [])
        #expect(isComplete && few == 4 && plain == InitialConfiguration(database: "standard.db"))
        let all = ["https://a.example", "", "", " mailto:a@b.example ", "a.p8", "KEY", "com.example", "TEAM"]
        let (many, full, _) = asked(InitialConfiguration(), all)
        #expect(many == 8 && full.contact == "mailto:a@b.example" && full.keyID == "KEY" && full.teamID == "TEAM")
        #expect(asked(full, []).0 == 1, "only the certificate has no answer")
        let (one, ended, isEnded) = asked(InitialConfiguration(contact: "mailto:a@b.example"), [nil])
        #expect(one == 1 && ended.database.isEmpty && !isEnded)
    }

    @Test("Answers that do not belong together are named by their flags")
    func contradictions() {
        #expect(InitialConfiguration(key: "a.p8").problem?.contains("--topic") == true)
        #expect(InitialConfiguration(keyID: "ABC123DEFG").problem?.contains("--key") == true)
        #expect(InitialConfiguration(topic: "com.example").problem?.contains("--key") == true)
        #expect(InitialConfiguration(certificate: "a.pem").problem?.contains("--public-url") == true)
        #expect(InitialConfiguration().problem == nil)
    }
}
