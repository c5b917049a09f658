import ChatDomain
import ChatHTTP
import FCMGateway
import Logging

// This file declares every setting: its default at the property, and its name, kind, check and description in the
// table. To add a setting, add a property and a row.

/// The relay's checked settings, with their defaults.
struct Configuration: Sendable {
    /// Selects Apple's gateways and a block of the file. The default is `development`, which listens on loopback only,
    /// so that no relay is open to others by accident.
    enum Environment: String, Sendable, CaseIterable {
        case development, production
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
        return (apps.first { $0.gateway.tokens == .bytes } ?? apps[0]).name
    }

    /// The first app for each kind of tokens that identify their app.
    var tokenApps: [TokenKind: AppName] {
        let apps = apps.map { ($0.gateway.tokens, $0.name) }.filter { $0.0 != .bytes }
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

/// One app: its topic, its gateway and its credentials for that gateway.
struct AppConfiguration: Sendable, Equatable {
    /// Apple's two protocols, and Google's.
    enum Gateway: String, Sendable, CaseIterable {
        case binary, http2, fcm

        var tokens: TokenKind { self == .fcm ? .installation : .bytes }
    }

    let name: AppName
    var gateway: Gateway
    /// `nil` for the certificate's topic. Required with a key, because a key has no topic.
    var topic: String?
    var host: String
    var port: Int
    /// The host of broadcasts. The port is ``port``.
    var broadcastHost: String
    /// The host and port that manage broadcast channels.
    var channelsHost: String
    var channelsPort: Int
    var feedbackHost: String
    var feedbackPort: Int
    /// `nil` if the relay does not read the feedback service.
    var feedbackInterval: Duration? = .hours(1)
    /// The path of a PEM or PKCS#12 file.
    var certificate: String?
    /// The path of a PEM file. `nil` if the certificate's file contains the key.
    var certificateKey: String?
    var passphrase: Secret?
    /// The path of the `.p8` file with the key that signs provider tokens.
    var key: String?
    /// Ten letters and digits that Apple assigns.
    var keyID: String?
    var teamID: String?
    /// The path of the JSON file with a service account of Google's.
    var serviceAccount: String?
    /// The way in which Android phones show messages, with `fcm`.
    var androidMessages = FCMFormat.Kind.data
    /// The notification channel in the Android app. `nil` for the app's default.
    var androidChannel: String?
    /// The path of a PEM file.
    var trust: String?
    var connections = 2
    /// The limit in bytes.
    var payloadLimit: Int
    var command = 2
    /// Whether chat messages show the number of unread messages, with `http2`.
    var badge = true
    /// The optional fields that chat messages do not have, with `http2`.
    var leftOut: [String] = []
    var settleTime: Duration = .seconds(5)
    var answerTimeout: Duration = .seconds(30)

    /// The defaults: Apple's hosts, ports and payload limits.
    ///
    /// Source: developer.apple.com, "Sending notification requests to APNs", as of November 2026; for `binary` the last
    /// edition, of 2018, of "Local and Remote Notification Programming Guide".
    init(name: AppName, environment: Configuration.Environment, gateway: Gateway = .http2) {
        self.name = name
        self.gateway = gateway
        let part = environment == .development ? ".sandbox" : ""
        switch gateway {
        case .binary:
            host = "gateway\(part).push.apple.com"
            port = 2195
            payloadLimit = 2048
        case .http2:
            host = "api\(part).push.apple.com"
            port = 443
            payloadLimit = 4096
        case .fcm:
            host = "fcm.googleapis.com"
            port = 443
            payloadLimit = FCMFormat.payloadLimit
        }
        broadcastHost = host
        channelsHost = "api-manage-broadcast\(part).push.apple.com"
        channelsPort = environment == .development ? 2195 : 2196
        feedbackHost = "feedback\(part).push.apple.com"
        feedbackPort = 2196
    }

    /// Whether a gateway that runs with this configuration can continue with `other`. The settings that are not
    /// compared apply to new connections.
    func hasGateway(of other: AppConfiguration) -> Bool {
        gateway == other.gateway && connections == other.connections && payloadLimit == other.payloadLimit
            && command == other.command && settleTime == other.settleTime && answerTimeout == other.answerTimeout
            && androidMessages == other.androidMessages && androidChannel == other.androidChannel
    }

    /// Whether the app uses Apple's gateway with the binary protocol.
    ///
    /// Apple stopped supporting that protocol on 2021-03-31 (Apple, News, 9 October 2020).
    var isRetired: Bool { gateway == .binary && host.hasSuffix(".push.apple.com") }
    static let retirement =
        "Apple has not supported the binary protocol since 2021-03-31, so no push will be delivered; use http2"

    /// Whether the app has credentials that its gateway can use. Without them, pushes are queued and not sent.
    var hasCredentials: Bool {
        switch gateway {
        case .binary: certificate != nil
        case .http2: certificate != nil || key != nil
        case .fcm: serviceAccount != nil
        }
    }
    /// Whether nothing is configured for the app, as on a relay that serves only browsers.
    var isForBrowsersOnly: Bool {
        gateway == .http2 && !hasCredentials && topic == nil && keyID == nil && teamID == nil
    }
    static let onlyBrowsers = "no certificate and no key: only browsers get pushes"
    var noCredentials: String {
        let missing = gateway == .fcm ? "no service_account" : "no certificate and no key"
        return "\(missing): messages are accepted and queued; they are sent when one is configured"
    }
    /// The setting that names the app's credentials, for messages.
    var credentialName: String { gateway == .fcm ? "service account" : key == nil ? "certificate" : "key" }

    /// The first rule that the combination of settings breaks, as the setting to report and the message about it.
    var contradiction: (setting: String, message: String)? {
        if gateway == .fcm, serviceAccount == nil, certificate != nil || key != nil {
            return (key == nil ? "certificate" : "key", "is for Apple's gateways; `fcm` requires service_account")
        }
        if gateway != .fcm, serviceAccount != nil, certificate == nil, key == nil {
            return ("service_account", "is for Google's gateway; set `gateway: fcm`")
        }
        guard key != nil else { return nil }
        let message: String? =
            switch gateway {
            case .fcm: nil
            case .binary where certificate == nil:
                "is a provider token key (.p8), which only the gateway http2 accepts; set `gateway: http2` or a "
                    + "`certificate`, or remove `key`"
            case .binary: nil
            case .http2 where keyID == nil:
                "requires key_id: the ten letters and digits in the name of the file from Apple"
            case .http2 where teamID == nil:
                "requires team_id: Apple shows it under Membership in the developer account"
            case .http2 where topic == nil:
                "requires topic: the app's bundle id, for example com.example.PushChat"
            case .http2: nil
            }
        return message.map { ("key", $0) }
    }

    /// The key id in the name that Apple gives to the file of a key, `AuthKey_ABC123DEFG.p8`. `nil` if the file has
    /// another name.
    static func keyID(ofFile path: String) -> String? {
        let name = path.split(separator: "/").last ?? ""
        guard name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else { return nil }
        let id = name.dropFirst("AuthKey_".count).dropLast(".p8".count)
        return id.count == 10 ? String(id) : nil
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
    private typealias App = Setting<AppConfiguration>

    /// Settings of the whole relay, in the order of the reference. The names are the paths of their keys.
    static let relay: [Setting<Configuration>] = [
        Relay(
            "environment", \.environment, .choice, needsRestart: true,
            "selects Apple's sandbox or production hosts, the defaults below, and the file's block of that name"),
        Relay("http.host", \.http.host, .host(example: "127.0.0.1"), needsRestart: true, "the address to listen on"),
        Relay(
            "http.port", \.http.port, .number(0...65_535), needsRestart: true,
            "the port to listen on; 0 for any free port"),
        Relay(
            "http.certificate", \.http.certificate, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the server's certificate with its chain; without it, the relay speaks plain HTTP, for use behind a "
                + "proxy"),
        Relay(
            "http.key", \.http.key, SettingKind.file("a PEM file").optional(), needsRestart: true,
            "the certificate's key, if it is in a separate file"),
        Relay(
            "http.trusted_proxies", \.http.trustedProxies, .addressRanges,
            "the proxies from which the relay accepts `Forwarded` and `X-Forwarded-For`"),
        Relay(
            "http.rate_per_address", \.http.ratePerAddress, SettingKind.rateLimit.optional(none: "off"),
            "the limit for requests from one address; above it, the response is 429"),
        Relay(
            "http.rate_per_member", \.http.ratePerMember, SettingKind.rateLimit.optional(none: "off"),
            "the limit for requests of one udid; above it, the response is 429"),
        Relay(
            "http.joins_per_address", \.http.joinsPerAddress, SettingKind.rateLimit.optional(none: "off"),
            "the limit for joins from one address to empty rooms, which may be guesses of a code; above it, the "
                + "response to every join is 429"),
        Relay(
            "http.public_url", \.http.publicURL, SettingKind.publicURL.optional(),
            "the address at which browsers reach the relay: notifications and invitations link to it, Safari shows "
                + "notifications without a service worker, and `pushchat check` tests it"),
        Relay(
            "http.ntfy_at_root", \.server.ntfyAtRoot, .onOrOff,
            "whether the paths of ntfy, such as `/TOPIC/json`, also exist without `/ntfy`, for clients whose server "
                + "address has no path"),
        Relay(
            "http.gotify_at_root", \.server.gotifyAtRoot, .onOrOff,
            "whether the paths of Gotify, such as `/message`, also exist without `/gotify`, for clients whose server "
                + "address has no path"),
        Relay(
            "database.path", \.database.path, .path, needsRestart: true,
            "the SQLite file; the relay creates it if it does not exist. With `database.url`, the relay keeps its own "
                + "files next to this path"),
        Relay(
            "database.url", \.database.url, SettingKind.postgres.optional(), isSecret: true, needsRestart: true,
            "the PostgreSQL database to use instead; several relays may share it"),
        Relay(
            "database.schema", \.database.schema, SettingKind.schema.optional(), needsRestart: true,
            "the schema of the relay's tables in PostgreSQL; the relay creates it if it does not exist. Unless set, "
                + "the user's first schema, usually `public`"),
        Relay(
            "database.connections", \.database.connections, .number(3...100), needsRestart: true,
            "the maximum number of connections to PostgreSQL; the relay opens one more to listen"),
        Relay(
            "admin.token", \.admin.tokens, .tokens, isSecret: true,
            "the bearer token of `/v1`, or several equally valid ones; without it, `/v1` accepts calls from this "
                + "machine only, and in production none"),
        Relay(
            "registration", \.registration, .choice,
            "the clients that may register devices and chat: `open` for all, `session` for those with a token that "
                + "your system signed"),
        Relay(
            "session.secret", \.session.secret, SettingKind.visibleASCII(shortest: 32).optional(), isSecret: true,
            "the secret that signs session tokens (HS256); `registration: session` requires at least one of this and "
                + "the next two"),
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
            "the time for which a member's credential for another app is valid after the member's last call with a "
                + "session token, with `registration: session`"),
        Relay(
            // The limit of 100 bytes leaves room for a text in a payload of 256 bytes.
            "push.sound", \.push.sound,
            SettingKind.printable("the name of a sound file, at most 100 bytes, for example `beep.caf`", limit: 100)
                .optional(none: "none"),
            "the sound of chat messages: a sound file in the app, or `default`"),
        Relay(
            "push.text_limit", \.server.textLimit, .number(1...MessageText.highestLimit, unit: "bytes"),
            "the maximum length of a chat message; unless set, 190 if an app uses `binary`"),
        Relay(
            "push.expiration", \.push.expiration,
            SettingKind.duration(.seconds(60) ... .days(365), example: "1 day").optional(none: "none"),
            "the time after which an undelivered chat message expires, in the relay and at Apple"),
        Relay(
            "push.contact", \.push.contact, SettingKind.contact.optional(),
            "the address at which operators of browsers' push services can reach you; unless set, `http.public_url` if "
                + "it uses HTTPS. Apple's service requires one of the two"),
        Relay(
            "webpush.hosts", \.webPush.hosts, .pushHosts,
            "push services besides those of the browser vendors, for example for UnifiedPush; they may be in your own "
                + "network"),
        Relay(
            "webpush.trust", \.webPush.trust, SettingKind.file("a PEM file").optional(),
            "certificate authorities to trust for push services besides the system's, for example a sandbox's"),
        Relay(
            "ntfy.base_url", \.ntfy.baseURL, SettingKind.serverURL(example: "https://chat.example.org/ntfy").optional(),
            "the address of the relay as users type it into ntfy's apps; unless set, `http.public_url` followed by "
                + "`/ntfy`, or alone with `http.ntfy_at_root`"),
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
            "whether ntfy's app for Android can be the UnifiedPush distributor of other apps: the relay then accepts "
                + "their pushes without a token"),
        Relay("messages.retention", \.messages.retention, .retention, "the time for which chat messages are kept"),
        Relay(
            "messages.history", \.messages.history, .choice,
            "the messages that members may read if they join from then on: those since they joined (`joined`), or all "
                + "that are kept (`all`); `pushchat rooms history` sets it for one room"),
        Relay(
            "queue.retention", \.queue.retention, .retention,
            "the time for which pushes are kept after they were sent or rejected"),
        Relay(
            "moderation.retention", \.moderation.retention, .retention,
            "the time for which ended bans and the record of moderation are kept"),
        Relay(
            "analytics", \.analytics, .choice,
            "whether the relay stores which app versions, systems and models are in use, and when; `off` also deletes "
                + "what it has stored"),
        Relay(
            "log.format", \.log.format, .choice,
            "the format of the log on standard error: `text` for people, `json` for programs"),
        Relay("log.level", \.log.level, .choice, "the least severe level that is logged"),
    ]

    /// Settings of each app, named by their key inside `apps.NAME`. `gateway` is first because the defaults of other
    /// settings depend on it.
    static let app: [Setting<AppConfiguration>] = [
        App(
            "gateway", \.gateway, .choice,
            "`http2` for Apple's protocol, `binary` for the one that Apple stopped supporting in 2021, or `fcm` for "
                + "Android apps through Google"),
        App(
            "topic", \.topic, SettingKind.bundleID.optional(),
            "the app's bundle id; unless set, the one in the certificate. A `key` requires it"),
        App(
            "host", \.host, .host(example: "api.push.apple.com"),
            "the gateway's host; the default with `binary` is Apple's binary gateway"),
        App("port", \.port, .number(1...65_535), "the gateway's port; the default with `binary` is 2195"),
        App(
            "service_account", \.serviceAccount, SettingKind.file("a JSON file").optional(),
            "the service account of the Firebase project, with `fcm`; without it, pushes are queued and not sent"),
        App(
            "android_messages", \.androidMessages, .choice,
            "with `fcm`: `data`, which the app shows itself, or `notification`, which Google's library shows while "
                + "the app is in the background"),
        App(
            "android_channel", \.androidChannel,
            SettingKind.printable("the id of a notification channel, at most 100 bytes", limit: 100).optional(),
            "the notification channel in the Android app, with `android_messages: notification`; unless set, the "
                + "app's default"),
        App(
            "broadcast_host", \.broadcastHost, .host(example: "api-broadcast.push.apple.com"),
            "the host of broadcasts to Live Activities, with `http2`; its port is `port`. Unless set, the value of "
                + "`host`"
        ),
        App(
            "channels_host", \.channelsHost, .host(example: "api-manage-broadcast.push.apple.com"),
            "the host that manages broadcast channels, with `http2`; unless set, the value of `host` if that is set"),
        App("channels_port", \.channelsPort, .number(1...65_535), "the port that manages broadcast channels"),
        App(
            "feedback_host", \.feedbackHost, .host(example: "feedback.push.apple.com"),
            "the host of the feedback service; unless set, the value of `host` if that is set"),
        App("feedback_port", \.feedbackPort, .number(1...65_535), "the port of the feedback service"),
        App(
            "feedback_interval", \.feedbackInterval,
            SettingKind.duration(.seconds(1) ... .days(7), example: "1 hour").optional(none: "off"),
            "the interval at which the relay reads the feedback service, with `binary`"),
        App(
            "certificate", \.certificate, SettingKind.file("a PEM or PKCS#12 file").optional(),
            "the client certificate; without it and without `key`, pushes are queued and not sent"),
        App(
            "certificate_key", \.certificateKey, SettingKind.file("a PEM file").optional(),
            "the certificate's key, if it is in a separate file"),
        App(
            "passphrase", \.passphrase, SettingKind.passphrase.optional(), isSecret: true,
            "the passphrase of the key or of the PKCS#12 file"),
        App(
            "key", \.key, SettingKind.file("a .p8 file").optional(),
            "the key that signs provider tokens, for `http2`; if set, the relay uses it instead of `certificate`"),
        App(
            "key_id", \.keyID, SettingKind.appleID(example: "ABC123DEFG").optional(),
            "the key's id; unless set, the one in the file's name"),
        App(
            "team_id", \.teamID, SettingKind.appleID(example: "DEF123GHIJ").optional(),
            "the id of the team that owns the key"),
        App(
            "trust", \.trust, SettingKind.file("a PEM file").optional(),
            "certificate authorities to trust for the gateway besides the system's, for example a sandbox's"),
        App(
            "connections", \.connections, .number(1...64),
            "the number of connections to the gateway with `binary`, the maximum with `http2` and `fcm`"),
        App(
            "payload_limit", \.payloadLimit, .number(256...4096, unit: "bytes"),
            "the largest payload that the gateway accepts; the default with `binary` is 2048. Devices before iOS 8 "
                + "accept 256"),
        App(
            "badge", \.badge, .onOrOff,
            "whether chat messages set the number at the app's icon, with `http2`: the unread messages of a device that "
                + "has fetched messages since it joined"),
        App(
            "leave_out", \.leftOut, .chatFields,
            "the fields of `aps` that chat messages do not have, with `http2`"),
        App(
            "command", \.command, .number(0...2),
            "the command of the binary protocol; the gateway reports rejected pushes with 1 and 2, not with 0"),
        App(
            "settle", \.settleTime, .duration(.seconds(1) ... .seconds(60), example: "5s"),
            "the time for which the binary gateway must be silent before a push counts as accepted"),
        App(
            "answer_timeout", \.answerTimeout, .duration(.seconds(1) ... .seconds(300), example: "30s"),
            "the time in which the HTTP/2 gateway must respond to a push; after that, the relay retries it"),
    ]
}
