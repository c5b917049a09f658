import ChatDomain
import Testing

@testable import pushchat

@Suite struct ConfigurationLoadTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("Without any source the defaults of docs/configuration.md apply, for development")
    func defaults() throws {
        let configuration = try folder.load()
        #expect(configuration.environment == .development)
        #expect(configuration.http == .init(host: "127.0.0.1"))
        #expect(configuration.http.port == 44447)
        #expect(configuration.http.tls == nil)
        #expect(configuration.database.path == folder.path + "/pushchat.db")
        #expect(configuration.admin.tokens.isEmpty)
        #expect(configuration.push == .init(sound: "default", expiration: nil))
        #expect(configuration.server.textLimit == 1000)
        #expect(configuration.messages == .init(retention: .seconds(30 * 86_400), history: .joined))
        #expect(configuration.queue.retention == .seconds(7 * 86_400))
        #expect(configuration.moderation.retention == .seconds(365 * 86_400))
        #expect(configuration.log == .init(format: .text, level: .info))
        #expect(configuration.apps == [AppConfiguration(name: .default, environment: .development)])
        #expect(configuration.defaultApp == .default)
        #expect(configuration.file == nil)
        #expect(configuration.origins.isEmpty)
    }

    @Test(
        "A text may have 1,000 bytes, or 190 if an app uses the binary protocol, unless the limit is set",
        arguments: [
            ("", 1000), ("apps: {a: {gateway: http2}, b: {gateway: http2}}", 1000),
            ("apps: {a: {gateway: http2}, b: {gateway: binary}}", 190),
            ("push: {text_limit: 300}\napps: {default: {gateway: binary}}", 300), ("push: {text_limit: 190}", 190),
        ])
    func textLimit(yaml: String, limit: Int) throws {
        #expect(try folder.load(yaml).server.textLimit == limit)
    }

    @Test("An app's defaults are Apple's for the environment", arguments: Configuration.Environment.allCases)
    func appDefaults(environment: Configuration.Environment) throws {
        let app = try #require(try folder.load("environment: \(environment)").app(.default))
        let part = environment == .development ? ".sandbox" : ""
        #expect(app.gateway == .http2)
        #expect(app.host == "api\(part).push.apple.com")
        #expect(app.port == 443)
        #expect(app.broadcastHost == "api\(part).push.apple.com")
        #expect(app.channelsHost == "api-manage-broadcast\(part).push.apple.com")
        #expect(app.channelsPort == (environment == .development ? 2195 : 2196))
        #expect(app.feedbackHost == "feedback\(part).push.apple.com")
        #expect(app.feedbackPort == 2196)
        #expect(app.feedbackInterval == .seconds(3600))
        #expect(app.connections == 2)
        #expect(app.payloadLimit == 4096)
        #expect(app.command == 2)
        #expect(app.settleTime == .seconds(5))
        #expect(app.answerTimeout == .seconds(30))
        #expect(!app.gatewayKind.hasCredentials)
    }

    @Test("The binary gateway has other defaults", arguments: Configuration.Environment.allCases)
    func binaryDefaults(environment: Configuration.Environment) throws {
        let yaml = "environment: \(environment)\napps: {default: {gateway: binary}}"
        let app = try #require(try folder.load(yaml).app(.default))
        let part = environment == .development ? ".sandbox" : ""
        #expect(app.host == "gateway\(part).push.apple.com")
        #expect(app.port == 2195)
        #expect(app.payloadLimit == 2048)
    }

    @Test("Production listens on all addresses and limits rates; development does neither")
    func production() throws {
        let http = try folder.load("environment: production").http
        #expect(http.host == "0.0.0.0")
        #expect(http.ratePerAddress == RequestRate(count: 50, unit: .second, burst: 500))
        #expect(http.ratePerMember == RequestRate(count: 5, unit: .second, burst: 50))
        let development = try folder.load("environment: development").http
        #expect(development.ratePerAddress == nil && development.ratePerMember == nil)
    }

    @Test("Every setting can be read from the file")
    func everySetting() throws {
        for name in ["tls.pem", "tls.key", "app.pem", "app.key", "app.p8", "ca.pem"] {
            try folder.write("x", to: name)
        }
        let configuration = try folder.load(
            """
            environment: production
            http:
              host: "::1"
              port: 0
              certificate: tls.pem
              key: tls.key
              trusted_proxies: [127.0.0.1, 10.0.0.0/8, "fd00::/8"]
              rate_per_address: 600/min burst 100
              rate_per_member: off
              joins_per_address: 10/h
              public_url: https://chat.example.org/
              ntfy_at_root: on
              gotify_at_root: on
            database:
              path: data/chat.db
              url: postgres://relay@a,b/pushchat?sslmode=require
              schema: pushchat
              connections: 16
            admin:
              token: 1234567812345678
            push:
              sound: beep.caf
              text_limit: 4000
              expiration: 1 day
              contact: mailto:you@example.org
            webpush:
              hosts: [up.example.org, "127.0.0.1:2199"]
              trust: ca.pem
            registration: session
            session:
              secret: 0123456789abcdef0123456789abcdef
              key: app.key
              jwks: app.key
              audience: pushchat
              issuer: https://example.com
              credential_lifetime: 2 weeks
            ntfy:
              base_url: https://chat.example.org/ntfy/
              upstream: https://ntfy.sh
              upstream_token: tk_0123456789
              unifiedpush: on
            messages: {retention: 2 weeks, history: all}
            queue: {retention: 36h}
            moderation: {retention: 90 days}
            webhooks: {hosts: ["a.b:8123", "10.0.0.7"], retention: 2 days}
            analytics: off
            log: {format: json, level: debug}
            apps:
              default:
                gateway: binary
                topic: com.example.PushChat
                host: localhost
                port: 1
                broadcast_host: 127.0.0.3
                channels_host: 127.0.0.2
                channels_port: 3
                feedback_host: 127.0.0.1
                feedback_port: 2
                feedback_interval: off
                certificate: app.pem
                certificate_key: app.key
                passphrase: "pass: phrase"
                key: app.p8
                key_id: ABC123DEFG
                team_id: DEF123GHIJ
                trust: ca.pem
                connections: 64
                payload_limit: 256
                command: 0
                settle: 60s
                answer_timeout: 2s
                badge: off
                leave_out: [category, relevance-score]
                service_account: app.key
                android_messages: notification
                android_channel: chat
                update_channel: quiet
            """)
        var http = Configuration.HTTP(host: "::1")
        http.port = 0
        http.certificate = folder.path + "/tls.pem"
        http.key = folder.path + "/tls.key"
        http.trustedProxies = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"]
        http.ratePerAddress = RequestRate(count: 600, unit: .minute, burst: 100)
        http.joinsPerAddress = RequestRate(count: 10, unit: .hour, burst: 10)
        http.publicURL = "https://chat.example.org"
        #expect(configuration.http == http && http.secureURL == http.publicURL)
        #expect(
            configuration.database
                == .init(
                    path: folder.path + "/data/chat.db",
                    url: Secret("postgres://relay@a,b/pushchat?sslmode=require"), schema: "pushchat", connections: 16))
        #expect(configuration.database.description == "postgres://a,b/pushchat (schema pushchat)")
        for (url, place) in [
            ("postgres://relay:se?cret@db/chat?sslmode=require", "postgres://db/chat"),
            ("postgres://relay:secret\u{600}@db/chat", "postgres://db/chat"),
            ("postgresql://relay:secret@/chat", "postgresql:///chat"),
            ("postgres://relay:sec/ret@db/chat", "PostgreSQL"), ("postgres://db?password=sec/ret", "postgres://db"),
            ("postgres://db/chat?password=se@cret", "PostgreSQL"),
        ] {
            #expect(Configuration.Database(url: Secret(url)).description == place)
        }
        #expect(configuration.admin.tokens == [Secret("1234567812345678")])
        #expect(
            configuration.push
                == .init(
                    sound: "beep.caf", expiration: .seconds(86_400), contact: "mailto:you@example.org"))
        #expect(configuration.server.textLimit == 4000)
        #expect(
            configuration.webPush == .init(hosts: ["up.example.org", "127.0.0.1:2199"], trust: folder.path + "/ca.pem"))
        #expect(configuration.registration == .session)
        #expect(
            configuration.session
                == .init(
                    secret: Secret("0123456789abcdef0123456789abcdef"), key: folder.path + "/app.key",
                    keySet: folder.path + "/app.key", audience: "pushchat", issuer: "https://example.com",
                    credentialLifetime: .seconds(14 * 86_400)))
        #expect(
            configuration.ntfy
                == .init(
                    baseURL: "https://chat.example.org/ntfy", upstream: "https://ntfy.sh",
                    upstreamToken: Secret("tk_0123456789"), unifiedPush: .on))
        #expect(configuration.messages == .init(retention: .seconds(14 * 86_400), history: .all))
        #expect(configuration.queue.retention == .seconds(36 * 3600))
        #expect(configuration.moderation.retention == .seconds(90 * 86_400))
        #expect(configuration.webhooks == .init(hosts: ["a.b:8123", "10.0.0.7"], retention: .seconds(2 * 86_400)))
        #expect(configuration.analytics == .off)
        #expect(configuration.log == .init(format: .json, level: .debug))

        var app = AppConfiguration(name: .default, environment: .production, gateway: .binary)
        app.answerTimeout = .seconds(2)
        app.topic = "com.example.PushChat"
        (app.host, app.port, app.feedbackHost, app.feedbackPort) = ("localhost", 1, "127.0.0.1", 2)
        (app.broadcastHost, app.channelsHost, app.channelsPort) = ("127.0.0.3", "127.0.0.2", 3)
        app.feedbackInterval = nil
        app.certificate = folder.path + "/app.pem"
        app.certificateKey = folder.path + "/app.key"
        app.passphrase = Secret("pass: phrase")
        app.key = folder.path + "/app.p8"
        (app.keyID, app.teamID) = ("ABC123DEFG", "DEF123GHIJ")
        app.trust = folder.path + "/ca.pem"
        (app.connections, app.payloadLimit, app.command, app.settleTime) = (64, 256, 0, .seconds(60))
        app.badge = false
        app.leftOut = ["category", "relevance-score"]
        app.serviceAccount = folder.path + "/app.key"
        (app.androidMessages, app.androidChannel) = (.notification, "chat")
        app.updateChannel = "quiet"
        #expect(configuration.apps == [app])
        #expect(configuration.app(.default)?.gatewayKind.hasCredentials == true)
        // Add each new row of the table here.
        let settings = SettingsTable.relay.map { SettingKey(name: $0.name) }
        let appSettings = SettingsTable.app.map { SettingKey(app: .default, name: $0.name) }
        #expect(Set(configuration.origins.keys) == Set(settings + appSettings))
    }

    @Test(
        "The address for ntfy's apps is below the public one by default, and never ends with a slash",
        arguments: [
            ("http: {public_url: https://a.b/chat/}", "https://a.b/chat/ntfy"),
            ("http: {public_url: https://a.b}", "https://a.b/ntfy"), ("", nil),
            ("http: {public_url: https://a.b}\nntfy: {base_url: 'http://10.0.0.1:8080//'}", "http://10.0.0.1:8080"),
            ("ntfy: {upstream: off}", nil),
        ])
    func ntfyBaseURL(yaml: String, expected: String?) throws {
        let configuration = try folder.load(yaml)
        #expect(configuration.ntfyBaseURL == expected)
        #expect(configuration.ntfy.upstream == nil)
    }

    @Test("An upstream server of ntfy requires an address that can be hashed")
    func upstream() throws {
        let problems = try folder.problems("ntfy: {upstream: https://ntfy.sh}")
        #expect(problems.count == 1 && problems[0].contains("ntfy.upstream requires ntfy.base_url or http.public_url"))
        let wrong = ["ntfy.sh", "ftp://a.b", "https://u@a.b", "https://a.b/?a=b", "https://", "https://a.b/#b"]
        for url in wrong {
            #expect(try folder.problems("ntfy: {base_url: '\(url)'}").count == 1)
        }
    }

    @Test(
        "An empty file, one of comments, and sections without content change nothing",
        arguments: ["", "# nothing\n", "---\n", "~", "http:\napps:\n", "apps:\n  default:\n", "production:\n"])
    func emptyFile(yaml: String) throws {
        let configuration = try folder.load(yaml)
        #expect(configuration.origins.isEmpty)
        #expect(configuration.apps.map(\.name) == [.default])
        #expect(configuration.file == folder.path + "/pushchat.yaml")
    }

    @Test("The block of the environment overrides the top level; the other block has no effect")
    func blocks() throws {
        let yaml = """
            environment: production
            http: {port: 1, host: "192.0.2.1"}
            apps: {default: {topic: top, connections: 3}}
            development:
              http: {port: 2}
              apps: {default: {certificate: missing.pem}, news: {topic: other}}
            production:
              http: {port: 3, host: }
              apps: {default: {topic: block}, mail: {topic: mail}}
            """
        let configuration = try folder.load(yaml)
        #expect(configuration.http.port == 3)
        #expect(configuration.http.host == "0.0.0.0", "an empty value brings the default back")
        #expect(configuration.apps.map(\.name.text) == ["default", "mail"])
        #expect(configuration.app(.default)?.topic == "block")
        #expect(configuration.app(.default)?.connections == 3)
        let other = try folder.problems(yaml, variables: ["PUSHCHAT_ENVIRONMENT": "development"])
        #expect(other.count == 1 && other[0].contains("apps.default.certificate"))
    }

    @Test("Each source overrides those before it: default, file, block, variable, flag", arguments: 0...4)
    func precedence(sources: Int) throws {
        var yaml = ""
        if sources >= 1 { yaml += "http: {port: 1}\n" }
        if sources >= 2 { yaml += "development: {http: {port: 2}}\n" }
        let configuration = try folder.load(
            yaml, variables: sources >= 3 ? ["PUSHCHAT_HTTP_PORT": "3"] : [:],
            flags: sources >= 4 ? [ConfigurationFlag("http.port", "4", name: "--port")] : [])
        #expect(configuration.http.port == (sources == 0 ? 44447 : sources))
        let origins: [SettingOrigin?] = [
            nil, .file("pushchat.yaml", line: 1, column: 14), .file("pushchat.yaml", line: 2, column: 28),
            .variable("PUSHCHAT_HTTP_PORT"), .flag("--port"),
        ]
        #expect(configuration.origins[SettingKey(name: "http.port")] == origins[sources])
    }

    @Test("An empty value in the block restores the default, not the value of the top level")
    func reset() throws {
        let configuration = try folder.load("push: {sound: a.caf}\ndevelopment: {push: {sound: ~}}")
        #expect(configuration.push.sound == "default")
        #expect(configuration.origins.isEmpty)
    }

    @Test(
        "The first source that has the environment sets it: flag, variable, file, the tutorial's variable",
        arguments: [
            ("production", "development", "development", "development", .production),
            (nil, "production", "development", "development", .production),
            (nil, "", "production", "development", .production),
            (nil, nil, nil, "production", .production),
            (nil, nil, nil, nil, .development),
        ] as [(String?, String?, String?, String?, Configuration.Environment)])
    func environment(
        flag: String?, variable: String?, file: String?, tutorial: String?, expected: Configuration.Environment
    ) throws {
        var variables: [String: String] = [:]
        variables["PUSHCHAT_ENVIRONMENT"] = variable
        variables["APPLICATION_ENV"] = tutorial
        let configuration = try folder.load(
            file.map { "environment: \($0)" } ?? "", variables: variables,
            flags: flag.map { [ConfigurationFlag("environment", $0, name: "--environment")] } ?? [])
        #expect(configuration.environment == expected)
        #expect(configuration.app(.default)?.host.contains("sandbox") == (expected == .development))
    }

    @Test("The tutorial's variable with a word of another program is refused only if it would take effect")
    func foreignEnvironment() throws {
        let problems = try folder.problems(variables: ["APPLICATION_ENV": "staging"])
        #expect(problems.count == 1)
        #expect(problems.first?.hasPrefix("APPLICATION_ENV: ") == true)
        #expect(problems.first?.contains("PUSHCHAT_ENVIRONMENT") == true)
        #expect(
            try folder.problems(
                variables: ["APPLICATION_ENV": "staging", "PUSHCHAT_ENVIRONMENT": "production"]
            ).isEmpty)
    }

    @Test("The named file is read, or else the first file of the search path")
    func search() throws {
        let named = try folder.write("http: {port: 1}", to: "other/named.yaml")
        #expect(try folder.load("http: {port: 2}", file: "other/named.yaml").http.port == 1)
        #expect(try folder.load(file: named).file == named)
        #expect(try folder.load().http.port == 2)
        let sources = ConfigurationSources(
            variables: [:], workingDirectory: folder.path, searched: ["none.yaml", named, "pushchat.yaml"])
        #expect(try Configuration.load(sources).http.port == 1)
        #expect(ConfigurationSources.searched == ["pushchat.yaml", "/etc/pushchat/pushchat.yaml"])
    }

    @Test("Paths in a file start at the file's folder, those of variables and flags at the working directory")
    func relativePaths() throws {
        for name in ["etc/a.pem", "a.pem"] { try folder.write("x", to: name) }
        try folder.write("apps: {default: {certificate: ./a.pem}}", to: "etc/pushchat.yaml")
        let key = SettingKey(app: .default, name: "certificate").description
        #expect(
            try folder.load(file: "etc/pushchat.yaml").app(.default)?.certificate == folder.path + "/etc/a.pem")
        #expect(
            try folder.load(
                variables: ["PUSHCHAT_APPS_DEFAULT_CERTIFICATE": "a.pem"], file: "etc/pushchat.yaml"
            ).app(.default)?.certificate == folder.path + "/a.pem")
        #expect(
            try folder.load(
                flags: [ConfigurationFlag(key, "a.pem", name: "--certificate")], file: "etc/pushchat.yaml"
            ).app(.default)?.certificate == folder.path + "/a.pem")
        #expect(
            try folder.load(flags: [ConfigurationFlag("database.path", "/var/lib/x.db", name: "--database")])
                .database.path == "/var/lib/x.db")
    }

    @Test("The feedback service is on the configured gateway's host, not at Apple")
    func feedbackHost() throws {
        let configuration = try folder.load("apps: {default: {host: localhost}, b: {host: x, feedback_host: y}}")
        #expect(configuration.apps.map(\.feedbackHost) == ["localhost", "y"])
    }

    @Test(
        "Members without an appid belong to the app `default`, or else to the first of the file",
        arguments: [
            ("apps: {b: {}, a: {}}", "b"), ("apps: {b: {}, default: {}}", "default"), ("", "default"),
            ("apps: {98Z3R5XU29.com.51work6.PushChat: }", "98Z3R5XU29.com.51work6.PushChat"),
        ])
    func defaultApp(yaml: String, expected: String) throws {
        #expect(try folder.load(yaml).defaultApp.text == expected)
    }

    @Test("Anchors and aliases of YAML work")
    func aliases() throws {
        let configuration = try folder.load("apps:\n  a: &x {topic: t}\n  b: *x\n")
        #expect(configuration.apps.map(\.topic) == ["t", "t"])
    }
}
