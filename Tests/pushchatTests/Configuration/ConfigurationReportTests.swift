import ChatDomain
import Foundation
import Testing

@testable import pushchat

@Suite struct ConfigurationReportTests {
    let folder: ConfigurationFolder

    init() throws { folder = try ConfigurationFolder() }

    @Test("Every setting is reported with its value and its source")
    func describe() throws {
        let configuration = try folder.load(
            "http:\n  host: localhost\nadmin: {token: abcdefghijklmnop}",
            variables: ["PUSHCHAT_APPS_DEFAULT_TOPIC": "a.b"],
            flags: [ConfigurationFlag("http.port", "1", name: "--port")])
        let reports = configuration.describe()
        #expect(reports.count == SettingsTable.relay.count + SettingsTable.app.count)
        for expected in [
            SettingReport(setting: "environment", value: "development", source: "default"),
            SettingReport(setting: "http.host", value: "localhost", source: "pushchat.yaml:2"),
            SettingReport(setting: "http.port", value: "1", source: "--port"),
            SettingReport(setting: "http.certificate", value: nil, source: "default"),
            SettingReport(setting: "http.rate_per_member", value: "off", source: "default"),
            SettingReport(setting: "database.path", value: folder.path + "/pushchat.db", source: "default"),
            SettingReport(setting: "admin.token", value: "(secret)", source: "pushchat.yaml:3"),
            SettingReport(setting: "messages.retention", value: "30 days", source: "default"),
            SettingReport(setting: "apps.default.topic", value: "a.b", source: "PUSHCHAT_APPS_DEFAULT_TOPIC"),
            SettingReport(setting: "apps.default.feedback_interval", value: "1 hour", source: "default"),
        ] {
            #expect(reports.contains(expected), "\(expected)")
        }
    }

    @Test("A report is a row of a table, or an object that always has the same members")
    func forms() throws {
        let settings = try folder.load("push: {sound: \"a b\"}").describe()
        let sound = try #require(settings.first { $0.setting == "push.sound" })
        #expect(sound.row == ["push.sound", "a b", "pushchat.yaml:1"])
        #expect(
            sound.json.description == #"{"setting":"push.sound","value":"a b","source":"pushchat.yaml:1"}"#)
        let topic = try #require(settings.first { $0.setting == "apps.default.topic" })
        #expect(topic.row == ["apps.default.topic", "-", "default"])
        #expect(topic.json.description == #"{"setting":"apps.default.topic","value":null,"source":"default"}"#)
        #expect(settings.allSatisfy { $0.row.count == SettingReport.header.count })
    }

    @Test("A report that is written to a file gives the same configuration")
    func roundTrip() throws {
        let configuration = try folder.load(
            """
            environment: production
            http: {rate_per_address: 7/h, trusted_proxies: [127.0.0.1, "::1"]}
            push: {sound: none, expiration: 90s}
            queue: {retention: 1h 30m}
            apps: {default: {feedback_interval: off}}
            """)
        let flags = configuration.describe().compactMap { report in
            report.value.map { ConfigurationFlag(report.setting, $0, name: report.setting) }
        }
        try folder.write("", to: "pushchat.yaml")
        let again = try folder.load(flags: flags)
        #expect(configuration.changes(to: again) == [])
        #expect(again.http == configuration.http)
        #expect(again.push == configuration.push)
        #expect(again.apps == configuration.apps)
    }

