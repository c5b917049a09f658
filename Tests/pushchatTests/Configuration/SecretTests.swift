import ChatDomain
import Testing

@testable import pushchat

@Suite struct SecretTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("A secret can be given as a file, in every source", arguments: ["file", "variable", "flag"])
    func asFile(source: String) throws {
        try folder.write("s3cret\n", to: "token")
        let configuration =
            switch source {
            case "file": try folder.load("admin: {token_file: token}")
            case "variable": try folder.load(variables: ["PUSHCHAT_ADMIN_TOKEN_FILE": "token"])
            default: try folder.load(flags: [ConfigurationFlag("admin.token_file", "token", name: "--token-file")])
            }
        #expect(configuration.admin.token?.text == "s3cret")
    }

    @Test("An app's passphrase too")
    func passphrase() throws {
        try folder.write("two words", to: "p")
        #expect(
            try folder.load("apps: {a: {passphrase_file: p}}").apps[0].passphrase?.text == "two words")
        #expect(
            try folder.load("apps: {a: {}}", variables: ["PUSHCHAT_APPS_A_PASSPHRASE_FILE": "p"]).apps[0].passphrase?
                .text == "two words")
    }

    @Test(
        "One line break at the end is not part of it",
        arguments: [("a b\n", "a b"), ("a b\r\n", "a b"), ("a b", "a b"), (" a ", " a "), ("", "")])
    func lineBreak(contents: String, expected: String) throws {
        try folder.write(contents, to: "p")
        #expect(try folder.load("apps: {a: {passphrase_file: p}}").apps[0].passphrase?.text == expected)
    }

    @Test("Given as itself and as a file in one source, it is refused")
    func both() throws {
        try folder.write("s", to: "token")
        #expect(
            try folder.problems("admin:\n  token: s\n  token_file: token\n") == [
                "pushchat.yaml:3:15: admin.token is given as itself (pushchat.yaml:2) and as a file (pushchat.yaml:3); "
                    + "remove one of them"
            ])
        #expect(
            try folder.problems(
                "", variables: ["PUSHCHAT_ADMIN_TOKEN": "s", "PUSHCHAT_ADMIN_TOKEN_FILE": "token"]
            ).count == 1)
    }

    @Test("A later source overrides an earlier one, whichever form they use")
    func override() throws {
        try folder.write("new", to: "token")
        let configuration = try folder.load(
            "admin: {token: old}", variables: ["PUSHCHAT_ADMIN_TOKEN_FILE": "token"])
        #expect(configuration.admin.token?.text == "new")
        #expect(
            try folder.load("admin: {token_file: none}", variables: ["PUSHCHAT_ADMIN_TOKEN": "new"]).admin.token?.text
                == "new")
    }

    @Test("A file with a secret must be there, and be right", arguments: ["none", "empty", "large", "bytes"])
    func wrongFile(name: String) throws {
        try folder.write("\n", to: "empty")
        try folder.write(String(repeating: "x", count: SettingLimits.secretFile + 1), to: "large")
        try folder.write([0xFF], to: "bytes")
        let problems = try folder.problems("admin: {token_file: \(name)}")
        let expected = [
            "none": "which does not exist", "empty": "but must be printable ASCII", "large": "more than 4096 bytes",
            "bytes": "not UTF-8",
        ]
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("pushchat.yaml:1:21: admin.token ") == true)
        #expect(problems.first?.contains(expected[name] ?? "?") == true)
    }

    @Test("No error, report or dump shows it")
    func hidden() throws {
        let configuration = try folder.load(
            "admin: {token: geheim}\napps: {a: {passphrase: geheim}}")
        #expect(configuration.admin.token?.text == "geheim")
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
