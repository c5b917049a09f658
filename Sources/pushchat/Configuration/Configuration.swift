import ChatDomain
import ChatHTTP
import Logging

// This file declares every setting: its default at the property, and its name, kind, check and description in the
// table. To add a setting, add a property and a row.

/// The relay's checked settings, with their defaults.
struct Configuration: Sendable {
    /// Selects Apple's gateways and a block of the file. The default is `development`, which listens on loopback only,
    /// so that no relay is open to others by accident.
    enum Environment: String, Sendable, CaseIterable {
        case development, production

        /// The part of Apple's host names that selects the environment.
        var ofApple: String { self == .development ? ".sandbox" : "" }
    }

    /// The clients that may register devices and join rooms: all, or those with a token that the operator's own system
    /// has signed.
    enum Registration: String, Sendable, CaseIterable {
        case open, session
    }

    /// Whether the relay stores the versions, systems and models that apps report, and when devices were last seen.
    enum Analytics: String, Sendable, CaseIterable {
        case on, off
    }

    struct HTTP: Sendable, Equatable {
        var host: String
        var port = 44447
        /// The path of a PEM file. `nil` for plain HTTP.
        var certificate: String?
        /// The path of a PEM file. `nil` if the certificate's file contains the key.
        var key: String?
        /// Addresses and networks in CIDR notation.
        var trustedProxies: [String] = []
        /// `nil` for no limit.
        var ratePerAddress: RequestRate?
        var ratePerMember: RequestRate?
        /// The address at which browsers reach the relay: `https://…`, without a slash at the end.
        var publicURL: String?
        /// The limit for joins to rooms without members. `nil` for no limit.
        var joinsPerAddress: RequestRate?

        /// ``publicURL`` if it uses HTTPS. `nil` otherwise, because only this machine can use an address with plain
        /// HTTP.
        var secureURL: String? { publicURL.flatMap { $0.hasPrefix("https://") ? $0 : nil } }

        /// The paths of the files for TLS. `nil` for plain HTTP.
        var tls: (certificate: String, key: String)? {
            certificate.map { ($0, key ?? $0) }
        }
    }

    struct Database: Sendable, Equatable {
        /// The SQLite file. With ``url``, the relay keeps its own files next to this path.
        var path = "pushchat.db"
        /// The URL of a PostgreSQL database. `nil` for SQLite.
        var url: Secret?
        /// The schema of the relay's tables. `nil` for the schema in which the server creates the user's tables.
        var schema: String?
        var connections = 8
    }

    struct Admin: Sendable, Equatable {
        /// The valid tokens. There are several while the operator replaces one.
        var tokens: [Secret] = []
    }

    /// The keys and rules that verify session tokens. A token is valid if any of the keys verifies it.
    struct Session: Sendable, Equatable {
        var secret: Secret?
        var key: String?
        var keySet: String?
        var audience: String?
        var issuer: String?
        var credentialLifetime: Duration = .days(30)

        var hasKeys: Bool { secret != nil || key != nil || keySet != nil }
    }

    struct Push: Sendable, Equatable {
        /// `nil` for no sound.
        var sound: String? = "default"
        /// `nil` if messages never expire.
        var expiration: Duration?
        /// `mailto:…` or `https://…`.
        var contact: String?
    }

    /// Settings of pushes to browsers.
    struct WebPush: Sendable, Equatable {
        /// Each is `host` or `host:port`.
        var hosts: [String] = []
        /// The path of a PEM file.
        var trust: String?
    }

    /// Settings for ntfy's apps.
    struct Ntfy: Sendable, Equatable {
        enum UnifiedPush: String, Sendable, CaseIterable {
            case on, off
        }

        /// The address of the relay as users type it into ntfy's apps, without a slash at the end. `nil` for
        /// ``Configuration/ntfyBaseURL``'s default.
        var baseURL: String?
        /// The server that wakes ntfy's app on iPhones, without a slash at the end. `nil` for none.
        var upstream: String?
        var upstreamToken: Secret?
        var unifiedPush = UnifiedPush.off
    }

