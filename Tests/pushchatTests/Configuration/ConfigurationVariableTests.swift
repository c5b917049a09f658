import ChatDomain
import Testing

@testable import pushchat

@Suite struct ConfigurationVariableTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("Every setting of the table is read from the variable of its name")
    func everyVariable() throws {
        // A value that each kind of setting accepts.
        let values = [
            "environment": "production", "http.host": "localhost", "http.trusted_proxies": "127.0.0.1, ::1",
            "http.rate_per_address": "1/s", "http.rate_per_member": "off", "http.joins_per_address": "10/min",
            "http.public_url": "http://localhost:1", "http.gotify_at_root": "on", "http.ntfy_at_root": "on",
            "push.contact": "https://example.org",
            "webpush.hosts": "a.b, c.d:1", "database.path": "a.db",
            "database.url": "postgres://a@h1,h2/b?sslmode=require", "database.schema": "a_1",
            "database.connections": "3",
            "admin.token": "abcdefghijklmnop", "push.sound": "none", "push.expiration": "none", "log.format": "json",
            "log.level": "error", "gateway": "binary", "topic": "a.b", "host": "h", "feedback_host": "f",
            "feedback_interval": "off", "passphrase": "abc", "key_id": "A1", "team_id": "B2", "settle": "2s",
            "answer_timeout": "5s", "registration": "session",
            "session.secret": "0123456789012345678901234567890123456789", "session.audience": "a",
            "session.issuer": "b", "session.credential_lifetime": "1d",
            "command": "1", "connections": "3", "payload_limit": "256", "push.text_limit": "200",
            "messages.retention": "1h", "messages.history": "all", "queue.retention": "1h",
            "moderation.retention": "1h", "webhooks.hosts": "a.b:8123", "webhooks.retention": "2h",
            "analytics": "off", "ntfy.base_url": "https://a.b/ntfy", "ntfy.upstream": "https://c.d",
            "ntfy.upstream_token": "tk_abcdefgh", "ntfy.unifiedpush": "on", "badge": "off", "leave_out": "category",
            "android_messages": "notification", "android_channel": "chat",
            "update_channel": "quiet",
        ]
        try folder.write("x", to: "file")
        var variables: [String: String] = [:]
        func add(_ name: String, prefix: String) {
            let value = values[name] ?? (name.hasSuffix("port") ? "123" : "file")
            variables[prefix + name.uppercased().replacing(".", with: "_")] = value
        }
        for setting in SettingsTable.relay { add(setting.name, prefix: "PUSHCHAT_") }
        for setting in SettingsTable.app { add(setting.name, prefix: "PUSHCHAT_APPS_DEFAULT_") }
        let configuration = try folder.load(variables: variables)
        #expect(configuration.origins.count == SettingsTable.relay.count + SettingsTable.app.count)
        for origin in configuration.origins.values {
            guard case .variable(let name) = origin else {
                Issue.record("\(origin) is not a variable")
                continue
            }
            #expect(variables[name] != nil)
        }
        #expect(configuration.http.trustedProxies == ["127.0.0.1", "::1"])
        #expect(configuration.push.sound == nil)
        #expect(configuration.app(.default)?.certificateKey == folder.path + "/file")
    }

    @Test(
        "An unknown variable is refused with the nearest known one",
        arguments: [
            ("PUSHCHAT_HTTP_PROT", "; did you mean PUSHCHAT_HTTP_PORT?"),
            ("PUSHCHAT_PORT", "; did you mean PUSHCHAT_HTTP_PORT?"),
            ("PUSHCHAT_APPS_DEFAULT_CERTFICATE", "; did you mean PUSHCHAT_APPS_DEFAULT_CERTIFICATE?"),
            ("PUSHCHAT_APPS_DEFUALT_TOPIC", "; did you mean PUSHCHAT_APPS_DEFAULT_TOPIC?"),
            ("PUSHCHAT_APPS_DEFAULTS_TOPIC_FILE", "; did you mean PUSHCHAT_APPS_DEFAULT_TOPIC?"),
            ("PUSHCHAT_APPS_TOPIC", "; unset it"),
            ("PUSHCHAT_ADMIN_TOKENFILE", "; did you mean PUSHCHAT_ADMIN_TOKEN_FILE?"),
            ("PUSHCHAT_", "; unset it"),
        ])
    func unknown(name: String, clause: String) throws {
        let problems = try folder.problems(variables: [name: "1", "PATH": "/bin", "pushchat_http_port": "x"])
        #expect(problems == ["\(name): is not a variable that this version knows\(clause)"])
    }

    @Test(
        "The variables that Kubernetes sets for a service of our name are ignored",
        arguments: [
            ("PUSHCHAT_SERVICE_HOST", "10.0.0.1"), ("PUSHCHAT_SERVICE_PORT", "80"),
            ("PUSHCHAT_SERVICE_PORT_HTTP", "80"), ("PUSHCHAT_PORT", "tcp://10.0.0.1:80"),
            ("PUSHCHAT_PORT_80_TCP", "tcp://10.0.0.1:80"), ("PUSHCHAT_PORT_80_TCP_PROTO", "tcp"),
            ("PUSHCHAT_HTTP_PORT", "tcp://10.0.0.1:80"), ("PUSHCHAT_HTTP_SERVICE_HOST", "10.0.0.1"),
        ])
    func serviceLinks(name: String, value: String) throws {
        #expect(try folder.load(variables: [name: value]).origins.isEmpty)
    }

    @Test("An empty variable counts as not set")
    func empty() throws {
        #expect(try folder.load("http: {port: 1}", variables: ["PUSHCHAT_HTTP_PORT": ""]).http.port == 1)
    }

    @Test(
        "A variable selects the app whose name it contains",
        arguments: [
            ("apps: {com.example-chat: {}}", "PUSHCHAT_APPS_COM_EXAMPLE_CHAT_TOPIC", ["com.example-chat=t"]),
            ("apps: {news: {}}", "PUSHCHAT_APPS_NEWS_TOPIC", ["news=t"]),
            ("apps: {news: {}}", "PUSHCHAT_APPS_DEFAULT_TOPIC", ["default=t", "news="]),
            ("", "PUSHCHAT_APPS_NEWS_TOPIC", ["news=t"]),
            ("apps: {app1: {}}", "PUSHCHAT_APPS_APP2_TOPIC", ["app1=", "app2=t"]),
            ("production: {apps: {My.App: {}}}", "PUSHCHAT_APPS_MY_APP_TOPIC", ["My.App=t"]),
        ])
    func app(yaml: String, variable: String, expected: [String]) throws {
        let configuration = try folder.load(yaml, variables: [variable: "t"])
        #expect(configuration.apps.map { "\($0.name)=\($0.topic ?? "")" } == expected)
    }

    @Test("An ambiguous name selects the known app, or else the longer setting")
    func split() throws {
        try folder.write("x", to: "file")
        let variables = ["PUSHCHAT_APPS_A_CERTIFICATE": "file", "PUSHCHAT_APPS_A_CERTIFICATE_KEY": "file"]
        #expect(try folder.load("", variables: variables).apps.map(\.name.text) == ["a"])
        let other = try folder.load(
            "apps: {a_certificate: {certificate: file, key_id: K, team_id: T, topic: a.b}}",
            variables: ["PUSHCHAT_APPS_A_CERTIFICATE_KEY": "file"])
        #expect(other.apps.map(\.name.text) == ["a_certificate"])
        #expect(other.apps[0].key == folder.path + "/file")
    }

    @Test("A new app with `_` in its name has to be named in the file first")
    func newApp() throws {
        let variables = ["PUSHCHAT_APPS_MY_NEW_TOPIC": "t"]
        #expect(
            try folder.problems(variables: variables) == [
                "PUSHCHAT_APPS_MY_NEW_TOPIC: sets topic of an unknown app; add the app under apps in the "
                    + "configuration file"
            ])
        #expect(try folder.load("apps: {my-new: {}}", variables: variables).apps[0].topic == "t")
    }

    @Test("The variables of commands are no settings, but similar names are reported")
    func callers() throws {
        let variables = ["PUSHCHAT_TOKEN": "t", "PUSHCHAT_SESSION": "s"]
        #expect(try folder.load("", variables: variables).admin.tokens.isEmpty)
        #expect(try folder.problems(variables: ["PUSHCHAT_TOKENS": "t"]).count == 1)
    }

    @Test("A name that fits two apps is refused")
    func ambiguous() throws {
        let problems = try folder.problems(
            "apps: {a.b: {}, a-b: {}}", variables: ["PUSHCHAT_APPS_A_B_TOPIC": "t"])
        #expect(
            problems == [
                "PUSHCHAT_APPS_A_B_TOPIC: can mean the apps a.b and a-b; set it in the configuration file instead"
            ])
    }

    @Test("A flag names a setting by its path; an app's name may contain dots")
    func flags() throws {
        let configuration = try folder.load(flags: [
            ConfigurationFlag("apps.com.example.topic", "t", name: "--topic"),
            ConfigurationFlag("http.port", "1", name: "--port"), ConfigurationFlag("http.port", "2", name: "--port"),
        ])
        #expect(configuration.app(AppName("com.example"))?.topic == "t")
        #expect(configuration.http.port == 2)
        #expect(
            try folder.problems(flags: [ConfigurationFlag("http.prot", "1", name: "--set")])
                == ["--set: \"http.prot\" is not a setting; did you mean http.port?"])
    }
}