    @Test("Changes are listed with whether SIGHUP suffices")
    func changes() throws {
        let old = try folder.load("apps: {default: {topic: a}, gone: {}}")
        #expect(old.changes(to: old) == [])
        let new = try folder.load(
            """
            http: {port: 1}
            admin: {token: abcdefghijklmnop}
            log: {level: debug}
            apps: {default: {topic: b}, came: {}}
            """)
        #expect(
            old.changes(to: new) == [
                SettingChange(setting: "http.port", needsRestart: true),
                SettingChange(setting: "admin.token", needsRestart: false),
                SettingChange(setting: "log.level", needsRestart: false),
                SettingChange(setting: "apps.default.topic", needsRestart: false),
                SettingChange(setting: "apps.gone", needsRestart: false),
                SettingChange(setting: "apps.came", needsRestart: false),
            ])
    }

    @Test("Another default app is a change")
    func defaultAppChanges() throws {
        let old = try folder.load("apps: {a: {}, b: {}}")
        let new = try folder.load("apps: {b: {}, a: {}}")
        #expect(old.changes(to: new) == [SettingChange(setting: "apps: the default app", needsRestart: false)])
    }

    @Test("The app named default is renamed only at a start, which moves its data to the new name")
    func defaultIsRenamed() throws {
        let old = try folder.load("apps: {default: {}, b: {}}")
        let new = try folder.load("apps: {b: {topic: t}, c: {}}")
        #expect(
            old.changes(to: new) == [
                SettingChange(setting: "apps.b.topic", needsRestart: false),
                SettingChange(setting: "apps.default", needsRestart: true),
                SettingChange(setting: "apps.c", needsRestart: false),
                SettingChange(setting: "apps: the default app", needsRestart: true),
            ])
        let result = old.adopting(new)
        #expect(result.apps.map(\.name.text) == ["b", "c", "default"])
        #expect(result.defaultApp == .default)
        #expect(result.app(AppName("b"))?.topic == "t")
        // The change back also needs no restart if the other app was the default at the start.
        #expect(new.changes(to: old).filter(\.needsRestart) == [])
        #expect(new.adopting(old).defaultApp == .default)
    }

    @Test("The reference has a row for each setting with its actual default")
    func markdown() throws {
        let lines = SettingsTable.markdown().split(separator: "\n").map(String.init)
        #expect(lines.count == 2 + SettingsTable.relay.count + SettingsTable.app.count)
        #expect(lines.allSatisfy { $0.hasPrefix("| ") && $0.hasSuffix(" |") })
        #expect(lines.allSatisfy { $0.components(separatedBy: " | ").count == 4 })
        for expected in [
            "| `environment` (restart) | `development` | ",
            "| `http.host` (restart) | `127.0.0.1` in development, `0.0.0.0` in production | ",
            "| `http.port` (restart) | `44447` | ", "| `admin.token` or `admin.token_file` | none | ",
            "| `push.text_limit` | `1000` | ", "| `messages.retention` | `30 days` | ",
            "| `apps.NAME.host` | `api.sandbox.push.apple.com` in development, `api.push.apple.com` in",
            "| `apps.NAME.feedback_interval` | `1 hour` | ",
        ] {
            #expect(lines.contains { $0.hasPrefix(expected) }, "\(expected)")
        }
    }

    @Test("No two settings share a key or a variable")
    func unique() {
        let keys = SettingName.relay.map(\.text)
        #expect(Set(keys).count == keys.count)
        #expect(Set(keys.map(SettingName.variable)).count == keys.count)
        let appKeys = SettingName.app.map(\.text)
        #expect(Set(appKeys).count == appKeys.count)
    }

    @Test("A running relay adopts the changes that it can, and keeps settings that need a restart")
    func adopting() throws {
        var old = Configuration(environment: .development)
        old.apps = ["news", "mail"].map { AppConfiguration(name: AppName($0), environment: .development) }
        var new = Configuration(environment: .production)
        new.push.sound = "beep.caf"
        new.http.port = 1
        new.apps = ["mail", "default"].map { AppConfiguration(name: AppName($0), environment: .production) }
        new.apps[0].certificate = "/mail.pem"
        new.apps[0].payloadLimit = 256
        let result = old.adopting(new)
        #expect(result.push.sound == "beep.caf")
        #expect(result.http.port == 44447)
        #expect(result.environment == .development)
        #expect(result.apps == new.apps)
        #expect(result.defaultApp == .default)
        let rest = result.changes(to: new).filter { !$0.needsRestart }
        #expect(rest == [])
    }

    @Test("An app whose protocol or protocol settings change gets another gateway")
    func otherGateway() throws {
        var old = Configuration(environment: .development)
        old.apps[0].certificate = "/old.pem"
        var new = Configuration(environment: .development)
        new.apps[0] = AppConfiguration(name: .default, environment: .development, gateway: .binary)
        new.apps[0].certificate = "/new.pem"
        #expect(old.adopting(new).apps == new.apps)
        #expect(old.changes(to: new).contains(SettingChange(setting: "apps.default.gateway", needsRestart: false)))
        #expect(!old.apps[0].hasGateway(of: new.apps[0]))
        var renewed = old.apps[0]
        (renewed.certificate, renewed.host, renewed.topic) = ("/renewed.pem", "localhost", "a.b")
        #expect(old.apps[0].hasGateway(of: renewed))
        for change: (inout AppConfiguration) -> Void in [
            { $0.connections += 1 }, { $0.androidMessages = .notification }, { $0.androidChannel = "chat" },
            { $0.payloadLimit -= 1 }, { $0.command = 1 }, { $0.settleTime = .seconds(7) },
            { $0.answerTimeout = .seconds(7) },
        ] {
            var changed = renewed
            change(&changed)
            #expect(!old.apps[0].hasGateway(of: changed))
        }
    }
}