    /// Settings of webhooks.
    struct Webhooks: Sendable, Equatable {
        /// Receivers that may be in the operator's own network. Each is `host` or `host:port`.
        var hosts: [String] = []
        var retention: Duration = .days(7)
    }

    struct Retention: Sendable, Equatable {
        var retention: Duration
    }

    struct Messages: Sendable, Equatable {
        var retention: Duration = .days(30)
        /// The history of rooms for which the operator has not chosen one.
        var history = RoomHistory.joined
    }

    struct Log: Sendable, Equatable {
        var format = LogFormat.text
        var level = Logger.Level.info
    }

    var environment: Environment
    var http: HTTP
    var database = Database()
    var admin = Admin()
    var registration = Registration.open
    var session = Session()
    var push = Push()
    /// Settings that only the HTTP server uses. Those that depend on other settings are set by ``LiveConfiguration``.
    var server = ChatHTTPSettings(textLimit: MessageText.roomyLimit)
    var webPush = WebPush()
    var ntfy = Ntfy()
    var messages = Messages()
    var queue = Retention(retention: .days(7))
    var moderation = Retention(retention: .days(365))
    var webhooks = Webhooks()
    var analytics = Analytics.on
    var log = Log()
    /// The apps in the order of the file. Never empty.
    var apps: [AppConfiguration]

    /// The absolute path of the file that was read. `nil` if there was none.
    var file: String?
    /// The sources of the settings that do not have their default value.
    var origins: [SettingKey: SettingOrigin] = [:]
    /// Secrets that the configuration file itself contains, including those that another source overrides.
    var secretsInFile: [SettingKey] = []
    /// The files from which secrets were read.
    var secretFiles: [(setting: SettingKey, path: String)] = []
    /// Warnings about a configuration file that was read although other users can write it.
    var warnings: [String] = []

    /// The defaults, with one app named `default`.
    init(environment: Environment) {
        self.environment = environment
        switch environment {
        case .development:
            http = HTTP(host: "127.0.0.1")
        case .production:
            // These limits are high enough for people, even many behind one address. They are too low for a script that
            // floods a room.
            http = HTTP(
                host: "0.0.0.0", ratePerAddress: RequestRate(count: 50, unit: .second, burst: 500),
                ratePerMember: RequestRate(count: 5, unit: .second, burst: 50),
                // Opening one's own rooms takes a few joins a day. Guessing codes takes thousands an hour.
                joinsPerAddress: RequestRate(count: 200, unit: .hour, burst: 100))
        }
        apps = [AppConfiguration(name: .default, environment: environment)]
    }

    /// The app of members that send no `appid`: the one named `default`, or else the first in the file. An app of
    /// ``tokenApps`` is only chosen if there is no other, because the tokens of its members identify it.
    var defaultApp: AppName {
        if apps.contains(where: { $0.name == .default }) { return .default }
        return (apps.first { $0.gatewayKind.tokens == .bytes } ?? apps[0]).name
    }

    /// The first app for each kind of tokens that identify their app.
    var tokenApps: [TokenKind: AppName] {
        let apps = apps.map { ($0.gatewayKind.tokens, $0.name) }.filter { $0.0 != .bytes }
        return Dictionary(apps, uniquingKeysWith: { first, _ in first })
    }

    /// Whether requests can come only from this machine: in development, on loopback, with no proxy that forwards
    /// requests from elsewhere.
    var isLoopbackOnly: Bool {
        (http.host == "localhost" || http.host == "::1" || http.host.hasPrefix("127.")) && http.trustedProxies.isEmpty
            && environment == .development
    }

    /// The address of the relay as users type it into ntfy's apps, without a slash at the end. `nil` if unknown.
    var ntfyBaseURL: String? { ntfy.baseURL ?? http.publicURL.map { $0 + (server.ntfyAtRoot ? "" : "/ntfy") } }

    func app(_ name: AppName) -> AppConfiguration? {
        apps.first { $0.name == name }
    }
}

/// A text that must not be shown. Printed, interpolated or dumped, it reads `(secret)`.
struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    static let shown = "(secret)"

    let text: String

    init(_ text: String) {
        self.text = text
    }

    var description: String { Self.shown }
    var debugDescription: String { Self.shown }
    var customMirror: Mirror { Mirror(self, children: []) }
}

