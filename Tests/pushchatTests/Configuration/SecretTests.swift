import ChatDomain
import Testing

@testable import pushchat

@Suite struct SecretTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("A secret can be given as a file, in every source", arguments: ["file", "variable", "flag"])
    func asFile(source: String) throws {
        try folder.write("s3cret-of-16-byte\n", to: "token")
        let configuration =
            switch source {
            case "file": try folder.load("admin: {token_file: token}")
            case "variable": try folder.load(variables: ["PUSHCHAT_ADMIN_TOKEN_FILE": "token"])
            default: try folder.load(flags: [ConfigurationFlag("admin.token_file", "token", name: "--token-file")])
            }
        #expect(configuration.admin.tokens.map(\.text) == ["s3cret-of-16-byte"])
    }

    @Test("Secrets in the configuration file itself are reported, even if another source overrides them")
    func inFile() throws {
        try folder.write("s3cret-of-16-byte\n", to: "token")
        let yaml = "admin: {token_file: token}\nproduction: {session: {secret: \(String(repeating: "x", count: 32))}}"
        #expect(try folder.load(yaml).secretsInFile.map(\.description) == ["session.secret"])
        let configuration = try folder.load(
            "admin: {token: the-old-token-16b}\napps: {a: {passphrase: p}}",
            variables: ["PUSHCHAT_ADMIN_TOKEN": "the-new-token-16b"])
        #expect(
            configuration.secretsInFile.map(\.description) == ["admin.token", "apps.a.passphrase"])
    }

    @Test("An app's passphrase can be given as a file")
    func passphrase() throws {
        try folder.write("two words", to: "p")
        #expect(
            try folder.load("apps: {a: {passphrase_file: p}}").apps[0].passphrase?.text == "two words")
        #expect(
            try folder.load("apps: {a: {}}", variables: ["PUSHCHAT_APPS_A_PASSPHRASE_FILE": "p"]).apps[0].passphrase?
                .text == "two words")
    }

    @Test(
        "One line break at the end is not part of a secret",
        arguments: [("a b\n", "a b"), ("a b\r\n", "a b"), ("a b", "a b"), (" a ", " a "), ("", "")])
    func lineBreak(contents: String, expected: String) throws {
        try folder.write(contents, to: "p")
        #expect(try folder.load("apps: {a: {passphrase_file: p}}").apps[0].passphrase?.text == expected)
    }

    @Test("A secret that one source gives directly and as a file is refused")
    func both() throws {
        try folder.write("a-token-with-16-b", to: "token")
        #expect(
            try folder.problems("admin:\n  token: a-token-with-16-b\n  token_file: token\n") == [
                "pushchat.yaml:3:15: admin.token is given directly (pushchat.yaml:2) and as a file (pushchat.yaml:3); "
                    + "remove one of them"
            ])
        #expect(
            try folder.problems(
                "", variables: ["PUSHCHAT_ADMIN_TOKEN": "a-token-with-16-b", "PUSHCHAT_ADMIN_TOKEN_FILE": "token"]
            ).count == 1)
    }

    @Test("A later source overrides an earlier one, whatever form they use")
    func override() throws {
        try folder.write("the-new-token-16b", to: "token")
        let configuration = try folder.load(
            "admin: {token: the-old-token-16b}", variables: ["PUSHCHAT_ADMIN_TOKEN_FILE": "token"])
        #expect(configuration.admin.tokens.map(\.text) == ["the-new-token-16b"])
        #expect(
            try folder.load("admin: {token_file: none}", variables: ["PUSHCHAT_ADMIN_TOKEN": "the-new-token-16b"]).admin
                .tokens.map(\.text) == ["the-new-token-16b"])
    }

    @Test("A file with a secret must exist and be valid", arguments: ["none", "empty", "large", "bytes"])
    func wrongFile(name: String) throws {
        try folder.write("\n", to: "empty")
        try folder.write(String(repeating: "x", count: SettingLimits.secretFile + 1), to: "large")
        try folder.write([0xFF], to: "bytes")
        let problems = try folder.problems("admin: {token_file: \(name)}")
        let expected = [
            "none": "which does not exist", "empty": "but must be at least 16 characters of printable ASCII",
            "large": "more than 4096 bytes",
            "bytes": "not UTF-8",
        ]
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("pushchat.yaml:1:21: admin.token ") == true)
        #expect(problems.first?.contains(expected[name] ?? "?") == true)
    }

    @Test("Several administrator's tokens are a list, or a text separated by blanks or line breaks")
    func tokens() throws {
        let (old, new) = ("the-old-token-16b", "the-new-token-16b")
        try folder.write("\(old)\r\n\(new)\n", to: "token")
        for configuration in [
            try folder.load("admin: {token: [\(old), \(new)]}"), try folder.load("admin: {token: \(old) \(new)}"),
            try folder.load("admin: {token_file: token}"),
            try folder.load("", variables: ["PUSHCHAT_ADMIN_TOKEN": "\(old) \(new)"]),
            try folder.load(flags: [ConfigurationFlag("admin.token", "\(old) \(new)", name: "--set")]),
        ] {
            #expect(configuration.admin.tokens.map(\.text) == [old, new])
        }
        #expect(try folder.load("admin: {token: }").admin.tokens.isEmpty)
    }

    @Test(
        "An administrator's token that can be guessed is refused, whatever other tokens there are",
        arguments: [
            "fifteen-letters", "[long-enough-for-all, fifteen-letters]", "[]", "''", "['']", "0123456789abcdé",
            "[a-token-with-16-b, 'a-token with 16-b']",
            "[\(Array(repeating: "a-token-with-16-b", count: 9).joined(separator: ", "))]",
        ])
    func weakToken(text: String) throws {
        let problems = try folder.problems("admin: {token: \(text)}")
        #expect(problems.count == 1)
        #expect(
            problems.first?.contains("admin.token has a value that is not shown here, but must be at least 16 char")
                == true)
    }

    @Test("No error, report or dump shows a secret")
    func hidden() throws {
        let configuration = try folder.load(
            "admin: {token: [geheimgeheimgeheim, geheim0123456789]}\napps: {a: {passphrase: geheim}}")
        #expect(configuration.admin.tokens.map(\.text) == ["geheimgeheimgeheim", "geheim0123456789"])
        var dumped = ""
        dump(configuration, to: &dumped)
        let texts = [
            dumped, "\(configuration)", String(reflecting: configuration),
            "\(configuration.describe().map(\.row))", "\(configuration.describe().map(\.json))",
            try folder.problems("admin: {token: geheim geheim}").joined(),
            try folder.problems("admin: {token: [geheim]}").joined(),
            try folder.problems("admin: {token: {geheim: 1}}").joined(),
        ]
        for text in texts {
            #expect(!text.contains("geheim"))
            #expect(!text.isEmpty)
        }
        #expect(configuration.describe().filter { $0.value == "(secret)" }.count == 2)
    }
}
