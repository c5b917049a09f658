import APNSGateway
import ChatDomain
import ChatHTTP
import Synchronization

/// The configuration in force, in the forms that other parts of the relay need. A reload replaces it.
final class LiveConfiguration: ConfigurationInForce {
    private struct Values: Sendable {
        var configuration: Configuration
        var threads: RoomThreads?
        var http: ChatHTTPSettings
        var store: StoreSettings
        var apps: AppDirectory
        var sessions: (any SessionVerifier)?
    }

    private let values: Mutex<Values>

    init(_ configuration: Configuration) {
        values = Mutex(Self.derive(configuration, threads: nil, topics: [:], sessions: nil))
    }

    var current: Configuration { values.withLock { $0.configuration } }
    var settings: ChatHTTPSettings { values.withLock { $0.http } }
    var storeSettings: StoreSettings { values.withLock { $0.store } }
    var sessions: (any SessionVerifier)? { values.withLock { $0.sessions } }

    func app(named appID: String?) throws(ChatError) -> AppName { try values.withLock { $0.apps }.resolve(appID) }
    func app(like app: AppName, in environment: AppEnvironment) throws(ChatError) -> AppName {
        try values.withLock { $0.apps }.resolve(like: app, in: environment)
    }
    func format(of app: AppName) -> any PushFormat { storeSettings.format(app) }
    var tokenApps: [TokenKind: AppName] { storeSettings.tokenApps }

    func check(webhook url: String) throws(ChatError) {
        try current.webhookRules.check(webhook: url)
    }

    /// Uses `threads` to name the rooms of chat messages from now on. Called after the database is opened: the key for
    /// the names is in the database, but opening the database needs these settings.
    func nameRooms(by threads: RoomThreads) {
        values.withLock { values in
            values.threads = threads
            values.store = Self.storeSettings(values.configuration, threads)
        }
    }

    /// Replaces the configuration.
    /// - Parameters:
    ///   - topics: The topics in the apps' certificates.
    ///   - sessions: Verifies session tokens. `nil` if clients may register without one.
    func replace(_ configuration: Configuration, topics: [AppName: String], sessions: (any SessionVerifier)?) {
        values.withLock { values in
            values = Self.derive(configuration, threads: values.threads, topics: topics, sessions: sessions)
        }
    }

    private static func derive(
        _ configuration: Configuration, threads: RoomThreads?, topics: [AppName: String],
        sessions: (any SessionVerifier)?
    ) -> Values {
        var http = configuration.server
        http.isDevelopment = configuration.environment == .development
        http.rejectsForeignPages = configuration.isLoopbackOnly
        http.trustedProxies = configuration.http.trustedProxies.compactMap { AddressRange($0) }
        http.addressRate = configuration.http.ratePerAddress.flatMap(RateLimit.init)
        http.memberRate = configuration.http.ratePerMember.flatMap(RateLimit.init)
        http.joinRate = configuration.http.joinsPerAddress.flatMap(RateLimit.init)
        http.publicURL = configuration.http.secureURL
        http.adminTokens = configuration.admin.tokens.map(\.text)
        http.ntfy = NtfySettings(
            baseURL: configuration.ntfyBaseURL, hasUpstream: configuration.ntfy.upstream != nil,
            unifiedPush: configuration.ntfy.unifiedPush == .on)
        return Values(
            configuration: configuration, threads: threads, http: http,
            store: storeSettings(configuration, threads),
            apps: AppDirectory(configuration, topics: topics), sessions: sessions)
    }

    private static func storeSettings(_ configuration: Configuration, _ threads: RoomThreads?) -> StoreSettings {
        let sound = configuration.push.sound
        var formats: [AppName: any PushFormat] = [.web: configuration.browserFormat]
        for app in configuration.apps { formats[app.name] = app.gatewayKind.format(sound: sound, threads: threads) }
        // For an app that is no longer configured, use the format with the smallest payload limit, which fits
        // everywhere.
        let smallest = configuration.apps.min { $0.payloadLimit < $1.payloadLimit } ?? configuration.apps[0]
        let other = smallest.gatewayKind.format(sound: sound, threads: threads)
        return StoreSettings(
            format: { [formats] in formats[$0] ?? other },
            expiration: configuration.push.expiration, history: configuration.messages.history,
            defaultApp: configuration.defaultApp,
            tokenApps: configuration.tokenApps,
            keepsUsage: configuration.analytics == .on,
            apps: Set(configuration.apps.map(\.name)).union([.web]),
            credentialLifetime: configuration.registration == .session
                ? configuration.session.credentialLifetime : nil)
    }
}

extension RateLimit {
    fileprivate init?(_ rate: RequestRate) {
        self.init(perSecond: rate.perSecond, burst: rate.burst)
    }
}

/// Finds the app that an `appid` means. An `appid` is an app's name in the configuration, its topic (the bundle id), or
/// the topic behind a team id, as clients of the tutorials send it (`98Z3R5XU29.com.example.PushChat`).
struct AppDirectory: Sendable {
    /// The maximum size of an `appid` in bytes.
    private static let maxSize = 255

    private let defaultApp: AppName
    private var apps: [String: AppName] = [AppName.web.text: .web]
    /// The configured apps in their order, with their topics.
    private let entries: [(name: AppName, topic: String?, environment: AppEnvironment)]

    /// - Parameter topics: The topics in the apps' certificates, for apps whose configuration has no topic.
    init(_ configuration: Configuration, topics: [AppName: String]) {
        defaultApp = configuration.defaultApp
        entries = configuration.apps.map { ($0.name, $0.topic ?? topics[$0.name], $0.appEnvironment) }
        for app in configuration.apps {
            // If several apps have the same topic, for example builds for both environments, the first app has it.
            if let topic = app.topic ?? topics[app.name], apps[topic] == nil { apps[topic] = app.name }
        }
        // A name takes precedence over another app's topic.
        for app in configuration.apps { apps[app.name.text] = app.name }
    }

    func resolve(_ appid: String?) throws(ChatError) -> AppName {
        guard let appid, !appid.isEmpty else { return defaultApp }
        guard appid.utf8.count <= Self.maxSize else { throw .invalid("appid", "names no app of this relay") }
        if let app = apps[appid] { return app }
        if let dot = appid.firstIndex(of: "."), appid.distance(from: appid.startIndex, to: dot) == 10,
            let app = apps[String(appid[appid.index(after: dot)...])]
        {
            return app
        }
        throw .invalid("appid", "names no app of this relay")
    }

    /// Returns the app with the topic of `name` whose gateway serves an environment: `name` itself, or else the first.
    func resolve(like name: AppName, in environment: AppEnvironment) throws(ChatError) -> AppName {
        guard let app = entries.first(where: { $0.name == name }) else {
            throw .invalid("environment", "is for phones only")
        }
        if app.environment == environment { return name }
        if let topic = app.topic,
            let other = entries.first(where: { $0.topic == topic && $0.environment == environment })
        {
            return other.name
        }
        let topic = app.topic.map { "the topic \($0)" } ?? "the topic of \(name)"
        throw .invalid("environment", "names no app of this relay: none with \(topic) has a host of \(environment)")
    }
}

extension AppConfiguration {
    /// The environment that the gateway's host serves. All hosts except Apple's for production count as sandboxes.
    fileprivate var appEnvironment: AppEnvironment {
        let host = host.lowercased()
        let isSandbox =
            !host.hasSuffix(".push.apple.com") || host.contains(".sandbox.") || host.contains(".development.")
        return isSandbox ? .sandbox : .production
    }
}