extension Duration {
    static func days(_ count: Int) -> Duration { .seconds(count * 86_400) }
    static func hours(_ count: Int) -> Duration { .seconds(count * 3600) }
}

/// Every setting. The keys of the file, the names of the variables, the checks, the output of `pushchat config` and the
/// table in docs/configuration.md are generated from this table.
enum SettingsTable {
    private typealias Relay = Setting<Configuration>

    /// Settings of the whole relay, in the order of the reference. The names are the paths of their keys.
    static let relay: [Setting<Configuration>] = [
        Relay(
            "environment", \.environment, .choice, needsRestart: true,
            "selects Apple's hosts, the defaults below, and the file's block of that name"),
        Relay("http.host", \.http.host, .host(example: "127.0.0.1"), needsRestart: true, "the address to listen on"),
        Relay(
            "http.port", \.http.port, .number(0...65_535), needsRestart: true,
            "the port to listen on; 0 for any free port"),
        Relay(
            "http.certificate", \.http.certificate, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the server's certificate with its chain; without it, the relay speaks plain HTTP, for a proxy"),
        Relay(
            "http.key", \.http.key, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the certificate's key, if it is in a separate file"),
        Relay(
            "http.trusted_proxies", \.http.trustedProxies, .addressRanges,
            "the proxies from which the relay accepts `Forwarded` and `X-Forwarded-For`"),
        Relay(
            "http.rate_per_address", \.http.ratePerAddress, SettingKind.rateLimit.optional(none: "off"),
            "the limit for requests from one address"),
        Relay(
            "http.rate_per_member", \.http.ratePerMember, SettingKind.rateLimit.optional(none: "off"),
            "the limit for requests of one udid"),
        Relay(
            "http.joins_per_address", \.http.joinsPerAddress, SettingKind.rateLimit.optional(none: "off"),
            "the limit for joins from one address to empty rooms"),
        Relay(
            "http.public_url", \.http.publicURL, SettingKind.publicURL.optional(),
            "the address at which browsers reach the relay, for links in notifications and invitations"),
        Relay(
            "http.ntfy_at_root", \.server.ntfyAtRoot, .onOrOff,
            "whether the paths of ntfy also exist without `/ntfy`, for clients whose server address has no path"),
        Relay(
            "http.gotify_at_root", \.server.gotifyAtRoot, .onOrOff,
            "the same for Gotify, without `/gotify`"),
        Relay(
            "database.path", \.database.path, .path, needsRestart: true,
            "the SQLite file; with `database.url`, the relay keeps its own files next to this path"),
        Relay(
            "database.url", \.database.url, SettingKind.postgres.optional(), isSecret: true, needsRestart: true,
            "the PostgreSQL database to use instead; several relays may share it"),
        Relay(
            "database.schema", \.database.schema, SettingKind.schema.optional(), needsRestart: true,
            "the schema of the relay's tables in PostgreSQL; unless set, the user's first one, usually `public`"),
        Relay(
            "database.connections", \.database.connections, .number(3...100), needsRestart: true,
            "the limit for connections to PostgreSQL; the relay opens one more to listen"),
        Relay(
            "admin.token", \.admin.tokens, .tokens, isSecret: true,
            "the bearer token of `/v1`, or several; without it, `/v1` accepts calls from this machine only, and in production none"
        ),
        Relay(
            "registration", \.registration, .choice,
            "the clients that may register devices and chat: `open` for all, `session` for those with a token that "
                + "your system signed"),
        Relay(
            "session.secret", \.session.secret, SettingKind.visibleASCII(shortest: 32).optional(), isSecret: true,
            "the secret that signs session tokens (HS256); `registration: session` requires this or one of the next two"
        ),
        Relay(
            "session.key", \.session.key, SettingKind.file("a PEM file").optional(),
            "the public key, or a certificate, that verifies session tokens (ES256, RS256)"),
        Relay(
            "session.jwks", \.session.keySet, SettingKind.file("a JSON file").optional(),
            "a JSON Web Key Set that verifies session tokens (HS256, ES256, RS256)"),
        Relay(
            "session.audience", \.session.audience, SettingKind.claim(example: "pushchat").optional(),
            "the `aud` that a session token must have; unless set, a token must have none"),
        Relay(
            "session.issuer", \.session.issuer, SettingKind.claim(example: "https://example.com").optional(),
            "the `iss` that a session token must have; unless set, any or none is valid"),
        Relay(
            "session.credential_lifetime", \.session.credentialLifetime, .retention,
            "the time for which a member's credential for another app is valid after the member's last call with a session token"
        ),
        Relay(
            // The limit of 100 bytes leaves room for a text in a payload of 256 bytes.
            "push.sound", \.push.sound,
            SettingKind.printable("the name of a sound file, at most 100 bytes, for example `beep.caf`", limit: 100)
                .optional(none: "none"),
            "the sound of chat messages: a sound file in the app, or `default`"),
        Relay(
            "push.text_limit", \.server.textLimit, .number(1...MessageText.highestLimit, unit: "bytes"),
            "the limit for a chat message; unless set, 190 if an app uses `binary`"),
        Relay(
            "push.expiration", \.push.expiration,
            SettingKind.duration(.seconds(60) ... .days(365), example: "1 day").optional(none: "none"),
            "the time after which an undelivered chat message expires, in the relay and at Apple"),
        Relay(
            "push.contact", \.push.contact, SettingKind.contact.optional(),
            "your address for operators of browsers' push services; unless set, `http.public_url` if it uses HTTPS. Apple requires one of the two"
        ),
        Relay(
            "webpush.hosts", \.webPush.hosts, .pushHosts,
            "push services besides those of the browser vendors, such as for UnifiedPush; they may be in your own network"
        ),
        Relay(
            "webpush.trust", \.webPush.trust, SettingKind.file("a PEM file").optional(),
            "additional certificate authorities to trust for push services"),
        Relay(
            "ntfy.base_url", \.ntfy.baseURL, SettingKind.serverURL(example: "https://chat.example.org/ntfy").optional(),
            "the address of the relay as users type it into ntfy's apps; unless set, `http.public_url`, followed by `/ntfy` without `http.ntfy_at_root`"
        ),
        Relay(
            "ntfy.upstream", \.ntfy.upstream,
            SettingKind.serverURL(example: "https://ntfy.sh").optional(none: "off"),
            "the ntfy server that tells ntfy's app on iPhones about new messages; requires `ntfy.base_url` or "
                + "`http.public_url`"),
        Relay(
            "ntfy.upstream_token", \.ntfy.upstreamToken,
            SettingKind.visibleASCII(shortest: 8, example: "`tk_…`").optional(), isSecret: true,
            "the access token for `ntfy.upstream`, if you have an account there"),
        Relay(
            "ntfy.unifiedpush", \.ntfy.unifiedPush, .choice,
            "whether ntfy's app for Android can be the UnifiedPush distributor of other apps; their pushes need no token"
        ),
        Relay("messages.retention", \.messages.retention, .retention, "the time for which chat messages are kept"),
        Relay(
            "messages.history", \.messages.history, .choice,
            "the messages that new members may read: those since they joined, or all that are kept; `pushchat rooms history` sets it for one room"
        ),
        Relay(
            "queue.retention", \.queue.retention, .retention,
            "the time for which pushes are kept after they were sent or rejected"),
        Relay(
            "moderation.retention", \.moderation.retention, .retention,
            "the time for which ended bans and the record of moderation are kept"),
        Relay(
            "webhooks.hosts", \.webhooks.hosts, .webhookHosts,
            "receivers of webhooks that may be in your own network, or use plain HTTP"),
        Relay(
            "webhooks.retention", \.webhooks.retention, .retention,
            "the time for which events of webhooks are kept after their last attempt"),
        Relay(
            "analytics", \.analytics, .choice,
            "whether the relay stores which app versions, systems and models are in use, and when; `off` also deletes these"
        ),
        Relay(
            "log.format", \.log.format, .choice,
            "the format of the log on standard error"),
        Relay("log.level", \.log.level, .choice, "the least severe level that is logged"),
    ]
}
