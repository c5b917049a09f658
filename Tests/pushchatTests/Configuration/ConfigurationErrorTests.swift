import Foundation
import Testing

@testable import pushchat

@Suite struct ConfigurationErrorTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test(
        "An unknown key is refused with its position and the nearest known one",
        arguments: [
            ("http:\n  prot: 1", "pushchat.yaml:2:3: http.prot is not a setting; did you mean http.port?"),
            ("# a\nhtpp:\n  port: 1", "pushchat.yaml:2:1: htpp is not a setting; did you mean http?"),
            (
                "trusted_proxies: []",
                "pushchat.yaml:1:1: trusted_proxies is not a setting; did you mean http.trusted_proxies?"
            ),
            ("port: 1", "pushchat.yaml:1:1: port is not a setting; did you mean http.port?"),
            (
                "certificate_key: a",
                "pushchat.yaml:1:1: certificate_key is not a setting; did you mean apps.default.certificate_key?"
            ),
            ("http.port: 1", "pushchat.yaml:1:1: http.port is not a setting; write its parts as nested keys"),
            ("apps: {a: {keyId: x}}", "pushchat.yaml:1:12: apps.a.keyId is not a setting; did you mean apps.a.key_id?"),
            ("apps: {a: {token: x}}", "pushchat.yaml:1:12: apps.a.token is not a setting; did you mean admin.token?"),
            ("zzz: 1", "pushchat.yaml:1:1: zzz is not a setting"),
            ("prodcution: {}", "pushchat.yaml:1:1: prodcution is not a setting; did you mean production?"),
            (
                "production: {http: {prot: 1}}",
                "pushchat.yaml:1:21: http.prot is not a setting; did you mean http.port?"
            ),
            ("\"a\\nb\": 1", "pushchat.yaml:1:1: a\\nb is not a setting"),
        ])
    func unknownKey(yaml: String, expected: String) throws {
        #expect(try folder.problems(yaml) == [expected])
    }

    @Test(
        "A value that breaks its rule is refused with position, setting, value, rule and example",
        arguments: [
            ("http: {port: eighty}", "1:14: http.port is \"eighty\", but must be a whole number from 0 to 65535"),
            ("http: {port: 65536}", "1:14: http.port is \"65536\", but must be a whole number from 0 to 65535"),
            ("http: {port: -1}", "1:14: http.port is \"-1\", but must be"),
            ("http: {port: 99999999999999999999}", "1:14: http.port is \"99999999999999999999\", but must be"),
            ("http: {port: [1]}", "1:14: http.port is [1], but must be"),
            ("http: {port: {a: 1}}", "1:14: http.port is a map or a nested list, but must be a whole number"),
            ("http: {port: \"\"}", "1:14: http.port is \"\", but must be"),
            ("http: {host: \"http://a\"}", "1:14: http.host is \"http://a\", but must be an address or a host name"),
            ("http: {trusted_proxies: [a]}", "1:25: http.trusted_proxies contains \"a\", but must be a list"),
            ("http: {trusted_proxies: 10.0.0.0/33}", "1:25: http.trusted_proxies contains \"10.0.0.0/33\""),
            ("http: {rate_per_member: 5}", "1:25: http.rate_per_member is \"5\", but must be a rate"),
            ("environment: staging", "1:14: environment is \"staging\", but must be `development` or `production`"),
            ("log: {level: loud}", "1:14: log.level is \"loud\", but must be `trace`, `debug`"),
            ("log: {format: xml}", "1:15: log.format is \"xml\", but must be `text` or `json`"),
            (
                "push: {text_limit: 4001}",
                "1:20: push.text_limit is \"4001\", but must be a whole number of bytes from 1"
            ),
            ("messages: {retention: 30}", "1:23: messages.retention is \"30\", but must be a duration with its unit"),
            ("messages: {retention: 5s}", "from 1 minute to 36500 days, for example `30 days`"),
            ("push: {expiration: soon}", "for example `1 day`, or `none`"),
            ("apps: {a: {connections: 65}}", "apps.a.connections is \"65\", but must be a whole number from 1 to 64"),
            (
                "apps: {a: {settle: 61s}}",
                "apps.a.settle is \"61s\", but must be a duration with its unit from 1 second to 1 minute"
            ),
            ("apps: {a: {command: 3}}", "apps.a.command is \"3\", but must be a whole number from 0 to 2"),
            ("apps: {a: {payload_limit: 255}}", "apps.a.payload_limit is \"255\""),
            ("apps: {a: {topic: a b}}", "apps.a.topic is \"a b\", but must be a bundle id"),
            ("apps: {a: {gateway: apns}}", "apps.a.gateway is \"apns\", but must be `binary`, `http2` or `fcm`"),
            ("apps: {\"a b\": {}}", "1:8: \"a b\" cannot name an app: it must have letters, digits"),
            ("apps: [a]", "1:7: apps must be a map"),
            ("http: 44447", "1:7: http must be a map"),
            ("- a", "1:1: the file must be a map"),
            ("just words", "1:1: the file must be a map"),
            (
                "admin: {token: two words}",
                "1:16: admin.token has a value that is not shown here, but must be at least 16 characters of printable"
            ),
            ("production: {environment: development}", "1:14: environment is not allowed in the block"),
            ("production: {development: {}}", "1:14: development is not allowed in the block"),
            ("development: {http: {port: x}}", "1:28: http.port is \"x\""),
            ("production: {http: {port: x}}", "1:27: http.port is \"x\""),
        ])
    func wrongValue(yaml: String, expected: String) throws {
        let problems = try folder.problems(yaml)
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("pushchat.yaml:1:") == true)
        #expect(problems.first?.contains(expected) == true, "\(problems)")
    }

    @Test(
        "Text that is not YAML is refused with its position",
        arguments: [
            ("http:\n  port: 1\n  port: 2\n", "pushchat.yaml:2:3: \"port\" is given twice"),
            ("http:\n  port: 1\n  \"port\": 2\n", "pushchat.yaml:"),
            ("a: b: c\n", "pushchat.yaml:1:5: cannot be read as YAML: mapping values are not allowed"),
            ("http:\n\tport: 1\n", "pushchat.yaml:2:1: cannot be read as YAML:"),
            ("http: {port: 1\n", "cannot be read as YAML:"),
            ("http: *none\n", "pushchat.yaml:1:7: cannot be read as YAML: found undefined alias"),
            ("a: 1\n---\nb: 2\n", "cannot be read as YAML: but found another document"),
            ("a: \u{1}\n", "cannot be read as YAML:"),
            ("? [a]\n: 1\n", "pushchat.yaml:1:3: a key must be a word"),
            (String(repeating: "[", count: 20_000), "cannot be read as YAML:"),
        ])
    func noYAML(yaml: String, expected: String) throws {
        let problems = try folder.problems(yaml)
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("pushchat.yaml") == true)
        #expect(problems.first?.contains(expected) == true, "\(problems)")
    }

    @Test("All problems of all sources are reported at once, in the order of the sources")
    func all() throws {
        let problems = try folder.problems(
            "http: {prot: 1, host: a b}\napps: {default: {certificate: none.pem}}",
            variables: ["PUSHCHAT_HTTP_PORT": "x", "PUSHCHAT_NONE": "1"],
            flags: [ConfigurationFlag("log.level", "x", name: "--log-level")])
        let expected = [
            "pushchat.yaml:1:8: http.prot", "PUSHCHAT_NONE: is not a variable", "pushchat.yaml:1:23: http.host",
            "PUSHCHAT_HTTP_PORT: http.port is \"x\"", "--log-level: log.level is \"x\"",
            "pushchat.yaml:2:31: apps.default.certificate names \(folder.path)/none.pem, which does not exist",
        ]
        #expect(problems.count == expected.count)
        for (problem, expected) in zip(problems, expected) { #expect(problem.hasPrefix(expected)) }
    }

    @Test("An error at the end of the file names its last line", arguments: ["", "\n", "\n\n\n"])
    func unfinished(end: String) throws {
        let problems = try folder.problems("environment: development\nhttp: {port: 1" + end)
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("pushchat.yaml:2: cannot be read as YAML: ") == true, "\(problems)")
    }

    @Test("The error's text has a line for each problem")
    func text() throws {
        let error = #expect(throws: ConfigurationError.self) { try folder.load("a: 1\nb: 2") }
        #expect(error?.description == "pushchat.yaml:1:1: a is not a setting\npushchat.yaml:2:1: b is not a setting")
    }

    @Test("A file that was named and cannot be read is refused")
    func unreadableFile() throws {
        #expect(
            try folder.problems(file: "none.yaml") == [
                "none.yaml: the configuration file is \(folder.path)/none.yaml, which does not exist; correct it, or name "
                    + "another file"
            ])
        #expect(try folder.problems(file: ".").first?.contains("which is not a regular file") == true)
        try folder.write([0x61, 0xFF], to: "bytes.yaml")
        #expect(try folder.problems(file: "bytes.yaml").first?.contains("which is not UTF-8") == true)
        let tooLarge = String(repeating: "#", count: SettingLimits.file + 1)
        #expect(try folder.problems(tooLarge).first?.contains("which has more than 262144 bytes") == true)
        #expect(try folder.problems(String(tooLarge.dropLast())).isEmpty)
    }

    @Test("A pipe instead of a file is refused without waiting for a writer")
    func pipe() throws {
        #expect(mkfifo(folder.path + "/pipe", 0o600) == 0)
        #expect(try folder.problems(file: "pipe").first?.contains("which is not a regular file") == true)
    }

    @Test("A file that a setting names must exist and not be empty")
    func namedFiles() throws {
        try folder.write("", to: "empty.pem")
        for setting in ["certificate", "trust"] {
            let missing = try folder.problems("apps: {default: {\(setting): none.pem}}")
            #expect(missing.count == 1)
            #expect(
                missing.first?.contains("apps.default.\(setting) names \(folder.path)/none.pem, which does not") == true
            )
            let variable = "PUSHCHAT_APPS_DEFAULT_\(setting.uppercased())"
            let empty = try folder.problems("", variables: [variable: "empty.pem"])
            #expect(empty.count == 1)
            #expect(empty.first?.hasPrefix("\(variable): ") == true)
            #expect(empty.first?.contains("which is empty") == true)
        }
    }

    @Test("A file whose setting is overridden need not exist")
    func overriddenFile() throws {
        try folder.write("x", to: "a.pem")
        #expect(
            try folder.problems(
                "apps: {default: {certificate: none.pem}}", variables: ["PUSHCHAT_APPS_DEFAULT_CERTIFICATE": "a.pem"]
            ).isEmpty)
    }

    @Test(
        "Contradictory settings are refused",
        arguments: [
            ("http: {key: a.pem}", "pushchat.yaml:1:13: http.key requires http.certificate"),
            ("registration: session", "pushchat.yaml:1:15: registration is session, which requires session.secret"),
            ("apps: {a: {certificate_key: a.pem}}", "pushchat.yaml:1:29: apps.a.certificate_key requires certificate"),
        ])
    func together(yaml: String, expected: String) throws {
        try folder.write("x", to: "a.pem")
        let problems = try folder.problems(yaml)
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix(expected) == true)
    }

    @Test("A missing certificate is not reported a second time by what depends on it")
    func consequences() throws {
        try folder.write("x", to: "a.pem")
        let problems = try folder.problems("http: {certificate: none.pem, key: a.pem}")
        #expect(problems.count == 1)
        #expect(problems.first?.contains("http.certificate names") == true)
    }

    @Test("The key may be in the certificate's file")
    func oneFile() throws {
        try folder.write("x", to: "a.pem")
        let tls = try #require(try folder.load("http: {certificate: a.pem}").http.tls)
        #expect(tls == (folder.path + "/a.pem", folder.path + "/a.pem"))
    }

    @Test("A provider token key needs its id, its team and a topic, and the gateway http2")
    func tokenKey() throws {
        try folder.write("x", to: "a.p8")
        try folder.write("x", to: "AuthKey_ABC123DEFG.p8")
        func problem(_ app: String) throws -> String {
            let problems = try folder.problems("apps: {default: {\(app)}}")
            #expect(problems.count <= 1)
            return problems.first ?? ""
        }
        #expect(try problem("key: a.p8, team_id: T, topic: a.b").contains("default.key requires key_id"))
        #expect(try problem("key: AuthKey_ABC123DEFG.p8, topic: a.b").contains("key requires team_id"))
        #expect(try problem("key: a.p8, key_id: K, team_id: T").contains("key requires topic"))
        #expect(try problem("gateway: binary, key: a.p8").contains("default.key is a provider token key (.p8)"))
        #expect(try problem("key: a.p8, key_id: \"-\"").contains("key_id"))
        #expect(try problem("key: AuthKey_ABC123DEFG.p8, team_id: T, topic: a.b") == "")
        #expect(try problem("gateway: binary, key: a.p8, certificate: a.p8") == "")
        let forApple = "is for Apple's gateways; `fcm` requires service_account"
        #expect(try problem("gateway: fcm, key: a.p8, certificate: a.p8").hasSuffix("default.key \(forApple)"))
        #expect(try problem("gateway: fcm, certificate: a.p8").hasSuffix("default.certificate \(forApple)"))
        #expect(try problem("gateway: fcm, service_account: a.p8, key: a.p8") == "")
        let forGoogle = "default.service_account is for Google's gateway; set `gateway: fcm`"
        #expect(try problem("service_account: a.p8").hasSuffix(forGoogle))
        #expect(try problem("gateway: binary, service_account: a.p8").hasSuffix(forGoogle))
        #expect(try problem("gateway: binary, service_account: a.p8, key: a.p8").contains("default.key is a provider"))
        #expect(try problem("service_account: a.p8, certificate: a.p8") == "")
        let key = try folder.problems("", variables: ["PUSHCHAT_APPS_DEFAULT_KEY": "a.p8"])
        #expect(key.first?.hasPrefix("PUSHCHAT_APPS_DEFAULT_KEY: apps.default.key requires key_id") == true)
    }

    @Test("The key's id is taken from the file's name, unless it is set")
    func keyID() throws {
        try folder.write("x", to: "AuthKey_ABC123DEFG.p8")
        let app = "key: AuthKey_ABC123DEFG.p8, team_id: T, topic: a.b"
        #expect(try folder.load("apps: {default: {\(app)}}").app(.default)?.keyID == "ABC123DEFG")
        #expect(try folder.load("apps: {default: {\(app), key_id: OTHER}}").app(.default)?.keyID == "OTHER")
        #expect(AppConfiguration.keyID(ofFile: "/k/AuthKey_SANDBOX.p8") == nil)
    }

    @Test("The number of apps is limited")
    func apps() throws {
        func yaml(_ count: Int) -> String {
            "apps: {" + (1...count).map { "a\($0): {}" }.joined(separator: ", ") + "}"
        }
        #expect(try folder.problems(yaml(SettingLimits.apps)).isEmpty)
        #expect(try folder.problems(yaml(SettingLimits.apps + 1)).first?.contains("at most 100") == true)
    }
}
