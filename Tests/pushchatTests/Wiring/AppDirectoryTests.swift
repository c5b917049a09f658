import ChatDomain
import ChatHTTP
import Testing

@testable import pushchat

@Suite("The app of an appid")
struct AppDirectoryTests {
    private static let topic = "com.example.PushChat"

    private func directory(_ apps: [(name: String, topic: String?)], certificates: [String: String] = [:])
        -> AppDirectory
    {
        var configuration = Configuration(environment: .development)
        configuration.apps = apps.map { name, topic in
            var app = AppConfiguration(name: AppName(name), environment: .development)
            app.topic = topic
            return app
        }
        return AppDirectory(
            configuration, topics: Dictionary(uniqueKeysWithValues: certificates.map { (AppName($0.key), $0.value) }))
    }

    @Test(
        "An appid is an app's name, its topic, or the topic behind a team id",
        arguments: ["chat", Self.topic, "98Z3R5XU29.\(Self.topic)"])
    func forms(appid: String) throws {
        #expect(try directory([("default", nil), ("chat", Self.topic)]).resolve(appid) == AppName("chat"))
    }

    @Test("If two apps share a topic, the first in the file has it; the other is selected by name")
    func shared() throws {
        let directory = directory([("default", Self.topic), ("debug", Self.topic)])
        #expect(try directory.resolve(Self.topic) == .default)
        #expect(try directory.resolve("debug") == AppName("debug"))
    }

    @Test("A name takes precedence over another app's topic; without a configured topic the certificate's counts")
    func precedence() throws {
        let named = directory([("a", "b"), ("b", "c")])
        #expect(try named.resolve("b") == AppName("b"))
        #expect(try directory([("a", nil)], certificates: ["a": "x.y"]).resolve("x.y") == AppName("a"))
    }

    @Test("Without an appid the default app is used; an unknown appid is an error", arguments: [nil, ""])
    func missing(appid: String?) throws {
        let directory = directory([("first", nil), ("second", nil)])
        #expect(try directory.resolve(appid) == AppName("first"))
        #expect(throws: ChatError.self) { try directory.resolve("third") }
    }

    @Test(
        "An environment selects the app with the topic whose gateway's host serves it",
        arguments: [
            ("store", AppEnvironment.sandbox, "debug"), ("store", .production, "store"), ("debug", .sandbox, "debug"),
            ("debug", .production, "store"), ("local", .sandbox, "local"), ("local", .production, nil),
            ("plain", .production, "plain"), ("plain", .sandbox, nil), ("old", .sandbox, "old"),
            ("webpush", .production, nil),
        ] as [(String, AppEnvironment, String?)])
    func environments(app: String, environment: AppEnvironment, expected: String?) {
        var configuration = Configuration(environment: .development)
        configuration.apps = [
            ("store", Self.topic, "api.push.apple.com"), ("debug", Self.topic, "api.sandbox.push.apple.com"),
            ("later", Self.topic, "API.development.push.apple.com"), ("local", "a.b", "localhost"),
            ("plain", nil, "gateway.push.apple.com"), ("old", "c.d", "gateway.sandbox.push.apple.com"),
        ].map { name, topic, host in
            var app = AppConfiguration(name: AppName(name), environment: .development)
            (app.topic, app.host) = (topic, host)
            return app
        }
        let directory = AppDirectory(configuration, topics: [:])
        do throws(ChatError) {
            #expect(try directory.resolve(like: AppName(app), in: environment).text == expected)
        } catch {
            #expect(expected == nil && error.field == "environment", "\(error)")
        }
    }
}
